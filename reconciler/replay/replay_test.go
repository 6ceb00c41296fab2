package replay_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/plan/plantest"
	"github.com/musterhq/muster/reconciler/replay"
	"github.com/musterhq/muster/schema"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type tester interface {
	Helper()
	Fatal(args ...any)
}

// live is a cell whose log is kept.
type live struct {
	t       tester
	cell    *plan.Cell
	log     []schema.EventRecord
	commits map[string]schema.Compiled
	lasts   map[string]time.Duration // of jobs
	saved   bytes.Buffer
	// old has checkpoints be those of a release that did not write which event was the newest.
	old bool
}

func newLive(t tester, machines ...schema.MachineInfo) *live {
	t.Helper()
	l := &live{t: t, commits: map[string]schema.Compiled{}, lasts: map[string]time.Duration{}}
	var err error
	l.cell, err = plan.New(plan.Config{
		State: model.NewState("c"), Now: at,
		Happens: func(e schema.Event) {
			l.log = append(l.log, schema.EventRecord{ID: uint64(len(l.log) + 1), Event: e})
		},
		Lasts: func(j *schema.Job) time.Duration { return l.lasts[j.ID().Short()] },
	})
	l.must(err)
	for i := range machines {
		l.must(l.cell.Add(machines[i]))
	}
	return l
}

func (l *live) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *live) commit(c schema.Compiled) {
	l.t.Helper()
	l.commits[c.Commit] = c
	l.must(l.cell.Commit(c))
}

func (l *live) pass(d time.Duration) {
	l.t.Helper()
	l.must(l.cell.Follow(l.cell.Now().Add(d), 0))
}

// save saves the cell as it is.
func (l *live) save() {
	l.t.Helper()
	l.saved.Reset()
	l.must(l.cell.Ask(func(m *reconciler.Master, now time.Time) error {
		in := m.Snapshot(now)
		h := checkpoint.HeaderOf(in.State, in.Observed, in.Head, in.Now)
		if !l.old {
			h.LastEvent = uint64(len(l.log))
		}
		return checkpoint.Write(&l.saved, h, in.State, in.Observed)
	}))
}

// replay plays a log on what was saved.
func (l *live) replay(log []schema.EventRecord, until ...string) (*replay.Result, *plan.Cell) {
	l.t.Helper()
	saved, err := checkpoint.Read(bytes.NewReader(l.saved.Bytes()))
	l.must(err)
	cfg := replay.Config{
		Cell:    plan.Config{State: saved.State, Machines: saved.Machines, Now: saved.At, Since: saved.Since, LostAfter: saved.LostAfter()},
		Records: log, LastEvent: saved.LastEvent,
		Commit: func(commit string) (schema.Compiled, error) { return l.commits[commit], nil },
	}
	for _, text := range until {
		c, err := plan.ParseCondition(text)
		l.must(err)
		cfg.Until = append(cfg.Until, c)
	}
	out, err := replay.Play(cfg)
	l.must(err)
	return out.Result, out.Cell
}

// without is a log without the events of which a line has all the words.
func without(log []schema.EventRecord, kind schema.EventKind, of string) []schema.EventRecord {
	return slices.DeleteFunc(slices.Clone(log), func(r schema.EventRecord) bool {
		return r.Kind == kind && (r.Task == of || r.Machine == of)
	})
}

func describe(r *replay.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d, %v", r.Same, r.Decisions, r.Inputs)
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "\n%s at %s: log %+v; replay %+v; %s", d.Of, d.At.Format(time.TimeOnly), d.Logged, d.Replayed, d.Why)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "\nskipped %+v", s)
	}
	return b.String()
}

// story is a cell in which most of what can come from outside has come.
func story(t tester) *live {
	l := newLive(t, plantest.Machine("m1", 4, 16), plantest.Machine("m2", 4, 16), plantest.Machine("m3", 4, 16))
	l.commit(plantest.Commit(1, plantest.Job("web", 200, 3, "1"), plantest.Job("low", 0, 2, "1")))
	l.pass(time.Minute)
	l.save()
	l.pass(10 * time.Second)
	l.commit(plantest.Commit(2, plantest.Job("web", 200, 3, "2"), plantest.Job("low", 0, 2, "1")))
	l.pass(time.Minute)
	l.must(l.cell.Ask(func(m *reconciler.Master, now time.Time) error {
		return m.Suspend(schema.Suspension{Name: "search/web", Reason: "a look", By: "ann"}, 0, now)
	}))
	l.pass(20 * time.Second)
	batch := plantest.Job("once", 100, 2, "1")
	batch.Kind = schema.Batch
	l.lasts["search/once"] = 45 * time.Second
	l.commit(plantest.Commit(3, plantest.Job("web", 200, 3, "3"), plantest.Job("low", 0, 2, "1"), batch))
	l.pass(time.Minute)
	l.must(l.cell.Ask(func(m *reconciler.Master, now time.Time) error {
		_, err := m.Resume("search/web", "ann", now)
		return err
	}))
	l.pass(time.Minute)
	_, err := l.cell.Lose([]string{"m2"})
	l.must(err)
	l.pass(3 * time.Minute)
	l.must(l.cell.Rejoin(plantest.Machine("m4", 8, 16)))
	l.pass(time.Second)
	l.must(l.cell.Rejoin(plantest.Machine("m2", 4, 16)))
	l.pass(30 * time.Second)
	l.must(l.cell.Ask(func(m *reconciler.Master, now time.Time) error {
		_, err := m.Restart(schema.RestartRequest{Name: "search/low", Reason: "it hangs", By: "ann"}, now)
		return err
	}))
	l.pass(3 * time.Minute)
	return l
}

