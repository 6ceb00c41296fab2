package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// execOutput runs a command, and returns what it prints.
func execOutput(line []string) (string, error) {
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, out)
	}
	return string(out), err
}

// answering is a job whose tasks answer others.
type answering struct {
	name, version, more string
	tasks               int
	sick                string // the tasks are not healthy while this file is there
}

func (g *grid) job(a answering) string {
	return fmt.Sprintf(`
job: %q: muster.#Job & {
	user: "crew", cell: %q, tasks: %d
	labels: tier: %[1]q
	task: {
		process: command: [%[4]q, %[5]q]
		resources: {cpuMilli: 100, ramBytes: 128Mi, diskBytes: 1Mi, ports: ["http"]}
		env: {VERSION: %[6]q, SICK: %[8]q}
		graceSeconds: 10
		health: http: {port: "http", path: "/health"}
	}
	update: {maxParallel: 1}
	%[7]s
}
`, a.name, cellName, a.tasks, g.path("server"), answerWord, a.version, a.more, cmp.Or(a.sick, "/nowhere"))
}

const frontService = `
service: front: muster.#Service & {
	user: "crew", cell: "` + cellName + `"
	selector: "tier=%s"
	ports: http: {port: %d}
}
`

// declare commits what the crew wants.
func (g *grid) declare(message string, parts ...string) string {
	g.t.Helper()
	return g.commit(message, map[string][]byte{teamFile: fmt.Appendf(nil, "package crew\n\nimport \"%s/muster\"\n%s", module, strings.Join(parts, ""))})
}

// shopper sends requests to a service from a machine, each to what DNS answers at that moment, and counts.
type shopper struct {
	machine, other string // who is asked for the name

	mu     sync.Mutex // guards what follows
	asked  int
	since  int            // the last count
	by     map[string]int // who answered
	failed []string       // refused, reset, cut off or answered in another way
	late   int            // not answered in time, of which a slow machine may be the cause
}

// every is the time between the requests of a shopper, if the machine keeps up.
const every = 2 * time.Millisecond

