package bundle

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

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

// write gives a user namespace its users or groups, in file.
func (m Map) write(file string) error {
	var text strings.Builder
	for _, r := range m.Ranges() {
		fmt.Fprintln(&text, r.Inside, r.Outside, r.Size)
	}
	return os.WriteFile(file, []byte(text.String()), 0)
}

// namespace is a user namespace that is being used.
type namespace struct {
	*os.File
	idle int // the process that it was made with, which is being killed
}

// close must be called after the use. Only then may others look into this process again, as the
// agent does: the idle one shares its memory.
func (n *namespace) close() error {
	_, err := unix.Wait4(n.idle, nil, 0, nil)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Wait4(n.idle, nil, 0, nil)
	}
	if n.File != nil {
		err = errors.Join(err, n.Close())
	}
	return errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
}

// userNamespace makes a user namespace with the container's maps, mounts it at Users, and
// opens it. What its users have of what the kernel counts for each user counts for who has
// made it, too: that is the owner, and not root, of which it would be all containers. A network
// namespace of its own is mounted at Network.
func (c *Container) userNamespace() (*namespace, error) {
	if err := setEffective(c.Users.Outside); err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	others := uintptr(0)
	if c.OwnsNetwork {
		others = unix.CLONE_NEWNET
	}
	pid, err := forkIdle(others)
	if back := setEffective(0); back != nil || err != nil {
		return nil, fmt.Errorf("user namespace: %w", errors.Join(err, back))
	}
	n := &namespace{idle: pid}
	n.File, err = c.hold(pid)
	if err = errors.Join(err, unix.Kill(pid, unix.SIGKILL)); err != nil { // to wait for the end takes a while
		return nil, errors.Join(fmt.Errorf("user namespace: %w", err), n.close())
	}
	return n, nil
}

// hold completes the user namespace of a process, and has it in a file.
func (c *Container) hold(pid int) (*os.File, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	if err := errors.Join(c.Users.write(proc+"/uid_map"), c.Groups.write(proc+"/gid_map")); err != nil {
		return nil, err
	}
	if c.OwnsNetwork {
		if err := bindTo(proc+"/ns/net", Network); err != nil {
			return nil, fmt.Errorf("mount: %w", err)
		}
	}
	if err := bindTo(proc+"/ns/user", Users); err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	return os.Open(Users)
}

// setEffective makes uid the effective user of the thread; it is root otherwise. For the
// kernel that is a reason to let nobody look into the process any more, until namespace.close.
func setEffective(uid int) error {
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
		return fmt.Errorf("effective user %d: %w", uid, errno)
	}
	return nil
}
