package rebalance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/schema"
)

// held is a task of a machine: job/index:cpu, of machines with 1000 each.
func held(machine, what string) (t placement.Task) {
	var job string
	var index int
	var cpu int64
	if _, err := fmt.Sscanf(strings.NewReplacer("/", " ", ":", " ").Replace(what), "%s %d %d", &job, &index, &cpu); err != nil {
		panic(what)
	}
	a := &placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: job}.Task(index), Priority: 200, Limit: schema.Resources{CPUMilli: cpu}}
	return placement.Task{Name: a.Name, Machine: machine, Priority: a.Priority, Limit: a.Limit, Ask: a}
}

func holding(machines map[string]string, change func(*placement.Machine, *placement.Task)) *placement.Snapshot {
	var list []placement.Machine
	var tasks []placement.Task
	for i := range len(machines) {
		m := placement.Machine{Name: fmt.Sprint("m", i+1), Up: true, Capacity: schema.Resources{CPUMilli: 1000}, Attributes: map[string]string{"rack": fmt.Sprint("r", i%2)}}
		if change != nil {
			change(&m, nil)
		}
		list = append(list, m)
		for what := range strings.FieldsSeq(machines[m.Name]) {
			t := held(m.Name, what)
			if change != nil {
				change(nil, &t)
			}
			tasks = append(tasks, t)
		}
	}
	return placement.NewSnapshot(list, tasks)
}

// emptying is of tasks of all jobs but sys, which all but that named still may move.
func emptying(s *placement.Snapshot, below float64) (rebalance.Search, rebalance.Emptying) {
	return rebalance.Search{Snapshot: s, Moves: 100, May: func(t *placement.Task, _ []rebalance.Move) (placement.Ask, bool) {
			return *t.Ask, t.Name.Job != "still"
		}},
		rebalance.Emptying{Below: below, Counts: func(job schema.JobName) bool { return job.Job != "sys" }}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		machines map[string]string
		change   func(*placement.Machine, *placement.Task)
		avoid    string
		want     string
	}{
		{name: "the least used first, to what is used most", machines: map[string]string{"m1": "a/0:150", "m2": "b/0:100", "m3": "c/0:500", "m4": "d/0:600"}, want: "m2: b/0 to m4; m1: a/0 to m4"},
		{name: "all of a machine, the largest first", machines: map[string]string{"m1": "a/0:50 b/0:100", "m2": "c/0:850", "m3": "d/0:880"}, want: "m1: b/0 to m3, a/0 to m2"},
		{name: "all or nothing", machines: map[string]string{"m1": "a/0:90 b/0:100", "m2": "c/0:895", "m3": "d/0:980"}},
		{name: "one that may not move", machines: map[string]string{"m1": "a/0:50 still/0:50", "m2": "c/0:500"}},
		{name: "never to an emptier machine, or an empty one", machines: map[string]string{"m1": "a/0:100", "m2": "b/0:90 still/0:5", "m3": ""}},
		{name: "of two that are alike one", machines: map[string]string{"m1": "a/0:100", "m2": "b/0:100", "m3": ""}, want: "m1: a/0 to m2"},
		{name: "what is used more stays", machines: map[string]string{"m1": "a/0:200", "m2": "b/0:300"}},
		{name: "system jobs do not count", machines: map[string]string{"m1": "a/0:100 sys/0:150", "m2": "b/0:500 sys/1:150", "m3": "sys/2:150"}, want: "m1: a/0 to m2"},
		{name: "the share of each resource counts", machines: map[string]string{"m1": "a/0:100", "m2": "b/0:500"}, change: func(m *placement.Machine, h *placement.Task) {
			if m != nil {
				m.Capacity.RAMBytes = 100
			} else if h.Ask.Limit.RAMBytes = 20; h.Limit.CPUMilli == 100 {
				h.Limit.RAMBytes = 20
			}
		}},
		{name: "devices count", machines: map[string]string{"m1": "a/0:100", "m2": "b/0:500"}, change: func(m *placement.Machine, h *placement.Task) {
			if m != nil {
				m.Devices = []placement.Device{{Kind: "gpu", Count: 2}}
			} else {
				h.Ask.Devices = []placement.DeviceAsk{{Kind: "gpu", Count: 1}}
				h.Devices = []placement.DeviceUse{{Kind: "gpu", Milli: placement.DeviceMilli}}
			}
		}},
		{name: "spread over racks", machines: map[string]string{"m1": "a/0:100", "m2": "a/1:100 b/0:500", "m3": "c/0:500", "m4": "d/0:600"}, want: "m1: a/0 to m3"},
		{name: "spread over machines", machines: map[string]string{"m1": "a/0:100", "m2": "", "m3": "a/1:500"}},
		{name: "wishes", machines: map[string]string{"m1": "a/0:100", "m2": "b/0:500", "m3": "b/1:400"}, change: func(_ *placement.Machine, h *placement.Task) {
			if h != nil {
				h.Ask.Preferences = []placement.Preference{{Constraint: placement.Constraint{Attribute: "rack", Op: placement.OpIn, Values: []string{"r0"}}, Weight: 10}}
			}
		}, want: "m1: a/0 to m3"},
		{name: "machines that are avoided", machines: map[string]string{"m1": "a/0:100", "m2": "b/0:110", "m3": "c/0:500", "m4": "d/0:600"}, avoid: "m1 m4", want: "m2: b/0 to m3"},
		{name: "what stops goes anyway", machines: map[string]string{"m1": "a/0:100 still/0:50", "m2": "b/0:500"}, change: func(_ *placement.Machine, h *placement.Task) {
			if h != nil {
				h.Stopping = h.Name.Job == "still"
			}
		}, want: "m1: a/0 to m2"},
		{name: "a machine that gets nothing new", machines: map[string]string{"m1": "a/0:100", "m2": "b/0:500"}, change: func(m *placement.Machine, _ *placement.Task) {
			if m != nil {
				m.Cordoned = m.Name == "m2"
			}
		}},
		{name: "allocs", machines: map[string]string{"m1": "a/0:100", "m2": "b/0:500"}, change: func(_ *placement.Machine, h *placement.Task) {
			if h != nil {
				h.IsAlloc = h.Name.Job == "a"
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := holding(tt.machines, tt.change)
			before := s.Describe()
			search, e := emptying(s, 0.2)
			e.Avoid = strings.Fields(tt.avoid)
			list, looked, of := search.Empty(e, 0)
			if got := say(list); got != tt.want || looked != of {
				t.Errorf("%s, and %d of %d machines looked at: want %q", got, looked, of, tt.want)
			}
			if !slices.Equal(s.Describe(), before) {
				t.Error("the snapshot is another now")
			}
		})
	}
}

