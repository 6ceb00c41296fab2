package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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
	// Env replaces variables of the task's environment, NAME=value.
	Env []string `json:"env,omitempty"`
	// TTY makes descriptor 0, a terminal, the controlling one.
	TTY    bool `json:"tty,omitempty"`
	Signal int  `json:"signal,omitempty"`
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
	mark    string    // without one: an entry of Env that only its processes have
	task    int       // pidfd of the task's main process
}

// hold runs a session of the incarnation in dir to its end.
func hold(dir string) int {
	s := &session{holder: holder{dir: dir, ended: make(chan os.Signal, 1)}, calls: make(chan call), task: -1}
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
	slim()
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
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("subreaper: %w", err)
	}
	var state State
	for name, v := range map[string]any{SpecFile: &s.spec, StateFile: &state} {
		if ok, err := read(s.dir, name, v); err != nil || !ok {
			return fmt.Errorf("read %s: %w", name, errors.Join(err, errors.New("the task does not run")))
		}
	}
	var err error
	// The pidfd comes first: what is found by the pid is the task's if it is
	// alive afterwards.
	if s.task, err = openPID(state.Task); err != nil {
		return fmt.Errorf("the task has ended: %w", err)
	}
	s.spec.Command, s.spec.Probe, s.spec.Session = c.Command, false, true
	s.spec.Env = replace(s.spec.Env, c.Env)
	s.groups = s.spec.Cgroups
	if s.group = s.makeGroup(); s.group == "" {
		s.mark = sessionMark + "=" + strconv.Itoa(os.Getpid())
		s.spec.Env = append(s.spec.Env, s.mark)
	}
	files, err := s.open()
	if err != nil {
		return err
	}
	defer files.close()
	defer files.errors.Close()
	rooms, err := namespaces(state.Task.PID)
	if err != nil && s.over() {
		return fmt.Errorf("the task has ended: %w", err)
	}
	if err != nil {
		return err
	}
	defer closeAll(rooms)
	if _, err := find(state.Task.PID); err != nil || s.over() {
		return errors.New("the task has ended")
	}
	if s.main, err = forkInto(rooms, files.fds, c.TTY); err != nil {
		return fmt.Errorf("enter the task's namespaces: %w", err)
	}
	return s.started(files)
}

// started returns when the command runs.
func (s *session) started(f *files) error {
	f.close()
	defer f.link.Close() // nil without a sandbox
	if err := f.executed(); err != nil || f.link == nil {
		return err
	}
	var err error
	s.main, err = hello(f.link)
	return err
}

// replace returns env with the variables of more.
func replace(env, more []string) []string {
	out := make([]string, 0, len(env)+len(more))
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		kept := true
		for _, m := range more {
			kept = kept && !strings.HasPrefix(m, name+"=")
		}
		if kept {
			out = append(out, e)
		}
	}
	return append(out, more...)
}

// over reports whether the task's main process has ended.
func (s *session) over() bool {
	p := []unix.PollFd{{Fd: int32(s.task), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

// open gathers what the stage needs: as that of the task, but for the standard
// descriptors, which are ours, the Spec, which is of this command, and the
// cgroup of the session alone.
func (s *session) open() (*files, error) {
	f := &files{fds: []uintptr{0, 1, 2}}
	r, w, err := os.Pipe()
	f.errors = r
	errs := []error{f.add(w, err), f.add(inMemory(&s.spec)), f.addLink(s.spec.Sandbox), f.add(os.Open(os.DevNull))}
	for _, dir := range s.groups {
		if s.group != "" && filepath.Dir(s.group) == dir {
			dir = s.group
		}
		errs = append(errs, f.addGroup(dir))
	}
	if err := errors.Join(errs...); err != nil {
		f.close()
		return nil, errors.Join(err, f.errors.Close())
	}
	return f, nil
}

// inMemory returns a file that holds spec.
func inMemory(spec *Spec) (*os.File, error) {
	b, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(SpecFile, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), SpecFile)
	if _, err := f.Write(b); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// makeGroup makes a cgroup for the session alone, below the task's, where that
// has one with which processes can be found and killed: so that nothing of the
// session outlives it. Its limits are the task's.
func (s *session) makeGroup() string {
	for _, dir := range s.groups {
		_, err := os.Stat(filepath.Join(dir, "freezer.state"))
		if err != nil && !isUnified(dir) {
			continue
		}
		group := filepath.Join(dir, "exec-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(group, 0o755) == nil {
			return group
		}
	}
	return ""
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
				_ = unix.Kill(-s.main, unix.SIGHUP) // not reaped yet: the group is its own
				_ = unix.Kill(-s.main, unix.SIGCONT)
				hangup = time.After(hangupGrace)
			case c.Signal > 0:
				_ = unix.Kill(-s.main, unix.Signal(c.Signal))
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
	_ = unix.SetNonblock(s.task, true)
	f := os.NewFile(uintptr(s.task), "pidfd")
	go func() {
		defer close(over)
		c, err := f.SyscallConn()
		if err != nil {
			return
		}
		_ = c.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
	}()
	return over
}

// clear kills all that is left of the session and removes its cgroup. Without one
// it goes by the mark: orphans may be children of the task's pid namespace.
func (s *session) clear() {
	if s.group == "" {
		s.groups = nil
	} else {
		s.groups = cgroups{s.group}
	}
	s.sweep()
	for s.mark != "" {
		list := func() ([]process, error) { return marked(s.mark, Identity{}) }
		if found, err := list(); err != nil || len(found) == 0 {
			break
		}
		killAll(list)
		s.sweep()
		time.Sleep(time.Millisecond) // they need not be children, whose end is told
	}
	_ = s.groups.remove() // the keeper does when the task ends
}

func closeAll(fds []uintptr) {
	for _, fd := range fds {
		_ = unix.Close(int(fd))
	}
}

// namespaces opens those of a process that are not ours, in the order in which
// they must be entered: the user namespace first, since it gives the right to
// enter the others, and the mount namespace last, since it hides /proc.
func namespaces(pid int) ([]uintptr, error) {
	var fds []uintptr
	for _, name := range []string{"user", "cgroup", "ipc", "uts", "net", "pid", "mnt"} {
		path := "/proc/" + strconv.Itoa(pid) + "/ns/" + name
		theirs, err := os.Readlink(path)
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		if ours, err := os.Readlink("/proc/self/ns/" + name); err != nil || ours == theirs {
			continue
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			closeAll(fds)
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		fds = append(fds, uintptr(fd))
	}
	return fds, nil
}
