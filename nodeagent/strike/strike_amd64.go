package strike

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supported reports whether New works here.
const Supported = true

// Tracer traces all processes of one program.
type Tracer struct {
	// Program is the path to start instead of the program's own.
	Program string

	judge   func(Effect) Verdict
	judging sync.Mutex // one question at a time
	calls   *os.File   // processes say here that they are there
	tracing sync.WaitGroup
}

// New makes a program in dir, which has the name of real and is real. The caller
// must be a test's process, and its executable one whose TestMain asks IsCall.
// judge is asked before each effect of each process.
func New(dir, real string, judge func(Effect) Verdict) (*Tracer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t := &Tracer{Program: filepath.Join(dir, filepath.Base(real)), judge: judge}
	if err := errors.Join(
		os.Symlink(self, t.Program),
		os.WriteFile(t.Program+planSuffix, []byte(real), 0o600),
		unix.Mkfifo(t.Program+suffix, 0o600),
	); err != nil {
		return nil, err
	}
	// Writable, too: so it has no end while no process has it.
	if t.calls, err = os.OpenFile(t.Program+suffix, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	t.tracing.Go(func() {
		for in := bufio.NewScanner(t.calls); in.Scan(); {
			var pid, tid int
			if _, err := fmt.Sscan(in.Text(), &pid, &tid); err == nil {
				t.tracing.Go(func() { t.follow(pid, tid) })
			}
		}
	})
	return t, nil
}

// Close returns when all traced processes have ended.
func (t *Tracer) Close() error {
	err := t.calls.Close()
	t.tracing.Wait()
	return err
}

// patience is how long a process waits for its tracer.
const patience = 20 * time.Second

// Exec becomes the program, under its tracer. It returns only when that fails.
func Exec() error {
	runtime.LockOSThread() // the thread that is traced is the one that executes
	real, err := os.ReadFile(os.Args[0] + planSuffix)
	if err != nil {
		return err
	}
	calls, err := os.OpenFile(os.Args[0]+suffix, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	// Where only an ancestor may trace; no such rule is an error.
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	// In a process group of its own it can be waited for apart from what else the
	// tracer's thread has started. One that leads a session has one.
	_ = unix.Setpgid(0, 0)
	_, err = fmt.Fprintln(calls, os.Getpid(), unix.Gettid())
	if err := errors.Join(err, calls.Close()); err != nil {
		return err
	}
	for since := time.Now(); ; time.Sleep(time.Millisecond) {
		ok, err := traced()
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if time.Since(since) > patience {
			return errors.New("no tracer has come")
		}
	}
	args := append([]string{string(real)}, os.Args[1:]...)
	return syscall.Exec(string(real), args, os.Environ())
}

// follower traces one process and all its threads, but not its children.
type follower struct {
	tracer *Tracer
	pid    int
	n      int
	began  bool                  // the program runs
	fail   map[int]syscall.Errno // by thread: of the call that it is in
}

// options of the trace: threads too, and stops at system calls are distinguished from
// signals.
const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACESYSGOOD

// follow traces a process, of which tid is a thread, to its end. All ptrace calls
// for a process must come from one thread.
func (t *Tracer) follow(pid, tid int) {
	runtime.LockOSThread() // and ends with it
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, options, 0, 0); errno != 0 {
		return // the process says that no tracer has come
	}
	f := &follower{tracer: t, pid: pid, fail: map[int]syscall.Errno{}}
	for {
		var status unix.WaitStatus
		// Nobody else's children: they are waited for by who started them.
		tid, err := unix.Wait4(-pid, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return // none is left
		case status.Stopped():
			f.stopped(tid, status)
		}
	}
}

// stopped takes one stop of one thread and lets it go on.
func (f *follower) stopped(tid int, status unix.WaitStatus) {
	signal := 0
	switch event := int(status) >> 16; {
	case event == unix.PTRACE_EVENT_EXEC:
		f.began = true
	case event == unix.PTRACE_EVENT_STOP && status.StopSignal() != unix.SIGTRAP:
		_, _, _ = unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_LISTEN, uintptr(tid), 0, 0, 0, 0)
		return // stopped by a signal, and stays so
	case event != 0:
	case status.StopSignal() == unix.SIGTRAP|0x80:
		if f.began {
			f.call(tid)
		}
	default:
		signal = int(status.StopSignal())
	}
	if f.began {
		_ = unix.PtraceSyscall(tid, signal) // it may have been killed
		return
	}
	_ = unix.PtraceCont(tid, signal)
}

