package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Boot returns the kernel's boot id.
func Boot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// process is a line of the process table.
type process struct {
	Identity
	parent int
	zombie bool
}

// find reads /proc/PID/stat.
func find(pid int) (process, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, b)
}

// parseStat takes the fields after the last ")": the command before it may hold
// anything.
func parseStat(pid int, b []byte) (process, error) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat: has %d fields after the command, want 20", pid, len(f))
	}
	p := process{Identity: Identity{PID: pid}, zombie: f[0][0] == 'Z' || f[0][0] == 'X'}
	var err [2]error
	p.parent, err[0] = strconv.Atoi(string(f[1]))
	p.Start, err[1] = strconv.ParseUint(string(f[19]), 10, 64)
	for _, e := range err {
		if e != nil {
			return process{}, fmt.Errorf("/proc/%d/stat: %w", pid, e)
		}
	}
	return p, nil
}

// processes reads the process table. What ends meanwhile is left out.
func processes() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := find(pid); err == nil {
			list = append(list, p)
		}
	}
	return list, nil
}

// descendants returns the processes below pid, zombies too.
func descendants(pid int) ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	below := map[int]bool{pid: true}
	for grown := true; grown; { // the table is in no order
		grown = false
		for _, p := range all {
			if below[p.parent] && !below[p.PID] {
				below[p.PID], grown = true, true
			}
		}
	}
	var list []process
	for _, p := range all {
		if p.PID != pid && below[p.PID] {
			list = append(list, p)
		}
	}
	return list, nil
}

// startTicks is how many of the units that the kernel tells of a process's start in
// are in a second: USER_HZ, on all architectures that Go knows.
const startTicks = 100

// startNow returns what Identity.Start is of a process that begins now.
func startNow() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return uint64(t.Nano()) / (1_000_000_000 / startTicks)
}

// marked returns the processes that are main or carry mark in their environment; none
// of them began before since, as Identity has it, 0 if that is not known. It sees only into processes of the
// caller's user, unless that is root.
func marked(mark string, main Identity, since uint64) ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var list []process
	for _, p := range all {
		if !p.zombie && p.PID != os.Getpid() && (p.Identity == main || carries(p, mark, since)) {
			list = append(list, p)
		}
	}
	return list, nil
}

// A process that calls execve has no environment to be seen, or none that may be, for
// as long as the new program is loaded.
const (
	loadLooks = 50
	loadEvery = time.Millisecond
)

// carries reports whether a process has mark in its environment. One that began
// since is looked at again while it has none.
func carries(p process, mark string, since uint64) bool {
	if mark == "" {
		return false
	}
	var b []byte
	for look := 1; ; look++ {
		var err error
		b, err = os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/environ")
		if err != nil && (!errors.Is(err, fs.ErrPermission) || !ours(p.PID)) {
			return false
		}
		if len(b) > 0 || since == 0 || p.Start < since || look == loadLooks {
			break
		}
		time.Sleep(loadEvery)
	}
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		if string(entry) == mark {
			return true
		}
	}
	return false
}

// ours reports whether a process is of the caller's user, whoever may look into it.
func ours(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, line, found := bytes.Cut(b, []byte("\nUid:"))
	f := bytes.Fields(line)
	return err == nil && found && len(f) > 0 && string(f[0]) == strconv.Itoa(os.Getuid())
}

// signalProcess sends sig to the process that id identifies, and to no other
// that has its pid since.
func signalProcess(id Identity, sig unix.Signal) error {
	fd, err := openPID(id)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// openPID opens a pidfd of the process that id identifies; ESRCH if it is gone.
// The pidfd comes first: only then does the start time prove whose it is.
func openPID(id Identity) (int, error) {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("process %d: %w", id.PID, err)
	}
	if p, err := find(id.PID); err != nil || p.Start != id.Start {
		unix.Close(fd)
		return -1, fmt.Errorf("process %d: %w", id.PID, unix.ESRCH)
	}
	return fd, nil
}
