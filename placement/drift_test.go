package placement_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// held is what a snapshot is to hold, by what was done to it.
type held struct {
	machines map[string]placement.Machine
	tasks    map[string]placement.Task
}

func (h *held) fresh() *placement.Snapshot {
	var machines []placement.Machine
	for _, name := range sortedKeys(h.machines) {
		machines = append(machines, h.machines[name])
	}
	var tasks []placement.Task
	for _, name := range sortedKeys(h.tasks) {
		tasks = append(tasks, h.tasks[name])
	}
	return placement.NewSnapshot(machines, tasks)
}

func (h *held) anyTask(t *rapid.T) (placement.Task, bool) {
	names := sortedKeys(h.tasks)
	if len(names) == 0 {
		return placement.Task{}, false
	}
	return h.tasks[rapid.SampledFrom(names).Draw(t, "task")], true
}

// act does one thing to a snapshot that is to hold h.
func (h *held) act(t *rapid.T, s *placement.Snapshot, drawn *cell) {
	name := rapid.SampledFrom(drawn.machines).Draw(t, "on").Name
	switch rapid.SampledFrom([]string{"set", "relations", "stop", "remove", "machine", "gone", "fork", "claim", "place", "move"}).Draw(t, "act") {
	case "set":
		a := drawAsk(t)
		a.Name.Index = rapid.IntRange(0, 3).Draw(t, "index")
		x := placement.Task{Name: a.Name, Machine: name, Priority: a.Priority, Limit: a.Limit, Ask: &a}
		if s.SetTask(x); h.machines[name].Name != "" {
			h.tasks[key(x)] = x
		}
	case "relations": // labels change in place
		if x, ok := h.anyTask(t); ok {
			a := *x.Ask
			if a.Relations = nil; rapid.Bool().Draw(t, "related") {
				a.Relations = drawRelations(t)
			}
			x.Ask = &a
			s.SetTask(x)
			h.tasks[key(x)] = x
		}
	case "stop":
		if x, ok := h.anyTask(t); ok {
			x.Stopping = !x.Stopping
			s.SetTask(x)
			h.tasks[key(x)] = x
		}
	case "remove":
		if x, ok := h.anyTask(t); ok {
			s.RemoveTask(x.Name, x.Machine, x.Generation)
			delete(h.tasks, key(x))
		}
	case "machine":
		m := rapid.SampledFrom(drawn.machines).Draw(t, "machine")
		m.Attributes = map[string]string{"rack": rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "rack")}
		if m.Taints = nil; rapid.Bool().Draw(t, "taint") {
			m.Taints = []placement.Taint{{Key: "dedicated"}}
		}
		s.SetMachine(m)
		h.machines[m.Name] = m
	case "gone":
		s.RemoveMachine(name)
		delete(h.machines, name)
		for k, x := range h.tasks {
			if x.Machine == name {
				delete(h.tasks, k)
			}
		}
	case "fork": // what is done to it is not seen
		f := s.Fork()
		placement.Place(f, drawn.asks, 3)
		for _, m := range drawn.machines[:1] {
			m.Attributes = map[string]string{"rack": "d"}
			f.SetMachine(m)
		}
		if rapid.Bool().Draw(t, "release") {
			f.Release()
		}
	case "claim":
		a := rapid.SampledFrom(drawn.asks).Draw(t, "claims")
		if rapid.Bool().Draw(t, "comes") {
			s.ClaimMove(a, name, nil)
		} else {
			s.Claim(a, name, nil, false)
		}
		s.ClearClaims()
	case "place":
		h.place(t, s, drawn.asks)
	case "move":
		if x, ok := h.anyTask(t); ok {
			a := *x.Ask
			a.Name = x.Name
			if a.Ports == nil && a.Devices == nil && placement.Move(s, a, x.Machine, name) {
				delete(h.tasks, key(x))
				x = placement.Task{Name: x.Name, Machine: name, Priority: a.Priority, Limit: a.Limit, Ask: &a}
				h.tasks[key(x)] = x
			}
		}
	}
}

// place has the snapshot decide asks of which it holds none.
func (h *held) place(t *rapid.T, s *placement.Snapshot, asks []placement.Ask) {
	all := map[schema.TaskName]placement.Ask{}
	for _, x := range h.tasks {
		a := *x.Ask
		a.Name = x.Name
		all[x.Name] = a
	}
	var open []placement.Ask
	for _, a := range asks {
		if _, has := all[a.Name]; !has {
			open = append(open, a)
			all[a.Name] = a
		}
	}
	s.Configure(placement.Options{Preempt: rapid.Bool().Draw(t, "preempt"), Enough: 2})
	for _, d := range placement.Place(s, open, 7) {
		for _, v := range d.Victims {
			delete(h.tasks, key(placement.Task{Name: v.Name, Generation: v.Generation, Machine: d.Machine}))
		}
		if a := all[d.Name]; d.Machine != "" {
			x := placement.Task{Name: d.Name, Machine: d.Machine, Priority: a.Priority, Limit: a.Limit, Ports: d.Ports, Devices: d.Devices, Ask: &a}
			h.tasks[key(x)] = x
		}
	}
}

// TestNothingDrifts holds a snapshot, after each of many changes, against one that is made
// anew, and asks both.
func TestNothingDrifts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		drawn := drawCell(t)
		h := &held{map[string]placement.Machine{}, map[string]placement.Task{}}
		for _, m := range drawn.machines {
			h.machines[m.Name] = m
		}
		s := h.fresh()
		for i := range rapid.IntRange(1, 25).Draw(t, "acts") {
			h.act(t, s, &drawn)
			if diff := cmp.Diff(h.fresh().Describe(), s.Describe()); diff != "" {
				t.Fatalf("after %d acts the snapshot differs from a new one (-new +kept):\n%s", i+1, diff)
			}
		}
		if len(h.machines) == 0 {
			return
		}
		o := placement.Options{Preempt: true, NoRelaxed: true, Policy: placement.BestFit}
		fresh, asks := h.fresh(), drawn.asks
		for _, m := range drawn.machines { // scores depend on the largest machine that there ever was
			if _, has := h.machines[m.Name]; !has {
				fresh.SetMachine(m)
				fresh.RemoveMachine(m.Name)
			}
		}
		fresh.Configure(o)
		s.Configure(o)
		for i := range asks {
			asks[i].Name.Index += 500
		}
		if diff := cmp.Diff(where(placement.Place(fresh, asks, 7)), where(placement.Place(s, asks, 7))); diff != "" {
			t.Fatalf("the snapshot decides unlike a new one (-new +kept):\n%s\n%s", diff, strings.Join(s.Describe(), "\n"))
		}
	})
}
