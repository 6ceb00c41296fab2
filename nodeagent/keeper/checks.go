package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/musterhq/muster/nodeagent/cgroup"
	"golang.org/x/sys/unix"
)

// The checks of all tasks with a pid namespace are run by one process of the
// machine, which the agent starts when the first is asked for: a check costs a
// fork of it, and no start of a program but the check's own. It is in no task's
// namespaces and cgroups, so no task sees it, and a task's share of a check, from
// where its command begins, is the task's. The end of its socket, as when the agent
// dies, ends it and what it runs.

// checkCall is what the agent sends, with the command's output as a descriptor.
type checkCall struct {
	ID      uint64   `json:"id"`
	Dir     string   `json:"dir,omitempty"`
	Command []string `json:"command,omitempty"`
	Kill    bool     `json:"kill,omitempty"` // the command of ID; nothing else is given
}

// checkEnd is the answer to a checkCall with a command, when nothing of it is left.
type checkEnd struct {
	ID uint64 `json:"id"`
	ending
}

// keepPlace is how long what is known of a task is kept after its last check, if
// it makes room for others.
const keepPlace = time.Minute

// hideEvery is after how many checks the heap is hidden again, for it may have grown:
// so many that it takes no time that counts.
const hideEvery = 256

// checks is the process. It has one goroutine: to hand work from one to another takes
// longer than a fork.
type checks struct {
	null    *os.File
	scope   int               // for all that have one; 0 before the first
	places  map[string]*place // by directory
	room    forkRoom
	started int // checks
	running []*check
}

// place is a task and the cgroups in which its checks run.
type place struct {
	*beside
	used  time.Time // last
	users int       // checks that run
	slots []slot
}

// slot is a cgroup for one check at a time.
type slot struct {
	group string
	taken bool
}

// check is one that runs.
type check struct {
	id    uint64
	place *place
	slot  int    // -1: it has no cgroup
	group string // that of the slot
	mark  string // without one: an entry of its environment that only its processes have
	since uint64 // with a mark: when its processes may have begun, see startNow
	*attempt
	pidfd  int  // of the command; -1: it is not known yet, or has ended
	killed bool // the agent wants it to end
	end    ending
}

// serveChecks runs checks until the agent is gone.
func serveChecks() int {
	unignoreSignals() // the commands are forked right from here
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTERM)
	if err := closeInherited(readyFD); err != nil {
		return 1
	}
	unix.CloseOnExec(controlFD)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 1
	}
	if err := dropBounding(0); err != nil { // of this thread, which forks
		return 1
	}
	if err := restoreTimerSlack(); err != nil { // likewise: commands have that of who forks them
		return 1
	}
	c := &checks{null: null, places: map[string]*place{}}
	if err := c.room.reset(os.Getpagesize()); err != nil {
		return 1
	}
	releaseProgramPages()
	buffer := make([]byte, maxPacket)
	var fds []unix.PollFd
	for agent := true; agent || len(c.running) > 0; {
		fds = c.waitFor(fds[:0], agent)
		if _, err := unix.Poll(fds, c.pause()); err != nil && !errors.Is(err, unix.EINTR) {
			return 1
		}
		if agent && fds[0].Revents != 0 {
			if agent = c.receive(buffer); !agent {
				for _, k := range c.running {
					k.kill()
				}
			}
		}
		c.running = slices.DeleteFunc(c.running, c.over)
	}
	for _, p := range c.places {
		p.leave()
	}
	return 0
}

// waitFor adds to fds what there is to wait for. A negative descriptor is of no
// account.
func (c *checks) waitFor(fds []unix.PollFd, agent bool) []unix.PollFd {
	control := unix.PollFd{Fd: -1, Events: unix.POLLIN}
	if agent {
		control.Fd = controlFD
	}
	fds = append(fds, control)
	for _, k := range c.running {
		fd := k.pidfd
		if fd < 0 {
			fd = k.records
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return fds
}

// pause is how long to wait at most, in milliseconds: for processes that are being killed
// and are not children, whose end would be reported.
func (c *checks) pause() int {
	for _, k := range c.running {
		if k.records < 0 && k.pidfd < 0 {
			return 1
		}
	}
	return -1
}

// receive takes what the agent says next; false when it is gone.
func (c *checks) receive(buffer []byte) bool {
	var oob [64]byte
	n, o, _, _, err := unix.Recvmsg(controlFD, buffer, oob[:], unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return true
	}
	output := -1
	if messages, err := unix.ParseSocketControlMessage(oob[:o]); err == nil {
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
				output = fds[0]
			}
		}
	}
	if output >= 0 {
		defer unix.Close(output)
	}
	var call checkCall
	if err != nil || n == 0 || json.Unmarshal(buffer[:n], &call) != nil {
		return false
	}
	if call.Kill {
		for _, k := range c.running {
			if k.id == call.ID {
				k.kill()
			}
		}
		return true
	}
	k, err := c.start(&call, output)
	if err != nil {
		c.send(call.ID, endOf(err))
		return true
	}
	c.running = append(c.running, k)
	return true
}

// endOf is the ending of what has not run.
func endOf(err error) ending {
	var refused commandError
	command := errors.As(err, &refused)
	return ending{Error: err.Error(), Command: command, Missing: refused.missing}
}

func (*checks) send(id uint64, e ending) {
	if b, err := json.Marshal(checkEnd{id, e}); err == nil {
		_, _ = unix.Write(controlFD, b) // the agent may be gone
	}
}

