package reconciler_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// anything drives a cell through whatever may happen to it.
type anything struct {
	*cell
	commits int
	highest uint64                   // generation seen so far
	done    map[schema.TaskName]bool // batch tasks whose end the state has
	chosen  chosen
	canaries
}

func TestStepProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := &anything{cell: newCell(), done: map[schema.TaskName]bool{}, chosen: newChosen(), canaries: canaries{}}
		for i := range 4 {
			a.join(fmt.Sprintf("m%d", i), 4, 8)
		}
		t.Repeat(a.actions())
		a.calm(t)
	})
}

func (a *anything) actions() map[string]func(*rapid.T) {
	machine := func(t *rapid.T) *agent { return a.agents[rapid.IntRange(0, len(a.agents)-1).Draw(t, "machine")] }
	return map[string]func(*rapid.T){
		"":        a.invariants,
		"commit":  func(t *rapid.T) { a.commit(a.randomCommit(t)); a.stepChecked(t) },
		"turn":    func(t *rapid.T) { a.pass(t, time.Second) },
		"turns":   func(t *rapid.T) { a.pass(t, time.Second); a.pass(t, time.Second) },
		"wait":    func(t *rapid.T) { a.pass(t, time.Duration(rapid.IntRange(1, 100).Draw(t, "s"))*time.Second) },
		"hour":    func(t *rapid.T) { a.pass(t, time.Duration(rapid.IntRange(5, 70).Draw(t, "m"))*time.Minute) },
		"relieve": func(t *rapid.T) { a.relieve(t, machine(t)) },
		"silence": func(t *rapid.T) { m := machine(t); m.silent = !m.silent },
		"join":    func(t *rapid.T) { a.join(machine(t).info.Name, 4, 8) },
		"crash":   func(t *rapid.T) { a.restart(); a.stepChecked(t) },
		"half":    a.half,
		"halved":  func(t *rapid.T) { a.commit(a.randomCommit(t)); a.half(t) },
		"fate":    a.fate,
	}
}

// pass lets time pass, everybody report, and the master step.
func (a *anything) pass(t *rapid.T, d time.Duration) {
	a.now = a.now.Add(d)
	a.exchange()
	a.stepChecked(t)
}

// fate is the end, or a restart, of some task that runs.
func (a *anything) fate(t *rapid.T) {
	var names []string
	for _, m := range a.agents {
		for _, s := range m.tasks {
			if s.State == schema.Running {
				names = append(names, s.Task.Short())
			}
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	m, s := a.find(rapid.SampledFrom(names).Draw(t, "task"))
	cause := schema.Cause{Kind: rapid.SampledFrom([]schema.CauseKind{schema.CauseFinished, schema.CauseFailed, schema.CausePortInUse}).Draw(t, "cause"), At: a.now}
	if cause.Kind == schema.CauseFinished && !strings.HasPrefix(s.Task.Job, "sum") {
		cause.Kind = schema.CauseFailed
	}
	m.die(s, cause)
}

// half lets the master die after some of a step's writes, each in a
// transaction of its own.
func (a *anything) half(t *rapid.T) {
	a.now = a.now.Add(time.Second)
	a.exchange()
	before := a.admitted()
	served := a.serving()
	writes := control.Step(a.input()).Writes
	for _, w := range writes[:rapid.IntRange(0, len(writes)).Draw(t, "stored")] {
		a.take([]model.Write{w})
		a.quotas(t, before)
	}
	a.disrupted(t, served)
	a.restart() // panics where a document refers to none
	a.stepChecked(t)
}

func (a *anything) randomCommit(t *rapid.T) schema.Compiled {
	a.commits++
	root := []any{
		schema.Cell{Name: "c", Quota: "on"},
		schema.Tenant{Name: "u", Users: []string{"u"}, Paths: []string{"u", "both"}},
		schema.Tenant{Name: "v", Users: []string{"v"}, Paths: []string{"v"}},
		a.randomQuota(t),
	}
	c := compiled(fmt.Sprintf("c%d", a.commits), good(pkg(".", root...)))
	c.Promote = rapid.SampledFrom([][]string{nil, {"u/web"}, {"u/api", "v/web"}}).Draw(t, "promoted")
	c.AllowPrune = rapid.SampledFrom([]int{0, 100}).Draw(t, "allowed")
	dirs := []string{"u", "v"}
	if rapid.Bool().Draw(t, "both") {
		dirs = []string{"both", "u", "v"} // may hold the same jobs as u
	}
	for _, dir := range dirs {
		user := strings.Replace(dir, "both", "u", 1)
		switch rapid.IntRange(0, 7).Draw(t, "package") {
		case 0:
			c.Packages = append(c.Packages, bad(dir))
		case 1: // gone
		default:
			c.Packages = append(c.Packages, good(pkg(dir, randomJobs(t, user)...)))
		}
	}
	return c
}

// randomQuota may begin or end soon.
func (a *anything) randomQuota(t *rapid.T) schema.Quota {
	q := newQuota("q", "u", rapid.IntRange(0, 6).Draw(t, "quota"))
	if rapid.Bool().Draw(t, "period") {
		q.From = a.now.Add(time.Duration(rapid.IntRange(-10, 10).Draw(t, "from")) * time.Second)
		q.Until = q.From.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "length")) * time.Second)
	}
	return q
}

