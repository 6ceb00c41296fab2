package plan_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/plan/plantest"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// newCell is a cell of machines in which nothing runs.
func newCell(t tester, machines ...schema.MachineInfo) *plan.Cell {
	t.Helper()
	c, err := plan.New(plan.Config{State: model.NewState("c"), Now: at})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		if err := c.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// does is what becomes of a cell that takes a commit.
func does(t tester, c *plan.Cell, commit schema.Compiled) *plan.Outcome {
	t.Helper()
	mark := c.Mark()
	if err := c.Commit(commit); err != nil {
		t.Fatal(err)
	}
	ending, last, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	return c.Outcome(mark, ending, last)
}

// planned is what a plan on a checkpoint of the cell says of a commit.
func planned(t tester, c *plan.Cell, commit schema.Compiled, fails func(*schema.Job) bool) *plan.Outcome {
	t.Helper()
	in := c.Moment()
	h := checkpoint.HeaderOf(in.State, in.Observed, in.Head, in.Now)
	h.Redaction = "key of this test"
	var b bytes.Buffer
	if err := checkpoint.Write(&b, h, in.State, in.Observed); err != nil {
		t.Fatal(err)
	}
	saved, err := checkpoint.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := plan.New(plan.Config{State: saved.State, Machines: saved.Machines, Now: saved.At, Since: saved.Since})
	if err != nil {
		t.Fatal(err)
	}
	if fails != nil {
		copied.Fail(fails)
	}
	return does(t, copied, checkpoint.NewRedactor(saved.Redaction).Commit(commit))
}

// fates says in short what becomes of tasks.
func fates(o *plan.Outcome) string {
	var out []string
	for _, x := range o.Tasks {
		out = append(out, fmt.Sprintf("%s %s", x.Name, x.Fate))
	}
	return strings.Join(out, ", ")
}

// TestPlan: what a plan says of the kinds of changes that there are.
func TestPlan(t *testing.T) {
	t.Parallel()
	c := newCell(t, plantest.Machine("m1", 4, 16), plantest.Machine("m2", 4, 16))
	o := does(t, c, plantest.Commit(1, plantest.Job("web", 200, 3, "1"), plantest.Job("low", 0, 2, "1")))
	if o.Ending != plan.Settled || fates(o) != "search/low/0 starts, search/low/1 starts, search/web/0 starts, search/web/1 starts, search/web/2 starts" {
		t.Fatalf("%s: %s", o.Ending, fates(o))
	}

	// A new version: one task after the other restarts, and no more are down.
	next := plantest.Commit(2, plantest.Job("web", 200, 3, "2"), plantest.Job("low", 0, 2, "1"))
	o = planned(t, c, next, nil)
	if o.Ending != plan.Settled || fates(o) != "search/web/0 restarts, search/web/1 restarts, search/web/2 restarts" {
		t.Errorf("%s: %s", o.Ending, fates(o))
	}
	if r := o.Rollouts[0]; r.Stops != 3 || r.MostDown != 1 || r.MayBeDown != 1 || r.Seconds < 0.5 {
		t.Errorf("rollout %+v", r)
	}

	// It does not work: the rollout ends with one task down, and a person has to act.
	careful := plantest.Job("web", 200, 3, "2")
	careful.Update.MinHealthySeconds = 5
	o = planned(t, c, plantest.Commit(2, careful, plantest.Job("low", 0, 2, "1")), func(j *schema.Job) bool { return j.Name == "web" })
	if o.Ending != plan.Blocked || o.Rollouts[0].MostDown != 1 || !strings.Contains(fmt.Sprint(o.Blocked), "paused") {
		t.Errorf("%s: %+v %v", o.Ending, o.Rollouts, o.Blocked)
	}

	// What runs already goes on when a new version fails, and is what the job returns to.
	returns := plantest.Job("web", 200, 3, "2")
	returns.Update.MinHealthySeconds, returns.Update.OnFailure = 5, schema.Return
	fresh := newCell(t, plantest.Machine("m1", 4, 16))
	if o = does(t, fresh, plantest.Commit(1, plantest.Job("web", 200, 3, "1"))); o.Ending != plan.Settled {
		t.Fatalf("%s: %s", o.Ending, fates(o))
	}
	web := returns.ID()
	fresh.Fail(func(j *schema.Job) bool { return j.ID() == web })
	if fresh.Brings(schema.JobName{Cell: "c", User: "search", Job: "low"}) {
		t.Error("a job that is not there was brought")
	}
	o = does(t, fresh, plantest.Commit(2, returns))
	if !fresh.Brings(web) || fates(o) != "search/web/0 restarts" || o.Rollouts[0].Stops != 2 || o.Rollouts[0].MostDown != 1 || !strings.Contains(o.Rollouts[0].State, "returned") {
		t.Errorf("%s: %s, %+v", o.Ending, fates(o), o.Rollouts)
	}
	tasks := status.Describe(fresh.Moment()).Tasks
	if len(tasks) != 3 {
		t.Errorf("tasks %+v", tasks)
	}
	for _, task := range tasks {
		if task.State != status.TaskRunning {
			t.Errorf("task %+v", task)
		}
	}

	// A slow rollout is followed to its end.
	slow := plantest.Job("web", 200, 3, "2")
	slow.Update.MinHealthySeconds = 3600
	o = planned(t, c, plantest.Commit(2, slow, plantest.Job("low", 0, 2, "1")), nil)
	if o.Ending != plan.Settled || o.Seconds < 2*3600 || o.Rollouts[0].Stops != 3 {
		t.Errorf("%s after %v s: %+v", o.Ending, o.Seconds, o.Rollouts)
	}

	// More than fits: tasks of lower priority make room, and the rest stays pending.
	o = planned(t, c, plantest.Commit(2, plantest.Job("web", 200, 9, "1"), plantest.Job("low", 0, 2, "1")), nil)
	if o.Ending != plan.Waiting || len(o.Preempted) != 2 || len(o.Pending) != 3 {
		t.Errorf("%s: preempted %v, pending %v", o.Ending, o.Preempted, o.Pending)
	}
	for _, p := range o.Preempted {
		if p.Priority != 0 || !strings.HasPrefix(p.By, "search/web/") || !strings.HasPrefix(p.Becomes, "it is pending: ") {
			t.Errorf("preempted %+v", p)
		}
	}

	// A job goes.
	o = planned(t, c, plantest.Commit(2, plantest.Job("web", 200, 3, "1")), nil)
	if fates(o) != "search/low/0 stops, search/low/1 stops" {
		t.Error(fates(o))
	}
	if len(o.Quota) != 1 || o.Quota[0].Before.Tasks != 2 || o.Quota[0].After.Tasks != 0 {
		t.Errorf("quota %+v", o.Quota)
	}

	// The same again: nothing happens.
	o = planned(t, c, plantest.Commit(2, plantest.Job("web", 200, 3, "1"), plantest.Job("low", 0, 2, "1")), nil)
	if o.Ending != plan.Settled || len(o.Steps) > 0 {
		t.Errorf("%s: %v", o.Ending, o.Steps)
	}

	// A machine is lost: its tasks start elsewhere, as far as there is room.
	mark := c.Mark()
	if unknown, err := c.Lose([]string{"m2", "m9"}); err != nil || !slices.Equal(unknown, []string{"m9"}) {
		t.Errorf("unknown %v", unknown)
	}
	ending, last, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	o = c.Outcome(mark, ending, last)
	if o.Machines.Before.Up != 2 || o.Machines.After.Up != 1 || o.Seconds < 60 {
		t.Errorf("%s after %v s: %+v", ending, o.Seconds, o.Machines)
	}
}

// declareMore has a commit declare quotas and a drain, some of them, and lets guards hold removals.
func declareMore(t *rapid.T, commit *schema.Compiled) {
	in := &commit.Packages[0]
	if rapid.Bool().Draw(t, "quota") {
		in.Package.Objects.Cells[0].Quota = "on"
		for _, band := range []schema.Band{schema.BandBatch, schema.BandProduction} {
			in.Package.Objects.Quotas = append(in.Package.Objects.Quotas, schema.Quota{
				Name: string(band), User: "search", Cell: "c", Band: band, Tasks: 100,
				Resources: schema.Resources{CPUMilli: rapid.Int64Range(0, 8).Draw(t, "cores") * 1000, RAMBytes: 1 << 40, DiskBytes: 1 << 40},
			})
		}
	}
	if rapid.Bool().Draw(t, "drain") {
		in.Package.Objects.Machines = []schema.Machine{{Name: "m0", Cell: "c", Drain: &schema.Drain{AtOnce: 1, AtDeadline: schema.DeadlineBudget}}}
	}
	if rapid.Bool().Draw(t, "guarded") {
		commit.Trailers = schema.Trailers{}
	}
	in.Package.Objects.Sort()
	in.Digest = schema.DigestOf(in.Package)
}

// TestPlanIsWhatHappens: what a plan on a checkpoint says of a commit is what the cell, which
// goes on all the while, then does with it: each step of each task.
func TestPlanIsWhatHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		machines := rapid.IntRange(2, 4).Draw(t, "machines")
		all := make([]schema.MachineInfo, 0, machines)
		for i := range machines {
			all = append(all, plantest.Machine(fmt.Sprintf("m%d", i), 3, 16))
		}
		c := newCell(t, all...)
		for n := range rapid.IntRange(1, 4).Draw(t, "commits") {
			var jobs []schema.Job
			for _, name := range []string{"ads", "batch", "web"} {
				if !rapid.Bool().Draw(t, name) {
					continue
				}
				j := plantest.Job(name, rapid.SampledFrom([]schema.Priority{0, 100, 200}).Draw(t, "priority"), rapid.IntRange(0, 5).Draw(t, "tasks"), rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version"))
				j.Update = schema.UpdatePolicy{MaxParallel: rapid.IntRange(1, 2).Draw(t, "parallel"), MinHealthySeconds: rapid.SampledFrom([]int{0, 20}).Draw(t, "healthy")}
				if name == "batch" {
					j.Kind = schema.Batch
				} else if rapid.Bool().Draw(t, "budget") {
					j.Disruption = &schema.Disruption{MaxDown: rapid.IntRange(1, 2).Draw(t, "down")}
				} else if rapid.Bool().Draw(t, "checked") {
					j.Task.Health = &schema.Health{TCP: &schema.TCPCheck{}}
					if rapid.Bool().Draw(t, "slowly") {
						j.Task.Health = checked(10, 5)
					}
				}
				jobs = append(jobs, j)
			}
			next := plantest.Commit(n+1, jobs...)
			declareMore(t, &next)
			said := planned(t, c, next, nil)
			done := does(t, c, next)
			if diff := cmp.Diff(said, done); diff != "" {
				t.Fatalf("commit %d: the plan said other things than what happened:\n%s", n+1, diff)
			}
		}
	})
}