// info is the kernel's struct ptrace_syscall_info.
type info struct {
	op   uint8
	_    [3]uint8
	arch uint32
	_    [2]uint64
	nr   uint64
	args [6]uint64
	_    uint64
}

// The kinds of info (linux/ptrace.h).
const (
	getInfo   = 0x420e // PTRACE_GET_SYSCALL_INFO
	infoEntry = 1
	infoExit  = 2
)

// call takes the begin or the end of a system call.
func (f *follower) call(tid int) {
	var i info
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, getInfo, uintptr(tid), unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i)), 0, 0); errno != 0 {
		return
	}
	switch i.op {
	case infoEntry:
		e, ok := effect(tid, &i)
		if !ok {
			return
		}
		f.n++
		e.PID, e.N = f.pid, f.n
		f.tracer.judging.Lock()
		v := f.tracer.judge(e)
		f.tracer.judging.Unlock()
		if v.Errno != 0 {
			f.fail[tid] = v.Errno
		}
		if v.Kill || v.Errno != 0 {
			setRegisters(tid, func(r *unix.PtraceRegs) { r.Orig_rax = ^uint64(0) }) // no such call
		}
		if v.Kill {
			_ = unix.Kill(f.pid, unix.SIGKILL)
		}
	case infoExit:
		errno, ok := f.fail[tid]
		delete(f.fail, tid)
		if ok {
			setRegisters(tid, func(r *unix.PtraceRegs) { r.Rax = -uint64(errno) })
		}
	}
}

func setRegisters(tid int, change func(*unix.PtraceRegs)) {
	var r unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &r) == nil {
		change(&r)
		_ = unix.PtraceSetRegs(tid, &r)
	}
}

// effect returns what the call of a thread does; false if that outlives nothing.
func effect(tid int, i *info) (e Effect, ok bool) {
	fd := func(call string) (Effect, bool) {
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(i.args[0])))
		return Effect{Call: call, Path: path}, path != "anon_inode:[eventfd]" // Go's poller
	}
	path := func(call string, arg int) (Effect, bool) {
		return Effect{Call: call, Path: text(tid, i.args[arg])}, true
	}
	switch i.nr {
	case unix.SYS_OPENAT:
		if i.args[2]&(unix.O_CREAT|unix.O_TRUNC) != 0 {
			return path("open", 1)
		}
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		return fd("write")
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		return fd("sync")
	case unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE:
		return fd("truncate")
	case unix.SYS_FLOCK:
		return fd("flock")
	case unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return path("rename", map[bool]int{true: 0, false: 1}[i.nr == unix.SYS_RENAME])
	case unix.SYS_UNLINK, unix.SYS_RMDIR:
		return path("unlink", 0)
	case unix.SYS_UNLINKAT:
		return path("unlink", 1)
	case unix.SYS_MKDIR:
		return path("mkdir", 0)
	case unix.SYS_MKDIRAT:
		return path("mkdir", 1)
	case unix.SYS_CLONE:
		return Effect{Call: "fork"}, i.args[0]&unix.CLONE_THREAD == 0
	case unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL:
		return Effect{Call: "kill"}, true
	case unix.SYS_EXIT_GROUP:
		return Effect{Call: "exit"}, true
	}
	return Effect{}, false
}

// text reads a string of a thread's memory.
func text(tid int, at uint64) string {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", tid))
	if err != nil {
		return ""
	}
	defer mem.Close()
	b := make([]byte, unix.PathMax)
	n, _ := mem.ReadAt(b, int64(at)) // as much as there is
	s, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(s)
}
