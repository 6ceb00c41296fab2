package nodeagent_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

func runner(name string, priority schema.Priority, cpu, delay, throttled int64) nodeagent.Runner {
	return nodeagent.Runner{
		TaskRef: schema.TaskRef{Task: task(name, 0), Generation: uint64(priority) + 1}, Priority: priority,
		Usage: &schema.Usage{CPUMilli: cpu, DelayMilli: delay, ThrottledMilli: throttled},
	}
}

// busy looks at a machine of two cores every five seconds, as long as it takes.
func busy(s nodeagent.MachinePressure, cpu int64, from, looks int, run ...nodeagent.Runner) nodeagent.MachinePressure {
	limits := nodeagent.Limits{Processors: 2000, OverloadAfter: 30 * time.Second}
	for i := from; i < from+looks; i++ {
		now := t0.Add(time.Duration(i) * 5 * time.Second)
		s = s.Next(schema.MachineUsage{At: now, CPUMilli: cpu}, run, limits, now)
	}
	return s
}

func TestOverload(t *testing.T) {
	t.Parallel()
	prod := runner("web", 200, 500, 400, 0)
	low, mid, idle := runner("low", 0, 300, 900, 0), runner("mid", 100, 900, 0, 0), runner("idle", 1, 10, 0, 0)
	for name, tt := range map[string]struct {
		cpu   int64
		looks int
		run   []nodeagent.Runner
		want  []schema.TaskRef
		asks  bool
	}{
		"a prod task waits for long: the lowest go until it has enough": {1990, 7, []nodeagent.Runner{prod, mid, low, idle}, []schema.TaskRef{low.TaskRef, mid.TaskRef}, true},
		"not for long":                         {1990, 6, []nodeagent.Runner{prod, mid, low}, nil, false},
		"its own limit is why it waits":        {1990, 7, []nodeagent.Runner{runner("web", 200, 500, 400, 300), low}, nil, false},
		"the machine is not busy":              {1500, 7, []nodeagent.Runner{prod, low}, nil, false},
		"only others wait":                     {1990, 7, []nodeagent.Runner{runner("web", 200, 500, 20, 0), low}, nil, false},
		"it waits little for what it gets":     {1990, 7, []nodeagent.Runner{runner("web", 200, 1900, 100, 0), low}, nil, false},
		"there is nobody who could be moved":   {1990, 7, []nodeagent.Runner{prod, runner("db", 300, 900, 0, 0)}, nil, true},
		"one that is not measured yet is left": {1990, 7, []nodeagent.Runner{prod, {TaskRef: low.TaskRef}}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := busy(nodeagent.MachinePressure{}, tt.cpu, 0, tt.looks, tt.run...)
			if (s.Overload != nil) != tt.asks {
				t.Fatalf("asks for help: %+v, want %t", s.Overload, tt.asks)
			}
			if s.Overload != nil {
				if s.Overload.Suffers != prod.Task {
					t.Errorf("%s is said to suffer, want %s", s.Overload.Suffers, prod.Task)
				}
				if diff := cmp.Diff(tt.want, s.Overload.Relief); diff != "" {
					t.Errorf("relief (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// What is asked for stays the same, so that reports do, until something of it is
// gone; then the machine is looked at again.
func TestOverloadIsSteady(t *testing.T) {
	t.Parallel()
	prod, low, mid := runner("web", 200, 500, 400, 0), runner("low", 0, 300, 900, 0), runner("mid", 100, 900, 0, 0)
	s := busy(nodeagent.MachinePressure{}, 1990, 0, 7, prod, low, mid)
	asked := s.Overload
	worse := runner("web", 200, 400, 700, 0)
	if s = busy(s, 2000, 7, 10, worse, low, mid); s.Overload != asked {
		t.Errorf("asks for %+v after %+v, though nothing has left", s.Overload, asked)
	}
	if s = busy(s, 2000, 17, 6, worse, mid); s.Overload != nil {
		t.Errorf("asks for %+v at once, though a task has just left", s.Overload)
	}
	if s = busy(s, 2000, 23, 1, worse, mid); s.Overload == nil || len(s.Overload.Relief) != 1 {
		t.Errorf("asks for %+v, though one task was not enough", s.Overload)
	}
	if s = busy(s, 1000, 24, 1, prod); s.Overload != nil || !s.Starving.IsZero() {
		t.Errorf("asks for %+v, though the machine is not busy any more", s.Overload)
	}
}

// While a task that was asked to be moved is leaving, the report asks for none.
func TestOverloadWaitsForWhoLeaves(t *testing.T) {
	t.Parallel()
	low := using("low", 1, 0, 0, 0)
	asks := nodeagent.MachinePressure{Overload: &schema.Overload{Relief: []schema.TaskRef{{Task: task("low", 0), Generation: 1}}}}
	if got := decideOn(asks, nodeagent.Limits{}, low).Overload; got != asks.Overload {
		t.Errorf("reports %+v, want what it asks for", got)
	}
	low.Incarnations[0].Stop = &schema.Cause{Kind: schema.CauseOutOfResources, Resource: schema.MachineCPU}
	if got := decideOn(asks, nodeagent.Limits{}, low).Overload; got != nil {
		t.Errorf("reports %+v while the task is leaving", got)
	}
}

func TestPressure(t *testing.T) {
	t.Parallel()
	limits := nodeagent.Limits{RAMBytes: 100 * mib, DiskBytes: 100 * mib}
	var c nodeagent.Conditions
	for i, look := range []struct {
		after     time.Duration
		ram, disk int64
		want      []schema.ConditionKind
	}{
		{0, 100 * mib, 100 * mib, nil},
		{time.Second, 99 * mib, 200 * mib, []schema.ConditionKind{schema.MemoryPressure}},
		{time.Second, 200 * mib, 50 * mib, []schema.ConditionKind{schema.DiskPressure, schema.MemoryPressure}},
		{time.Minute, 200 * mib, 110 * mib, []schema.ConditionKind{schema.DiskPressure}},
		{time.Hour, 200 * mib, 125 * mib, []schema.ConditionKind{schema.DiskPressure}},
		{time.Minute, 200 * mib, 125 * mib, nil},
	} {
		now := t0.Add(time.Duration(i)*time.Second + look.after)
		if i >= 3 {
			now = now.Add(time.Duration(i) * time.Hour)
		}
		limits.Pressure(&c, &schema.MachineUsage{RAMAvailable: look.ram, RAMTotal: 1024 * mib, DiskFree: look.disk, DiskTotal: 1024 * mib}, now)
		var got []schema.ConditionKind
		for _, listed := range c.List() {
			got = append(got, listed.Kind)
		}
		if diff := cmp.Diff(look.want, got); diff != "" {
			t.Errorf("look %d: conditions (-want +got):\n%s", i, diff)
		}
	}
}
