package experiment

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/placement/pack"
	"github.com/musterhq/muster/placement/workload"
)

// ticks returns a clock that goes on by a second whenever it is read.
func ticks() func() time.Duration {
	var now time.Duration
	return func() time.Duration {
		now += time.Second
		return now
	}
}

// small runs a small form of an experiment.
func small(t *testing.T, name string) *Result {
	t.Helper()
	cells, err := Generate(workload.Config{Machines: 60}, 2)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(Config{Name: name, Trials: 3, Cells: cells, Clock: ticks()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// numbers are what was found, in one line: the machines of each trial, of each cell and way.
func numbers(r *Result) string {
	var b strings.Builder
	b.WriteString(r.Name)
	for i := range r.Cells {
		f := &r.Cells[i]
		fmt.Fprintf(&b, "; %s %v", f.Cell, f.As.PerTrial)
		for _, w := range f.Ways {
			fmt.Fprintf(&b, ", %s %v", w.Name, w.PerTrial)
		}
	}
	return b.String()
}

// TestDirections runs a small form of each experiment that packs, and checks that the answer
// points in the direction in which it must, and is the one that it was when the evaluation was
// written: as placement weighs things by default.
func TestDirections(t *testing.T) {
	t.Parallel()
	written, err := os.ReadFile("testdata/evaluation.txt")
	if err != nil {
		t.Fatal(err)
	}
	evaluation := strings.Split(strings.TrimSpace(string(written)), "\n")
	// more is the least and the most, in percent, that the median of each way may need more.
	for name, more := range map[string][][2]float64{
		"segregation":   {{5, 80}},
		"large-users":   {{0, 150}, {3, 150}},
		"smaller-cells": {{-5, 60}, {-3, 80}, {3, 150}},
		"buckets":       {{8, 100}, {8, 100}},
		"reclamation":   {{15, 100}},
		"policies":      {{-5, 5}, {1, 40}, {-10, 60}, {1, 60}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := small(t, name)
			if got := numbers(r); !slices.Contains(evaluation, got) {
				t.Errorf("docs/evaluation.md is stale, or decisions have changed without being meant to: see there under \"When placement changes\". Now:\n%s", got)
			}
			if len(r.Medians) != len(more) {
				t.Fatalf("%+v", r.Medians)
			}
			for i, m := range r.Medians {
				t.Logf("%s: %+.1f%% (%.1f to %.1f)", m.Way, m.Value, m.Min, m.Max)
				if m.Value < more[i][0] || m.Value > more[i][1] || m.Min > m.Value || m.Max < m.Value {
					t.Errorf("%+v: want %v", m, more[i])
				}
			}
			for _, f := range r.Cells {
				if len(f.As.PerTrial) != 3 || f.As.LeastMachines > f.As.Machines || f.As.Machines > f.As.MostMachines {
					t.Errorf("%+v", f)
				}
				if (f.Reclaimed != nil) != (name == "reclamation") || f.Reclaimed != nil && (f.Reclaimed.CPU < 5 || f.Reclaimed.CPU > 45 || f.Reclaimed.RAM < 2) {
					t.Errorf("reclaimed: %+v", f.Reclaimed)
				}
				if last := f.Ways[len(f.Ways)-1]; name == "smaller-cells" && (last.Cells != 10 || last.Machines <= f.As.Machines) || name == "large-users" && last.Cells < f.Ways[0].Cells {
					t.Errorf("%+v", last)
				}
			}
		})
	}
}

// TestOrders: cells that are counted together draw their machines in orders of their own: two
// that are equal do not need twice what one needs in each trial.
func TestOrders(t *testing.T) {
	t.Parallel()
	cells, err := Generate(workload.Config{Machines: 40}, 1)
	if err != nil {
		t.Fatal(err)
	}
	needs := func(cells ...pack.Cell) []int {
		w := way{cells: cells}
		found, err := w.compact(5)
		if err != nil {
			t.Fatal(err)
		}
		return found.PerTrial
	}
	one, two := needs(cells[0].Cell), needs(cells[0].Cell, cells[0].Cell)
	for i := range one {
		if two[i] != 2*one[i] {
			return
		}
	}
	t.Errorf("two cells: %v, one: %v: want orders that differ", two, one)
}

// TestTechniques: all work is timed with each of the techniques off, and where only a part is
// placed, it is said how much, and the time is that of all.
func TestTechniques(t *testing.T) {
	t.Parallel()
	r := small(t, "techniques")
	if r.Unit != Seconds || len(r.Medians) != len(techniques) {
		t.Fatalf("%+v", r)
	}
	for _, f := range r.Cells {
		if f.As.Value != 1 || f.As.Tasks != 0 { // between two looks at the clock
			t.Errorf("%+v", f.As)
		}
		last := f.Ways[len(f.Ways)-1]
		if want := float64(f.Tasks) / fewTasks; last.Tasks != fewTasks || last.Value != want || last.Min != want {
			t.Errorf("%+v: want %g", last, want)
		}
	}
}

// TestRunRefuses: what cannot be answered is refused, with the place where a trace lacks it.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	nodes := []pack.Node{{Name: "a", CPUMilli: 1000, RAMMiB: 1024}}
	task := pack.Task{Name: "t", CPUMilli: 1000, RAMMiB: 1, Line: 2}
	ranked := task
	ranked.Ranked, ranked.Line = true, 3
	one := func(tasks ...pack.Task) Cell {
		c, err := OfTrace(nodes, "tasks.csv", tasks)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, tc := range []struct {
		c    Config
		want string
	}{
		{Config{Name: "none"}, `experiment "none": want one of segregation, large-users,`},
		{Config{Name: "policies"}, "0 cells"},
		{Config{Name: "policies", Trials: -1}, "trials -1: want 1 to 1000"},
		{Config{Name: "techniques", Cells: []Cell{one(task)}}, "clock"},
		{Config{Name: "segregation", Cells: []Cell{one(ranked, task)}}, "tasks.csv:2: task t has no priority and no qos: experiment segregation needs it"},
		{Config{Name: "large-users", Cells: []Cell{one(task)}}, "tasks.csv:2: task t has no user"},
		{Config{Name: "reclamation", Cells: []Cell{one(ranked)}}, "tasks.csv:3: task t has no cpu_used_milli and memory_used_mib"},
		{Config{Name: "reclamation", Cells: []Cell{OfCell("c1", one(ranked).Cell)}}, "it is not known of the tasks of cell c1 what they use: experiment reclamation needs it"},
		{Config{Name: "policies", Cells: []Cell{one(pack.Task{Name: "t", CPUMilli: 2000, Line: 2})}}, "no room"},
	} {
		if _, err := Run(tc.c); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v: want %q", tc.c.Name, err, tc.want)
		}
	}
	if _, err := OfTrace(nodes, "tasks.csv", []pack.Task{{Name: "t", Phase: "Failed"}}); err == nil {
		t.Error("a trace of failed tasks is taken")
	}
}