// sendAll has shoppers send requests, once their machines send to services, until stop is
// called, which returns when the last has ended, and may be called again.
func (g *grid) sendAll(shoppers []*shopper) (stop func()) {
	g.t.Helper()
	for _, c := range shoppers {
		g.sends(c.machine)
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	var running sync.WaitGroup
	for _, c := range shoppers {
		running.Go(func() { g.check(g.inside(c.machine, func() { g.shop(ctx, c) })) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// shop sends requests until ctx ends.
func (g *grid) shop(ctx context.Context, c *shopper) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		at, err := g.lookup(ctx, frontName, c.machine, c.other)
		who := ""
		if err == nil {
			who, err = request(ctx, netip.AddrPortFrom(at, 80))
		}
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		c.asked++
		c.since++
		c.by[who]++
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			c.late++
		} else if err != nil {
			c.failed = append(c.failed, fmt.Sprintf("%s: %s: after %s: %v", time.Now().Format("15:04:05.000"), c.machine, time.Since(began).Round(time.Millisecond), err))
		}
		c.mu.Unlock()
	}
}

// seen errs while it has hardly sent requests since the last count.
func (c *shopper) seen() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since < 20 {
		return fmt.Errorf("only %d requests from %s", c.since, c.machine)
	}
	return nil
}

// count returns what came of the requests since the last count, and how many there were in all, and not in time.
func (c *shopper) count() (asked, late int, by map[string]int, failed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, late, by, failed = c.asked, c.late, c.by, c.failed
	c.since, c.by, c.failed = 0, map[string]int{}, nil
	return asked, late, by, failed
}

const frontName = "front.crew.svc." + cellName + ".muster.internal"

// phase is what happens while shoppers send requests.
type phase struct {
	name string
	do   func()
}

// TestService: clients on two machines find a service by name and send it requests, while its
// tasks are updated, moved, preempted and fewer, an agent is killed, and it picks others: none fails.
func TestService(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3, "--cpu-milli", "450")
	const three = 3
	web := answering{name: "web", version: "1", tasks: three, more: "disruption: maxDown: 1"}
	next := answering{name: "next", version: "1", tasks: 1}
	front := fmt.Sprintf(frontService, "web", 80)
	g.converge(g.declare("a service", g.job(web), g.job(next), front))
	shoppers := []*shopper{{machine: "m1", other: "m2", by: map[string]int{}}, {machine: "m2", other: "m3", by: map[string]int{}}}
	stop := g.sendAll(shoppers)
	defer stop()
	drain := func(spec string) func() {
		return func() {
			g.converge(g.commit("drain", map[string][]byte{"cells/" + cellName + "/machines.cue": []byte(spec)}))
		}
	}
	for _, p := range []phase{
		{"a rolling update, while an agent is killed", func() {
			web.version = "2"
			commit := g.declare("update", g.job(web), g.job(next), front)
			g.must(g.agents["m1"].end(syscall.SIGKILL, bound))
			g.start("m1")
			g.converge(commit)
		}},
		{"a drain", drain(fmt.Sprintf("package cells\n\nimport \"%s/muster\"\n\nmachine: m2: muster.#Machine & {cell: %q, drain: {}}\n", module, cellName))},
		{"a preemption", func() {
			g.converge(g.commit("no drain", map[string][]byte{"cells/" + cellName + "/machines.cue": nil}))
			g.converge(g.declare("others come first", g.job(web), g.job(next), front, g.large()))
		}},
		{"another scale", func() {
			web.tasks = 1
			g.converge(g.declare("fewer", g.job(web), g.job(next), front))
		}},
		{"another selector", func() {
			front = fmt.Sprintf(frontService, "next", 80)
			g.converge(g.declare("the next ones", g.job(web), g.job(next), front))
			g.answers("next")
		}},
	} {
		for _, c := range shoppers {
			c.count()
		}
		began := time.Now()
		p.do()
		for _, c := range shoppers {
			g.must(within(bound, c.seen))
			asked, late, by, failed := c.count()
			t.Logf("%s, %s: %d requests from %s so far, %d not answered in time, answered by %v, %d failed", p.name, time.Since(began).Round(time.Millisecond), asked, c.machine, late, by, len(failed))
			if len(failed) > 0 {
				t.Errorf("%s: %d requests failed, the first: %s", p.name, len(failed), failed[0])
			}
		}
	}
	stop()
	g.declare("another port", g.job(web), g.job(next), fmt.Sprintf(frontService, "next", 81))
	g.from("m1", "the new port is served", 81, func(who string, err error) bool { return err == nil && strings.HasPrefix(who, "next/") })
	g.from("m1", "the old port is refused", 80, func(_ string, err error) bool { return errors.Is(err, syscall.ECONNREFUSED) })
}

// large is a job that has to take the place of others on two of three machines.
func (g *grid) large() string {
	return fmt.Sprintf(`
job: large: muster.#Job & {
	user: "crew", cell: %q, tasks: 2, priority: "production"
	task: {
		process: command: ["/bin/sleep", "1000000"]
		resources: {cpuMilli: 400, ramBytes: 16Mi, diskBytes: 1Mi}
		graceSeconds: 1
	}
}
`, cellName)
}

// from asks the service at a port from a machine until ok says that the answer is right.
func (g *grid) from(machine, what string, port uint16, ok func(who string, err error) bool) {
	g.t.Helper()
	g.must(within(bound, func() error {
		var who string
		var err error
		if failed := g.inside(machine, func() {
			var at netip.Addr
			if at, err = g.lookup(g.t.Context(), frontName, machine); err == nil {
				who, err = request(g.t.Context(), netip.AddrPortFrom(at, port))
			}
		}); failed != nil {
			return failed
		}
		if !ok(who, err) {
			return fmt.Errorf("%s on %s: answered by %q, %w", what, machine, who, err)
		}
		return nil
	}))
}

// sends waits until a machine sends requests to the service on.
func (g *grid) sends(machine string) {
	g.t.Helper()
	g.from(machine, "the service answers", 80, func(_ string, err error) bool { return err == nil })
}

// answers waits until a job answers the requests of all machines.
func (g *grid) answers(job string) {
	g.t.Helper()
	for machine := range g.hosts {
		g.from(machine, "the service is answered by "+job, 80, func(who string, err error) bool {
			return err == nil && strings.HasPrefix(who, job+"/")
		})
	}
}
