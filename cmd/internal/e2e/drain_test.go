package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/strike"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
)

// serveWord makes this test's binary a task that serves.
const serveWord = "serve-as-a-task"

// serveTask answers requests until SIGTERM, and not a moment longer.
func serveTask() int {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("MUSTER_PORT_HTTP"))
	if err != nil {
		return 1
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() { _ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) }()
	<-terminated
	return 0
}

// served is a job of three tasks that serve, of which one at most may be down. Whoever
// watches its endpoints has four seconds to look elsewhere.
const served = `package crew

import "` + module + `/muster"

job: web: muster.#Job & {
	user: "crew", cell: "` + cellName + `", tasks: 3
	task: {
		process: command: [%q, %q]
		resources: {cpuMilli: 100, ramBytes: 128Mi, diskBytes: 1Mi, ports: ["http"]}
		env: VERSION: %q
		graceSeconds: 10
		stop: delaySeconds: 4
		health: {http: {port: "http", path: "/"}, intervalSeconds: 1}
	}
	update: {maxParallel: 1, minHealthySeconds: 1}
	disruption: maxDown: 1
}
`

// caller sends requests to the endpoints of a job that are ready, and counts.
type caller struct {
	api *client.Client

	mu      sync.Mutex // guards what follows
	open    []int      // ports of endpoints that are ready
	down    int        // tasks whose endpoint is not, at most at once
	asked   int
	failed  []string // requests that were not answered
	serving bool     // all tasks have been up
}

// watch looks at the endpoints with each version of the status until ctx ends.
func (c *caller) watch(ctx context.Context, tasks int) {
	var version uint64
	for ctx.Err() == nil {
		_, v, err := c.api.Status(ctx, client.StatusQuery{After: version, Wait: bound})
		if err != nil {
			continue
		}
		version = v
		ready, err := c.api.Endpoints(ctx, status.Group{}, true)
		if err != nil {
			continue
		}
		var open []int
		for _, e := range ready {
			port, _ := e.Ports.Get("http")
			open = append(open, port)
		}
		c.mu.Lock()
		c.open = open
		c.serving = c.serving || len(open) == tasks
		if c.serving {
			c.down = max(c.down, tasks-len(open))
		}
		c.mu.Unlock()
		time.Sleep(500 * time.Millisecond) // the scenario: it learns late, as a proxy that reads its configuration again
	}
}

// call sends a request every few milliseconds until ctx ends, to one task after
// the other, each over a connection of its own. None is tried again elsewhere.
func (c *caller) call(ctx context.Context) {
	h := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for turn := 0; ctx.Err() == nil; turn++ {
		c.mu.Lock()
		open, serving := c.open, c.serving // open is replaced, and never changed
		c.mu.Unlock()
		if serving {
			err := errors.New("no task runs")
			if len(open) > 0 {
				err = ask(ctx, h, open[turn%len(open)])
			}
			if ctx.Err() != nil {
				return
			}
			c.mu.Lock()
			c.asked++
			if err != nil {
				c.failed = append(c.failed, err.Error())
			}
			c.mu.Unlock()
		}
		time.Sleep(5 * time.Millisecond) // the rate is the scenario
	}
}

// count returns how many requests there were, and how many failed.
func (c *caller) count() (asked, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked, len(c.failed)
}

func ask(ctx context.Context, h *http.Client, port int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+strconv.Itoa(port), nil)
	if err != nil {
		return err
	}
	r, err := h.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err = io.Copy(io.Discard, r.Body); err == nil && r.StatusCode != http.StatusOK {
		err = errors.New(r.Status)
	}
	return err
}

// TestDrainEach drains every machine of a cell, one after the other, under a
// job's budget, and then updates the job, while somebody sends it requests: all are
// answered, and never is more of it down than it allows.
func TestDrainEach(t *testing.T) {
	t.Parallel()
	const machines, tasks = 3, 3
	f := newFleet(t, machines)
	exe, err := os.Executable()
	f.must(err)
	program, err := os.ReadFile(exe)
	f.must(err)
	f.must(strike.Program(t.Context(), f.path("server"), program))
	version := func(v string) map[string][]byte {
		return map[string][]byte{teamFile: fmt.Appendf(nil, served, f.path("server"), serveWord, v)}
	}
	f.converge(f.commit("a service", version("1")))
	c := &caller{api: f.api}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.watch(ctx, tasks) })
	running.Go(func() { c.call(ctx) })
	moved := 0
	for i := range machines {
		name := fmt.Sprintf("m%d", i+1)
		begin := time.Now()
		asked, failed := c.count()
		had := len(tasksOn(f.until("look", func(*status.Status) string { return "" }), name))
		f.commit("drain "+name, map[string][]byte{"cells/" + cellName + "/machines.cue": fmt.Appendf(nil, `package cells

import "%s/muster"

machine: %q: muster.#Machine & {cell: %q, drain: {}}
`, module, name, cellName)})
		f.until(name+" is empty and the job runs elsewhere", func(s *status.Status) string {
			if n := len(tasksOn(s, name)); n > 0 {
				return fmt.Sprintf("it has %d tasks: %s", n, strings.Join(s.Waiting, "; "))
			}
			for _, j := range s.Jobs {
				if j.Running != tasks || j.Pending > 0 {
					return fmt.Sprintf("%d tasks of %s run", j.Running, j.Name)
				}
			}
			return ""
		})
		moved += had
		allAsked, allFailed := c.count()
		t.Logf("%s drained of %d tasks in %s, %d requests meanwhile", name, had, time.Since(begin).Round(time.Millisecond), allAsked-asked)
		if allAsked-asked < 20*had || allFailed > failed {
			t.Errorf("while %s was drained of %d tasks there were %d requests, of which %d failed", name, had, allAsked-asked, allFailed-failed)
		}
	}
	f.converge(f.commit("all may work", map[string][]byte{"cells/" + cellName + "/machines.cue": nil}))
	asked, failed := c.count()
	f.converge(f.commit("an update", version("2")))
	allAsked, allFailed := c.count()
	t.Logf("updated, with %d requests meanwhile", allAsked-asked)
	if allAsked-asked < 20*tasks || allFailed > failed {
		t.Errorf("during the update there were %d requests, of which %d failed", allAsked-asked, allFailed-failed)
	}
	cancel()
	running.Wait()
	t.Logf("%d requests, %d failed; at most %d of %d tasks down at once; %d moves", c.asked, len(c.failed), c.down, tasks, moved)
	if len(c.failed) > 0 {
		t.Errorf("%d requests failed, the first: %s", len(c.failed), c.failed[0])
	}
	if c.down > 1 {
		t.Errorf("%d tasks were down at once, and the budget is 1", c.down)
	}
	if moved < tasks {
		t.Errorf("only %d moves", moved)
	}
}
