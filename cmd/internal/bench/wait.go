package bench

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/hollow"
	"github.com/musterhq/muster/schema"
)

// lookEvery is the time between two looks at what is waited for.
const lookEvery = 2 * time.Millisecond

// until waits until ok holds.
func until(ctx context.Context, ok func() bool) error {
	for !ok() {
		if err := sleep(ctx, lookEvery); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// percentile returns that of times which p of a hundred do not exceed.
func percentile(times []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)*p+99)/100-1]
}

// version is what a job's tasks run with.
type version struct{ job, value string }

// tally counts tasks that run with one version.
type tally struct {
	running int
	starts  []time.Time
}

// tracker knows which generations of tasks run where. Machines call observe, from many
// goroutines.
type tracker struct {
	mu       sync.Mutex // guards what follows
	running  map[schema.TaskRef]string
	versions map[version]*tally
}

func (t *tracker) observe(e hollow.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := e.Assignment
	ref := schema.TaskRef{Task: a.Task, Generation: a.Generation}
	with := t.tally(version{a.Task.User + "/" + a.Task.Job, a.Job.Task.Env[versionVariable]})
	if e.Exit != nil {
		delete(t.running, ref)
		with.running--
		return
	}
	t.running[ref] = e.Machine
	with.running++
	with.starts = append(with.starts, e.At)
}

func (t *tracker) tally(v version) *tally {
	if t.versions[v] == nil {
		t.versions[v] = new(tally)
	}
	return t.versions[v]
}

// wait waits until n tasks of a job run with a version, and returns when the last began.
func (t *tracker) wait(ctx context.Context, job, value string, n int) (last time.Time, err error) {
	err = until(ctx, func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		with := t.tally(version{job, value})
		if len(with.starts) > 0 {
			last = with.starts[len(with.starts)-1]
		}
		return with.running >= n
	})
	return last, err
}

// started returns when tasks of a job that run with a version, or have, began.
func (t *tracker) started(job, value string) []time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.tally(version{job, value}).starts)
}

// machinesOf returns the machines on which tasks of a job run.
func (t *tracker) machinesOf(job string) map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := map[string]bool{}
	for ref, machine := range t.running {
		if ref.Task.User+"/"+ref.Task.Job == job {
			on[machine] = true
		}
	}
	return on
}

// watch returns the generations that run on machines.
func (t *tracker) watch(machines map[string]bool) map[schema.TaskRef]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := map[schema.TaskRef]bool{}
	for ref, machine := range t.running {
		if machines[machine] {
			on[ref] = true
		}
	}
	return on
}

// left returns how many of the generations have no newer one that runs.
func (t *tracker) left(of map[schema.TaskRef]bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	newest := map[schema.TaskName]uint64{}
	for ref := range t.running {
		newest[ref.Task] = max(newest[ref.Task], ref.Generation)
	}
	n := 0
	for ref := range of {
		if newest[ref.Task] == ref.Generation {
			n++
		}
	}
	return n
}
