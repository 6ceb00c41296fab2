package keeper

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// repairVariable is in the environment of a keeper that writes its files again when
// it gets SIGUSR2.
const repairVariable = "MUSTER_KEEPER=mends"

// Running is a keeper that lives, as the process table has it.
type Running struct {
	Identity
	Dir string // of the incarnation
	// repairs is false for a keeper of an earlier release: it can only be killed.
	repairs bool
}

// Scan finds the keepers of the directories below root, there or not, by the
// arguments of the processes of this pid namespace that are of the caller's user.
// No task with a user or a pid namespace of its own is among them, whatever it says
// of itself.
func Scan(root string) ([]Running, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	here, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, err
	}
	var list []Running
	for _, p := range all {
		if p.zombie {
			continue
		}
		if r := (Running{Identity: p.Identity}); r.read(root, here) {
			list = append(list, r)
		}
	}
	return list, nil
}

// maxArguments is more than the arguments of any keeper have, in bytes: two paths.
const maxArguments = 4 * unix.PathMax

// read completes r, and reports whether it is a keeper of a directory below root. Of a
// task's process it reads nothing that the task has written.
func (r *Running) read(root, namespace string) bool {
	if !ours(r.PID) {
		return false
	}
	proc := "/proc/" + strconv.Itoa(r.PID)
	if there, err := os.Readlink(proc + "/ns/pid"); err != nil || there != namespace || !sameRoot(proc) {
		return false
	}
	args, err := readSome(proc+"/cmdline", maxArguments)
	if err != nil {
		return false
	}
	list := strings.Split(strings.TrimRight(string(args), "\x00"), "\x00") // a Spare has room after them
	if len(list) != 2 || !strings.HasPrefix(list[1], root+"/") && list[1] != root {
		return false
	}
	r.Dir = filepath.Clean(list[1])
	env, _ := readSome(proc+"/environ", maxEnvironment) // nothing read: it is sent no SIGUSR2
	r.repairs = bytes.Contains(append([]byte{0}, env...), []byte("\x00"+repairVariable+"\x00"))
	return true
}

// sameRoot reports whether a process has our root directory, so that the paths in
// its arguments are ours.
func sameRoot(proc string) bool {
	var ours, theirs unix.Stat_t
	return unix.Stat("/", &ours) == nil && unix.Stat(proc+"/root/", &theirs) == nil && ours.Dev == theirs.Dev && ours.Ino == theirs.Ino
}

// living returns the keeper of dir, nil if none lives: the one that its state
// names, or else the one that the process table has.
func living(dir, boot string, state *State) *Running {
	if state.Boot == boot && state.Keeper.PID > 0 {
		p, err := find(state.Keeper.PID)
		if err != nil || p.zombie || p.Identity != state.Keeper {
			return nil
		}
		r := Running{Identity: state.Keeper}
		here, _ := os.Readlink("/proc/self/ns/pid")
		r.read(dir, here)
		return &r
	}
	if state.Boot != "" {
		return nil // of another boot
	}
	list, _ := Scan(dir) // an unreadable process table has none
	for _, r := range list {
		if r.Dir == dir {
			return &r
		}
	}
	return nil
}

// signal sends sig to the keeper that r is, and to no other that has its pid since.
func (r *Running) signal(sig unix.Signal) error { return signalProcess(r.Identity, sig) }
