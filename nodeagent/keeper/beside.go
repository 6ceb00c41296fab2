package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BesideArg as the first argument makes Main run a command beside the task of
// an incarnation's directory, the second argument: in its cgroups and
// namespaces, as its user. Standard input holds a Beside, the standard output
// and error are the command's, and descriptor BesideFD gets a BesideEnd. When
// it returns, nothing of the command is left, whatever it has started.
const (
	BesideArg = "beside"
	BesideFD  = 3
)

// Beside is a command to run.
type Beside struct {
	Command []string      `json:"command"`
	Timeout time.Duration `json:"timeout"`
}

// BesideEnd is how the command ended.
type BesideEnd struct {
	// Code is its exit status, -1 when a signal ended it.
	Code     int    `json:"code"`
	Signal   string `json:"signal,omitempty"`
	TimedOut bool   `json:"timedOut,omitempty"`
	// Error says why it could not be run; Command, that this is its own fault.
	Error   string `json:"error,omitempty"`
	Command bool   `json:"command,omitempty"`
}

// besideGroup is the cgroup of the command, below that of the task.
const besideGroup = "beside"

// besideMark is the variable that only what a command has started has.
const besideMark = "MUSTER_BESIDE"

// sitter is a process that runs a command beside a task.
type sitter struct {
	spec    Spec // of the command
	task    Identity
	timeout time.Duration
	group   cgroups // its own, one or none
	mark    string  // an entry of its environment
	ended   chan os.Signal
	told    chan os.Signal // SIGTERM: to give up
	main    int            // pid; 0 when it was reaped
	end     BesideEnd
}

// beside runs the command of standard input beside the task of dir.
func beside(dir string) int {
	s := &sitter{ended: make(chan os.Signal, 1), told: make(chan os.Signal, 1)}
	signal.Notify(s.ended, unix.SIGCHLD)
	signal.Notify(s.told, unix.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE)
	unix.CloseOnExec(BesideFD)
	if err := s.run(dir); err != nil {
		s.end.Code, s.end.Error, s.end.Command = -1, err.Error(), errors.As(err, new(commandError))
	}
	b, err := json.Marshal(s.end)
	if err == nil {
		_, err = unix.Write(BesideFD, b) // the agent may be gone
	}
	if err != nil {
		return 1
	}
	return 0
}

func (s *sitter) run(dir string) error {
	if err := s.begin(dir); err != nil {
		return err
	}
	deadline := time.After(s.timeout)
	defer s.sweep()
	if err := s.fork(); err != nil {
		return err
	}
	for {
		select {
		case <-s.ended:
			if s.reap(); s.main == 0 {
				return nil
			}
		case <-deadline:
			s.end.TimedOut = true
			return nil
		case <-s.told:
			return errors.New("told to give up")
		}
	}
}

// begin reads what to run, and beside what.
func (s *sitter) begin(dir string) error {
	var request Beside
	b, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(b, &request)
	}
	if err != nil || len(request.Command) == 0 {
		return fmt.Errorf("read the command: %w", errors.Join(err, errors.New("there is none")))
	}
	var state State
	for name, v := range map[string]any{SpecFile: &s.spec, StateFile: &state} {
		if ok, err := read(dir, name, v); err != nil || !ok {
			return fmt.Errorf("read %s: %w", name, errors.Join(err, errors.New("the task does not run")))
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("subreaper: %w", err)
	}
	s.task, s.timeout = state.Task, request.Timeout
	s.makeGroup()
	s.mark = besideMark + "=" + strconv.Itoa(os.Getpid())
	s.spec.Command, s.spec.Env, s.spec.Sandbox = request.Command, append(s.spec.Env, s.mark), nil
	return nil
}

// makeGroup makes a cgroup for the command alone, where the task has one that
// can: to kill it with all that it has started, and nothing else. It is of one
// hierarchy only, since others (cpuset in v1) take nobody without being set up.
func (s *sitter) makeGroup() {
	at := slices.IndexFunc(s.spec.Cgroups, isUnified)
	if at < 0 {
		at = slices.IndexFunc(s.spec.Cgroups, func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, "freezer.state"))
			return err == nil
		})
	}
	if at < 0 {
		return
	}
	own := cgroups{filepath.Join(s.spec.Cgroups[at], besideGroup)}
	own.kill() // of a sitter that was killed
	if err := os.Mkdir(own[0], 0o755); err == nil || errors.Is(err, os.ErrExist) {
		s.group, s.spec.Cgroups = own, slices.Clone(s.spec.Cgroups)
		s.spec.Cgroups[at] = own[0]
	}
}

