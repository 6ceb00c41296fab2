package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

var (
	kills = flag.Int("e2e.kills", 6, "random moments at which the parts of the cell are killed")
	seed  = flag.Uint64("e2e.seed", 0, "seed of the moments; 0 takes one of the clock")
)

// activity is how long the cell is busy with a commit, roughly: the moments are
// within it.
const activity = 900 * time.Millisecond

// neverStarted is in the history of a task of which one start came to nothing.
const neverStarted = "it was never started"

// victims are whom a moment kills.
type victims struct{ master, agent bool }

func (v victims) String() string {
	switch {
	case v.master && v.agent:
		return "master and agent"
	case v.master:
		return "master"
	}
	return "agent"
}

// TestChaos kills master, agent or both at a random moment after each of many
// commits, and starts them again at once. The cell must get to the commit all
// the same; no index may have two processes, no batch task may run twice, and
// none may end but for a reason that is in the commit and in the history.
func TestChaos(t *testing.T) {
	t.Parallel()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("again with: -run TestChaos -e2e.seed %d -e2e.kills %d", *seed, *kills)
	x := &chaos{cell: newCell(t), rng: rand.New(rand.NewPCG(*seed, 0)), want: map[string]int{}}
	x.round(victims{}, 0) // the first commit, with nobody killed
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan []string, 1)
	go func() { watched <- watchDoubles(ctx, x.cell.dir) }()
	defer func() {
		cancel()
		for _, d := range <-watched {
			t.Error(d)
		}
	}()
	all := []victims{{master: true}, {agent: true}, {master: true, agent: true}}
	var took []time.Duration
	for i := range *kills {
		if i%len(all) == 0 {
			x.rng.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		}
		took = append(took, x.round(all[i%len(all)], time.Duration(x.rng.Int64N(int64(activity)))))
		if t.Failed() {
			return
		}
	}
	x.removeAll()
	if len(took) > 0 {
		slices.Sort(took)
		t.Logf("from the kill until the cell was as the commit says: median %s, most %s",
			took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	}
}

// chaos is a cell with what it must have done so far.
type chaos struct {
	cell *cell
	rng  *rand.Rand
	n    int            // commits so far
	want map[string]int // starts of each index, in all
}

// crew is the repository's jobs at commit n.
type crew struct{ n int }

func (c crew) scaled() int    { return 1 + c.n%3 }
func (c crew) stubborn() bool { return c.n%2 == 1 }
func (c crew) batch() string  { return fmt.Sprintf("count-%d", c.n) }

func (c crew) cue(script, journals string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "package crew\n\nimport \"%s/muster\"\n", module)
	job := func(name, kind, mode, word string, tasks, parallel int) {
		fmt.Fprintf(&b, `
job: %q: muster.#Job & {
	user: "crew", cell: %q, kind: %q, tasks: %d
	task: {
		process: command: [%q, %q, %q, %q]
		resources: {cpuMilli: 10, ramBytes: 32Mi, diskBytes: 1Mi}
		graceSeconds: 1
	}
`, name, cellName, kind, tasks, script, journals, mode, word)
		if parallel > 0 {
			fmt.Fprintf(&b, "\tupdate: maxParallel: %d\n", parallel)
		}
		b.WriteString("}\n")
	}
	job("web", "service", "polite", fmt.Sprintf("commit-%d", c.n), 3, 2)
	job("steady", "service", "polite", "same", 2, 0)
	job("scaled", "service", "polite", "same", c.scaled(), 0)
	job(c.batch(), "batch", "batch", "once", 3, 0)
	if c.stubborn() {
		job("stubborn", "service", "stubborn", "same", 1, 0)
	}
	return []byte(b.String())
}

// expect counts the starts that commit n must cause, and returns the tasks that
// it must end with the cause that each must have.
func (x *chaos) expect(n int) map[string]schema.CauseKind {
	ended := map[string]schema.CauseKind{}
	now, was := crew{n}, crew{n - 1}
	start := func(job string, i int) { x.want[fmt.Sprintf("%s.%d", job, i)]++ }
	for i := range 3 {
		start("web", i)
		start(now.batch(), i)
		if n > 0 {
			ended[fmt.Sprintf("crew/web/%d", i)] = schema.CauseUpdate
		}
	}
	first := 0
	if n > 0 {
		first = was.scaled()
	}
	for i := first; i < now.scaled(); i++ {
		start("scaled", i)
	}
	for i := now.scaled(); i < first; i++ {
		ended[fmt.Sprintf("crew/scaled/%d", i)] = schema.CauseScaledDown
	}
	switch {
	case n == 0:
		start("steady", 0)
		start("steady", 1)
	case was.stubborn():
		ended["crew/stubborn/0"] = schema.CauseRemoved
	}
	if now.stubborn() {
		start("stubborn", 0)
	}
	return ended
}

