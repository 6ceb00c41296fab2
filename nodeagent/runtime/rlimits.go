package runtime

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// rlimits are the most that this machine gives each process.
type rlimits struct {
	files, core uint64
	// processes says that they are limited for each user namespace, in place of by
	// a cgroup.
	processes bool
}

// findRlimits finds out what limits there can be. namespaces says that tasks have
// some of their own.
func findRlimits(h *host.Host, namespaces bool, lacks *host.Lacks) (can rlimits, err error) {
	for resource, most := range map[int]*uint64{unix.RLIMIT_NOFILE: &can.files, unix.RLIMIT_CORE: &can.core} {
		var own unix.Rlimit
		if err := unix.Getrlimit(resource, &own); err != nil {
			return can, fmt.Errorf("find out what a process may have: %w", err)
		}
		if *most = own.Max; host.Holds(unix.CAP_SYS_RESOURCE) {
			*most = unix.RLIM_INFINITY
		}
	}
	b, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		return can, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return can, fmt.Errorf("fs.nr_open: %w", err)
	}
	can.files = min(can.files, n)
	counted := h.Cgroups().Has(host.Processes)
	can.processes = !counted && os.Geteuid() != 0 && namespaces && since(5, 14)
	if !counted && !can.processes {
		lacks.Task("a limit on processes", "no pids controller for cgroups, and no user namespaces that count processes (Linux 5.14, muster-agent without root): tasks run without a limit on processes")
	}
	return can, nil
}

// since reports whether the kernel is at least as new as a version.
func since(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var is, of int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &is, &of)
	return err == nil && (is > major || is == major && of >= minor)
}

// spareProcesses are what there is in a task's user namespace beside the task: the
// first process with its threads, and what starts commands beside the task.
const spareProcesses = 16

// bound returns the limits of the task's processes, one by one. What it does not
// ask for may be less than usual; what it asks for is given, or it does not start.
func (can *rlimits) bound(t *schema.TaskSpec) (*keeper.Rlimits, error) {
	ask := t.Bounds()
	l := &keeper.Rlimits{Files: uint64(ask.Files), CoreBytes: uint64(ask.CoreBytes)}
	for _, one := range []struct {
		field    string
		ask, has uint64
		hint     string
	}{{"files", l.Files, can.files, "LimitNOFILE"}, {"coreBytes", l.CoreBytes, can.core, "LimitCORE"}} {
		if one.ask > one.has {
			return nil, nodeagent.TaskError(fmt.Errorf("task.limits.%s: the task asks for %d, and this machine gives %d: raise it for muster-agent (%s of its unit)", one.field, one.ask, one.has, one.hint))
		}
	}
	if l.Files == 0 {
		l.Files = min(schema.DefaultFiles, can.files)
	}
	if can.processes {
		l.Processes = uint64(ask.Processes) + spareProcesses
	}
	return l, nil
}
