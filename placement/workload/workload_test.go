package workload_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/placement/reserve"
	"github.com/musterhq/muster/placement/workload"
	"github.com/musterhq/muster/schema"
)

const day = 24 * time.Hour

func generate(t *testing.T, c workload.Config) *workload.Workload {
	t.Helper()
	w, err := workload.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestStatistics holds what is made up to the published numbers that it is after.
func TestStatistics(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		w := generate(t, workload.Config{Seed: seed, Machines: 300, Span: day})
		var work []float64
		var capacity schema.Resources
		for i := range w.Machines {
			capacity = capacity.Add(w.Machines[i].Capacity)
		}
		asked, used, there, jobs := map[workload.Class]schema.Resources{}, map[workload.Class]schema.Resources{}, schema.Resources{}, map[workload.Class]int{}
		end := schema.Resources{}
		for i := range w.Jobs {
			j := &w.Jobs[i]
			work = append(work, j.Work(day))
			limit, usage := j.Limit.Times(j.Tasks), j.Usage.Times(j.Tasks)
			asked[j.Class], used[j.Class] = asked[j.Class].Add(limit), used[j.Class].Add(usage)
			jobs[j.Class]++
			if j.Arrives == 0 {
				there = there.Add(limit)
			}
			if j.Lasts == 0 || j.Arrives+j.Lasts > day {
				end = end.Add(limit)
			}
		}
		between := func(what string, got, least, most float64) {
			t.Helper()
			if !(got >= least && got <= most) {
				t.Errorf("seed %d: %s: %.3f, want %g to %g", seed, what, got, least, most)
			}
		}
		between("the part of the work that the largest hundredth of the jobs has", top(work, 0.01), 0.99, 1)
		between("the exponent of the tail", hill(work, 0.002), 0.5, 1.1)
		between("CPU at the beginning", share(there.CPUMilli, capacity.CPUMilli), 0.85, 0.95)
		between("RAM at the beginning", share(there.RAMBytes, capacity.RAMBytes), 0.5, 1.2)
		between("CPU at the end", share(end.CPUMilli, capacity.CPUMilli), 0.65, 1.2)
		between("usage of CPU of services", share(used[workload.Service].CPUMilli, asked[workload.Service].CPUMilli), 0.35, 0.6)
		between("usage of RAM of batch", share(used[workload.Batch].RAMBytes, asked[workload.Batch].RAMBytes), 0.55, 0.85)
		between("short jobs, of all", float64(jobs[workload.Short])/float64(len(w.Jobs)), 0.985, 0.995)
	}
}

func share(part, of int64) float64 { return float64(part) / float64(of) }

// top is the part of a sum that the largest of its terms have, which are a share of all.
func top(v []float64, share float64) float64 {
	slices.Sort(v)
	var sum, most float64
	for i, x := range v {
		if sum += x; i >= int(float64(len(v))*(1-share)) {
			most += x
		}
	}
	return most / sum
}

// hill estimates the exponent of a tail by the largest values, which are a share of all.
func hill(v []float64, share float64) float64 {
	slices.Sort(v)
	tail := v[int(float64(len(v))*(1-share)):]
	var sum float64
	for _, x := range tail {
		sum += math.Log(x / tail[0])
	}
	return float64(len(tail)) / sum
}

// TestSeed: the same seed makes the same up, and another one something else.
func TestSeed(t *testing.T) {
	t.Parallel()
	c := workload.Config{Seed: 7, Machines: 50, Span: time.Hour}
	a, b := generate(t, c), generate(t, c)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	c.Seed = 8
	if cmp.Equal(a, generate(t, c)) {
		t.Error("another seed makes the same up")
	}
}

// TestValid: names are those of a cell, jobs are in the order in which they arrive, a task
// has room on a machine, and none uses more than it asks for.
func TestValid(t *testing.T) {
	t.Parallel()
	w := generate(t, workload.Config{Seed: 3, Machines: 40, Span: time.Hour, Load: 1.3})
	names := map[schema.JobName]bool{}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if _, err := schema.ParseJobName(j.Name.String()); err != nil || names[j.Name] {
			t.Fatalf("%s: %v", j.Name, err)
		}
		names[j.Name] = true
		switch {
		case i > 0 && j.Arrives < w.Jobs[i-1].Arrives, j.Arrives > time.Hour:
			t.Errorf("%s arrives at %s", j.Name, j.Arrives)
		case j.Class == workload.Service && (!j.Priority.Prod() || j.Lasts != 0 || j.Arrives != 0), j.Class != workload.Service && (j.Priority.Prod() || j.Lasts <= 0):
			t.Errorf("%+v", j)
		case !j.Usage.Fits(j.Limit) || !reserve.Of(j.Limit, j.Usage).Fits(j.Limit) || !j.Usage.Fits(reserve.Of(j.Limit, j.Usage)):
			t.Errorf("%s asks for %+v and uses %+v", j.Name, j.Limit, j.Usage)
		case !slices.ContainsFunc(shapes(w), j.Limit.Fits):
			t.Errorf("%s asks for %+v: no machine is so large", j.Name, j.Limit)
		}
	}
	asks, reserved := w.Cell()
	if len(asks) != len(reserved) || len(asks) < 100 {
		t.Errorf("%d asks, %d reservations", len(asks), len(reserved))
	}
}

func shapes(w *workload.Workload) []schema.Resources {
	var out []schema.Resources
	for i := range w.Machines {
		out = append(out, w.Machines[i].Capacity)
	}
	return out
}

// TestBounds: what is out of bounds is refused.
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []workload.Config{
		{},
		{Machines: -1},
		{Machines: workload.MaxMachines + 1},
		{Machines: 1, Load: -1},
		{Machines: 1, Load: 3},
		{Machines: 1, Load: math.NaN()},
		{Machines: 1, Span: -1},
		{Machines: 1, Span: workload.MaxSpan + 1},
	} {
		if _, err := workload.New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
