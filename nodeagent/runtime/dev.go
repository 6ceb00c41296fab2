package runtime

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// DeviceFiles are the files below /dev that tasks find which were given devices of
// a kind. Paths that are not there are left out.
type DeviceFiles struct {
	Each [][]string // by index of the device
	All  []string   // for whichever, such as /dev/nvidiactl
}

// devDir is where each task has its own, and mqueueDir what is in it of its ipc
// namespace.
const (
	devDir    = "/dev"
	mqueueDir = "/dev/mqueue"
	ptsDir    = "/dev/pts"
	ptmxName  = "/dev/ptmx"
)

// devices are those that every task finds.
var devices = []string{"/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"}

// A machine has 4096 pseudo-terminals, of which it keeps 1024 for itself
// (kernel.pty.max, kernel.pty.reserve): with maxTerminals for each, no few tasks
// take all that are left.
const (
	maxTerminals = 64
	ttyGroup     = 5 // of all distributions, as systemd has it
)

// ownDevices make /dev, for a task that was given some devices, and tell what it
// lacks.
func (r *Runtime) ownDevices(p places, s *keeper.Sandbox, u *keeper.User, given []given) []keeper.Mount {
	mounts := []keeper.Mount{{Kind: keeper.Tmpfs, Target: devDir, Data: "mode=0755," + hiddenSize, Nodes: len(given) > 0, ReadOnly: true}}
	for _, d := range devices {
		if _, err := os.Stat(d); err == nil {
			mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: d, Target: d})
		}
	}
	for _, g := range given {
		m := keeper.Mount{Kind: keeper.Bind, Source: g.path, Target: g.path}
		if !s.UserNamespace { // within one, no new node could be opened
			m = keeper.Mount{Kind: keeper.Node, Target: g.path, Node: &keeper.DeviceNode{Mode: g.mode, Device: g.device, Owner: u}}
		}
		mounts = append(mounts, m)
	}
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Link, Target: "/dev/" + name, Data: fmt.Sprintf("/proc/self/fd/%d", i)})
	}
	mounts = append(mounts, keeper.Mount{Kind: keeper.Link, Target: "/dev/fd", Data: "/proc/self/fd"})
	if r.isolation.terminals {
		options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,max=%d", maxTerminals)
		if !s.UserNamespace {
			options += fmt.Sprintf(",gid=%d", ttyGroup)
		}
		mounts = append(mounts, keeper.Mount{Kind: keeper.Devpts, Target: ptsDir, Data: options},
			keeper.Mount{Kind: keeper.Link, Target: ptmxName, Data: "pts/ptmx"})
	}
	if r.isolation.queues && (s.IPC == "" || !s.UserNamespace) { // a namespace of others' cannot be mounted
		mounts = append(mounts, keeper.Mount{Kind: keeper.Mqueue, Target: mqueueDir})
	}
	shm := keeper.Mount{Kind: keeper.Tmpfs, Target: shmDir, Data: "mode=1777"}
	if p.shm != "" {
		shm = keeper.Mount{Kind: keeper.Bind, Source: p.shm, Target: shmDir}
	}
	return append(mounts, shm)
}

// given is the file of a device that a task was given.
type given struct {
	path   string
	mode   uint32 // its type
	device uint64
}

// given finds the files of the devices that a task was given. note says what
// devices have none.
func (r *Runtime) given(uses []schema.DeviceUse) (files []given, note string) {
	var none []string
	found := map[string]bool{}
	for _, u := range uses {
		of := r.cfg.Devices[u.Kind]
		paths := slices.Clone(of.All)
		if u.Index < len(of.Each) {
			paths = append(paths, of.Each[u.Index]...)
		}
		known := false
		for _, path := range paths {
			var s unix.Stat_t
			if unix.Stat(path, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFCHR && s.Mode&unix.S_IFMT != unix.S_IFBLK {
				continue
			}
			if known = true; !found[path] {
				found[path] = true
				files = append(files, given{path, s.Mode & unix.S_IFMT, s.Rdev})
			}
		}
		if !known {
			none = append(none, u.Kind+" "+strconv.Itoa(u.Index))
		}
	}
	if len(none) > 0 {
		note = "no device file is known of " + strings.Join(none, ", ") + " (--device-node of its agent)"
	}
	return files, note
}

// The numbers of what every task finds (Linux, Documentation/admin-guide/devices.txt).
var everybodys = []struct{ major, minor int64 }{
	{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, // null, zero, full, random, urandom
	{5, 0}, {5, 2}, {136, -1}, // tty, ptmx, and terminals
}

// deviceRules allow a task what it was given and what all have, and nothing else:
// no node can be made either.
func deviceRules(files []given) []specs.LinuxDeviceCgroup {
	whichever := int64(-1)
	rules := []specs.LinuxDeviceCgroup{{Type: "a", Major: &whichever, Minor: &whichever, Access: "rwm"}}
	allow := func(kind string, major, minor int64) {
		rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: "rw"})
	}
	for _, d := range everybodys {
		allow("c", d.major, d.minor)
	}
	for _, f := range files {
		kind := "c"
		if f.mode == unix.S_IFBLK {
			kind = "b"
		}
		allow(kind, int64(unix.Major(f.device)), int64(unix.Minor(f.device)))
	}
	return rules
}

// findDevices finds out what can be in a /dev of a task's own.
func (r *Runtime) findDevices(base *keeper.Sandbox) {
	with := func(mounts ...keeper.Mount) error {
		s := *base
		s.Mounts = slices.Concat(base.Mounts, []keeper.Mount{{Kind: keeper.Tmpfs, Target: devDir, Data: hiddenSize, ReadOnly: true}}, mounts)
		return r.try(&s, nil)
	}
	pts, queues := keeper.Mount{Kind: keeper.Devpts, Target: ptsDir, Data: "newinstance"}, keeper.Mount{Kind: keeper.Mqueue, Target: mqueueDir}
	if with(pts, queues) == nil { // nearly always
		r.isolation.terminals, r.isolation.queues = true, true
		return
	}
	noPTS, noQueues := with(pts), with(queues)
	r.isolation.terminals, r.isolation.queues = noPTS == nil, noQueues == nil
	if noPTS != nil {
		r.notes = append(r.notes, fmt.Sprintf("no terminals of a task's own (%s): tasks cannot open any", inLine(noPTS)))
	}
	if noQueues != nil && !errors.Is(noQueues, unix.ENODEV) { // ENODEV: the kernel has no message queues
		r.notes = append(r.notes, fmt.Sprintf("no /dev/mqueue in tasks (%s)", inLine(noQueues)))
	}
}
