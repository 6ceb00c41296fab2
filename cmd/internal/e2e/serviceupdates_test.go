package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

var (
	updates       = flag.Int("services.updates", 1, "rolling updates in TestServiceUpdates, and versions in TestServiceDelay")
	updateTasks   = flag.Int("services.tasks", 3, "tasks of the job in TestServiceUpdates")
	requests      = flag.Int("services.requests", 0, "requests that TestServiceUpdates sends at least: it updates until then")
	clients       = flag.Int("services.clients", 1, "who sends requests in TestServiceUpdates, on each of two machines")
	delayMachines = flag.Int("services.machines", 3, "machines in TestServiceDelay")
)

// TestServiceUpdates: not one request fails while a job whose tasks end at once on SIGTERM is
// updated again and again. `make services UPDATES=100` is the long one.
func TestServiceUpdates(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3)
	web := answering{name: "web", version: "0", tasks: *updateTasks}
	front := fmt.Sprintf(frontService, "web", 80)
	g.converge(g.declare("a service", g.job(web), front))
	var shoppers []*shopper
	for range *clients {
		shoppers = append(shoppers, &shopper{machine: "m1", other: "m2", by: map[string]int{}}, &shopper{machine: "m3", other: "m2", by: map[string]int{}})
	}
	sent := func() (n int) {
		for _, c := range shoppers {
			c.mu.Lock()
			n += c.asked
			c.mu.Unlock()
		}
		return n
	}
	stop := g.sendAll(shoppers)
	defer stop()
	done := 0
	for ; done < *updates || sent() < *requests; done++ {
		web.version = fmt.Sprint(done + 1)
		g.converge(g.declare("update", g.job(web), front))
	}
	for _, c := range shoppers {
		g.must(within(bound, c.seen))
	}
	stop()
	asked, late := 0, 0
	var failed []string
	for _, c := range shoppers {
		n, l, _, f := c.count()
		asked, late = asked+n, late+l
		failed = append(failed, f...)
	}
	t.Logf("%d rolling updates of %d tasks: %d of %d requests failed, %d were not answered in time", done, *updateTasks, len(failed), asked, late)
	if len(failed) > 0 {
		t.Errorf("%d requests failed, such as:\n%s", len(failed), strings.Join(failed[:min(len(failed), 20)], "\n"))
	}
}

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
	tick := time.NewTicker(pollEvery())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
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
	front := fmt.Sprintf(frontService, "web", 80) + `service: front: whenNoneReady: "refuse"` + "\n"
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
	for i := range 2 + *updates {
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
