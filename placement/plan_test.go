package placement_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// On a snapshot that has not changed all of a plan holds, and to commit it is the
// same as to place.
func TestPlanOnUnchanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := drawOptions(t)
		s, twin := c.snapshot(o), c.snapshot(o)
		p := placement.NewPlan(s, c.asks, nil, 7)
		want := where(placement.Place(twin, c.asks, 7))
		if diff := placement.Difference(s, c.snapshot(o)); !c.forked && diff != "" {
			t.Fatalf("planning has changed the snapshot:\n%s", diff)
		}
		for _, step := range p.Steps {
			if want[step.Ask.Name] != step.Decision.Machine {
				t.Fatalf("%v is planned on %q and placed on %q", step.Ask.Name, step.Decision.Machine, want[step.Ask.Name])
			}
		}
		holds, conflicts := placement.Verify(p, s)
		if diff := cmp.Diff(p, holds, selectors); diff != "" || len(conflicts) > 0 {
			t.Fatalf("not all holds: %v (-planned +holds):\n%s", conflicts, diff)
		}
		placement.Commit(s, p)
		if diff := cmp.Diff(twin.Describe(), s.Describe(), selectors); diff != "" {
			t.Fatalf("what was committed differs from what was placed (-placed +committed):\n%s", diff)
		}
	})
}

// Plans that were made on one snapshot, and are committed one after the other to one
// that has changed since, never overcommit, and groups hold whole or not at all.
func TestPlansOneAfterTheOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := placement.Options{Preempt: rapid.Bool().Draw(t, "preempt"), NoRelaxed: rapid.Bool().Draw(t, "noRelaxed")}
		s, l := c.snapshot(o), c.follower(o)
		other := drawCell(t).asks
		for i := range other {
			other[i].Name.Index += 100 // all differ from the first plan's
		}
		var plans []placement.Plan
		for _, asks := range [][]placement.Ask{c.asks, other} {
			groups := map[schema.TaskName]string{}
			for i := range asks {
				if g := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "group"); g != "" {
					groups[asks[i].Name] = g
				}
			}
			p := placement.NewPlan(s, asks, groups, 7)
			checkGroups(t, p, groups)
			plans = append(plans, p)
		}
		if rapid.Bool().Draw(t, "changed") {
			l.change(t, s)
		}
		for _, p := range plans {
			before := s.Describe()
			holds, conflicts := placement.Verify(p, s)
			if diff := cmp.Diff(before, s.Describe(), selectors); diff != "" {
				t.Fatalf("to verify has changed the snapshot:\n%s", diff)
			}
			done, why := placement.Commit(s, p)
			if diff := cmp.Diff([]any{holds, conflicts}, []any{done, why}, selectors); diff != "" {
				t.Fatalf("what is committed is not what was verified (-verified +committed):\n%s", diff)
			}
			if len(done.Steps)+len(why) != len(p.Steps) {
				t.Fatalf("%d steps are committed and %d in conflict, of %d", len(done.Steps), len(why), len(p.Steps))
			}
			l.commit(t, done)
			groups := map[schema.TaskName]string{}
			for _, step := range p.Steps {
				if step.Group != "" {
					groups[step.Ask.Name] = step.Group
				}
			}
			checkGroups(t, done, groups)
		}
	})
}

// A task that asks for two shares gets both of one device. A plan that was made while that was
// free does not hold when it has room for each of them, and not for both, though another would
// have room for one.
func TestTwoSharesOfOneDevice(t *testing.T) {
	t.Parallel()
	s := placement.NewSnapshot([]placement.Machine{{Name: "m", Up: true, Devices: []placement.Device{{Kind: "gpu", Count: 2}}}}, nil)
	var plans []placement.Plan
	for i, milli := range [][]int{{400}, {500, 300}} {
		a := placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("j", i)}.Task(0)}
		for _, m := range milli {
			a.Devices = append(a.Devices, placement.DeviceAsk{Kind: "gpu", Count: 1, Milli: m})
		}
		plans = append(plans, placement.NewPlan(s, []placement.Ask{a}, nil, 7))
	}
	if _, conflicts := placement.Commit(s, plans[0]); len(conflicts) > 0 {
		t.Fatal(conflicts)
	}
	if done, conflicts := placement.Commit(s, plans[1]); len(done.Steps) > 0 || len(conflicts) != 1 || conflicts[0].Reason != placement.ReasonDevices {
		t.Errorf("done %v, in conflict %v: want the devices to be in conflict", done.Steps, conflicts)
	}
}

