package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/thread"
)

// as runs f as another user, whose sockets are then its own.
func as(t *testing.T, uid uint32, f func() error) {
	t.Helper()
	err := thread.Run(func() error {
		if int(uid) != os.Geteuid() {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
				return errno
			}
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// users are those that a test can be.
func users() []uint32 {
	if os.Geteuid() == 0 {
		return []uint32{0, 1000, 65534, 70001}
	}
	return []uint32{uint32(os.Geteuid())}
}

func TestUserOf(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, where := range []struct{ network, listen, dial string }{
		{"tcp", "127.0.0.1:0", "127.0.0.1"},
		{"tcp", "127.0.0.1:0", "::ffff:127.0.0.1"}, // by a socket of IPv6
		{"tcp", "[::1]:0", "::1"},
		{"tcp", "[::]:0", "127.0.0.1"}, // to one of IPv6
		{"unix", filepath.Join(dir, "s"), ""},
	} {
		l, err := net.Listen(where.network, where.listen)
		if err != nil {
			t.Logf("%s: %v", where.listen, err) // a machine without IPv6
			continue
		}
		defer l.Close()
		if where.network == "unix" {
			if err := os.Chmod(l.Addr().String(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		for _, uid := range users() {
			t.Run(fmt.Sprint(where, uid), func(t *testing.T) {
				var theirs int
				as(t, uid, func() (err error) { theirs, err = dial(l.Addr(), where.dial); return err })
				defer unix.Close(theirs)
				ours, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer ours.Close()
				if got, err := UserOf(ours); err != nil || got != uid {
					t.Errorf("got %d, %v, want %d", got, err, uid)
				}
				if where.network == "unix" {
					return
				}
				// It has said all: it is still there, and still the same.
				if err := unix.Shutdown(theirs, unix.SHUT_WR); err != nil {
					t.Fatal(err)
				}
				if got, err := UserOf(ours); err != nil || got != uid {
					t.Errorf("half closed: got %d, %v, want %d", got, err, uid)
				}
			})
		}
	}
}

// dial connects without the help of package net, which would close the socket by
// itself, and takes an address of IPv4 for one.
func dial(to net.Addr, host string) (int, error) {
	family, addr := unix.AF_UNIX, unix.Sockaddr(&unix.SockaddrUnix{Name: to.String()})
	if tcp, ok := to.(*net.TCPAddr); ok {
		switch host {
		case "127.0.0.1":
			family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte{127, 0, 0, 1}}
		default:
			family, addr = unix.AF_INET6, &unix.SockaddrInet6{Port: tcp.Port, Addr: [16]byte(net.ParseIP(host).To16())}
		}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return fd, unix.Connect(fd, addr)
}

// TestUserOfClosed: a socket that is closed while its last data is in progress is
// nobody's, and above all not root's, as which the kernel lists it.
func TestUserOfClosed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, end := range map[string]func(fd int) error{
		"closed": unix.Close,
		"closed with data": func(fd int) error {
			_, err := unix.Write(fd, []byte("GET / HTTP/1.1\r\n\r\n"))
			return errors.Join(err, unix.Close(fd))
		},
		"reset": func(fd int) error {
			_, err := unix.Write(fd, []byte("GET / HTTP/1.1\r\n\r\n"))
			return errors.Join(err, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}), unix.Close(fd))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var theirs int
			as(t, users()[len(users())-1], func() (err error) { theirs, err = dial(l.Addr(), "127.0.0.1"); return err })
			ours, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			if err := end(theirs); err != nil {
				t.Fatal(err)
			}
			if got, err := UserOf(ours); !errors.Is(err, ErrUnknown) {
				t.Errorf("got %d, %v, want ErrUnknown", got, err)
			}
		})
	}
}

// TestUserOfOther: of what is neither a unix socket nor TCP nothing is known.
func TestUserOfOther(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if got, err := UserOf(a); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %d, %v, want ErrUnknown", got, err)
	}
}

// TestServerOf: who listens is known before anybody has accepted.
func TestServerOf(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		for _, uid := range users() {
			var l net.Listener
			as(t, uid, func() (err error) { l, err = net.Listen("tcp", address); return err })
			defer l.Close()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			host, _, _ := net.SplitHostPort(address)
			if net.ParseIP(host).IsUnspecified() {
				host = "127.0.0.1"
			}
			c, err := net.Dial("tcp", net.JoinHostPort(host, port))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got, err := ServerOf(c); err != nil || got != uid {
				t.Errorf("%s: got %d, %v, want %d", address, got, err, uid)
			}
		}
	}
}

func TestListenOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := ListenOpen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(filepath.Join(dir, "s")); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenOpen(filepath.Join(dir, "other")); err == nil {
		t.Error("a directory in which anybody can put a socket was taken")
	}
}

func BenchmarkUserOf(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer theirs.Close()
	ours, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer ours.Close()
	for b.Loop() {
		if _, err := UserOf(ours); err != nil {
			b.Fatal(err)
		}
	}
}