// TestPreemptTogether: a whole job that goes together costs all of its tasks, so that others go
// instead, and where it has to go each of its tasks says for whom.
func TestPreemptTogether(t *testing.T) {
	t.Parallel()
	c := newCell(t, plantest.Machine("m1", 2, 16), plantest.Machine("m2", 2, 16))
	gang := plantest.Job("gang", 0, 2, "1")
	gang.Together = true
	does(t, c, plantest.Commit(1, gang, plantest.Job("low", 0, 2, "1")))
	o := planned(t, c, plantest.Commit(2, gang, plantest.Job("low", 0, 2, "1"), plantest.Job("web", 200, 2, "1")), nil)
	if len(o.Preempted) != 2 || !strings.HasPrefix(o.Preempted[0].Task, "search/low/") || !strings.HasPrefix(o.Preempted[1].Task, "search/low/") {
		t.Errorf("preempted %+v", o.Preempted)
	}
	o = planned(t, c, plantest.Commit(2, gang, plantest.Job("low", 0, 2, "1"), plantest.Job("web", 200, 3, "1")), nil)
	gone := 0
	for _, p := range o.Preempted {
		if strings.HasPrefix(p.Task, "search/gang/") {
			gone++
		}
		if !strings.HasPrefix(p.By, "search/web/") {
			t.Errorf("preempted %+v", p)
		}
	}
	if gone != 2 {
		t.Errorf("%d tasks of the gang are preempted: %+v", gone, o.Preempted)
	}
}

