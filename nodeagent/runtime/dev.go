package runtime

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"golang.org/x/sys/unix"
)

// devDir is where each task has its own, and mqueueDir what is in it of its ipc
// namespace.
const (
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

// ownDevices make /dev, for a task that was given some devices, and return what it lacks.
func (can *isolation) ownDevices(p places, s *keeper.Sandbox, u *keeper.User, given []host.Device) []keeper.Mount {
	mounts := []keeper.Mount{{Kind: keeper.Tmpfs, Target: devDir, Data: "mode=0755," + hiddenSize, Nodes: len(given) > 0, ReadOnly: true}}
	for _, d := range devices {
		if _, err := os.Stat(d); err == nil {
			mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: d, Target: d})
		}
	}
	for _, g := range given {
		m := keeper.Mount{Kind: keeper.Bind, Source: g.Path, Target: g.Path}
		if !s.UserNamespace { // within one, no new node could be opened
			m = keeper.Mount{Kind: keeper.Node, Target: g.Path, Node: &keeper.DeviceNode{Mode: g.Mode, Device: g.Number, Owner: u}}
		}
		mounts = append(mounts, m)
	}
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Link, Target: "/dev/" + name, Data: fmt.Sprintf("/proc/self/fd/%d", i)})
	}
	mounts = append(mounts, keeper.Mount{Kind: keeper.Link, Target: "/dev/fd", Data: "/proc/self/fd"})
	if can.terminals {
		options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,max=%d", maxTerminals)
		if !s.UserNamespace {
			options += fmt.Sprintf(",gid=%d", ttyGroup)
		}
		mounts = append(mounts, keeper.Mount{Kind: keeper.Devpts, Target: ptsDir, Data: options},
			keeper.Mount{Kind: keeper.Link, Target: ptmxName, Data: "pts/ptmx"})
	}
	if can.queues && (s.IPC == "" || !s.UserNamespace) { // a namespace of others' cannot be mounted
		mounts = append(mounts, keeper.Mount{Kind: keeper.Mqueue, Target: mqueueDir})
	}
	shm := keeper.Mount{Kind: keeper.Tmpfs, Target: shmDir, Data: "mode=1777"}
	if p.IPC.SHM != "" {
		shm = keeper.Mount{Kind: keeper.Bind, Source: p.IPC.SHM, Target: shmDir}
	}
	return append(mounts, shm)
}

// findDevices finds out what can be in a /dev of a task's own.
func (p *prober) findDevices(base *keeper.Sandbox) {
	with := func(mounts ...keeper.Mount) error {
		s := *base
		s.Mounts = slices.Concat(base.Mounts, []keeper.Mount{{Kind: keeper.Tmpfs, Target: devDir, Data: hiddenSize, ReadOnly: true}}, mounts)
		return p.try(&s, nil)
	}
	pts, queues := keeper.Mount{Kind: keeper.Devpts, Target: ptsDir, Data: "newinstance"}, keeper.Mount{Kind: keeper.Mqueue, Target: mqueueDir}
	if with(pts, queues) == nil { // nearly always
		p.can.terminals, p.can.queues = true, true
		return
	}
	noPTS, noQueues := with(pts), with(queues)
	p.can.terminals, p.can.queues = noPTS == nil, noQueues == nil
	if noPTS != nil {
		p.lacks.Machine(fmt.Sprintf("no terminals of a task's own (%v): tasks cannot open any", noPTS))
	}
	if noQueues != nil && !errors.Is(noQueues, unix.ENODEV) { // ENODEV: the kernel has no message queues
		p.lacks.Machine(fmt.Sprintf("no /dev/mqueue in tasks (%v)", noQueues))
	}
}