// start starts a check.
func (c *checks) start(call *checkCall, output int) (*check, error) {
	if len(call.Command) == 0 || output < 0 {
		return nil, errors.New("no command, or no output for it")
	}
	p, err := c.place(call.Dir)
	if err != nil {
		return nil, err
	}
	if c.started++; c.started%hideEvery == 1 {
		c.room.hideHeap()
	}
	k := &check{id: call.ID, place: p, pidfd: -1}
	o := order{command: call.Command, env: p.spec.Env, std: [3]uintptr{c.null.Fd(), uintptr(output), uintptr(output)}}
	if k.slot = p.take(); k.slot >= 0 {
		k.group = p.slots[k.slot].group
	}
	if o.group = k.group; o.group == "" {
		k.mark, k.since = fmt.Sprintf("%s=%d-%d", sessionMark, os.Getpid(), call.ID), startNow()
		o.env = append(o.env[:len(o.env):len(o.env)], k.mark)
	}
	if k.attempt, err = p.start(&o); err == nil {
		err = unix.SetNonblock(k.records, true)
	}
	if err != nil {
		k.release()
		return nil, err
	}
	if !k.nested { // what it says of itself is looked at when it has ended
		k.watch()
	}
	return k, nil
}

// place returns the task of the incarnation in dir.
func (c *checks) place(dir string) (*place, error) {
	now := time.Now()
	if p := c.places[dir]; p != nil {
		p.used = now
		return p, nil
	}
	for dir, p := range c.places {
		if p.users == 0 && now.Sub(p.used) > keepPlace {
			p.leave()
			delete(c.places, dir)
		}
	}
	b, err := openBeside(dir, &c.room)
	if err != nil {
		return nil, err
	}
	b.unbound = true
	if !b.spec.Isolated() {
		b.close()
		return nil, errors.New("the task has no pid namespace")
	}
	if b.spec.Scoped {
		if c.scope == 0 {
			if c.scope, err = newScope(); err != nil {
				b.close()
				return nil, err
			}
		}
		b.scope = uintptr(c.scope)
	}
	p := &place{beside: b, used: now}
	c.places[dir] = p
	return p, nil
}

// take takes a cgroup, -1 where there is none.
func (p *place) take() int {
	p.users++
	for i := range p.slots {
		if !p.slots[i].taken {
			p.slots[i].taken = true
			return i
		}
	}
	group := p.makeGroup("exec-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(len(p.slots)))
	if group == "" {
		return -1
	}
	p.slots = append(p.slots, slot{group: group, taken: true})
	return len(p.slots) - 1
}

// leave gives up what is held of a task. What cannot be removed now is when the
// task ends.
func (p *place) leave() {
	for _, s := range p.slots {
		_ = unix.Rmdir(s.group)
	}
	p.close()
}

// release gives back what a check has taken.
func (k *check) release() {
	k.place.users--
	if k.slot >= 0 {
		k.place.slots[k.slot].taken = false
	}
}

// kill kills the command as soon as there is one.
func (k *check) kill() {
	k.killed = true
	if k.attempt.pid != 0 { // not reaped yet
		_ = unix.Kill(k.attempt.pid, unix.SIGKILL)
	}
}

// over continues a check that is ending; it returns whether nothing of it is left, and
// sends its result then.
func (c *checks) over(k *check) bool {
	if k.pidfd < 0 && k.records >= 0 && k.starting() || k.pidfd >= 0 && k.runs() || k.left() {
		return false
	}
	k.release()
	c.send(k.id, k.end)
	return true
}

// starting reports whether it is still being started.
func (k *check) starting() bool {
	done := k.take()
	if k.killed {
		k.kill()
	}
	if !done {
		return true
	}
	if k.failed != nil {
		k.end = endOf(k.failed)
		return false
	}
	k.watch()
	return false
}

// watch has the end of the command reported.
func (k *check) watch() {
	var err error
	if k.pidfd, err = unix.PidfdOpen(k.attempt.pid, 0); err != nil {
		k.kill() // nothing would report its end
		k.reap()
		k.drain()
		k.end = endOf(fmt.Errorf("pidfd: %w", err))
	}
}

// drain takes what a command that has ended has said of itself, and closes that.
func (k *check) drain() {
	for range 2 { // at most a failure, and the end
		if k.records < 0 || k.take() {
			return
		}
	}
	_ = unix.Close(k.records)
	k.records = -1
}

// runs reports whether the command does.
func (k *check) runs() bool {
	p := []unix.PollFd{{Fd: int32(k.pidfd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 0); n == 0 || err != nil {
		return true
	}
	_ = unix.Close(k.pidfd)
	k.pidfd = -1
	if k.drain(); k.failed != nil {
		k.end = endOf(k.failed)
		return false
	}
	exit := exitOf(k.reap())
	exit.At = time.Now()
	k.end.Exit = &exit
	return false
}

// reap takes the command's end.
func (k *check) reap() syscall.WaitStatus {
	status := reapOne(k.attempt.pid)
	k.attempt.pid = 0
	return status
}

// left kills what the command has left behind, and reports whether that was
// anything.
func (k *check) left() bool {
	if k.slot >= 0 {
		return cgroup.Dirs{k.group}.Kill()
	}
	return killMarked(k.mark, k.since)
}

// exitOf is the exit that a status describes.
func exitOf(status syscall.WaitStatus) Exit {
	e := Exit{Code: -1}
	if status.Exited() {
		e.Code = status.ExitStatus()
	}
	if status.Signaled() {
		e.Signal = signalName(status.Signal())
	}
	return e
}