// TestSilent: a machine whose session cannot go on is silent, and said to be.
func TestSilent(t *testing.T) {
	t.Parallel()
	c := newCell(t, plantest.Machine("m1", 4, 16), plantest.Machine("m2", 4, 16))
	does(t, c, plantest.Commit(1, plantest.Job("web", 200, 2, "1")))
	in := c.Moment()
	machines := slices.Collect(model.SavedOf(in.Observed))
	ahead := *machines[1].Report
	ahead.Tasks = slices.Clone(ahead.Tasks)
	ahead.Tasks[0].Generation = in.State.Counter + 1 // of which the state does not know
	machines[1].Report = &ahead
	copied, err := plan.New(plan.Config{State: in.State, Machines: machines, Now: in.Now})
	if err != nil {
		t.Fatal(err)
	}
	if got := copied.Silent(); !slices.Equal(got, []string{"m2"}) {
		t.Errorf("silent: %v", got)
	}
}

// TestFitAlone: what fits has room beside what runs, whatever the job's own quota is, and while
// that of the others holds.
func TestFitAlone(t *testing.T) {
	t.Parallel()
	machines := []schema.MachineInfo{plantest.Machine("m1", 4, 16), plantest.Machine("m2", 4, 16), plantest.Machine("m3", 4, 16)}

	gang := plantest.Job("web", 200, 3, "1")
	gang.Together = true
	c := newCell(t, machines...)
	does(t, c, plantest.Commit(1, gang))
	if fit, err := c.Fit("search/web"); err != nil || fit.More != 9 {
		t.Errorf("of a gang: %+v, %v", fit, err)
	}

	c = newCell(t, machines...)
	does(t, c, plantest.Commit(1, plantest.Job("web", 200, 3, "1"), plantest.Job("low", 0, 4, "1")))
	if fit, err := c.Fit("search/web"); err != nil || fit.More != 5 || !strings.Contains(fit.Next, "CPU") || strings.Contains(fit.Next, "place of") {
		t.Errorf("beside what could make room: %+v, %v", fit, err)
	}

	// Quota admits web as it is, one task of ads, and nothing of new.
	bound := func(n int, jobs ...schema.Job) schema.Compiled {
		next := plantest.Commit(n, jobs...)
		p := next.Packages[0].Package
		p.Objects.Cells[0].Quota = ""
		p.Objects.Quotas = []schema.Quota{{Name: "q", User: "search", Cell: "c", Band: schema.BandProduction, Tasks: 4, Resources: schema.Resources{CPUMilli: 4000, RAMBytes: 4 << 30, DiskBytes: 4 << 30}}}
		next.Packages[0].Digest = schema.DigestOf(p)
		return next
	}
	c = newCell(t, machines...)
	does(t, c, bound(1, plantest.Job("web", 200, 3, "1"), plantest.Job("ads", 210, 1, "1")))
	all := plantest.Job("all", 210, 1, "1")
	all.Kind = schema.System
	if o := does(t, c, bound(2, plantest.Job("web", 200, 3, "1"), plantest.Job("ads", 210, 3, "1"), plantest.Job("new", 210, 3, "1"), all)); len(o.Steps) > 0 || len(o.Blocked) != 3 {
		t.Fatalf("steps %v, blocked %v", o.Steps, o.Blocked)
	}
	fit, err := c.Fit("search/web")
	if err != nil || fit.Has != 3 || fit.More != 8 {
		t.Errorf("beside what quota does not admit: %+v, %v", fit, err)
	}
}

