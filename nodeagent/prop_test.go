package nodeagent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"pgregory.net/rapid"
)

// world drives a machine with a master that behaves: it gives a task a newer
// generation only after it stopped the older one or gave the machine up.
type world struct {
	*machine
	next uint64
	view map[schema.TaskName]schema.Assignment
}

func (w *world) push() {
	var list []schema.Assignment
	for _, a := range w.view {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b schema.Assignment) int { return a.Task.Compare(b.Task) })
	w.assign(list...)
	w.life.Confirmed = w.now
}

func (w *world) name(t *rapid.T) schema.TaskName {
	return task(rapid.SampledFrom([]string{"web", "batch", "pair", "in", "in", "once"}).Draw(t, "job"), rapid.IntRange(0, 2).Draw(t, "index"))
}

func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": func(t *rapid.T) { w.invariants(t) },
		"assign": func(t *rapid.T) {
			name := w.name(t)
			kind := map[string]schema.JobKind{"web": schema.Service, "batch": schema.Batch, "pair": schema.Allocs, "in": schema.Service, "once": schema.Service}[name.Job]
			a := assignment(name.Job, name.Index, w.next+1, kind)
			if name.Job == "once" {
				a.Job.Silence = &schema.Silence{NeverTwice: true}
			}
			if name.Job == "in" {
				host, ok := w.view[task("pair", rapid.IntRange(0, 1).Draw(t, "alloc"))]
				if !ok || host.Stop != nil {
					return // the master knows of no alloc
				}
				a.Alloc = &schema.AllocUse{Set: "pair", Index: host.Task.Index, Generation: host.Generation}
			}
			w.next++
			w.view[name] = a
			w.push()
		},
		"stop": func(t *rapid.T) {
			name := w.name(t)
			if a, ok := w.view[name]; ok && a.Stop == nil {
				w.view[name] = stopping(a, schema.CauseUpdate)
				w.push()
			}
		},
		"withdraw": func(t *rapid.T) { delete(w.view, w.name(t)); w.push() },
		"exit": func(t *rapid.T) {
			name := w.name(t)
			if name.Job == "pair" {
				return // an alloc has no process
			}
			w.exit(name, schema.Exit{Code: rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "code")})
		},
		"check": func(t *rapid.T) {
			ok := rapid.IntRange(0, 3).Draw(t, "ok") > 0
			for range rapid.IntRange(1, 4).Draw(t, "checks") {
				w.checked(nodeagent.Result{At: w.now, OK: ok, Message: "GET /: refused"})
				w.settle()
			}
		},
		"refuse": func(t *rapid.T) { w.refuse[w.name(t)] = schema.CausePortInUse },
		"admit":  func(t *rapid.T) { delete(w.refuse, w.name(t)) },
		"decide": func(*rapid.T) { w.settle() },
		"half": func(t *rapid.T) { // the agent is killed in the midst of a plan
			plan := nodeagent.Decide(w.input())
			w.checkDead(plan)
			for _, a := range plan.Actions[:rapid.IntRange(0, len(plan.Actions)).Draw(t, "done")] {
				w.do(a)
			}
			w.restartAgent()
		},
		"agent":  func(*rapid.T) { w.restartAgent() },
		"reboot": func(t *rapid.T) { w.boot += "'"; w.restartAgent() },
		"shut":   func(t *rapid.T) { w.shutdown = true; w.settle() },
		"time": func(t *rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 100_000).Draw(t, "ms")) * time.Millisecond)
			w.settle()
		},
	}
}

// restartAgent drops what only the memory of the agent holds.
func (w *world) restartAgent() {
	w.shutdown = false
	w.newLife()
	for i := range w.held {
		w.held[i].Refused = nil
		for j := range w.held[i].Incarnations {
			c := &w.held[i].Incarnations[j]
			c.TermAt, c.KilledAt = time.Time{}, time.Time{}
			c.Probe = nodeagent.Known(c.Probe.State, c.Probe.Message)
		}
	}
}