// checkGroups looks for groups that a plan has in part.
func checkGroups(t *rapid.T, p placement.Plan, groups map[schema.TaskName]string) {
	has, all := map[string]int{}, map[string]int{}
	for _, g := range groups {
		all[g]++
	}
	for _, step := range p.Steps {
		if step.Group != "" {
			has[step.Group]++
		}
	}
	for g, n := range has {
		if n != all[g] {
			t.Fatalf("%d of the %d of group %s hold", n, all[g], g)
		}
	}
}

// commit checks the steps that were committed one by one against the oracle.
func (f *follower) commit(t *rapid.T, p placement.Plan) {
	for _, step := range p.Steps {
		a, d := step.Ask, step.Decision
		f.asks[a.Name] = a
		f.remove(t, d)
		for _, h := range f.tasks {
			if h.Name == a.Name && h.Generation == a.Generation {
				t.Fatalf("%v is committed to %s, and is on %s still", a.Name, d.Machine, h.Machine)
			}
		}
		if m, ok := f.machines[d.Machine]; !ok || !f.admits(m, a) || !f.fits(m, f.on(d.Machine), a) {
			t.Fatalf("%v is committed to %s, where it does not fit", a.Name, d.Machine)
		}
		h := placement.Task{Name: a.Name, Machine: d.Machine, Priority: a.Priority, Limit: a.Limit, Ports: d.Ports, Devices: d.Devices, Ask: &a}
		f.tasks[key(h)] = h
		checkExclusive(t, f.oracle, d.Machine)
	}
}

// What came between a plan and its commit, and why a step does not hold then.
func TestConflicts(t *testing.T) {
	t.Parallel()
	one := schema.JobName{Cell: "c", User: "u", Job: "one"}
	task := func(job string, index int, machine string, ports schema.Ports) placement.Task {
		return placement.Task{
			Name: schema.JobName{Cell: "c", User: "u", Job: job}.Task(index), Machine: machine, Priority: 110,
			Limit: schema.Resources{CPUMilli: 600}, Ports: ports,
		}
	}
	machine := placement.Machine{
		Name: "m1", Up: true, Capacity: schema.Resources{CPUMilli: 1000}, Ports: schema.PortRange{First: 1000, Last: 1001},
		Attributes: map[string]string{"rack": "a"},
	}
	free := placement.Ask{Name: one.Task(0), Priority: 200, Limit: schema.Resources{CPUMilli: 400}, PortNumbers: map[string]int{"http": 1000}, Ports: []string{"http"}}
	large := free
	large.Limit.CPUMilli = 900
	bounded := free
	bounded.PerDomain = []placement.DomainLimit{{Attribute: "rack", Max: 1}}
	anyPort := free
	anyPort.PortNumbers = nil
	small := func(ports schema.Ports) placement.Task {
		out := task("one", 7, "m1", ports)
		out.Limit.CPUMilli = 1
		return out
	}
	for _, tt := range []struct {
		ask    placement.Ask
		change func(s *placement.Snapshot, port int) // that was chosen
		want   placement.Reason
	}{
		{free, func(*placement.Snapshot, int) {}, ""},
		{free, func(s *placement.Snapshot, _ int) { s.RemoveMachine("m1") }, placement.ReasonGone},
		{free, func(s *placement.Snapshot, _ int) {
			m := machine
			m.Cordoned = true
			s.SetMachine(m)
		}, placement.ReasonCordoned},
		{free, func(s *placement.Snapshot, _ int) { s.SetTask(task("big", 0, "m1", nil)) }, placement.ReasonCPU},
		{free, func(s *placement.Snapshot, _ int) { s.SetTask(small(schema.PortsOf(map[string]int{"p": 1000}))) }, placement.ReasonPortTaken},
		{anyPort, func(s *placement.Snapshot, port int) { s.SetTask(small(schema.PortsOf(map[string]int{"p": port}))) }, placement.ReasonPortTaken},
		{bounded, func(s *placement.Snapshot, _ int) { s.SetTask(small(nil)) }, placement.ReasonDomain},
		{free, func(s *placement.Snapshot, _ int) { s.SetTask(small(nil)) }, placement.ReasonSpread},
		{large, func(s *placement.Snapshot, _ int) { s.RemoveTask(task("old", 0, "", nil).Name, "m1", 0) }, placement.ReasonVictims},
		{large, func(s *placement.Snapshot, _ int) {
			m := machine
			m.Capacity.CPUMilli = 4000
			s.SetMachine(m)
		}, placement.ReasonNeedless},
	} {
		old := task("old", 0, "m1", nil)
		old.Limit.CPUMilli = 200
		s := placement.NewSnapshot([]placement.Machine{machine}, []placement.Task{old})
		s.Configure(placement.Options{Preempt: true})
		other := placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: "two"}.Task(0), Priority: 200}
		p := placement.NewPlan(s, []placement.Ask{tt.ask, other}, map[schema.TaskName]string{tt.ask.Name: "g", other.Name: "g"}, 1)
		port := 0
		for _, step := range p.Steps {
			chosen, _ := step.Decision.Ports.Get("http")
			port = max(port, chosen)
		}
		tt.change(s, port)
		_, conflicts := placement.Verify(p, s)
		var got placement.Reason
		for _, k := range conflicts {
			if k.Name == tt.ask.Name {
				got = k.Reason
			}
		}
		if len(p.Steps) != 2 || got != tt.want || tt.want != "" && len(conflicts) != 2 {
			t.Errorf("%d steps are planned and %v are in conflict, want %q", len(p.Steps), conflicts, tt.want)
		}
	}
}

