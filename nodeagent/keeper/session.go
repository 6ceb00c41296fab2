package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/nodeagent/cgroup"
	"golang.org/x/sys/unix"
)

// A session is a command beside the task's own: in its namespaces and cgroups,
// as its user, with its environment. It has a process of its own that holds it,
// which the agent starts with the command's standard descriptors and a socket.
// The end of that socket, as when the agent dies, is the end of the session.

// controlFD is the session's socket to the agent: packets of JSON.
const controlFD = 3

// maxPacket is the most that a packet on controlFD may have, in bytes.
const maxPacket = 128 << 10

// hangupGrace is how long a session may take to end by itself after SIGHUP.
const hangupGrace = 2 * time.Second

// call is what the agent sends: first Command, later signals.
type call struct {
	Command []string `json:"command,omitempty"`
	Copy    []string `json:"copy,omitempty"` // see Exec
	// Env replaces variables of the task's environment, NAME=value.
	Env []string `json:"env,omitempty"`
	// TTY makes descriptor 0, a terminal, the controlling one.
	TTY    bool `json:"tty,omitempty"`
	Signal int  `json:"signal,omitempty"`
	// Task is a signal for the task's main process, in place of a command: see Exec.
	Task int `json:"task,omitempty"`
}

// ending is what a session sends: first that it runs, or why not; then its end.
type ending struct {
	Started bool   `json:"started,omitempty"`
	Error   string `json:"error,omitempty"`
	Command bool   `json:"command,omitempty"` // Error is the command's fault
	Missing bool   `json:"missing,omitempty"` // since it is not there
	Exit    *Exit  `json:"exit,omitempty"`
}

// sessionMark is the variable of session.mark.
const sessionMark = "MUSTER_SESSION"

// session is a running one.
type session struct {
	holder
	control *os.File
	calls   chan call // closed when the agent is gone
	group   string    // the cgroup of the session alone; "" if there is none
	mark    string    // without one: an entry of its environment that only its processes have
	since   uint64    // with a mark: when its processes may have begun, see startNow
	beside  *beside
	tty     bool
	guest   *guest // nil without a kernel
}

// hold runs a session of the incarnation in dir to its end.
func hold(dir string) int {
	s := &session{holder: holder{dir: dir, ended: make(chan os.Signal, 1)}, calls: make(chan call)}
	signal.Notify(s.ended, unix.SIGCHLD)
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTERM)
	unix.CloseOnExec(controlFD)
	if err := unix.SetNonblock(controlFD, true); err != nil {
		return 1
	}
	s.control = os.NewFile(controlFD, "control")
	first, err := s.receive()
	if err == nil {
		err = s.begin(first)
	}
	if err != nil {
		var refused commandError
		command := errors.As(err, &refused)
		s.send(ending{Error: err.Error(), Command: command, Missing: refused.missing})
		s.clear()
		return 1
	}
	s.send(ending{Started: true})
	releaseProgramPages()
	go s.listen()
	s.watch()
	s.clear()
	s.judge()
	s.send(ending{Exit: &s.exit})
	return 0
}

func (s *session) send(r ending) {
	if b, err := json.Marshal(r); err == nil {
		_, _ = s.control.Write(b) // the agent may be gone
	}
}

func (s *session) receive() (call, error) {
	var c call
	b := make([]byte, maxPacket)
	n, err := s.control.Read(b)
	if err == nil {
		err = json.Unmarshal(b[:n], &c)
	}
	return c, err
}

// listen passes on what the agent says, until it is gone.
func (s *session) listen() {
	defer close(s.calls)
	for {
		c, err := s.receive()
		if err != nil {
			return
		}
		s.calls <- c
	}
}