// TestReplay: a log that is replayed comes out as it was, and without one of its inputs it does
// not, and it is said why.
func TestReplay(t *testing.T) {
	t.Parallel()
	l := story(t)
	out, _ := l.replay(l.log)
	if out.Same != out.Decisions || out.Decisions < 30 || len(out.Differences)+len(out.Skipped) > 0 || out.Apart > 0 {
		t.Errorf("as it was: apart %v, %s", out.Apart, describe(out))
	}
	if len(out.Inputs) != 7 {
		t.Errorf("inputs %v", out.Inputs)
	}

	out, _ = l.replay(without(l.log, schema.EventFinish, "search/once/1")) // whose machine is full then
	if len(out.Differences) != 1 || out.Differences[0].Logged.Machine == out.Differences[0].Replayed.Machine {
		t.Errorf("without the end of a task: %s", describe(out))
	}
	out, _ = l.replay(without(l.log, schema.EventSuspend, ""))
	if len(out.Differences) == 0 || out.Differences[0].Replayed == nil || out.Differences[0].Replayed.Kind != schema.EventEvict && out.Differences[0].Replayed.Kind != schema.EventUpdate {
		t.Errorf("without a suspension: %s", describe(out))
	}
	old := slices.Clone(l.log)
	for i := range old {
		old[i].Input = nil
	}
	out, _ = l.replay(old)
	if len(out.Skipped) < 3 || len(out.Differences) == 0 || !strings.Contains(out.Differences[0].Why, "earlier release") {
		t.Errorf("a log of an earlier release: %s", describe(out))
	}
	out, _ = l.replay(without(l.log, schema.EventMachine, "m2"))
	if len(out.Differences) == 0 || !strings.Contains(describe(out), "machine-lost") {
		t.Errorf("without a loss: %s", describe(out))
	}
}

// TestReplayUntil: a replay ends where a condition comes true, and what the log says until there
// is compared.
func TestReplayUntil(t *testing.T) {
	t.Parallel()
	l := story(t)
	for _, tt := range []struct{ until, name string }{
		{"machine m2 lost", "m2"},
		{"job search/web stopped", "search/web/0"},
		{"task search/once/1 running", "search/once/1"},
	} {
		out, cell := l.replay(l.log, tt.until)
		stop := cell.Breakpoint()
		if stop == nil || stop.Names[0] != tt.name {
			t.Fatalf("%s: %+v", tt.until, stop)
		}
		if len(out.Differences) > 0 || out.Same != out.Decisions || !out.To.Equal(cell.Now()) {
			t.Errorf("%s: %s", tt.until, describe(out))
		}
	}
}

// TestReplayIsWhatHappened: whatever comes to a cell, its log replayed comes out as it was.
func TestReplayIsWhatHappened(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLive(t, plantest.Machine("m0", 3, 16), plantest.Machine("m1", 3, 16), plantest.Machine("m2", 3, 16))
		jobs := []schema.Job{plantest.Job("web", 200, 2, "1"), plantest.Job("low", 0, 2, "1")}
		n := 1
		l.commit(plantest.Commit(n, slices.Clone(jobs)...))
		l.pass(time.Duration(rapid.IntRange(0, 60).Draw(t, "before")) * time.Second)
		l.save()
		steps := rapid.IntRange(1, 8).Draw(t, "steps")
		for i := range steps {
			l.pass(time.Duration(rapid.IntRange(min(i, 1), 90_000).Draw(t, "pass")) * time.Millisecond)
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				n++
				which := rapid.IntRange(0, 1).Draw(t, "job")
				jobs[which] = plantest.Job(jobs[which].Name, jobs[which].Priority, rapid.IntRange(1, 6).Draw(t, "tasks"), fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "version")))
				if rapid.Bool().Draw(t, "ends") {
					l.lasts[jobs[which].ID().Short()] = time.Duration(rapid.IntRange(20, 100).Draw(t, "lasts")) * time.Second
				}
				l.commit(plantest.Commit(n, slices.Clone(jobs)...))
			case 2:
				// What is silent is not in the log, but with a loss.
				name := fmt.Sprintf("m%d", rapid.IntRange(0, 2).Draw(t, "lost"))
				_, err := l.cell.Lose([]string{name})
				l.must(err)
				l.pass(model.DefaultLostAfter)
				if l.cell.State().Machines[name].LostSince.IsZero() {
					return
				}
			case 3:
				l.must(l.cell.Rejoin(plantest.Machine(fmt.Sprintf("m%d", rapid.IntRange(0, 4).Draw(t, "joins")), 3, 16)))
			case 4:
				l.must(l.cell.Ask(func(m *reconciler.Master, now time.Time) error {
					return m.Suspend(schema.Suspension{Name: schema.AllJobs, Reason: "x", By: "ann"}, time.Duration(rapid.IntRange(0, 50).Draw(t, "for"))*time.Second, now)
				}))
			case 5:
				l.must(l.cell.Ask(func(m *reconciler.Master, now time.Time) error {
					_, err := m.Resume(schema.AllJobs, "ann", now)
					return err
				}))
			}
		}
		l.pass(2 * time.Minute)
		if !slices.ContainsFunc(l.log, func(r schema.EventRecord) bool { return r.At.After(at.Add(time.Minute)) }) {
			return
		}
		out, _ := l.replay(l.log)
		if len(out.Differences) > 0 || out.Same != out.Decisions {
			t.Fatal(describe(out))
		}
	})
}

