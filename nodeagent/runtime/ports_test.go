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
			a.Ports = map[string]int{"http": own[0], "admin": own[1]}
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