func randomJobs(t *rapid.T, user string) []any {
	var out []any
	for _, name := range []string{"web", "api", "sum"} {
		if rapid.IntRange(0, 3).Draw(t, name) == 0 {
			continue
		}
		j := service(user, name, rapid.IntRange(0, 5).Draw(t, "tasks"), rapid.SampledFrom([]string{"v1", "v2", "v3", "crash", "sick"}).Draw(t, "arg"))
		j.Update.MaxParallel = rapid.IntRange(1, 3).Draw(t, "parallel")
		if name != "sum" {
			randomPolicy(t, &j.Update)
		}
		if rapid.Bool().Draw(t, "disruption") {
			j.Disruption = &schema.Disruption{MaxDown: rapid.IntRange(0, 2).Draw(t, "maxDown"), PerHour: rapid.IntRange(0, 3).Draw(t, "perHour")}
		}
		j.Priority = schema.Priority(rapid.SampledFrom([]int{0, 7, 200, 210}).Draw(t, "priority"))
		if user == "v" {
			j.Priority = 0
		}
		if name == "sum" {
			j.Kind = schema.Batch
		}
		if name != "sum" && j.Priority == 0 && rapid.IntRange(0, 3).Draw(t, "system") == 0 {
			j.Kind, j.Tasks = schema.System, 0
		}
		out = append(out, j)
	}
	return out
}

func randomPolicy(t *rapid.T, u *schema.UpdatePolicy) {
	if rapid.Bool().Draw(t, "canary") {
		u.Canary = &schema.Canary{
			Tasks: rapid.IntRange(1, 3).Draw(t, "canaries"), WaitSeconds: rapid.IntRange(0, 20).Draw(t, "wait"),
			Promote: rapid.SampledFrom([]schema.Promote{schema.PromoteAuto, schema.PromoteCommit}).Draw(t, "promote"),
		}
	}
	u.OnFailure = rapid.SampledFrom([]schema.OnFailure{"", schema.Pause, schema.Return}).Draw(t, "onFailure")
	u.ProgressDeadlineSeconds = rapid.SampledFrom([]int{0, 0, 5, 60}).Draw(t, "progress")
}

// stepChecked steps, and holds the decision against what a step promises.
func (a *anything) stepChecked(t *rapid.T) {
	before := a.admitted()
	down := a.down()
	served, running := a.serving(), a.running()
	in := a.input()
	out := control.Step(in)
	if again := control.Step(in); !reflect.DeepEqual(out, again) {
		t.Fatalf("same input, other decision:\n%s", cmp.Diff(out, again))
	}
	a.unchanged(t)
	kept := a.step()
	a.alike(t, out, kept)
	out = kept
	in = a.input()
	for _, in.Memo = range []*control.Memo{nil, a.in.Memo} {
		again := control.Step(in)
		if onlyRebalances(out, again) || another(out, in.Now) {
			continue
		}
		if len(again.Writes) > 0 || len(again.Events) > 0 {
			t.Fatalf("a second step at the same moment writes %s, says %s, after %s: %v", keys(again.Writes), lines(again.Events), lines(out.Events), out.Why)
		}
	}
	a.wakesHonestly(t, out)
	a.budget(t, out, down)
	a.disrupted(t, served)
	a.quotas(t, before)
	a.generations(t)
	a.canary(t, running)
}

