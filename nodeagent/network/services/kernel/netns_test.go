package kernel_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/thread"
)

// space is a network namespace without a name: it goes with its last thread and socket.
type space struct{ fd int }

func newSpace(t testing.TB) space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make network namespaces")
	}
	var s space
	onThread(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		s.fd = fd
		// A link whose own address is still being looked for elsewhere asks for no neighbor, and
		// what it forwards meanwhile is answered with "no route to host".
		return errors.Join(err, set("ipv6/conf/default/accept_dad", "0"), up("lo"))
	})
	t.Cleanup(func() { _ = unix.Close(s.fd) })
	return s
}

// onThread runs f on a thread that ends with it.
func onThread(t testing.TB, f func() error) {
	t.Helper()
	err := thread.Run(func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
		}()
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// do runs f in the namespace.
func (s space) do(t testing.TB, f func() error) {
	t.Helper()
	onThread(t, func() error {
		if err := unix.Setns(s.fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("setns: %w", err)
		}
		return f()
	})
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// address gives an interface an address that can be used at once.
func address(link, prefix string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	a.Flags |= unix.IFA_F_NODAD
	return netlink.AddrAdd(l, a)
}

func route(via string) error {
	return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(via)})
}

func set(path, value string) error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0o644) }

// lab is a machine with a client and backends, each a network namespace. The backends are
// b0, b1, …: 10.1.N.2 and fd01:N::2, and echo on port 80 of TCP and UDP, beginning with their
// name.
type lab struct {
	t        testing.TB
	machine  space
	client   space
	backends []space
}

func newLab(t testing.TB, backends int) *lab {
	t.Helper()
	l := &lab{t: t, machine: newSpace(t), client: newSpace(t)}
	l.machine.do(t, func() error {
		return errors.Join(set("ipv4/ip_forward", "1"), set("ipv6/conf/all/forwarding", "1"))
	})
	l.connect(l.client, "client", "10.0.0", "fd00:0")
	l.machine.do(t, func() error { return errors.Join(route("10.0.0.2"), route("fd00:0::2")) })
	for i := range backends {
		b := newSpace(t)
		l.backends = append(l.backends, b)
		l.connect(b, fmt.Sprint("b", i), fmt.Sprint("10.1.", i), fmt.Sprint("fd01:", i))
		l.serve(b, fmt.Sprint("b", i), 80)
	}
	return l
}

func (l *lab) connect(s space, name, net4, net6 string) {
	l.t.Helper()
	l.machine.do(l.t, func() error {
		a := netlink.NewLinkAttrs()
		a.Name = name
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "eth0", PeerNamespace: netlink.NsFd(s.fd)}); err != nil {
			return fmt.Errorf("veth %s: %w", name, err)
		}
		return errors.Join(address(name, net4+".1/24"), address(name, net6+"::1/64"), up(name))
	})
	s.do(l.t, func() error {
		return errors.Join(address("eth0", net4+".2/24"), address("eth0", net6+"::2/64"), up("eth0"), route(net4+".1"), route(net6+"::1"))
	})
}

// listen serves connections of TCP to a port until the test ends.
func (l *lab) listen(s space, port int, serve func(net.Conn)) {
	l.t.Helper()
	s.do(l.t, func() error {
		tcp, err := net.Listen("tcp", fmt.Sprint("[::]:", port))
		if err != nil {
			return err
		}
		l.t.Cleanup(func() { _ = tcp.Close() })
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				go func() {
					serve(c)
					_ = c.Close()
				}()
			}
		}()
		return nil
	})
}

// serve answers on a port of TCP and UDP until the test ends.
func (l *lab) serve(s space, name string, port int) {
	l.t.Helper()
	l.listen(s, port, func(c net.Conn) {
		_, _ = fmt.Fprintln(c, name, c.RemoteAddr().(*net.TCPAddr).IP)
		_, _ = io.Copy(c, c)
	})
	s.do(l.t, func() error {
		udp, err := net.ListenPacket("udp", fmt.Sprint("[::]:", port))
		if err != nil {
			return err
		}
		l.t.Cleanup(func() { _ = udp.Close() })
		go func() {
			b := make([]byte, 100)
			for {
				_, from, err := udp.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = udp.WriteTo([]byte(name+"\n"), from)
			}
		}()
		return nil
	})
}

// dial connects from a namespace.
func (l *lab) dial(s space, network, to string) (net.Conn, error) {
	l.t.Helper()
	var c net.Conn
	var err error
	s.do(l.t, func() error {
		c, err = net.DialTimeout(network, to, 5*time.Second)
		return nil
	})
	if err == nil {
		l.t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return c, err
}

// ask connects, and returns what the backend says first: its name, and for TCP where it sees the client.
func (l *lab) ask(s space, network, to string) (string, error) {
	l.t.Helper()
	c, err := l.dial(s, network, to)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return answer(c, network)
}

func answer(c net.Conn, network string) (string, error) {
	if network == "udp" {
		if _, err := c.Write([]byte("?")); err != nil {
			return "", err
		}
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// open connects by TCP, and returns the connection and the backend's name.
func (l *lab) open(s space, to string) (net.Conn, string) {
	l.t.Helper()
	c, err := l.dial(s, "tcp", to)
	if err != nil {
		l.t.Fatal(err)
	}
	line, err := answer(c, "tcp")
	if err != nil {
		l.t.Fatal(err)
	}
	name, _, _ := strings.Cut(line, " ")
	return c, name
}

// echo reports whether a connection works.
func echo(c net.Conn) error {
	if _, err := c.Write([]byte("x\n")); err != nil {
		return err
	}
	b := make([]byte, 2)
	_, err := io.ReadFull(c, b)
	return err
}

func at(i int, v6 bool) netip.AddrPort {
	if v6 {
		return netip.MustParseAddrPort(fmt.Sprintf("[fd01:%d::2]:80", i))
	}
	return netip.MustParseAddrPort(fmt.Sprintf("10.1.%d.2:80", i))
}