// round commits, kills who is to be killed after delay, starts them again, and
// checks what the cell has made of it. It returns the time from the kill.
func (x *chaos) round(who victims, delay time.Duration) time.Duration {
	c := x.cell
	c.t.Helper()
	begin := time.Now()
	hash := x.next()
	if who != (victims{}) {
		// The moment is the scenario, not a wait for something.
		timer := time.NewTimer(delay)
		<-timer.C
		x.kill(who)
	}
	killed := time.Now()
	c.converge(hash)
	took := time.Since(killed)
	c.t.Logf("commit %d: %s killed after %s, converged %s later", x.n, who, delay.Round(time.Millisecond), took.Round(time.Millisecond))
	x.settle(begin)
	return took
}

// next commits the jobs as they are next.
func (x *chaos) next() string {
	c := x.cell
	c.t.Helper()
	return c.commit(fmt.Sprintf("commit %d", x.n), map[string][]byte{teamFile: crew{x.n}.cue(c.path("task.sh"), c.path("journals"))})
}

// settle checks what a cell that has converged has made of the commit of begin.
func (x *chaos) settle(begin time.Time) {
	c := x.cell
	c.t.Helper()
	// A batch task that runs is as desired; the next commit shall find it done.
	s := c.until("the batch job is done", func(s *status.Status) string {
		for _, j := range s.Jobs {
			if j.Name == "crew/"+(crew{x.n}.batch()) && j.Done != j.Desired {
				return fmt.Sprintf("%d of %d are done", j.Done, j.Desired)
			}
		}
		return ""
	})
	ended := x.expect(x.n)
	x.checkJournals(s)
	x.checkCauses(s, ended, begin)
	x.n++
}

// kill kills with SIGKILL and starts again at once, in a random order.
func (x *chaos) kill(who victims) {
	c := x.cell
	c.t.Helper()
	var restart []func()
	if who.master {
		c.must(c.master.cmd.Process.Kill())
		restart = append(restart, c.startMaster)
	}
	if who.agent {
		c.must(c.agent.cmd.Process.Kill())
		restart = append(restart, c.startAgent)
	}
	if who.master {
		<-c.master.done
		c.api.Close()
		c.api = nil
	}
	if who.agent {
		<-c.agent.done
	}
	x.rng.Shuffle(len(restart), func(a, b int) { restart[a], restart[b] = restart[b], restart[a] })
	for _, f := range restart {
		f()
	}
}

// checkJournals compares what the tasks themselves wrote, the process table and
// the status with what must have happened.
func (x *chaos) checkJournals(s *status.Status) {
	t := x.cell.t
	t.Helper()
	journals := x.cell.journalsOf(s)
	for _, name := range slices.Sorted(maps.Keys(x.want)) {
		b := journals[name]
		if len(b.starts) != x.want[name] {
			t.Errorf("%s was started %d times, want %d: %v %v", name, len(b.starts), x.want[name], b.words, b.starts)
		}
	}
	for name, b := range journals {
		if x.want[name] == 0 {
			t.Errorf("%s was started, and never should", name)
		}
		if b.doubles > 0 {
			t.Errorf("%s was started %d times while another process of it ran", name, b.doubles)
		}
		if strings.HasPrefix(name, "count-") && b.dones != 1 {
			t.Errorf("%s is a batch task and has finished %d times", name, b.dones)
		}
	}
	for _, task := range s.Tasks {
		b := journals[journalOf(task.Name)]
		switch task.State {
		case "running":
			if p := b.last(); p.pid != task.PID || !p.same() {
				t.Errorf("task %s runs as pid %d, says the status; its journal says %d, alive: %t", task.Name, task.PID, p.pid, p.same())
			}
			// An agent can be killed between two steps of a start; then the
			// next one starts again, and says so.
			if task.Restarts > 0 && !slices.ContainsFunc(task.History, func(h string) bool { return strings.Contains(h, neverStarted) }) {
				t.Errorf("task %s was restarted %d times: %v", task.Name, task.Restarts, task.History)
			}
		case "done":
		default:
			t.Errorf("task %s is %s in a cell that has converged", task.Name, task.State)
		}
	}
}

// journalOf returns the name of a task's journal.
func journalOf(task string) string {
	f := strings.Split(task, "/")
	return f[1] + "." + f[2]
}