// TestWhatIf: how many more tasks fit, and what becomes of those of a machine that is drained.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	begin := func() *plan.Cell {
		c := newCell(t, plantest.Machine("m1", 4, 16), plantest.Machine("m2", 4, 16), plantest.Machine("m3", 4, 16))
		does(t, c, plantest.Commit(1, plantest.Job("web", 200, 3, "1")))
		return c
	}
	c := begin()
	fit, err := c.Fit("search/web")
	if err != nil {
		t.Fatal(err)
	}
	if fit.Has != 3 || fit.More != 9 || fit.Next == "" || len(fit.Racks) != 3 || fit.Racks["r2"] != 3 {
		t.Errorf("fit %+v", fit)
	}
	if _, err := begin().Fit("search/none"); err == nil {
		t.Error("a job that is not there fits")
	}

	c = begin()
	mark := c.Mark()
	if err := c.Drain([]string{"m1", "m2"}, 1); err != nil {
		t.Fatal(err)
	}
	ending, last, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	o := c.Outcome(mark, ending, last)
	if ending != plan.Settled || len(o.Tasks) != 2 || o.Rollouts[0].MostDown != 1 {
		t.Errorf("%s: %+v %+v", ending, o.Tasks, o.Rollouts)
	}
	for _, task := range o.Tasks {
		if task.Fate != plan.Moves || task.To != "m3" {
			t.Errorf("task %+v", task)
		}
	}
	if err := c.Drain([]string{"m9"}, 1); err == nil {
		t.Error("a machine that is not there is drained")
	}

	// What the repository declares where that is declared stays.
	c = newCell(t, plantest.Machine("m1", 4, 16), plantest.Machine("m2", 4, 16))
	own := plantest.Commit(1, plantest.Job("web", 200, 2, "1"))
	own.Packages[0].Dir = "cells/what-if"
	own.Packages[0].Package.Dir = own.Packages[0].Dir
	own.Packages[0].Digest = schema.DigestOf(own.Packages[0].Package)
	if o := does(t, c, own); len(o.Tasks) != 2 {
		t.Fatalf("%s: %s", o.Ending, fates(o))
	}
	for _, drained := range []string{"m1", "m2"} {
		mark = c.Mark()
		if err := c.Drain([]string{drained}, 1); err != nil {
			t.Fatal(err)
		}
		if ending, last, err = c.Run(); err != nil {
			t.Fatal(err)
		}
		if o := c.Outcome(mark, ending, last); ending != plan.Settled || strings.Contains(fates(o), "stops") || o.Machines.After.Used.CPUMilli == 0 {
			t.Errorf("%s is drained: %s: %s", drained, ending, fates(o))
		}
	}

	// In a full cell others make room.
	c = newCell(t, plantest.Machine("m1", 4, 16), plantest.Machine("m2", 4, 16))
	does(t, c, plantest.Commit(1, plantest.Job("web", 200, 2, "1"), plantest.Job("low", 0, 6, "1")))
	mark = c.Mark()
	if err := c.Drain([]string{"m1"}, 1); err != nil {
		t.Fatal(err)
	}
	if ending, last, err = c.Run(); err != nil {
		t.Fatal(err)
	}
	if o = c.Outcome(mark, ending, last); fates(o) != "search/low/1 pending, search/web/0 moves" || !slices.Contains(o.Tasks[0].Causes, schema.CausePreempted) {
		t.Errorf("%s: %s", ending, fates(o))
	}
}