// onlyRebalances reports whether a step, after one that has placed tasks, does nothing but
// move others for their spread: where they are better depends on scores, and these on what
// has been placed.
func onlyRebalances(before, next control.Output) bool {
	placed := slices.ContainsFunc(before.Events, func(e schema.Event) bool { return e.Kind == schema.EventSchedule })
	other := slices.ContainsFunc(next.Events, func(e schema.Event) bool { return e.Cause != schema.CauseRebalance })
	return placed && len(next.Events) > 0 && !other
}

// another reports whether a step asks for the next one at once, which has its own to do.
func another(out control.Output, now time.Time) bool {
	return !out.Wake.IsZero() && out.Wake.Sub(now) <= time.Millisecond
}

// alike: a step that goes on from what the last one found out decides what one
// does that begins from nothing, but for the choice of machines.
func (a *anything) alike(t *rapid.T, fresh, kept control.Output) {
	places := func(o control.Output) (others []schema.Event, n int) {
		for _, e := range o.Events {
			if e.Kind == schema.EventSchedule || e.Cause == schema.CausePreempted {
				n++
			} else {
				others = append(others, e)
			}
		}
		return others, n
	}
	x, n := places(fresh)
	y, m := places(kept)
	if diff := cmp.Diff(x, y); n+m == 0 && diff != "" {
		t.Fatalf("a memo makes other decisions (-without +with):\n%s", diff)
	}
	if n+m == 0 && !slices.Equal(keys(fresh.Writes), keys(kept.Writes)) {
		t.Fatalf("a memo makes other writes: %s, %s", keys(fresh.Writes), keys(kept.Writes))
	}
	// What was kept may come back for what is no longer of interest, but not later than for what was
	// found again and is something to do: a look for moves that has had its turn does not matter.
	if n+m == 0 && !fresh.Wake.IsZero() && (kept.Wake.IsZero() || kept.Wake.After(fresh.Wake)) {
		in := a.input()
		in.Memo, in.Now = nil, fresh.Wake
		if due := control.Step(in); len(due.Writes) > 0 && !onlyRebalances(kept, due) {
			t.Fatalf("a memo wakes at %s, not at %s, when there is something to do: %s", kept.Wake, fresh.Wake, keys(due.Writes))
		}
	}
}

// unchanged: Step has changed nothing of the state, and it is what the store
// holds.
func (a *anything) unchanged(t *rapid.T) {
	loaded, err := model.Load("c", a.docs, lastFirst)
	if err != nil {
		t.Fatal(err)
	}
	parts := func(s *model.State) []any {
		return []any{s.Counter, s.Head, s.Packages, s.Data, s.Jobs, s.Chunks, s.Machines}
	}
	if x, y := parts(loaded), parts(a.state); !reflect.DeepEqual(x, y) {
		t.Fatalf("the state is not what is stored (-loaded +applied):\n%s", cmp.Diff(x, y))
	}
}

func keys(writes []model.Write) []string {
	var out []string
	for _, w := range writes {
		out = append(out, fmt.Sprintf("%s=%s", w.Key, w.Value))
	}
	return out
}

// wakesHonestly: before Wake there is nothing to do without news.
func (a *anything) wakesHonestly(t *rapid.T, out control.Output) {
	if !out.Wake.IsZero() && !out.Wake.After(a.now) {
		t.Fatalf("wake at %s, which is not after %s", out.Wake, a.now)
	}
	if another(out, a.now) {
		return
	}
	in := a.input()
	in.Now = in.Now.Add(24 * time.Hour)
	if !out.Wake.IsZero() {
		in.Now = out.Wake.Add(-1)
	}
	if early := control.Step(in); len(early.Writes) > 0 && !onlyRebalances(out, early) {
		t.Fatalf("at %s, wake %s: there is something to do at %s: %s", a.now, out.Wake, in.Now, keys(early.Writes))
	}
}