// begin starts the command.
func (s *session) begin(c call) error {
	if len(c.Command) == 0 && len(c.Copy) == 0 && c.Task == 0 {
		return errors.New("no command")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("subreaper: %w", err)
	}
	var err error
	if s.beside, err = openBeside(s.dir, &forkRoom{}); err != nil {
		return err
	}
	s.tty = c.TTY
	o := order{command: c.Command, env: replace(s.beside.spec.Env, c.Env), std: [3]uintptr{0, 1, 2}, tty: c.TTY}
	kernel := s.beside.spec.HasKernel()
	if len(c.Copy) > 0 && kernel {
		o.command, o.env = append([]string{KernelProgram, copyArg}, c.Copy...), append([]string{"HOME=/"}, environment...) // else the runtime looks that up in the image
	} else if len(c.Copy) > 0 {
		// The task's environment has words for the Go runtime, or may have.
		o.command, o.env = append([]string{"muster-cp", copyArg}, c.Copy...), slices.Clone(environment)
		if o.program, err = ownProgram(); err != nil {
			return err
		}
		defer unix.Close(o.program)
	}
	if s.group = s.beside.makeGroup("exec-" + strconv.Itoa(os.Getpid())); kernel {
		if err := s.enterKernel(&o, c.Task); err != nil {
			return err
		}
	} else if s.group == "" {
		s.mark, s.since = sessionMark+"="+strconv.Itoa(os.Getpid()), startNow()
		o.env = append(o.env, s.mark)
	}
	o.group = s.group
	a, err := s.beside.start(&o)
	if err != nil {
		return err
	}
	for !a.take() {
	}
	s.main = a.pid
	if s.guest != nil && a.failed == nil {
		return s.guest.await(s.main)
	}
	return a.failed
}

// enterKernel makes the command of o one in the task's kernel, or a signal for the task.
func (s *session) enterKernel(o *order, sig int) (err error) {
	if sig > 0 {
		c := s.beside.spec.Container
		o.command, o.env = c.runtimeCommand(s.beside.dir, runtimeLog, "kill", c.ID, strconv.Itoa(sig)), runtimeEnv
		return nil
	}
	s.guest, err = s.newGuest(o)
	return err
}

// signal sends a signal to the command's process group, or to the command alone where that
// is in a kernel: its runtime passes on what is from a terminal, and nothing else.
func (s *session) signal(sig unix.Signal) {
	switch {
	case s.guest == nil || s.tty && sig != unix.SIGKILL && sig != unix.SIGSTOP:
		_ = unix.Kill(-s.main, sig) // not reaped yet: the group is its own
	case sig == unix.SIGKILL:
		s.guest.kill(s.group)
	default:
		s.guest.signal(sig, s.group)
	}
}

// watch obeys the agent until the command has ended. When the agent or the task
// goes, so does the session.
func (s *session) watch() {
	var hangup <-chan time.Time
	pidfd := s.awaitTask()
	for s.main != 0 {
		select {
		case <-s.ended:
			s.reap()
		case c, ok := <-s.calls:
			switch {
			case !ok:
				s.calls = nil
				s.signal(unix.SIGHUP)
				s.signal(unix.SIGCONT)
				hangup = time.After(hangupGrace)
			case c.Signal > 0:
				s.signal(unix.Signal(c.Signal))
			}
		case <-hangup:
			return
		case <-pidfd:
			s.exit.Message = "the task has ended"
			return
		}
	}
}

// awaitTask returns what is closed when the task's main process has ended.
func (s *session) awaitTask() <-chan struct{} {
	over := make(chan struct{})
	f := os.NewFile(uintptr(s.beside.task), "pidfd") // non-blocking, see openPID
	go func() {
		defer close(over)
		awaitReadable(f)
	}()
	return over
}

// awaitReadable returns when a pidfd's process has ended, without a thread of its
// own.
func awaitReadable(pidfd *os.File) {
	c, err := pidfd.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

// clear kills all that is left of the session and removes its cgroup. Without one
// it goes by the mark: orphans may be children of the task's pid namespace.
func (s *session) clear() {
	if s.guest != nil {
		if s.main != 0 && s.guest.pid != 0 {
			s.guest.kill(s.group)
		}
		defer func() { _ = s.guest.close() }() // it goes with the task
	}
	if s.group == "" {
		s.groups = nil
	} else {
		s.groups = cgroup.Dirs{s.group}
	}
	s.sweep()
	for s.mark != "" && killMarked(s.mark, s.since) {
		s.sweep()
		time.Sleep(time.Millisecond) // they need not be children, whose end is reported
	}
	_ = s.groups.Remove() // the keeper does when the task ends
}
