package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
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

// besideStageArg as the first argument makes Main the command's first stage.
const besideStageArg = "beside-stage"

// besideRequestFD is where the stage finds its Beside.
const besideRequestFD = 4

// Beside is a command to run.
type Beside struct {
	Command []string      `json:"command"`
	Env     []string      `json:"env"` // added to the task's
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

// sitter is a process that runs a command beside a task.
type sitter struct {
	dir     string
	spec    Spec
	request Beside
	group   cgroups // its own, one or none
	ended   chan os.Signal
	told    chan os.Signal // SIGTERM: to give up
	main    int            // pid; 0 when it was reaped
	mark    string         // in the environment of all that it starts
	end     BesideEnd
}

// beside runs the command of standard input beside the task of dir. The thread
// is locked: it enters the task's namespace of processes for what it forks.
func beside(dir string) int {
	s := &sitter{dir: dir, ended: make(chan os.Signal, 1), told: make(chan os.Signal, 1)}
	signal.Notify(s.ended, unix.SIGCHLD)
	signal.Notify(s.told, unix.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE)
	unix.CloseOnExec(BesideFD)
	if err := s.run(); err != nil {
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

func (s *sitter) run() error {
	b, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(b, &s.request)
	}
	if err != nil || len(s.request.Command) == 0 {
		return fmt.Errorf("read the command: %w", errors.Join(err, errors.New("there is none")))
	}
	var state State
	for name, v := range map[string]any{SpecFile: &s.spec, StateFile: &state} {
		if ok, err := read(s.dir, name, v); err != nil || !ok {
			return fmt.Errorf("read %s: %w", name, errors.Join(err, errors.New("the task does not run")))
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("subreaper: %w", err)
	}
	s.mark = "MUSTER_BESIDE=" + strconv.Itoa(os.Getpid())
	deadline := time.After(s.request.Timeout)
	s.makeGroup()
	defer s.sweep()
	if err := s.fork(state.Task); err != nil {
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

// makeGroup makes a cgroup for the command alone, where the task has one that
// can: to kill it with all that it has started, and nothing else. It is of one
// hierarchy only, since others (cpuset in v1) take nobody without being set up.
func (s *sitter) makeGroup() {
	parent := cgroups(s.spec.Cgroups).unified()
	for _, dir := range s.spec.Cgroups {
		if _, err := os.Stat(filepath.Join(dir, "freezer.state")); parent == "" && err == nil {
			parent = dir
		}
	}
	if parent == "" {
		return
	}
	own := cgroups{filepath.Join(parent, besideGroup)}
	own.kill() // of a sitter that was killed
	if err := os.Mkdir(own[0], 0o755); err == nil || errors.Is(err, os.ErrExist) {
		s.group = own
	}
}

// stageGroups are the cgroups that the stage joins.
func (s *sitter) stageGroups() cgroups {
	var list cgroups
	for _, dir := range s.spec.Cgroups {
		if len(s.group) > 0 && filepath.Dir(s.group[0]) == dir {
			dir = s.group[0]
		}
		list = append(list, dir)
	}
	return list
}

// fork starts the stage in the task's namespace of processes, and returns when
// it has become the command.
func (s *sitter) fork(task Identity) error {
	requestR, requestW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer requestR.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return errors.Join(err, requestW.Close())
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return errors.Join(err, requestW.Close(), w.Close())
	}
	defer null.Close()
	stage, err := json.Marshal(besideStage{Beside: s.request, Cgroups: s.stageGroups(), Mark: s.mark, Task: task})
	if err != nil {
		return errors.Join(err, requestW.Close(), w.Close())
	}
	go func() { // it may be more than a pipe holds
		_, _ = requestW.Write(stage)
		_ = requestW.Close()
	}()
	err = enter(task, unix.CLONE_NEWPID)
	if err == nil {
		err = s.launch([]uintptr{null.Fd(), 1, 2, w.Fd(), requestR.Fd()})
	}
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("fork: %w", err)
	}
	return ready(r)
}

// launch forks the stage, in its v2 cgroup if it has one.
func (s *sitter) launch(files []uintptr) error {
	attr := &syscall.ProcAttr{
		Env: []string{"GOMAXPROCS=1"}, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if dir := s.group.unified(); dir != "" {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(d.Fd())
	}
	var err error
	s.main, err = syscall.ForkExec("/proc/self/exe", []string{"muster-keeper", besideStageArg, s.dir}, attr)
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

// besideStage is what the stage of a command is told.
type besideStage struct {
	Beside
	Cgroups cgroups
	Mark    string
	Task    Identity
}

// becomeBeside turns the process into the command, beside the task of dir.
func becomeBeside(dir string) error {
	runtime.LockOSThread()
	unix.CloseOnExec(besideRequestFD)
	var spec Spec
	if ok, err := read(dir, SpecFile, &spec); err != nil || !ok {
		return fmt.Errorf("read %s: %w", SpecFile, errors.Join(err, errors.New("it is not there")))
	}
	var stage besideStage
	f := os.NewFile(besideRequestFD, "request")
	if err := json.NewDecoder(f).Decode(&stage); err != nil {
		return fmt.Errorf("read the command: %w", err)
	}
	if err := stage.Cgroups.join(); err != nil {
		return fmt.Errorf("join the cgroup: %w", err)
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(spec.OOMScoreAdj)), 0)
	if err := enter(stage.Task, unix.CLONE_NEWIPC|unix.CLONE_NEWUTS|unix.CLONE_NEWNET|unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := os.Chdir(spec.Dir); err != nil {
		return err
	}
	unix.Umask(0o022)
	if u := spec.User; u != nil {
		if err := drop(*u); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("pdeathsig: %w", err)
	}
	env := append(append(spec.Env[:len(spec.Env):len(spec.Env)], stage.Env...), stage.Mark)
	return execute(stage.Command, env)
}

// enter moves the calling thread, which must be locked, into those of a task's
// namespaces that are not its own.
func enter(task Identity, kinds int) error {
	fd, err := openPID(task)
	if err != nil {
		return fmt.Errorf("the task: %w", err)
	}
	defer unix.Close(fd)
	names := map[string]int{"pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "net": unix.CLONE_NEWNET, "mnt": unix.CLONE_NEWNS}
	differ := 0
	for name, kind := range names {
		own, err := os.Readlink("/proc/thread-self/ns/" + name)
		if err != nil {
			continue // a kernel without them
		}
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", task.PID, name))
		if err != nil {
			return fmt.Errorf("the task's namespaces: %w", err)
		}
		if own != its {
			differ |= kind & kinds
		}
	}
	if differ == 0 {
		return nil
	}
	if differ&unix.CLONE_NEWNS != 0 { // threads share their root and working directory otherwise
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
	}
	if err := unix.Setns(fd, differ); err != nil {
		return fmt.Errorf("enter the task's namespaces: %w", err)
	}
	return nil
}