// invariants hold after every step; machine.start and machine.do check more.
func (w *world) invariants(t *rapid.T) {
	in := w.input()
	plan := nodeagent.Decide(in)
	if diff := cmp.Diff(plan, nodeagent.Decide(in)); diff != "" {
		t.Fatalf("same input, other plan:\n%s", diff)
	}
	slices.Reverse(in.Held)
	if diff := cmp.Diff(plan, nodeagent.Decide(in)); diff != "" {
		t.Fatalf("the order of what is held matters:\n%s", diff)
	}
	if !plan.Wake.IsZero() && !plan.Wake.After(w.now) {
		t.Fatalf("wake at %v, which is not after %v", plan.Wake, w.now)
	}
	entries := map[uint64]schema.TaskStatus{}
	for _, s := range plan.Tasks {
		if _, ok := entries[s.Generation]; ok {
			t.Fatalf("two entries for generation %d", s.Generation)
		}
		if (s.State == schema.Dead) != (s.End != nil) {
			t.Fatalf("%s generation %d: state %s with end %v", s.Task, s.Generation, s.State, s.End)
		}
		entries[s.Generation] = s
	}
	for _, a := range w.view {
		if _, ok := entries[a.Generation]; !ok {
			t.Fatalf("no entry for %s generation %d of the view", a.Task, a.Generation)
		}
	}
	for i := range w.held {
		h := &w.held[i]
		if _, ok := entries[h.Assignment.Generation]; !ok && h.End == nil {
			t.Fatalf("no entry for %s generation %d, which is held", h.Assignment.Task, h.Assignment.Generation)
		}
		if live := w.alive(h.Assignment.Task); len(live) > 1 {
			t.Fatalf("%s: generations %v are alive", h.Assignment.Task, live)
		}
	}
}

// rest lets the world come to rest: nothing refuses, no task exits by itself.
func (w *world) rest() nodeagent.Plan {
	w.refuse = map[schema.TaskName]schema.CauseKind{}
	w.shutdown = false
	w.life.Confirmed = w.now // a master is there
	plan := w.settle()
	for range 100 {
		plan = w.advance(schema.DefaultRestart.MaxDelay())
	}
	return plan
}

// stands reports whether the alloc of an assignment is wanted, and has not ended.
func (w *world) stands(a schema.Assignment) bool {
	host, ok := w.view[a.Alloc.Of(a.Task.JobName)]
	return ok && host.Generation == a.Alloc.Generation && host.Stop == nil && w.status(host.Generation).State == schema.Running
}

func TestDecideProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{machine: newMachine(t), view: map[schema.TaskName]schema.Assignment{}}
		w.push()
		t.Repeat(w.actions())
		w.rest()
		w.invariants(t)
		for name, a := range w.view {
			live := w.alive(name)
			s := w.status(a.Generation)
			switch {
			case a.Stop != nil && s.State != schema.Dead:
				t.Fatalf("%s generation %d shall stop and is %s", name, a.Generation, s.State)
			case a.Alloc != nil && !w.stands(a): // its master will ask it to stop
				if len(live) > 0 {
					t.Fatalf("%s generation %d runs in alloc %s, which is not there", name, a.Generation, a.Alloc)
				}
			case a.Stop == nil && s.State != schema.Dead && !slices.Equal(live, []uint64{a.Generation}):
				t.Fatalf("%s generation %d shall run; %v run", name, a.Generation, live)
			case a.Stop == nil && s.State == schema.Dead && len(s.Exits) == 0 && s.End.Kind != schema.CausePortInUse:
				t.Fatalf("%s generation %d is dead and never ran: %v", name, a.Generation, s.End)
			}
		}
		for i := range w.held {
			h := &w.held[i]
			if a, ok := w.view[h.Assignment.Task]; h.Alive() && (!ok || a.Generation != h.Assignment.Generation) {
				t.Fatalf("%s generation %d is alive and not in the view", h.Assignment.Task, h.Assignment.Generation)
			}
		}
		if plan := nodeagent.Decide(w.input()); len(plan.Actions) != 0 {
			t.Fatalf("at rest there is still to do: %v", describe(plan.Actions))
		}
	})
}

// BenchmarkDecide is one decision about a busy machine at rest.
func BenchmarkDecide(b *testing.B) {
	m := newMachine(b)
	var list []schema.Assignment
	for i := range 500 {
		list = append(list, assignment("web", i, uint64(i+1), schema.Service))
	}
	m.assign(list...)
	m.settle()
	in := m.input()
	b.ReportAllocs()
	for b.Loop() {
		nodeagent.Decide(in)
	}
}