// fork starts the command's stage in the task's namespaces, and returns when it
// has become the command.
func (s *sitter) fork() error {
	f, err := s.gather()
	if err != nil {
		return err
	}
	defer f.errors.Close()
	err = s.launch(f.fds)
	f.close()
	if err != nil {
		return fmt.Errorf("fork: %w", err)
	}
	b, err := io.ReadAll(f.errors)
	text, command := strings.CutPrefix(string(b), commandPrefix)
	switch {
	case err != nil:
		return fmt.Errorf("wait for exec: %w", err)
	case entryError(text) != nil:
		return entryError(text)
	case command:
		return commandError{errors.New(text)}
	case text != "":
		return errors.New(text)
	}
	return nil
}

// gather opens what the stage is handed on.
func (s *sitter) gather() (*files, error) {
	f := &files{}
	errs := []error{f.add(os.OpenFile(os.DevNull, os.O_RDWR, 0))}
	f.fds = append(f.fds, 1, 2)
	r, w, err := os.Pipe()
	f.errors = r
	errs = append(errs, f.add(w, err), f.add(inMemory(s.spec)), f.add(os.Open(os.DevNull)))
	group := os.DevNull
	if len(s.group) > 0 && isUnified(s.group[0]) {
		group = s.group[0]
	}
	errs = append(errs, f.add(os.Open(group)))
	for _, dir := range s.spec.Cgroups {
		name := "tasks" // see holder.gather
		if isUnified(dir) {
			name = "cgroup.procs"
		}
		errs = append(errs, f.add(os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)))
	}
	if err := errors.Join(errs...); err != nil {
		f.close()
		return nil, errors.Join(err, f.errors.Close())
	}
	return f, nil
}

// inMemory returns a file that holds spec.
func inMemory(spec Spec) (*os.File, error) {
	b, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("spec", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "spec")
	if _, err := f.Write(b); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// launch forks the stage into the task's namespaces, with fds as its
// descriptors.
func (s *sitter) launch(fds []uintptr) error {
	task, err := openPID(s.task)
	if err != nil {
		return fmt.Errorf("the task: %w", err)
	}
	defer unix.Close(task) // its pid is nobody else's until then
	rooms, err := namespaces(s.task.PID)
	if err != nil {
		return fmt.Errorf("the task's namespaces: %w", err)
	}
	defer closeAll(rooms)
	if s.main, err = forkInto(rooms, fds, false); err != nil || s.main != 0 {
		return err
	}
	// It is in a pid namespace, and the only child there is.
	children, err := descendants(os.Getpid())
	for _, p := range children {
		if p.parent == os.Getpid() {
			s.main = p.PID
		}
	}
	if err == nil && s.main == 0 {
		err = errors.New("it is not there")
	}
	return err
}

// reap takes the status of all children that have ended, and reports whether
// any is left.
func (s *sitter) reap() (left bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return false
		case pid == 0:
			return true
		case pid == s.main:
			s.main, s.end.Code = 0, -1
			if status.Exited() {
				s.end.Code = status.ExitStatus()
			} else {
				s.end.Signal = unix.SignalName(status.Signal())
			}
		}
	}
}

// sweep kills all that the command has started, and returns when it is gone.
func (s *sitter) sweep() {
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		grouped := s.group.kill()
		left := s.reap()
		if len(s.group) == 0 { // orphans are the keeper's, or the namespace's
			list := func() ([]process, error) { return marked(s.mark, Identity{}) }
			if found, err := list(); err == nil && len(found) > 0 {
				grouped = true
				killAll(list)
			}
		}
		if left && !grouped {
			killAll(func() ([]process, error) { return descendants(os.Getpid()) })
		}
		if !grouped && !left {
			break
		}
		select {
		case <-s.ended:
		case <-time.After(pause):
		}
	}
	_ = s.group.remove() // the next one finds it, if it stays
}