// TestAppointments: a cell is followed to what comes by itself, and said when what is too far ahead
// would come.
func TestAppointments(t *testing.T) {
	t.Parallel()
	follow := func(web schema.Job, lostAfter time.Duration, do func(c *plan.Cell) error) *plan.Outcome {
		t.Helper()
		c, err := plan.New(plan.Config{State: model.NewState("c"), Now: at, LostAfter: lostAfter})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Add(plantest.Machine("m1", 4, 16)); err != nil {
			t.Fatal(err)
		}
		does(t, c, plantest.Commit(1, web))
		if err := c.Add(plantest.Machine("m2", 4, 16)); err != nil {
			t.Fatal(err)
		}
		mark := c.Mark()
		if err := do(c); err != nil {
			t.Fatal(err)
		}
		ending, last, err := c.Run()
		if err != nil {
			t.Fatal(err)
		}
		return c.Outcome(mark, ending, last)
	}
	hourly := plantest.Job("web", 200, 3, "1")
	hourly.Disruption = &schema.Disruption{MaxDown: 1, PerHour: 1}
	o := follow(hourly, 0, func(c *plan.Cell) error { return c.Drain([]string{"m1"}, 1) })
	if o.Ending != plan.Settled || len(o.Tasks) != 3 || o.Seconds < 2*3600 || o.Next != nil {
		t.Errorf("a drain with an hourly budget: %s after %v s: %s, next %+v", o.Ending, o.Seconds, fates(o), o.Next)
	}

	lose := func(c *plan.Cell) error { _, err := c.Lose([]string{"m1"}); return err }
	o = follow(plantest.Job("web", 200, 1, "1"), 70*time.Minute, lose)
	if o.Ending != plan.Settled || fates(o) != "search/web/0 moves" || o.Seconds < 69*60 {
		t.Errorf("a loss that is known late: %s after %v s: %s", o.Ending, o.Seconds, fates(o))
	}
	o = follow(plantest.Job("web", 200, 1, "1"), 12*time.Hour, lose)
	if o.Ending != plan.Waiting || o.Next == nil || o.Next.At.Sub(at) < 12*time.Hour || o.Next.At.Sub(at) > 13*time.Hour || !strings.Contains(o.Next.What, "search/web on m1") {
		t.Errorf("a loss that is known much later: %s, next %+v", o.Ending, o.Next)
	}
	patient := plantest.Job("web", 200, 1, "1")
	patient.Silence = &schema.Silence{AfterSeconds: 3600}
	if o = follow(patient, 0, lose); o.Ending != plan.Settled || fates(o) != "search/web/0 moves" {
		t.Errorf("a job that waits for its machines: %s: %s", o.Ending, fates(o))
	}

	drain := func(deadline time.Duration) func(c *plan.Cell) error {
		return func(c *plan.Cell) error {
			commit := plantest.Commit(2, plantest.Job("web", 200, 1, "1"))
			p := commit.Packages[0].Package
			p.Objects.Jobs[0].Constraints = []schema.Constraint{{Attribute: "rack", Operator: schema.In, Values: []string{"r1"}}}
			p.Objects.Machines = []schema.Machine{{Name: "m1", Cell: "c", Drain: &schema.Drain{AtOnce: 1, AtDeadline: schema.DeadlineStop, Deadline: at.Add(deadline)}}}
			commit.Packages[0].Digest = schema.DigestOf(p)
			return c.Commit(commit)
		}
	}
	if o = follow(plantest.Job("web", 200, 1, "1"), 0, drain(time.Hour)); o.Ending != plan.Waiting || fates(o) != "search/web/0 pending" || o.Seconds < 3400 || o.Next != nil {
		t.Errorf("a deadline: %s after %v s: %s, next %+v", o.Ending, o.Seconds, fates(o), o.Next)
	}
	if o = follow(plantest.Job("web", 200, 1, "1"), 0, drain(24*time.Hour)); o.Ending != plan.Waiting || o.Next == nil || !o.Next.At.Equal(at.Add(24*time.Hour)) {
		t.Errorf("a late deadline: %s, next %+v", o.Ending, o.Next)
	}
}