// A task that a step was to evict is put nowhere when that step does not hold: be it that it
// stays, or that another plan has evicted it and put it somewhere.
func TestEvictedByAnother(t *testing.T) {
	t.Parallel()
	low := placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: "low"}.Task(0), Priority: 110, Limit: schema.Resources{CPUMilli: 200}}
	high := placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: "high"}.Task(0), Priority: 200, Limit: schema.Resources{CPUMilli: 1000}}
	m1 := placement.Machine{Name: "m1", Up: true, Capacity: schema.Resources{CPUMilli: 1000}}
	m2 := placement.Machine{Name: "m2", Up: true, Capacity: schema.Resources{CPUMilli: 500}}
	other := high
	other.Name.Job = "other"
	for reason, change := range map[placement.Reason]func(*placement.Snapshot){
		placement.ReasonCordoned: func(s *placement.Snapshot) {
			m := m1
			m.Cordoned = true
			s.SetMachine(m)
		},
		placement.ReasonVictims: func(s *placement.Snapshot) { placement.Place(s, []placement.Ask{other}, 1) },
	} {
		s := placement.NewSnapshot([]placement.Machine{m1, m2}, []placement.Task{{Name: low.Name, Machine: "m1", Priority: 110, Limit: low.Limit, Ask: &low}})
		s.Configure(placement.Options{Preempt: true})
		p := placement.NewPlan(s, []placement.Ask{high}, nil, 1)
		change(s)
		done, conflicts := placement.Commit(s, p)
		want := []placement.Conflict{
			{Name: high.Name, Machine: "m1", Reason: reason}, {Name: low.Name, Machine: "m2", Reason: placement.ReasonStays},
		}
		if diff := cmp.Diff(want, conflicts, selectors); diff != "" || len(done.Steps) > 0 {
			t.Errorf("%d steps are committed (-want +got):\n%s", len(done.Steps), diff)
		}
	}
}

// selectors compares selectors by what they say.
var selectors = cmp.Comparer(func(a, b schema.Selector) bool { return a.String() == b.String() })
