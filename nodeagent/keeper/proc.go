package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// process is a line of the process table.
type process struct {
	Identity
	parent  int
	zombie  bool
	exiting bool // it ends, and does nothing more
	kernel  bool // a thread of the kernel's, which has no environment
}

// The flags of a thread of the kernel's, and of a process that ends (PF_KTHREAD and
// PF_EXITING of linux/sched.h).
const (
	kernelThread = 0x0020_0000
	isExiting    = 0x0000_0004
)

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
	var err [3]error
	p.parent, err[0] = strconv.Atoi(string(f[1]))
	p.Start, err[1] = strconv.ParseUint(string(f[19]), 10, 64)
	flags, failed := strconv.ParseUint(string(f[6]), 10, 64)
	p.kernel, p.exiting, err[2] = flags&kernelThread != 0, flags&isExiting != 0, failed
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

// startTicks is how many of the units in which the kernel counts the start of a process
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

// marking says which processes are looked for.
type marking struct {
	main Identity // one of them, whatever its environment
	// entry reports whether an entry of the environment of process pid makes it one
	// of them; nil: none does.
	entry func(pid int, entry string) bool
	// since is when the first of them began, as Identity has it; 0 if that is not
	// known.
	since uint64
}

// carrying is a marking of those that have mark in their environment; none if it is "".
func carrying(mark string, main Identity, since uint64) *marking {
	m := &marking{main: main, since: since}
	if mark != "" {
		m.entry = func(_ int, entry string) bool { return entry == mark }
	}
	return m
}

// A process that calls execve has no environment to be seen, or none that may be, for
// as long as the new program is loaded.
const (
	loadLooks = 50
	loadEvery = time.Millisecond
)

// list returns the processes that are looked for. It sees only into processes of the
// caller's user, unless that is root. Those that have no environment are looked at
// again, all together, if they began since the first.
func (m *marking) list() ([]process, error) {
	left, err := processes()
	if err != nil {
		return nil, err
	}
	var list []process
	for look := 1; len(left) > 0 && look <= loadLooks; look++ {
		if look > 1 {
			time.Sleep(loadEvery)
		}
		var loading []process
		for _, p := range left {
			switch found, again := m.look(&p); {
			case found:
				list = append(list, p)
			case again:
				loading = append(loading, p)
			}
		}
		left = loading
	}
	return list, nil
}

// maxEnvironment is the most that execve(2) takes of arguments and environment, in bytes:
// three quarters of the 8 MiB that a stack has.
const maxEnvironment = 6 << 20

// readSome reads a file of /proc that is a part of a process's memory, up to most bytes.
// A process says itself where its arguments and environment begin and end (PR_SET_MM_MAP
// of prctl(2)), also around more than the machine has memory.
func readSome(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(io.LimitReader(f, most))
	return b.Bytes(), err
}

// look reports whether a process is looked for, or is to be looked at again.
func (m *marking) look(p *process) (found, again bool) {
	switch {
	case p.zombie || p.PID == os.Getpid():
		return false, false
	case p.Identity == m.main:
		return true, false
	case m.entry == nil, p.Start < m.since:
		return false, false
	}
	b, err := readSome("/proc/"+strconv.Itoa(p.PID)+"/environ", maxEnvironment)
	if err != nil && (!errors.Is(err, fs.ErrPermission) || !ours(p.PID)) {
		return false, false
	}
	if len(b) == 0 {
		return false, m.since > 0 && !p.kernel
	}
	for entry := range bytes.FieldsFuncSeq(b, func(r rune) bool { return r == 0 }) { // millions of zeros are passed at once
		if m.entry(p.PID, string(entry)) {
			return true, false
		}
	}
	return false, false
}

// inOurNamespace reports whether a process is of the caller's pid namespace.
func inOurNamespace(pid int) bool {
	here, err := os.Readlink("/proc/self/ns/pid")
	there, failed := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid")
	return err == nil && failed == nil && here == there
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