// TestGrow: machines that join are like those that are up, and take what was pending.
func TestGrow(t *testing.T) {
	t.Parallel()
	c := newCell(t, plantest.Machine("m1", 4, 16), plantest.Machine("m2", 2, 16))
	if o := does(t, c, plantest.Commit(1, plantest.Job("web", 200, 18, "1"))); o.Ending != plan.Waiting || len(o.Pending) != 12 {
		t.Fatalf("%s: %v", o.Ending, o.Pending)
	}
	mark := c.Mark()
	names, err := c.Grow(3)
	if err != nil || !slices.Equal(names, []string{"grown-1", "grown-2", "grown-3"}) {
		t.Fatalf("%v, %v", names, err)
	}
	ending, last, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	o := c.Outcome(mark, ending, last)
	on := map[string]int{}
	for _, task := range o.Tasks {
		on[task.To]++
	}
	if diff := cmp.Diff(map[string]int{"grown-1": 4, "grown-2": 2, "grown-3": 4}, on); diff != "" || len(o.Pending) != 2 || o.Machines.After.Up != 5 {
		t.Errorf("%d pending, %+v\n%s", len(o.Pending), o.Machines.After, diff)
	}
	if more, err := c.Grow(1); err != nil || more[0] != "grown-4" {
		t.Errorf("again: %v, %v", more, err)
	}
	if _, err := newCell(t).Grow(1); err == nil {
		t.Error("a cell without machines grows")
	}
}
