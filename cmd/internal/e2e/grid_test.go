package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/strike"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema/thread"
)

// answerWord makes this test's binary a task that answers others.
const answerWord = "answer-as-a-task"

// answerTask answers requests by HTTP, and packets of UDP, with the task's job, index and version, until
// SIGTERM, and not a moment longer.
func answerTask() int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	at := ":" + os.Getenv("MUSTER_PORT_HTTP")
	l, err := net.Listen("tcp", at)
	if err != nil {
		return 1
	}
	p, err := net.ListenPacket("udp", at)
	if err != nil {
		return 1
	}
	name := fmt.Sprintf("%s/%s %s", os.Getenv("MUSTER_JOB"), os.Getenv("MUSTER_TASK_INDEX"), os.Getenv("VERSION"))
	go func() {
		for b := make([]byte, 100); ; {
			_, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = p.WriteTo([]byte(name), from)
		}
	}()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(os.Getenv("SICK")); err == nil {
			http.Error(w, "sick", http.StatusServiceUnavailable)
		}
	})
	go func() { _ = http.Serve(l, mux) }()
	<-terminated
	return 0
}

// grid is a cell whose machines are hosts of a network of their own, and which has virtual addresses.
type grid struct {
	*cell
	net    *network
	agents map[string]*daemon
	hosts  map[string]int    // by machine
	dns    map[string]string // by machine, where its agent answers names
	flags  []string          // of agents
}

// place is where a grid is, and what its network has.
type place struct {
	machines int
	flags    []string // of agents
	network  string   // the fields of the cell's network, as CUE; "" is virtual addresses alone
	// beside is a grid on the same machines; nil for one with machines of its own.
	beside *grid
	name   string // of the cell; "" is cellName
}

// newGrid starts a master, and agents on so many machines: m1, m2 and so on. They have no default route.
func newGrid(t *testing.T, machines int, flags ...string) *grid {
	t.Helper()
	return newGridAt(t, place{machines: machines, flags: flags})
}

func newGridAt(t *testing.T, at place) *grid {
	t.Helper()
	g := &grid{cell: prepare(t), agents: map[string]*daemon{}, hosts: map[string]int{}, dns: map[string]string{}, flags: at.flags}
	g.name = cmp.Or(at.name, cellName)
	if at.beside != nil {
		g.net, g.hosts = at.beside.net, at.beside.hosts
	} else {
		g.net = newNetwork(t)
	}
	t.Cleanup(g.stop)
	exe, err := os.Executable()
	g.must(err)
	program, err := os.ReadFile(exe)
	g.must(err)
	g.must(strike.Program(t.Context(), g.path("server"), program))
	g.initRepo()
	g.commit("a network", map[string][]byte{"cells/" + g.name + "/cell.cue": fmt.Appendf(nil, `package cells

import "%s/muster"

cell: %q: muster.#Cell & {
	quota: "off"
	network: {%s}
}
`, module, g.name, cmp.Or(at.network, `services: "10.80.0.0/24"`))})
	g.startMaster()
	for i := range at.machines {
		name := fmt.Sprint("m", i+1)
		if at.beside == nil {
			g.hosts[name] = g.net.attach()
			g.dns[name] = address0(g.hosts[name])
		} else {
			g.dns[name] = fmt.Sprint("10.99.0.", 101+i)
			g.net.inside(g.hosts[name], "addr", "add", g.dns[name]+"/24", "dev", "eth0")
		}
		g.start(name)
	}
	g.allUp()
	return g
}

// start starts a machine's agent.
func (g *grid) start(machine string) {
	g.t.Helper()
	host := g.hosts[machine]
	line := g.net.on(host, filepath.Join(g.bin, "muster-agent"), "--cell", g.name, "--master", "unix:"+g.path("link", "agent.sock"), "--name", machine,
		"--address", address0(host), "--dns-listen", g.dns[machine], "--dns-upstream", "127.0.0.1:1", "--dns-allow", "10.99.0.0/24", "--label", "is="+machine, "--state-dir", g.path("state-"+machine), "--writable", g.path("journals"), neverOverloaded)
	a, err := launch(g.path(machine+".log"), line[0], append(line[1:], g.flags...)...)
	g.must(err)
	g.agents[machine] = a
}