// TestReplayOrder: a task that is assigned to a silent machine has a life that never begins, and
// a commit that came just after a suspension has not waited for its end.
func TestReplayOrder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"silent machine", "after a suspension", "during a suspension"} {
		l := newLive(t, plantest.Machine("m0", 3, 16), plantest.Machine("m1", 3, 16), plantest.Machine("m2", 3, 16))
		l.commit(plantest.Commit(1, plantest.Job("web", 200, 2, "1"), plantest.Job("low", 0, 2, "1")))
		l.pass(time.Minute)
		l.save()
		l.pass(time.Second)
		ask := func(f func(*reconciler.Master, time.Time) error) { l.must(l.cell.Ask(f)) }
		suspend := func(m *reconciler.Master, now time.Time) error {
			return m.Suspend(schema.Suspension{Name: schema.AllJobs, Reason: "x", By: "ann"}, time.Minute, now)
		}
		resume := func(m *reconciler.Master, now time.Time) error {
			_, err := m.Resume(schema.AllJobs, "ann", now)
			return err
		}
		more := plantest.Commit(2, plantest.Job("web", 200, 6, "1"), plantest.Job("low", 0, 2, "1"))
		switch name {
		case "silent machine":
			l.lasts["search/web"] = 20 * time.Second
			_, err := l.cell.Lose([]string{"m2"})
			l.must(err)
			l.pass(time.Millisecond)
			l.commit(more)
			l.pass(2 * time.Minute)
		case "after a suspension":
			ask(suspend)
			l.pass(10 * time.Millisecond)
			ask(resume)
			l.pass(10 * time.Millisecond)
			l.must(l.cell.Rejoin(plantest.Machine("m3", 3, 16)))
			l.pass(10 * time.Millisecond)
			l.commit(more)
		case "during a suspension":
			ask(suspend)
			l.pass(10 * time.Millisecond)
			l.commit(more)
			l.pass(10 * time.Millisecond)
			l.must(l.cell.Rejoin(plantest.Machine("m3", 3, 16)))
			l.pass(10 * time.Millisecond)
			ask(resume)
		}
		l.pass(2 * time.Minute)
		if out, _ := l.replay(l.log); len(out.Differences) > 0 || out.Same != out.Decisions || out.Apart > 0 || out.Decisions < 5 {
			t.Errorf("%s: %s", name, describe(out))
		}
	}
}

// TestReplayAtOnce: what came in the moment in which the cell was saved is played if it came after
// that, and is not if it came before.
func TestReplayAtOnce(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		l := newLive(t, plantest.Machine("m1", 4, 16), plantest.Machine("m2", 4, 16))
		l.old = old
		l.commit(plantest.Commit(1, plantest.Job("web", 200, 2, "1"), plantest.Job("huge", 300, 2, "1")))
		l.pass(time.Minute)
		restart := func() {
			l.must(l.cell.Ask(func(m *reconciler.Master, now time.Time) error {
				_, err := m.Restart(schema.RestartRequest{Name: "search/web", Reason: "it hangs", By: "ann"}, now)
				return err
			}))
		}
		l.must(l.cell.Ask(func(m *reconciler.Master, now time.Time) error {
			return m.Suspend(schema.Suspension{Name: "search/huge", Reason: "a look", By: "ann"}, 0, now)
		}))
		l.save()
		restart()
		l.pass(2 * time.Minute)
		out, _ := l.replay(l.log)
		same := len(out.Differences) == 0 && out.Same == out.Decisions && len(out.Inputs) > 0 && out.Inputs[0].Times == 1
		if same == old {
			t.Errorf("old %v: %s", old, describe(out))
		}
	}
}
