package e2e_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/thread"
)

// skew is the time of day of one program, which can be set while it runs; no other's
// is, and neither the kernel's. There is no namespace for it. So the program is started
// without the page from which it would read the time by itself, and asks the kernel,
// which asks here (seccomp_unotify(2)). Its monotonic clock is the real one, as that of a
// machine whose time is set.
type skew struct {
	offset atomic.Int64 // nanoseconds
	reads  atomic.Int64 // of the time of day
}

// What of linux/seccomp.h the filter, and who answers, need.
const (
	seccompSetModeFilter     = 1
	seccompFlagNewListener   = 1 << 3
	seccompRetNotify         = 0x7fc00000
	seccompRetAllow          = 0x7fff0000
	seccompNotifyReceive     = 0xc0502100
	seccompNotifySend        = 0xc0182101
	atSysinfoEHDR, atIgnored = 33, 1 // of the auxiliary vector: where the page is
)

// notification is struct seccomp_notif, and reply struct seccomp_notif_resp.
type (
	notification struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	reply struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
)

// start starts a command line that becomes the program, by exec, and answers it until it
// has ended.
func (k *skew) start(program string) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		cmd.SysProcAttr.Ptrace = true
		return thread.Run(func() error { // the filter is the thread's, and its children's
			listener, err := filterClock()
			if err == nil {
				if err = cmd.Start(); err == nil {
					err = withoutPage(cmd.Process.Pid, program)
				}
			}
			if err == nil {
				go k.answer(listener)
			}
			return err
		})
	}
}

// filterClock has the calls of this thread for the time of day wait for an answer, and
// returns where they are read.
func filterClock() (int, error) {
	const nr, argument = 0, 16 // offsets in struct seccomp_data; the low half of the first
	jump := func(value uint32, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: otherwise}
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	program := []unix.SockFilter{
		load(nr), jump(unix.SYS_CLOCK_GETTIME, 3),
		load(argument), jump(unix.CLOCK_REALTIME, 1),
		{Code: unix.BPF_RET, K: seccompRetNotify},
		{Code: unix.BPF_RET, K: seccompRetAllow},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, seccompSetModeFilter, seccompFlagNewListener, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// withoutPage lets a traced process run until it has become a program, and takes from
// that the page of the kernel's with the time.
func withoutPage(pid int, program string) error {
	var status syscall.WaitStatus
	wait := func() error {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		if err == nil && !status.Stopped() {
			err = errors.New("it has ended before")
		}
		return err
	}
	if err := wait(); err != nil {
		return err
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACEEXEC); err != nil {
		return err
	}
	for {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || filepath.Base(exe) == program {
			if err == nil {
				err = hidePage(pid)
			}
			return errors.Join(err, syscall.PtraceDetach(pid))
		}
		if err := syscall.PtraceCont(pid, 0); err != nil {
			return err
		}
		if err := wait(); err != nil {
			return err
		}
	}
}

// hidePage takes the page out of what the kernel has put on the stack of a process that
// has not begun to run: arguments, environment, and the auxiliary vector.
func hidePage(pid int) error {
	top, err := stackOf(pid)
	if err != nil {
		return err
	}
	word := make([]byte, 8)
	read := func() (uint64, error) {
		_, err := syscall.PtracePeekData(pid, top, word)
		top += 8
		return binary.NativeEndian.Uint64(word), err
	}
	if _, err := read(); err != nil { // how many arguments
		return err
	}
	for range 2 { // arguments and environment end in a zero each
		for v := uint64(1); v != 0; {
			if v, err = read(); err != nil {
				return err
			}
		}
	}
	for {
		key, err := read()
		switch {
		case err != nil:
			return err
		case key == 0:
			return errors.New("the program has no page with the time")
		case key == atSysinfoEHDR:
			_, err := syscall.PtracePokeData(pid, top-8, binary.NativeEndian.AppendUint64(nil, atIgnored))
			return err
		}
		top += 8
	}
}

// answer answers calls for the time of day until there can be no more.
func (k *skew) answer(listener int) {
	defer unix.Close(listener)
	for {
		ready := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || ready[0].Revents&unix.POLLIN == 0 {
			return // all that have the filter have ended
		}
		var call notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), seccompNotifyReceive, uintptr(unsafe.Pointer(&call))); errno != 0 {
			continue // it was killed meanwhile
		}
		back := reply{id: call.id}
		if err := k.write(&call); err != nil {
			back.errno = -int32(unix.EFAULT)
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), seccompNotifySend, uintptr(unsafe.Pointer(&back))) // it may be gone
	}
}

// write writes the time where a call wants it.
func (k *skew) write(call *notification) error {
	now := time.Now().Add(time.Duration(k.offset.Load())).UnixNano()
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", call.pid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	k.reads.Add(1)
	timespec := binary.NativeEndian.AppendUint64(nil, uint64(now/1e9))
	timespec = binary.NativeEndian.AppendUint64(timespec, uint64(now%1e9))
	_, err = memory.WriteAt(timespec, int64(call.args[1]))
	return err
}

// clockWord makes this test's binary a program that says what time it is.
const clockWord = "say-the-time"

// TestSkew: a program has the time that it is given.
func TestSkew(t *testing.T) {
	t.Parallel()
	var k skew
	k.offset.Store(int64(-240 * time.Hour))
	d, err := launchBy(filepath.Join(t.TempDir(), "log"), k.start(filepath.Base(os.Args[0])), "env", os.Args[0], clockWord)
	if err != nil {
		t.Fatal(err)
	}
	<-d.done
	var at int64
	if _, err := fmt.Sscan(<-d.said, &at); err != nil || k.reads.Load() == 0 {
		t.Fatalf("it has read the time %d times: %v", k.reads.Load(), err)
	}
	if early := time.Until(time.Unix(at, 0)) + 240*time.Hour; early.Abs() > time.Minute {
		t.Errorf("its time differs by %s", early)
	}
}
