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

// The descriptors of the stage beyond the standard three.
const stageErrorFD = 3 // what goes wrong is written here; closed by a good exec

// commandError is the fault of the task's command, not of the machine.
type commandError struct{ error }

// commandPrefix marks a commandError on stageErrorFD.
const commandPrefix = "command: "

// stage is the task's process from its start to the exec of its command. It
// returns only when that has failed. The kernel kills it when the keeper dies.
func stage(dir string, become func(dir string) error) {
	unix.CloseOnExec(stageErrorFD)
	err := become(dir)
	text := err.Error()
	if e := (commandError{}); errors.As(err, &e) {
		text = commandPrefix + text
	}
	_, _ = unix.Write(stageErrorFD, []byte(text))
}

// become turns the process into the task of dir, step by step from what needs
// the most rights to what needs the least.
func become(dir string) error {
	keeper := os.Getppid()
	var spec Spec
	if ok, err := read(dir, SpecFile, &spec); err != nil || !ok || len(spec.Command) == 0 {
		return fmt.Errorf("read %s: %w", SpecFile, errors.Join(err, errors.New("no command")))
	}
	if err := cgroups(spec.Cgroups).join(); err != nil {
		return fmt.Errorf("join the cgroup: %w", err)
	}
	// A task may be the first to go where memory runs out, never the last:
	// an adjustment that is refused changes nothing that is promised.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(spec.OOMScoreAdj)), 0)
	// As the keeper's user: a directory above may be closed to the task's.
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
	// The change of user has cleared it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("pdeathsig: %w", err)
	}
	if os.Getppid() != keeper {
		return errors.New("the keeper has died")
	}
	return execute(spec.Command, spec.Env)
}

// drop gives up the keeper's user, all its groups and, with them, its
// capabilities: of the calling thread, which is all that the exec leaves. The
// syscall package would stop all threads for each call.
func drop(u User) error {
	uid, gid := uintptr(u.UID), uintptr(u.GID)
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("clear the groups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return fmt.Errorf("become group %d: %w", u.GID, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
		return fmt.Errorf("become user %d: %w", u.UID, e)
	}
	return nil
}

// execute replaces the process by command, found as a shell would. It returns
// only when that has failed.
func execute(command, env []string) error {
	name := command[0]
	if strings.Contains(name, "/") {
		return commandError{&os.PathError{Op: "exec", Path: name, Err: syscall.Exec(name, command, env)}}
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
		refused = fmt.Errorf("exec %s: not found in PATH %s", name, path)
	}
	return commandError{refused}
}