func say(list []rebalance.Emptied) string {
	var parts []string
	for _, e := range list {
		var moves []string
		for _, m := range e.Moves {
			moves = append(moves, fmt.Sprintf("%s/%d to %s", m.Task.Job, m.Task.Index, m.To))
		}
		parts = append(parts, e.Machine+": "+strings.Join(moves, ", "))
	}
	return strings.Join(parts, "; ")
}

// A search is bounded, and the next one goes on where it has ended.
func TestEmptyIsBounded(t *testing.T) {
	t.Parallel()
	s := holding(map[string]string{"m1": "still/0:10", "m2": "still/1:20", "m3": "a/0:30", "m4": "b/0:40", "m5": "c/0:900"}, nil)
	search, e := emptying(s, 0.2)
	search.Checks = 6 // of which five are for what the machines have
	list, looked, of := search.Empty(e, 0)
	if len(list) > 0 || looked != 1 || of != 4 {
		t.Errorf("%s, %d of %d: want nothing of the first of 4", say(list), looked, of)
	}
	search.Checks = 7
	if list, looked, _ = search.Empty(e, 2); say(list) != "m3: a/0 to m5" || looked != 1 {
		t.Errorf("%s, %d: want m3, the first", say(list), looked)
	}
	search.Checks, search.Moves = 0, 1
	if list, looked, _ = search.Empty(e, 3); say(list) != "m4: b/0 to m5" || looked != 1 {
		t.Errorf("%s, %d: want m4, and no more, by the moves that are left", say(list), looked)
	}
	search.Moves = 9
	if list, looked, _ = search.Empty(e, 3); say(list) != "m4: b/0 to m5; m3: a/0 to m5" || looked != 4 {
		t.Errorf("%s, %d: want m4 and then m3, and nothing moved to m4", say(list), looked)
	}
}

// TestEmptySteady wants a cell that empties machines to come to rest, too, and what is emptied to
// stay so: see TestSteady.
func TestEmptySteady(t *testing.T) {
	t.Parallel()
	moved, more := 0, 0
	for seed := range uint64(20) {
		var inUse [2]int
		for i, empties := range []bool{false, true} {
			s := makeup{machines: 24, jobs: 40, gone: 3}.of(seed, 2)
			s.empties = empties
			moved += s.settle(t, seed)
			inUse[i] = s.inUse()
		}
		more += inUse[0] - inUse[1]
	}
	if moved < 40 || more < 20 {
		t.Errorf("%d tasks were moved before that, and %d more machines are empty: this tests too little", moved, more)
	}
}
