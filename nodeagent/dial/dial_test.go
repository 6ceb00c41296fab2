package dial

import (
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoPortLeft: on a network whose ports are all taken the agent still connects.
func TestNoPortLeft(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network of its own")
	}
	runtime.LockOSThread() // for good: the thread ends with its network
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network of its own: %v", err)
	}
	up(t)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40001"), 0); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:7421")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 { // one that connects takes it from who does likewise only
		taken, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Fatalf("there is a port left: %v", c.LocalAddr())
	}
	c, err := TCP(t.Context(), net.Dialer{}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if port := c.LocalAddr().(*net.TCPAddr).Port; port < firstReserved || port > lastReserved {
		t.Errorf("it connects from port %d, want one that is reserved", port)
	}
}

// up brings up lo of the thread's network.
func up(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

// A refusal is the answer, from whichever port.
func TestRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if c, err := TCP(t.Context(), net.Dialer{}, address); err != nil {
		t.Error(err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := TCP(t.Context(), net.Dialer{}, address); err == nil {
		t.Errorf("connected to %v, where nobody listens", c.RemoteAddr())
	}
}
