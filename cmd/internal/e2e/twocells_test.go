package e2e_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// crowd is one of two cells on the same machines.
type crowd struct {
	*sending
	network       netip.Prefix // of its tasks and services
	version, port string
}

// newCrowd starts a cell whose range of addresses is 10.NUMBER.0.0/16, with a service over tasks with networks of their
// own and one over tasks with that of their machine.
func newCrowd(t *testing.T, at place, number int) *crowd {
	t.Helper()
	c := &crowd{network: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", number)), version: "0", port: "80"}
	at.network = fmt.Sprintf(`mode: "vxlan", range: "10.%d.0.0/17", services: "10.%[1]d.255.0/24"`, number)
	at.flags = []string{"--ports", fmt.Sprintf("%d000-%[1]d999", number-40)}
	g := newGridAt(t, at)
	g.until("the machines can have networks of tasks", func(s *status.Status) string {
		for i := range s.Machines {
			if m := &s.Machines[i]; m.Attributes[schema.HasOwnNetwork] != "true" {
				t.Skipf("NOT TESTED: needs networks of tasks: %v", m.Notes)
			}
		}
		return ""
	})
	c.sending = g.sendAll()
	t.Cleanup(c.stop)
	c.becomes("services")
	for machine := range g.hosts {
		c.shop(machine, g.known("front"), 80)
		c.shop(machine, g.known("plain"), 80)
		c.hold(machine, "stay", g.virtual("stay"))
	}
	return c
}

// becomes commits what the cell wants, and waits until it is so.
func (c *crowd) becomes(message string) *status.Status {
	c.t.Helper()
	const own = `task: isolation: network: "own"`
	tasks := func(name, version, more string) string {
		return c.job(answering{name: name, version: version, tasks: 2, more: more + "\nspread: by: \"is\""})
	}
	return c.converge(c.declare(message, tasks("web", c.version, own), tasks("bare", c.version, ""), tasks("still", "0", own),
		c.service("front", "web", "http: port: 80"), c.service("plain", "bare", "http: port: 80"), c.service("stay", "still", "http: port: 80"),
		c.service("changed", "still", "http: port: "+c.port)))
}

// settled waits until the services on a machine have both tasks of their jobs.
func (c *crowd) settled(machine string) {
	c.t.Helper()
	c.must(within(bound, func() error {
		fronts, err := frontsOf(c.rules(machine))
		for front, to := range fronts {
			if len(to) != 2 {
				err = fmt.Errorf("%s leads to %v on %s", front, to, machine)
			}
		}
		return err
	}))
}

// there returns what the kernel of a machine has of cells: rules, links, routes and addresses, without counters.
func (c *crowd) there(machine string) []string {
	c.t.Helper()
	var out []string
	for _, line := range [][]string{
		{"nft", "-s", "list", "ruleset"}, {"ip", "-o", "link"}, {"ip", "route"}, {"ip", "-o", "addr", "show", "scope", "global"}, {"bridge", "fdb"}, {"ip", "neigh", "show", "nud", "permanent"},
	} {
		text, err := execOutput(c.net.on(c.hosts[machine], line...))
		c.must(err)
		for l := range strings.Lines(text) {
			out = append(out, line[0]+" "+strings.TrimRight(strings.TrimSpace(l), " ,}"))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lacks returns what of some lines is not among others.
func lacks(is, of []string) []string {
	return slices.DeleteFunc(slices.Clone(of), func(line string) bool { return slices.Contains(is, line) })
}

// TestTwoCells: two cells on two machines, with jobs, services and users of the same names, know nothing of each other. What
// happens to one, to its agents and its master up to its end fails no request to the other one and ends no connection of
// it, and leaves what that has in the kernels as it was.
func TestTwoCells(t *testing.T) {
	t.Parallel()
	first := newCrowd(t, place{machines: 2}, 64)
	before := map[string][]string{}
	for machine := range first.hosts {
		first.settled(machine)
		before[machine] = first.there(machine)
	}
	kept := func(when string) {
		t.Helper()
		for machine, was := range before {
			if gone := lacks(first.there(machine), was); len(gone) > 0 {
				t.Errorf("%s the first cell lacks on %s:\n%s", when, machine, lines(gone, 20))
			}
		}
	}
	var second *crowd
	first.account("another cell begins", func() { second = newCrowd(t, place{machines: 2, beside: first.grid, name: "other"}, 65) })
	kept("beside another one")
	for _, c := range []*crowd{first, second} {
		for _, task := range c.until("look", func(*status.Status) string { return "" }).Tasks {
			if at := netip.MustParseAddr(task.Address); !c.network.Contains(at) && !strings.HasPrefix(task.Name, "crew/bare/") {
				t.Errorf("%s of %s is at %s", task.Name, c.name, at)
			}
		}
		for machine := range c.hosts {
			c.knows(machine, first, second)
		}
	}
	both := func(what string, do func()) {
		t.Helper()
		first.account(what+", seen by the first cell", func() { second.account(what, do) })
		kept("after " + what)
	}
	both("an update and another port", func() {
		second.version, second.port = "1", "81"
		second.becomes("an update")
	})
	both("killed agents and a killed master", func() {
		for machine := range second.hosts {
			second.must(second.agents[machine].end(syscall.SIGKILL, bound))
			second.start(machine)
			second.from(machine, "the agent is back", second.known("stay"), 80, func(_ string, err error) bool { return err == nil })
		}
		second.restartMaster()
		second.version = "2"
		second.becomes("another update")
	})
	second.stop()
	first.account("the end of the other cell", func() { second.end() })
	for machine, was := range before {
		is := first.there(machine)
		if left, gone := lacks(was, is), lacks(is, was); len(left)+len(gone) > 0 {
			// The other agent's address for DNS is the test's.
			left = slices.DeleteFunc(left, func(line string) bool { return strings.Contains(line, second.dns[machine]) })
			if len(left)+len(gone) > 0 {
				t.Errorf("when the other cell has ended there is left on %s:\n%s\nand it lacks:\n%s", machine, lines(left, 20), lines(gone, 20))
			}
		}
	}
	first.stop()
}

// knows fails unless the cell's agent on a machine knows its own names alone, at its own addresses.
func (c *crowd) knows(machine string, of ...*crowd) {
	c.t.Helper()
	for _, x := range of {
		for _, name := range []string{x.known("front"), "0.web.crew." + x.name + ".muster.internal"} {
			var at netip.Addr
			var err error
			c.must(c.inside(machine, func() { at, err = c.lookup(c.t.Context(), name, machine) }))
			if known := err == nil; known != (x == c) || known && !c.network.Contains(at) {
				c.t.Errorf("the agent of %s on %s says of %s: %v, %v", c.name, machine, name, at, err)
			}
		}
	}
}
