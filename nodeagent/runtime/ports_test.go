package runtime_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// bindAttempt listens at addresses, NETWORK ADDRESS, and returns nil if it could at
// all of them.
func bindAttempt(args []string) error {
	// Whoever shares a port would take part of another's connections.
	share := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	for i := 0; i+1 < len(args); i += 2 {
		var c io.Closer
		var err error
		if strings.HasPrefix(args[i], "udp") {
			c, err = share.ListenPacket(context.Background(), args[i], args[i+1])
		} else {
			c, err = share.Listen(context.Background(), args[i], args[i+1])
		}
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

// dialAttempt connects to one of addresses, and says of the last why it could not.
func dialAttempt(args []string) error {
	var err error
	for _, address := range args {
		for _, multipath := range []bool{false, true} {
			var d net.Dialer
			d.SetMultipathTCP(multipath)
			var c net.Conn
			if c, err = d.Dial("tcp", address); err == nil {
				return c.Close()
			}
		}
	}
	return err
}

// freePorts are n ports that nobody has at the moment.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// TestPorts: a task binds its own ports, and those that the kernel chooses, and no
// other, by no protocol and at no address; without the rule it could.
func TestPorts(t *testing.T) {
	t.Parallel()
	needRoot(t)
	exe := installSelf(t)
	m, open := newMachine(t), newMachine(t)
	if m.Attributes()[schema.HasPorts] != "true" {
		t.Skipf("NOT TESTED: needs cgroups v2 with BPF: %v", m.Notes())
	}
	open.Without(runtime.Ports)
	free := freePorts(t, 3)
	own, other := free[:2], free[2]
	for i, tt := range []struct {
		network, host string
		port          int
		alone         bool // in a network of its own
		may           bool
	}{
		{network: "tcp4", host: "127.0.0.1", port: own[0], may: true},
		{network: "tcp", port: own[1], may: true},
		{network: "udp", port: own[0], may: true},
		{network: "tcp4", host: "127.0.0.1", port: 0, may: true},
		{network: "udp6", host: "::", port: 0, may: true},
		{network: "tcp4", host: "127.0.0.1", port: other},
		{network: "tcp4", host: "0.0.0.0", port: other},
		{network: "tcp6", host: "::1", port: other},
		{network: "tcp6", host: "::", port: other},
		{network: "udp4", host: "127.0.0.1", port: other},
		{network: "udp6", host: "::", port: other},
		{network: "tcp4", host: "127.0.0.1", port: other, alone: true, may: true},
	} {
		at := net.JoinHostPort(tt.host, fmt.Sprint(tt.port))
		for _, on := range []*machine{m, open} {
			a := assignment(i, exe, attemptArg, "bind", tt.network, at)
			a.Ports = schema.PortsOf(map[string]int{"http": own[0], "admin": own[1]})
			if tt.alone {
				a.Job.Task.Isolation = &schema.Isolation{Network: schema.NoNetwork}
			}
			p, dir := on.start(a)
			wait(t, p)
			said := strings.TrimSpace(said(t, dir))
			if may := said == escaped; may != (tt.may || on == open) || !may && !strings.Contains(said, "operation not permitted") {
				t.Errorf("%s %s: %q, want it to be possible: %v", tt.network, at, said, tt.may || on == open)
			}
		}
	}
}

// TestClosedPorts: a task that requires isolation reaches the master at no address
// of the machine, and all that is not closed; another task reaches both.
func TestClosedPorts(t *testing.T) {
	t.Parallel()
	needRoot(t)
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	exe := installSelf(t)
	closed := newMachine(t, func(c *config) { c.host.ClosedPorts = []int{1, l.Addr().(*net.TCPAddr).Port} })
	open := newMachine(t, func(c *config) { c.host.ClosedPorts = []int{1} })
	for _, attribute := range schema.IsolationOf(&schema.TaskSpec{Isolation: &schema.Isolation{Require: true}}) {
		if closed.Attributes()[attribute] != "true" {
			t.Skipf("NOT TESTED: needs all isolation: %v", closed.Notes())
		}
	}
	hosts := []string{"127.0.0.1", "127.0.0.7", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]"}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if ip := a.(*net.IPNet).IP; ip.IsGlobalUnicast() {
			hosts = append(hosts, strings.Trim(net.JoinHostPort(ip.String(), ""), ":"))
		}
	}
	index := 0
	for _, host := range hosts {
		for name, tt := range map[string]struct {
			on      *machine
			require bool
			may     bool
		}{
			"closed": {closed, true, false}, "closed to others": {closed, false, true}, "not closed": {open, true, true},
		} {
			if c, err := net.Dial("tcp", host+":"+port); err != nil {
				t.Logf("%s: %v", host, err) // a machine without IPv6
				continue
			} else if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			index++
			a := assignment(index, exe, attemptArg, "dial", host+":"+port)
			a.Job.Task.Isolation = &schema.Isolation{Require: tt.require, Network: schema.HostNetwork}
			p, dir := tt.on.start(a)
			wait(t, p)
			said := strings.TrimSpace(said(t, dir))
			if may := said == escaped; may != tt.may || !may && !strings.Contains(said, "operation not permitted") {
				t.Errorf("%s, %s: %q, want it to be possible: %v", host, name, said, tt.may)
			}
		}
	}
}
