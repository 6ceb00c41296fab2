package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrUnknown is in the error when the kernel does not say whose the other end of a
// connection is: it is not on this machine, or is closed.
var ErrUnknown = errors.New("the kernel does not say who is at the other end")

// overflow is what the kernel says of a user that has no number in the user
// namespace of the one who asks (/proc/sys/kernel/overflowuid).
const overflow = 65534

// UserOf returns the numeric user of the process that made the socket at the other
// end of a connection: of a unix socket when it connected, of TCP when the socket
// was made. Both stay what they are when the socket is handed to another process.
func UserOf(c net.Conn) (uint32, error) {
	var uid uint32
	var err error
	switch c := c.(type) {
	case *net.UnixConn:
		uid, err = unixUser(c)
	case *net.TCPConn:
		uid, err = tcpUser(c)
	default:
		err = fmt.Errorf("%w of a %T", ErrUnknown, c)
	}
	if err == nil && uid == overflow && !allMapped() {
		return 0, fmt.Errorf("%w: a user that is not in this user namespace", ErrUnknown)
	}
	return uid, err
}

// ServerOf returns the numeric user of the process that listens where a connection
// was made to.
func ServerOf(c net.Conn) (uint32, error) {
	to, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return UserOf(c) // of a unix socket the kernel says who listened
	}
	d, err := openDiag()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	defer d.close()
	s, err := d.listener(to.AddrPort())
	if err == nil && s.inode == 0 {
		err = errors.New("it is closed")
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return s.uid, nil
}

// ProcessOf returns the process that connected a unix socket, by its number here: 0 of
// one in another pid namespace. It may have ended.
func ProcessOf(c *net.UnixConn) (pid int, err error) {
	cred, err := unixPeer(c)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

func unixUser(c *net.UnixConn) (uint32, error) {
	cred, err := unixPeer(c)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

func unixPeer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return cred, nil
}

// tcpUser asks the kernel for the socket at the other end. That answer is about a
// socket that its owner may close at any moment:
//
//   - One that is closed, and whose last data is still in progress, is of user 0 to
//     many kernels; so one without an inode has no owner here. The kernel reads
//     user and inode one after the other, hence the second look: if there is an
//     inode after the user was read, then there was one when it was read.
//   - The two addresses may be another connection's by then. They are not if our
//     own end, which is found by them too, is still the socket that was accepted.
func tcpUser(c *net.TCPConn) (uint32, error) {
	ours, ok1 := c.LocalAddr().(*net.TCPAddr)
	theirs, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return 0, ErrUnknown
	}
	own, err := inodeOf(c)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	d, err := openDiag()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	defer d.close()
	var seen [2]socket
	for i := range seen {
		if seen[i], err = d.find(theirs.AddrPort(), ours.AddrPort()); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
	mine, err := d.find(ours.AddrPort(), theirs.AddrPort())
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if seen[0] != seen[1] || seen[0].inode == 0 || mine.inode != own {
		return 0, fmt.Errorf("%w: it is closed", ErrUnknown)
	}
	return seen[0].uid, nil
}

// inodeOf returns the inode of a connection's socket, if the kernel shows it for other
// users' sockets.
func inodeOf(c *net.TCPConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	var statErr error
	err = raw.Control(func(fd uintptr) { statErr = unix.Fstat(int(fd), &st) })
	return uint32(st.Ino), errors.Join(err, statErr) //nolint:gosec // the kernel's own cut
}

// allMapped reports whether each user of the machine has its number in this user
// namespace.
var allMapped = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(b))
	return err == nil && len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == strconv.FormatUint(1<<32-1, 10)
})
