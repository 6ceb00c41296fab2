package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

// kinds are services of all kinds over two jobs: of web, which is on each of two machines, and next.
func (g *grid) kinds() string {
	return fmt.Sprintf(`
service: [string]: muster.#Service & {user: "crew", cell: %q}
service: front: {selector: "tier=web", ports: {http: port: 80, udp: {port: 80, target: "http", protocol: "udp"}}}
service: sticky: {selector: "tier=web", ports: http: port: 80, sticky: "client"}
service: near: {selector: "tier=web", ports: http: port: 80, prefer: "machine"}
service: canary: {selector: "tier in (next,web)", ports: http: port: 80, weights: [{selector: "tier=next", weight: 50}]}
service: strict: {selector: "tier=web", ports: http: port: 80, whenNoneReady: "refuse"}
service: empty: {selector: "tier=none", ports: http: port: 80}
`, cellName)
}

// virtual returns the address of a service once it has one.
func (g *grid) virtual(name string) netip.AddrPort {
	g.t.Helper()
	var at netip.Addr
	g.must(within(bound, func() error {
		list, err := g.api.Services(g.t.Context(), "crew/"+name)
		if err == nil && len(list[0].Addresses) == 0 {
			err = errors.New(list[0].Reason)
		}
		if err == nil {
			at = list[0].Addresses[0]
		}
		return err
	}))
	return netip.AddrPortFrom(at, 80)
}

// asks sends requests from a machine, and returns who answered how many.
func (g *grid) asks(machine string, to netip.AddrPort, n int) (map[string]int, error) {
	by := map[string]int{}
	var errs []error
	err := g.inside(machine, func() {
		for range n {
			who, err := request(g.t.Context(), to)
			if err != nil {
				errs = append(errs, err)
				return
			}
			who, _, _ = strings.Cut(who, " ")
			by[who]++
		}
	})
	return by, errors.Join(append(errs, err)...)
}

// slots returns how many slots of a front lead to each endpoint in the kernel of a machine.
func (g *grid) slots(machine string, front netip.AddrPort) map[string]int {
	out := map[string]int{}
	prefix := fmt.Sprintf("%s . tcp . %d . ", front.Addr(), front.Port())
	for field := range strings.SplitSeq(g.rules(machine), ",") {
		_, rest, ok := strings.Cut(field, prefix)
		if !ok {
			continue
		}
		if _, to, ok := strings.Cut(rest, " : "); ok {
			to, _, _ = strings.Cut(to, " }")
			out[strings.TrimSpace(to)]++
		}
	}
	return out
}

// onMachines returns which task of a job each machine has.
func onMachines(s *status.Status, job string) map[string]string {
	out := map[string]string{}
	for _, t := range s.Tasks {
		if strings.HasPrefix(t.Name, "crew/"+job+"/") {
			out[t.Machine] = strings.TrimPrefix(t.Name, "crew/")
		}
	}
	return out
}

// TestServiceKinds: what services promise beside that they are reached, with what the kernel says.
func TestServiceKinds(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2)
	web := answering{name: "web", version: "1", tasks: 2, sick: g.path("journals", "sick"), more: "spread: max: machine: 1"}
	next := answering{name: "next", version: "1", tasks: 1}
	s := g.converge(g.declare("services", g.job(web), g.job(next), g.kinds()))
	at := onMachines(s, "web")
	if len(at) != 2 {
		t.Fatalf("tasks of web are on %v", at)
	}
	// expect asks until the answers are right.
	expect := func(what, machine, service string, n int, right func(by map[string]int) bool) {
		t.Helper()
		to := g.virtual(service)
		g.must(within(bound, func() error {
			by, err := g.asks(machine, to, n)
			if err == nil && !right(by) {
				err = fmt.Errorf("%s: answered by %v", what, by)
			}
			return err
		}))
	}
	refused := func(what, machine, service string) {
		t.Helper()
		to := g.virtual(service)
		g.must(within(bound, func() error {
			if by, err := g.asks(machine, to, 1); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("%s: answered by %v, %w: want it refused", what, by, err)
			}
			return nil
		}))
	}
	expect("a service leads to all, also to the machine that asks", "m1", "front", 40, func(by map[string]int) bool { return by[at["m1"]] > 0 && by[at["m2"]] > 0 && len(by) == 2 })
	for machine, task := range at {
		expect("the machine's own task comes first", machine, "near", 20, func(by map[string]int) bool { return by[task] == 20 })
	}
	expect("a client stays at its task", "m1", "sticky", 20, func(by map[string]int) bool { return len(by) == 1 })
	expect("a canary gets its share", "m2", "canary", 200, func(by map[string]int) bool { return by["next/0"] > 10 && by["next/0"] < 90 && len(by) == 3 })
	refused("a service without tasks", "m1", "empty")
	g.weighed("m2", g.virtual("canary"))

	c := g.udp("m1", "web/1")
	defer c.Close()
	g.must(os.WriteFile(g.path("journals", "sick"), nil, 0o644))
	refused("a service of which no task is ready", "m1", "strict")
	expect("one that sends anyway", "m1", "front", 40, func(by map[string]int) bool { return len(by) == 2 })
	g.must(os.Remove(g.path("journals", "sick")))
	expect("the service whose tasks are ready again", "m1", "strict", 10, func(map[string]int) bool { return true })

	// A flow of UDP goes elsewhere when its task has ended.
	web.tasks = 1
	g.declare("one of them", g.job(web), g.job(next), g.kinds())
	g.must(within(bound, func() error {
		who, err := exchange(c)
		if err == nil && who != "web/0" {
			err = fmt.Errorf("packets reach %s", who)
		}
		return err
	}))
	g.must(within(bound, func() error { // the last change is acknowledged
		why, err := g.api.WhyService(t.Context(), "crew/front")
		if err == nil && (len(why.Machines) > 0 || why.Sends != status.SendsToReady) {
			err = fmt.Errorf("it sends %s, and not from %v", why.Sends, why.Machines)
		}
		return err
	}))
}

// weighed waits until the slots of the canary in the kernel of a machine are as the weights.
func (g *grid) weighed(machine string, front netip.AddrPort) {
	g.t.Helper()
	g.must(within(bound, func() error {
		slots, counts := g.slots(machine, front), map[int]int{}
		for _, n := range slots {
			counts[n]++
		}
		if counts[2] != 2 || counts[1] != 1 || len(counts) != 2 {
			return fmt.Errorf("slots in the kernel: %v: want 2 for each task of web and 1 for that of next", slots)
		}
		return nil
	}))
}

// udp returns a socket on a machine whose packets to the service reach a task.
func (g *grid) udp(machine, task string) net.Conn {
	g.t.Helper()
	to := g.virtual("front")
	var found net.Conn
	g.must(within(bound, func() error {
		var c net.Conn
		var err error
		if failed := g.inside(machine, func() {
			var d net.Dialer
			c, err = d.DialContext(g.t.Context(), "udp", to.String())
		}); failed != nil || err != nil {
			return errors.Join(failed, err)
		}
		who, err := exchange(c)
		if err == nil && who == task {
			found = c
			return nil
		}
		return errors.Join(fmt.Errorf("%s answered: %w", who, err), c.Close())
	}))
	return found
}

// exchange sends a packet, and returns who answered.
func exchange(c net.Conn) (string, error) {
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	who, _, _ := strings.Cut(string(b[:n]), " ")
	return who, err
}
