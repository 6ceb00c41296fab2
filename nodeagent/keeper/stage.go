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
	if err := os.Chdir(spec.Dir); err != nil { // as the keeper's user: a directory above may be closed to the task's
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
