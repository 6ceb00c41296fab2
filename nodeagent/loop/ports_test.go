package loop_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
)

// TestCheckPort: a port is refused whoever holds it, however.
func TestCheckPort(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ network, host, want string }{
		{"tcp4", "127.0.0.1", "address already in use"},
		{"tcp4", "0.0.0.0", "address already in use"},
		{"tcp6", "::1", "address already in use"},
		{"tcp", "", "address already in use"},
		{"udp4", "127.0.0.1", "address already in use (UDP)"},
		{"udp4", "0.0.0.0", "address already in use (UDP)"},
		{"udp6", "::1", "address already in use (UDP)"},
		{"udp", "", "address already in use (UDP)"},
	} {
		t.Run(tt.network+" "+tt.host, func(t *testing.T) {
			t.Parallel()
			port, release := listen(t, tt.network, tt.host)
			err := loop.CheckPort(port)
			for range 5 { // whoever else took its number over the other protocol meanwhile is named first
				if err != nil && err.Error() == tt.want {
					break
				}
				release()
				port, release = listen(t, tt.network, tt.host)
				err = loop.CheckPort(port)
			}
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			busy, err := loop.Listeners(schema.PortRange{First: port, Last: port})
			if err != nil || !slices.Equal(busy, []int{port}) {
				t.Errorf("in use: %v, %v, want %d", busy, err, port)
			}
			release()
			// Until then the kernel may give it to somebody else for a while.
			eventually(t, "it is free", func() bool { return loop.CheckPort(port) == nil })
		})
	}
}

// listen takes a port; release gives it back.
func listen(t *testing.T, network, host string) (port int, release func()) {
	t.Helper()
	address := net.JoinHostPort(host, "0")
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			t.Skipf("NOT TESTED: %v", err)
		}
		return c.LocalAddr().(*net.UDPAddr).Port, func() { c.Close() }
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	return l.Addr().(*net.TCPAddr).Port, func() { l.Close() }
}

// Two tasks that were given one port, by a master that is mistaken or of which
// the older one lingers, do not both run, even before either listens.
func TestPortTwice(t *testing.T) {
	bubble(t, func(s *story) {
		a, b := assignment("web", 0, 1, schema.Service), assignment("api", 0, 2, schema.Service)
		a.Ports = schema.PortsOf(map[string]int{"http": 31007})
		b.Ports = a.Ports
		s.assign(a)
		s.until("u/web/0 g1 running")
		s.assign(a, b)
		s.until("u/api/0 g2 dead port-in-use", "u/web/0 g1 running")
		want := fmt.Sprintf("port http (31007): address already in use by %s generation 1", a.Task.Short())
		if got := s.agent.Report().Tasks[0].End.Message; got != want {
			t.Errorf("end %q, want %q", got, want)
		}
		s.restart()
		c := b
		c.Generation = 3
		s.assign(a, c)
		s.until("u/api/0 g2 dead port-in-use", "u/api/0 g3 dead port-in-use", "u/web/0 g1 running")
	})
}

// Both at once: one of them runs.
func TestPortRace(t *testing.T) {
	bubble(t, func(s *story) {
		var view []schema.Assignment
		for i := range 8 {
			a := assignment("web", i, uint64(i+1), schema.Service)
			a.Ports = schema.PortsOf(map[string]int{"http": 31008})
			view = append(view, a)
		}
		s.assign(view...)
		want := []string{"u/web/0 g1 running"}
		for i := 1; i < 8; i++ {
			want = append(want, fmt.Sprintf("u/web/%d g%d dead port-in-use", i, i+1))
		}
		s.until(want...)
	})
}