// allUp waits for all agents.
func (g *grid) allUp() {
	g.t.Helper()
	g.until("the agents join", func(s *status.Status) string {
		up := 0
		for _, m := range s.Machines {
			if m.Health == string(model.HealthUp) {
				up++
			}
		}
		if up == len(g.hosts) {
			return ""
		}
		return fmt.Sprintf("%d machines are up", up)
	})
}

// stop ends the agents with their tasks, and looks whether services are left in the kernel.
func (g *grid) stop() {
	for _, name := range g.end() {
		if rules := g.rules(name); strings.Contains(rules, "muster") {
			g.t.Errorf("left in the kernel of %s:\n%.500s", name, rules)
		}
		links, err := execOutput(g.net.on(g.hosts[name], "ip", "-o", "link"))
		if g.check(err); strings.Contains(links, ": mus-") {
			g.t.Errorf("left on %s: %s", name, links)
		}
	}
}

// end ends the agents with their tasks, and returns the machines of those that there were.
func (g *grid) end() []string {
	var ending sync.WaitGroup
	names := slices.Sorted(maps.Keys(g.agents))
	for name, a := range g.agents {
		if g.t.Failed() {
			b, _ := os.ReadFile(g.path(name + ".log"))
			g.t.Logf("the end of %s.log:\n%s", name, b[max(0, len(b)-4000):])
		}
		ending.Go(func() { g.check(a.end(syscall.SIGINT, bound)) })
	}
	ending.Wait()
	clear(g.agents)
	return names
}

// rules returns what nftables have on a machine.
func (g *grid) rules(machine string) string {
	g.t.Helper()
	line := g.net.on(g.hosts[machine], "nft", "list", "ruleset")
	out, err := execOutput(line)
	g.check(err)
	return out
}

// inside runs f on a thread in the network of a machine.
func (g *grid) inside(machine string, f func()) error {
	path := filepath.Join("/run/netns", g.net.names[g.hosts[machine]])
	return thread.Run(func() error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		if err = errors.Join(err, unix.Close(fd)); err == nil {
			f()
		}
		return err
	})
}

// lookup asks the agents of machines for the address of a name, one after the other as a resolver
// does. The calling thread is in the network of one.
func (g *grid) lookup(ctx context.Context, name string, machines ...string) (netip.Addr, error) {
	q := new(dns.Msg)
	q.SetQuestion(name+".", dns.TypeA)
	var errs []error
	for i, m := range machines {
		// An agent that is killed answers nothing that it has read; the last one has more time.
		c := dns.Client{Timeout: 500 * time.Millisecond}
		if i == len(machines)-1 {
			c.Timeout = requestWithin
		}
		r, _, err := c.ExchangeContext(ctx, q, net.JoinHostPort(g.dns[m], "53"))
		if err != nil {
			if i < len(machines)-1 {
				err = errors.New(err.Error()) // that it was too late says nothing of the next
			}
			errs = append(errs, fmt.Errorf("DNS of %s: %w", m, err))
			continue
		}
		for _, a := range r.Answer {
			if a, ok := a.(*dns.A); ok {
				at, _ := netip.AddrFromSlice(a.A)
				return at.Unmap(), nil
			}
		}
		errs = append(errs, fmt.Errorf("DNS of %s: %s without an address", m, dns.RcodeToString[r.Rcode]))
	}
	return netip.Addr{}, errors.Join(errs...)
}

// requestWithin is how long a request waits for its connection, and then for the answer, as long as a machine
// with much to do may take.
const requestWithin = 30 * time.Second

// request is one request over a connection of its own. It returns who answered.
func request(ctx context.Context, to netip.AddrPort) (string, error) {
	d := net.Dialer{Timeout: requestWithin}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(requestWithin))
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return "", err
	}
	head, body, ok := strings.Cut(string(b), "\r\n\r\n")
	if !ok || !strings.HasPrefix(head, "HTTP/1.0 200") {
		return "", fmt.Errorf("answered %q", b)
	}
	return body, nil
}
