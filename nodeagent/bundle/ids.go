package bundle

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// IDs is how many users and groups a container has, from 0 on.
const IDs = 1 << 16

// Map maps the users, or the groups, of a container to those of the machine: one of them
// to the task's own, and all others to numbers in a row.
type Map struct {
	// Inside is the one, below IDs, that is Outside on the machine.
	Inside  int `json:"inside"`
	Outside int `json:"outside"`
	// First is what 0 of the container is, if it is another.
	First int `json:"first"`
}

// Range are Size numbers of a container from Inside on, which are those of the machine
// from Outside on.
type Range struct{ Inside, Outside, Size int }

// Ranges returns what a Map says as the kernel takes it.
func (m Map) Ranges() []Range {
	ranges := []Range{{m.Inside, m.Outside, 1}}
	if m.Inside > 0 {
		ranges = append(ranges, Range{0, m.First, m.Inside})
	}
	if next := m.Inside + 1; next < IDs {
		ranges = append(ranges, Range{next, m.First + next, IDs - next})
	}
	return ranges
}

// Of returns the machine's number of one of the container, nobody's for one that it does
// not have.
func (m Map) Of(id int) int {
	for _, r := range m.Ranges() {
		if id >= r.Inside && id < r.Inside+r.Size {
			return r.Outside + id - r.Inside
		}
	}
	return nobody
}

// nobody is the kernel's number for what is not mapped.
const nobody = 65534

// system returns the ranges as package syscall has them.
func (m Map) system() []syscall.SysProcIDMap {
	var maps []syscall.SysProcIDMap
	for _, r := range m.Ranges() {
		maps = append(maps, syscall.SysProcIDMap{ContainerID: r.Inside, HostID: r.Outside, Size: r.Size})
	}
	return maps
}

// userNamespace makes a user namespace with the container's maps, which lives for as long
// as the file is open. Its process is stopped at its exec, before it has done anything.
func (c *Container) userNamespace() (*os.File, error) {
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"muster-keeper"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: c.Users.system(), GidMappings: c.Groups.system(), GidMappingsEnableSetgroups: true,
		Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}})
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
	_ = unix.Kill(pid, unix.SIGKILL)
	reap(pid)
	return f, err
}
