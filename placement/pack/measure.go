package pack

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/musterhq/muster/placement"
)

// pendingShare is the share of tasks, in thousandths, that may stay pending in
// a compacted cell (Borg §5.1: 0.2% may be picky).
const pendingShare = 2

// compaction finds for each seed how few machines hold the work.
func compaction(c Config) (Result, error) {
	var tasks []Task
	for _, t := range c.Tasks {
		if c.AllPhases || t.Phase != "Failed" {
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 0 {
		return Result{}, errAllFailed
	}
	work := asks(tasks, c.GPUs)
	all := machines(c.Nodes, c.GPUs)
	r := Result{Tasks: len(work), Pending: len(work) * pendingShare / 1000}
	p := packing{options: c.Options, schedulers: c.Schedulers, asks: work, pending: r.Pending}
	for seed := range c.Seeds {
		order := shuffled(all, uint64(seed))
		n, conflicts := p.least(order)
		r.Conflicts += conflicts
		if n > len(order) {
			r.Overflowed++
		}
		r.PerSeed = append(r.PerSeed, float64(n))
	}
	return r, nil
}

// errAllFailed is what compaction says of a trace without work.
var errAllFailed = errors.New("no task is left but those whose phase is Failed")

// mostInflated bounds the tasks of one run of gpu-at-130.
const mostInflated = 5_000_000

// errNoGPU is what gpu-at-130 says of a trace that has none.
var errNoGPU = errors.New("the trace has no GPUs, or nothing asks for one")

// gpuAt130 fills the cell with tasks that ask for 130% of its GPUs.
func gpuAt130(c Config) (Result, error) {
	var capacity, asked int64
	for _, n := range c.Nodes {
		capacity += int64(n.GPUs) * placement.DeviceMilli
	}
	for i := range c.Tasks {
		asked += c.Tasks[i].gpuMilli()
	}
	if capacity == 0 || asked == 0 {
		return Result{}, errNoGPU
	}
	if n := float64(capacity) * 1.3 / float64(asked) * float64(len(c.Tasks)); n > mostInflated {
		return Result{}, fmt.Errorf("130%% of the GPUs takes %.0f tasks like these: want at most %d", n, mostInflated)
	}
	var r Result
	for seed := range c.Seeds {
		tasks := inflate(c.Tasks, asked, capacity*130/100, uint64(seed))
		r.Tasks = len(tasks)
		s := placement.NewSnapshot(machines(c.Nodes, c.GPUs), nil)
		options := c.Options
		options.OneByOne = true // as they arrive
		s.Configure(options)
		var got int64
		work := asks(tasks, c.GPUs)
		p := place(s, work, c.Schedulers, uint64(seed))
		r.Conflicts += p.conflicts
		for i := range tasks {
			if p.on[work[i].Name] != "" {
				got += tasks[i].gpuMilli()
			}
		}
		r.PerSeed = append(r.PerSeed, 100*float64(got)/float64(capacity))
	}
	return r, nil
}

// inflate returns the tasks in random order, repeated at random until they ask
// for the wanted amount of GPU, or cut there.
func inflate(tasks []Task, asked, want int64, seed uint64) []Task {
	random := rand.New(rand.NewPCG(seed, 130))
	out := shuffled(tasks, seed)
	for asked < want {
		t := tasks[random.IntN(len(tasks))]
		out = append(out, t)
		asked += t.gpuMilli()
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	var sum int64
	for i := range out {
		if sum += out[i].gpuMilli(); sum >= want {
			return out[:i+1]
		}
	}
	return out
}

func shuffled[T any](list []T, seed uint64) []T {
	random := rand.New(rand.NewPCG(seed, 1))
	out := make([]T, len(list))
	for i, j := range random.Perm(len(list)) {
		out[i] = list[j]
	}
	return out
}
