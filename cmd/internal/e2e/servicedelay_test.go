package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

var (
	delayVersions = flag.Int("services.versions", 1, "versions that TestServiceDelay measures, beside two")
	delayMachines = flag.Int("services.machines", 3, "machines in TestServiceDelay")
)

// poller asks for who is behind a service from one machine, and notes when each version has first answered.
type poller struct {
	mu    sync.Mutex // guards first
	first map[string]time.Time
}

// pollEvery is the time between the requests of a poller: all of them send at most 500 each second.
func pollEvery() time.Duration {
	return max(10*time.Millisecond, time.Duration(*delayMachines)*2*time.Millisecond)
}

func (p *poller) poll(ctx context.Context, to netip.AddrPort) {
	for range ticks(ctx, pollEvery()) {
		who, err := request(ctx, to)
		if err != nil {
			continue // no task is there for a moment
		}
		p.mu.Lock()
		if _, again := p.first[who]; !again {
			p.first[who] = time.Now()
		}
		p.mu.Unlock()
	}
}

// at returns when somebody has first answered.
func (p *poller) at(who string) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.first[who]
	return at, ok
}

// healthyLine is how an agent's log says when a task has passed its health check.
var healthyLine = regexp.MustCompile(`time=(\S+) level=INFO msg=healthy task=crew/web/0 generation=(\d+) `)

// readyAt returns when a generation of the task was first healthy, by the log of its agent.
func (g *grid) readyAt(s *status.Status) (time.Time, error) {
	task := s.Tasks[0]
	log, err := os.ReadFile(g.path(task.Machine + ".log"))
	if err != nil {
		return time.Time{}, err
	}
	for _, m := range healthyLine.FindAllStringSubmatch(string(log), -1) {
		if m[2] == fmt.Sprint(task.Generation) {
			return time.Parse(time.RFC3339Nano, m[1])
		}
	}
	return time.Time{}, fmt.Errorf("the log of %s does not say that generation %d of %s is healthy", task.Machine, task.Generation, task.Name)
}

// TestServiceDelay measures how long it takes from the moment a task is ready until the machines send to it.
// `make services MACHINES=50` has the number of the goal.
func TestServiceDelay(t *testing.T) {
	t.Parallel()
	g := newGrid(t, *delayMachines)
	web := answering{name: "web", version: "0", tasks: 1}
	// Or it would send to the task before that is ready.
	front := g.service("front", "web", "http: port: 80") + `service: front: whenNoneReady: "refuse"` + "\n"
	g.converge(g.declare("a service", g.job(web), front))
	to := g.virtual("front")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	pollers := map[string]*poller{}
	for machine := range g.hosts {
		p := &poller{first: map[string]time.Time{}}
		pollers[machine] = p
		running.Go(func() { g.check(g.inside(machine, func() { p.poll(ctx, to) })) })
	}
	var each, last []time.Duration
	for i := range 2 + *delayVersions {
		web.version = fmt.Sprint(i + 1)
		s := g.converge(g.declare("the next version", g.job(web), front))
		var ready time.Time
		g.must(within(bound, func() error {
			var err error
			ready, err = g.readyAt(s)
			return err
		}))
		latest := time.Duration(0)
		for machine, p := range pollers {
			g.must(within(bound, func() error {
				at, ok := p.at("web/0 " + web.version)
				if !ok {
					return fmt.Errorf("%s does not send to version %s", machine, web.version)
				}
				each, latest = append(each, at.Sub(ready)), max(latest, at.Sub(ready))
				return nil
			}))
		}
		last = append(last, latest)
	}
	cancel()
	running.Wait()
	slices.Sort(each)
	slices.Sort(last)
	t.Logf("%d machines, %d versions: from ready until a machine sends to it p50 %v, p99 %v; until all do p50 %v, max %v",
		*delayMachines, len(last), each[len(each)/2].Round(time.Millisecond), each[len(each)*99/100].Round(time.Millisecond), last[len(last)/2].Round(time.Millisecond), last[len(last)-1].Round(time.Millisecond))
}