// checkCauses wants the cause of each task that a commit made at begin has
// ended, in its own history or, when it is gone, in the cell's.
func (x *chaos) checkCauses(s *status.Status, ended map[string]schema.CauseKind, begin time.Time) {
	t := x.cell.t
	t.Helper()
	records, err := x.cell.api.Events(t.Context(), client.EventQuery{EventQuery: schema.EventQuery{Newest: true, Limit: 500}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]schema.CauseKind{}
	for _, r := range records {
		if r.Task == "" || r.At.Before(begin) || r.Cause == "" {
			continue
		}
		recorded[r.Task] = r.Cause
		if want := ended[r.Task]; want != r.Cause && (r.Cause != schema.CauseFinished || !strings.Contains(r.Task, "/count-")) {
			t.Errorf("task %s: %s (%s), want %q", r.Task, r.Kind, r.Message, want)
		}
	}
	for _, task := range s.Tasks {
		if n := len(task.History); n > 0 && ended[task.Name] != "" && strings.Contains(task.History[n-1], string(ended[task.Name])) {
			recorded[task.Name] = ended[task.Name]
		}
	}
	for name, want := range ended {
		if recorded[name] != want {
			t.Errorf("task %s ended, and neither its history nor the cell's says %q", name, want)
		}
	}
}

// removeAll ends the cell in order: with a commit without jobs.
func (x *chaos) removeAll() {
	c := x.cell
	c.t.Helper()
	c.converge(c.commit("no jobs", map[string][]byte{teamFile: nil}))
	c.check(c.master.end(syscall.SIGTERM, bound))
	c.check(c.agent.end(syscall.SIGTERM, bound)) // would leave tasks running
	c.master, c.agent = nil, nil
	c.check(eventually(c.leftovers))
}

// Looks of watchDoubles, one each 50 ms: a process that is no task is looked at again until it
// has been there for so many, by when it is one or never will be, and each time that so many
// have passed. To read the whole process table each time takes a fifth of a processor.
const (
	young = 40
	afew  = 20
)

// watchDoubles looks at the process table until ctx ends, and returns each task
// index that had two live tasks at once. A task is the leader of a session with
// the agent's mark in its environment.
func watchDoubles(ctx context.Context, dir string) []string {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var found []string
	seen := map[int]int{} // by process id: since which look it is there; 0 for a task
	for n := 1; ctx.Err() == nil; n++ {
		pids, _ := pids() // what cannot be read now is read in a moment
		was := seen
		seen = make(map[int]int, len(pids))
		tasks := map[string]process{}
		for _, pid := range pids {
			since, known := was[pid]
			if !known {
				since = n
			}
			seen[pid] = since
			if since > 0 && n-since >= young && n%afew > 0 {
				continue
			}
			p, err := look(pid)
			if err != nil || p.session != pid {
				continue
			}
			env := p.environ()
			if !strings.HasPrefix(variable(env, "MUSTER_TASK_DIR"), dir+"/") || variable(env, "MUSTER_JOB") == "" {
				continue // the second is what an agent tries a runtime with
			}
			seen[pid] = 0
			name := variable(env, "MUSTER_JOB") + "." + variable(env, "MUSTER_TASK_INDEX")
			// The first may have ended before the second began.
			if first, ok := tasks[name]; ok && p.same() && first.same() {
				found = append(found, fmt.Sprintf("%s has two processes at once: %d and %d", name, first.pid, p.pid))
			}
			tasks[name] = p
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return found
}

// Two processes of one task are found, of which one was there before.
func TestWatchDoubles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(index int, lasts string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sleep", lasts)
		cmd.Env = []string{"MUSTER_TASK_DIR=" + dir + "/x", "MUSTER_JOB=web", fmt.Sprintf("MUSTER_TASK_INDEX=%d", index)}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	first, other := start(0, "100"), start(1, "0.1")
	ctx, cancel := context.WithCancel(t.Context())
	found := make(chan []string, 1)
	go func() { found <- watchDoubles(ctx, dir) }()
	_ = other.Wait()
	second := start(0, "0.5")
	_ = second.Wait() // looks come more often
	_ = first.Process.Kill()
	_ = first.Wait()
	cancel()
	want := fmt.Sprintf("web.0 has two processes at once: %d and %d", first.Process.Pid, second.Process.Pid)
	back := fmt.Sprintf("web.0 has two processes at once: %d and %d", second.Process.Pid, first.Process.Pid)
	all := <-found
	if len(all) == 0 {
		t.Error("nothing is found")
	}
	for _, got := range all {
		if got != want && got != back {
			t.Errorf("found %q, want %q", got, want)
		}
	}
}
