package keeper

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// commandError is the fault of the task's command, not of the machine: it is not
// there, or it is refused.
type commandError struct {
	error
	missing bool
}

// commandPrefix marks a commandError on errorFD, missingPrefix one that is missing.
const (
	commandPrefix = "command: "
	missingPrefix = "missing: "
)

// text returns what is written to errorFD.
func (e commandError) text() string {
	if e.missing {
		return commandPrefix + missingPrefix + e.Error()
	}
	return commandPrefix + e.Error()
}

// commandErrorOf returns the commandError that a text of errorFD is; false if it is
// none.
func commandErrorOf(text string) (commandError, bool) {
	text, ok := strings.CutPrefix(text, commandPrefix)
	text, missing := strings.CutPrefix(text, missingPrefix)
	return commandError{errors.New(text), missing}, ok
}

// stage is the task's process from its start to the exec of its command. It
// returns only when that has failed, or is not wanted. The kernel kills it when
// the keeper dies.
func stage() int {
	err := become()
	if err == nil {
		return 0
	}
	text := err.Error()
	if e := (commandError{}); errors.As(err, &e) {
		text = e.text()
	}
	_, _ = unix.Write(errorFD, []byte(text))
	return 127
}

// become turns the process into the task, step by step from what needs the most
// rights to what needs the least. A nil error is a probe's.
func become() error {
	spec, err := handedSpec()
	if err != nil {
		return err
	}
	fds := handedOn(len(spec.Cgroups))
	if len(spec.Command) == 0 && !spec.Probe {
		return errors.New("no command")
	}
	for _, fd := range fds[joinFD:] {
		if _, err := unix.Write(int(fd), []byte("0")); err != nil {
			return fmt.Errorf("join the cgroup: %w", err)
		}
	}
	// A task may be the first to go where memory runs out, never the last:
	// an adjustment that is refused changes nothing that is promised.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(spec.OOMScoreAdj)), 0)
	closeAll(fds[groupFD:])
	if err := spec.enterDir(); err != nil {
		return err
	}
	unix.Umask(0o022)
	if err := disarm(spec); err != nil {
		return err
	}
	if spec.Isolated() { // it goes with the first process; hello
		if _, err := unix.Write(linkFD, make([]byte, helloSize)); err != nil {
			return fmt.Errorf("hello: %w", err)
		}
	}
	if !spec.Isolated() {
		if err := followKeeper(); err != nil { // as the last: a change of user ends it
			return err
		}
	}
	if spec.Probe {
		return nil
	}
	return execute(spec.Command, spec.Env)
}

// enterDir enters the working directory, as the keeper's user: a directory above may be
// closed to the task's. That of a container is made if it is not there, as other runtimes of
// images do. Its path is the image's: a link of /proc/self/fd in it would lead to what this
// process has open of the machine.
func (s *Spec) enterDir() error {
	if s.Container == nil {
		return os.Chdir(s.Dir)
	}
	err := os.MkdirAll(s.Dir, 0o755)
	if err == nil {
		var fd int
		if fd, err = unix.Openat2(unix.AT_FDCWD, s.Dir, &workdirHow); err == nil {
			err = errors.Join(unix.Fchdir(fd), unix.Close(fd))
		}
	}
	if err != nil {
		return commandError{fmt.Errorf("working directory %s: %w", s.Dir, err), false}
	}
	return nil
}

// workdirHow opens the working directory of a container.
var workdirHow = unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}

// execute replaces the process by command, found as a shell would. It returns
// only when that has failed.
func execute(command, env []string) error {
	unignoreSignals()
	name := command[0]
	if strings.Contains(name, "/") {
		err := syscall.Exec(name, command, env)
		return commandError{&os.PathError{Op: "exec", Path: name, Err: err}, err == syscall.ENOENT || err == syscall.ENOTDIR}
	}
	path := ""
	for _, entry := range env {
		if v, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = v
		}
	}
	var refused error // by a file that is there
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			continue // unlike a shell: never what happens to lie in the working directory
		}
		err := syscall.Exec(dir+"/"+name, command, env)
		if err != syscall.ENOENT && err != syscall.ENOTDIR && refused == nil {
			refused = &os.PathError{Op: "exec", Path: dir + "/" + name, Err: err}
		}
	}
	if refused == nil {
		return commandError{fmt.Errorf("exec %s: not found in PATH %s", name, path), true}
	}
	return commandError{refused, false}
}