// down reports of each task that has had a generation whether it is down, as far
// as the reports say that the master has had.
func (a *anything) down() map[schema.TaskName]bool {
	works := map[string]bool{}
	status := a.status()
	for i := range status.Tasks {
		s := &status.Tasks[i]
		works[s.Name] = s.State == "running" && s.Reason == ""
	}
	out := map[schema.TaskName]bool{}
	for name, c := range a.state.Chunks {
		for i := range c.Tasks {
			if r := &c.Tasks[i]; r.Generation != 0 && r.Done == nil {
				task := name.Job.Task(r.Index)
				out[task] = !works[task.Short()]
			}
		}
	}
	return out
}

// budget: a rollout that stops a task that works leaves no more than
// MaxParallel down, of those that were there before.
func (a *anything) budget(t *rapid.T, out control.Output, before map[schema.TaskName]bool) {
	after := a.down()
	for _, e := range out.Events {
		task, err := schema.ParseTaskName("c/" + e.Task)
		if err != nil || e.Cause != schema.CauseUpdate || strings.HasPrefix(e.Message, "stopped") || before[task] {
			continue
		}
		want := a.state.Data[a.state.Jobs[task.JobName].Admitted]
		n := 0
		for other := range before {
			if other.JobName == task.JobName && a.wants(want, other) && after[other] && !a.excused(other) {
				n++
			}
		}
		if n > want.Update.MaxParallel {
			t.Fatalf("the rollout stopped %s, and so %d tasks of the job are down: at most %d may be", e.Task, n, want.Update.MaxParallel)
		}
	}
}

// wants reports whether a job's data has a place for a task.
func (a *anything) wants(want *schema.Job, task schema.TaskName) bool {
	if want.Kind != schema.System {
		return task.Index < want.Tasks
	}
	for name, c := range a.state.Chunks {
		for i := range c.Tasks {
			if name.Job == task.JobName && c.Tasks[i].Index == task.Index {
				m := a.state.Machines[c.Tasks[i].On]
				return m != nil && m.LostSince.IsZero()
			}
		}
	}
	return false
}

// excused: a task that has been without a machine for a minute, for a reason
// that is not the rollout, does not hold it up.
func (a *anything) excused(task schema.TaskName) bool {
	for name, c := range a.state.Chunks {
		for i := range c.Tasks {
			r := &c.Tasks[i]
			if name.Job == task.JobName && r.Index == task.Index && len(r.Causes) > 0 {
				last := r.Causes[len(r.Causes)-1]
				return last.Kind != schema.CauseUpdate && !a.now.Before(last.At.Add(time.Minute))
			}
		}
	}
	return false
}

// admitted returns the tasks admitted at production, by user.
func (a *anything) admitted() map[string]int {
	out := map[string]int{}
	for _, j := range a.state.Jobs {
		if d := a.state.Data[j.Admitted]; d != nil && d.Priority.Band() == schema.BandProduction {
			out[d.User] += d.Tasks
		}
	}
	return out
}

// quotas: what is admitted grows within the quota only.
func (a *anything) quotas(t *rapid.T, before map[string]int) {
	have := map[string]int{}
	for _, digest := range a.state.Head.Packages {
		for _, q := range a.state.Packages[digest].Objects.Quotas {
			if !a.now.Before(q.From) && (q.Until.IsZero() || a.now.Before(q.Until)) {
				have[q.User] += q.Tasks
			}
		}
	}
	for user, n := range a.admitted() {
		if n > have[user] && n > before[user] {
			t.Fatalf("%s: %d tasks are admitted, %d before, quota %d", user, n, before[user], have[user])
		}
	}
}

