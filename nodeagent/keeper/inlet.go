package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// inlet is the reading end of a pipe that a task writes to. The runtime's poller would be
// woken by each write, also while nobody reads: as often as the task likes. So the poller
// waits for an epoll of the pipe alone, which reports once that there is data to read,
// and nothing more until it is armed again. Its methods are called by one goroutine.
type inlet struct {
	fd    int
	epoll int
	ready *os.File // of epoll; readable when the pipe is
	conn  syscall.RawConn
	armed func(fd uintptr) bool // takes the word of ready
	event unix.EpollEvent       // what is asked for, and reported
	found [1]unix.EpollEvent
}

// newInlet takes fd.
func newInlet(fd int) (*inlet, error) {
	i := &inlet{fd: fd, event: unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT}}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	idle := unix.EpollEvent{Events: unix.EPOLLONESHOT}
	err = errors.Join(unix.SetNonblock(fd, true), unix.SetNonblock(epoll, true), unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &idle))
	if err != nil {
		return nil, errors.Join(err, unix.Close(epoll))
	}
	i.epoll, i.ready = epoll, os.NewFile(uintptr(epoll), "epoll")
	if i.conn, err = i.ready.SyscallConn(); err != nil {
		return nil, err
	}
	i.armed = func(epoll uintptr) bool {
		n, err := unix.EpollWait(int(epoll), i.found[:], 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	}
	return i, nil
}

// read reads what there is, and waits if that is nothing. The error is io.EOF at the
// end, and os.ErrDeadlineExceeded at ready's deadline.
func (i *inlet) read(b []byte) (int, error) {
	for {
		n, err := unix.Read(i.fd, b)
		switch {
		case n > 0:
			return n, nil
		case n == 0:
			return 0, io.EOF
		case err == unix.EINTR:
			continue
		case err != unix.EAGAIN:
			return 0, err
		}
		if err := unix.EpollCtl(i.epoll, unix.EPOLL_CTL_MOD, i.fd, &i.event); err != nil {
			return 0, err
		}
		if err := i.conn.Read(i.armed); err != nil {
			return 0, err
		}
	}
}

func (i *inlet) close() {
	_ = i.ready.Close()
	_ = unix.Close(i.fd)
}
