package host

import (
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// Machine measures the machine as a whole, without its tasks. Rates are over the
// time since the last call.
func (h *Host) Machine() (schema.MachineUsage, error) { return h.room.measure(time.Now()) }

// Meter returns what measures an incarnation that has a cgroup with the given
// directories, if any; above is the pid of a process above all of the task's, which is
// not counted.
func (h *Host) Meter(dirs []string, above int) *Meter {
	return &Meter{dirs: dirs, above: above, disk: h.cgroups.disk != "", table: h.processes.now, sockets: h.sockets.now}
}

// Disk measures directories and deleted files of a task, see Measure, and asks the
// kernel where that counts: the larger is true.
func (h *Host) Disk(dirs []string, of nodeagent.Processes, limit int64) (nodeagent.DiskUse, error) {
	use, err := Measure(dirs, of, limit)
	var bytes, inodes int64
	for _, dir := range written(dirs) {
		b, i := h.quotas.use(dir)
		bytes, inodes = bytes+b, inodes+i
	}
	use.Bytes, use.Inodes = max(use.Bytes, bytes), max(use.Inodes, inodes)
	return use, err
}