// generations: each is given once, rising; what is stopped has a cause; what is
// done does not run again.
func (a *anything) generations(t *rapid.T) {
	seen := map[uint64]string{}
	for name, c := range a.state.Chunks {
		for i := range c.Tasks {
			r := &c.Tasks[i]
			task := name.Job.Task(r.Index)
			if other, ok := seen[r.Generation]; ok && r.Generation != 0 {
				t.Fatalf("generation %d is %s's and %s's", r.Generation, other, task)
			}
			seen[r.Generation] = task.String()
			if r.Generation > a.state.Counter {
				t.Fatalf("%s has generation %d, the counter is at %d", task, r.Generation, a.state.Counter)
			}
			if r.Stop != nil && (r.Stop.Kind == "" || r.Machine == "") {
				t.Fatalf("%s is stopped on machine %q with cause %+v", task, r.Machine, r.Stop)
			}
			if a.done[task] && r.Done == nil {
				t.Fatalf("%s was done and is not any more", task)
			}
			if r.Done != nil && r.Machine != "" {
				t.Fatalf("%s is done and runs on %s", task, r.Machine)
			}
			a.done[task] = r.Done != nil
		}
	}
	for task := range a.done {
		if j := a.state.Jobs[task.JobName]; j == nil || j.Admitted == "" {
			delete(a.done, task) // removed: another job may have its name later
		}
	}
	if a.state.Counter < a.highest {
		t.Fatalf("the counter fell from %d to %d", a.highest, a.state.Counter)
	}
	a.highest = a.state.Counter
}

// room: nothing is overcommitted. What is known to be dead and still in the
// records does not count: a crash came between its end and the use of its room.
func (a *anything) room(t *rapid.T) {
	used := map[string]schema.Resources{}
	for machine, view := range model.Views(a.state) {
		for _, v := range view.Assignments {
			if s := a.agent(machine).tasks[v.Generation]; s == nil || s.State != schema.Dead {
				used[machine] = used[machine].Add(v.Job.Task.Resources.Resources)
			}
		}
		if have := a.agent(machine).info.Capacity; !used[machine].Fits(have) {
			t.Fatalf("machine %s is overcommitted: %+v of %+v", machine, used[machine], have)
		}
	}
}

// invariants hold at any time, and a status can be made.
func (a *anything) invariants(t *rapid.T) {
	a.room(t)
	snapshot := a.snapshot()
	s := snapshot.Brief()
	for first := range a.state.Jobs {
		if yes, _ := new(status.Describer).Converged(a.described(), first); yes != s.Converged {
			t.Fatalf("converged is %t, and %t when %s is looked at first", s.Converged, yes, first)
		}
		if yes, _ := a.looked.Converged(a.described(), first); yes != s.Converged {
			t.Fatalf("converged is %t, and %t when %s is looked at first, with what was found out before", s.Converged, yes, first)
		}
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Running+j.Pending+j.Failed+j.Unknown+j.Done != j.Desired {
			t.Fatalf("job %s does not add up: %+v", j.Name, j)
		}
		if _, known := status.Explain(a.described(), snapshot, j.Name, ""); !known {
			t.Fatalf("job %s is not known to why", j.Name)
		}
	}
	for machine, view := range model.Views(a.state) {
		if !slices.IsSortedFunc(view.Assignments, func(x, y schema.Assignment) int { return x.Task.Compare(y.Task) }) {
			t.Fatalf("the view of %s is not sorted", machine)
		}
	}
}

// calm ends the trouble: the cell converges, and then writes nothing.
func (a *anything) calm(t *rapid.T) {
	for _, m := range a.agents {
		m.silent = false
	}
	web, fresh := service("u", "web", 3, "last"), service("u", "new", 2, "last")
	web.Priority, fresh.Priority = 0, 0
	last := compiled("last", good(pkg(".", schema.Tenant{Name: "u", Users: []string{"u"}, Paths: []string{"u"}})), good(pkg("u", web, fresh)))
	last.AllowPrune = 1000
	a.commit(last)
	for range 400 {
		a.pass(t, 2*time.Second)
		if len(a.last.Writes) == 0 && len(a.last.Events) == 0 && a.status().Converged {
			break
		}
	}
	if !a.status().Converged {
		t.Fatalf("left alone, the cell does not converge: %s", strings.Join(a.status().Waiting, "; "))
	}
	for range 50 {
		a.pass(t, 5*time.Second)
	}
	a.restart()
	for turn := range 50 {
		if a.pass(t, 20*time.Second); turn > 30 && len(a.last.Writes) > 0 {
			t.Fatalf("a quiet cell writes %s", keys(a.last.Writes))
		}
	}
}
