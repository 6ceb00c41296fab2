package keeper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// first is the first process of the task's namespaces: it makes them ready, starts the
// stage, reaps orphans, and reports to the keeper how the main process has ended. Then it
// waits to be killed, and all else in its pid namespace with it. So the main process is
// an ordinary one: to a first process the kernel delivers no signal that it does not
// handle.
func first(dir string) int {
	// A task with our user, which signals all it can from its first instruction
	// on, means itself. SIGKILL from within does nothing to a first process, and
	// what is handled here an exec sets back.
	signal.Notify(make(chan os.Signal, 1))
	main, err := prepare(dir)
	if err != nil {
		_, _ = unix.Write(errorFD, []byte(err.Error()))
		return 1
	}
	defaultSignals() // the task may send one after the other for as long as it runs
	releaseProgramPages()
	if err := reapUntil(main); err != nil {
		return 1 // the keeper sees the socket closed
	}
	for { // until the keeper has taken note: till then no other gets the main process's pid
		_ = unix.Pause()
	}
}

// prepare makes the namespaces ready and starts the stage.
func prepare(dir string) (int, error) {
	spec, err := handedSpec()
	if err != nil {
		return 0, err
	}
	fds := handedOn(len(spec.Cgroups))
	if err := followKeeper(); err != nil {
		return 0, err
	}
	if err := spec.Sandbox.make(); err != nil {
		return 0, fmt.Errorf("sandbox: %w", err)
	}
	// Where the task has our user, it may not look into us. An exec makes the
	// stage dumpable again.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("not dumpable: %w", err)
	}
	main, err := startStage(dir, fds, &syscall.SysProcAttr{Setsid: true})
	if err != nil {
		return 0, fmt.Errorf("fork: %w", err)
	}
	for fd := range fds {
		switch fd {
		case 1, 2: // whoever reads them to their end waits for the task alone
			_ = unix.Dup3(0, fd, 0)
		case 0, linkFD:
		default:
			_ = unix.Close(fd)
		}
	}
	return main, nil
}

// handedOn returns the descriptors that the keeper has handed on, for a task in
// that many cgroups, and keeps those beyond the standard three from whatever is
// executed without being given them.
func handedOn(cgroups int) []uintptr {
	fds := make([]uintptr, joinFD+cgroups)
	for fd := range fds {
		fds[fd] = uintptr(fd)
		if fd >= errorFD {
			unix.CloseOnExec(fd)
		}
	}
	return fds
}

// followKeeper has the kernel kill this process when the keeper dies.
func followKeeper() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("pdeathsig: %w", err)
	}
	// It may have died before. Its pid cannot be seen from here.
	p := []unix.PollFd{{Fd: errorFD}}
	if _, err := unix.Poll(p, 0); err == nil && p[0].Revents&unix.POLLERR != 0 {
		return errors.New("the keeper has died")
	}
	return nil
}

// descriptor is one of an open file that stays open.
type descriptor int

// ReadAt implements io.ReaderAt.
func (d descriptor) ReadAt(b []byte, off int64) (int, error) {
	n, err := unix.Pread(int(d), b, off)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

// handedSpec reads specFD from its start.
func handedSpec() (*Spec, error) {
	var spec Spec
	if err := json.NewDecoder(io.NewSectionReader(descriptor(specFD), 0, 1<<40)).Decode(&spec); err != nil {
		return nil, fmt.Errorf("read %s: %w", SpecFile, err)
	}
	return &spec, nil
}

// childEnd is the kernel's siginfo as waitid fills it in.
type childEnd struct {
	signo, errno, code int32
	_                  [0]uintptr
	pid                int32
	uid                uint32
	status             int32
	_                  [128 - 32]byte
}

// reapUntil reaps orphans until main has ended, which it leaves to be reaped
// and reports to the keeper.
func reapUntil(main int) error {
	for {
		var info childEnd
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case int(info.pid) == main:
			_, err := unix.Write(linkFD, encodeStatus(info.code, info.status))
			return err
		}
		_, _ = unix.Wait4(int(info.pid), nil, 0, nil)
	}
}

// The codes of a child's end (asm-generic/siginfo.h).
const (
	childExited = 1
	childDumped = 3
)

// encodeStatus is a wait status, as wait4 has it, for the keeper.
func encodeStatus(code, status int32) []byte {
	s := uint32(status)
	switch code {
	case childExited:
		s = s & 0xff << 8
	case childDumped:
		s |= 0x80
	}
	return binary.NativeEndian.AppendUint32(nil, s)
}

func decodeStatus(b []byte) syscall.WaitStatus {
	return syscall.WaitStatus(binary.NativeEndian.Uint32(b))
}
