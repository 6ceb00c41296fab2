package pack

import (
	"cmp"
	"fmt"
	"io"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Request is what `muster simulate pack` is asked, in the words of its flags.
type Request struct {
	Nodes, Tasks io.Reader // CSV, see Nodes and Tasks
	// NodesFile and TasksFile are the files' names, for errors.
	NodesFile, TasksFile string // --nodes, --tasks
	Policy               string // --policy: hybrid (default), best-fit, worst-fit, dot-product, cosine, random
	Measure              string // --measure: compaction (default), gpu-at-130, churn
	GPUs                 string // --gpus: devices (default), scalar, ignored
	Seeds                int    // --seeds; 0 means the measure's own
	// Load is a share of the cell, for measure churn; 0 means 0.9.
	Load float64 // --load
	// Schedulers share the tasks, and plan beside each other; 0 means 1.
	Schedulers int // --schedulers
	// Relaxed looks at some machines for each task, as a large cell does, and
	// not at all of them.
	Relaxed bool // --relaxed
	// AllPhases takes tasks whose phase is Failed into compaction too.
	AllPhases bool // --all-phases
}

// Simulate reads a trace and measures how it packs. It is the body of
// `muster simulate pack`.
func Simulate(q Request) (Result, error) {
	nodes, err := Nodes(cmp.Or(q.NodesFile, "nodes"), q.Nodes)
	if err != nil {
		return Result{}, err
	}
	tasks, err := Tasks(cmp.Or(q.TasksFile, "tasks"), q.Tasks)
	if err != nil {
		return Result{}, err
	}
	c := Config{
		Nodes: nodes, Tasks: tasks, Policy: placement.Policy(q.Policy), Measure: Measure(q.Measure),
		GPUs: GPUs(q.GPUs), Seeds: q.Seeds, Load: q.Load, Schedulers: q.Schedulers, AllPhases: q.AllPhases,
	}
	if c.Measure == "" {
		c.Measure = Compaction
	}
	c.Options.NoRelaxed = !q.Relaxed
	return Run(c)
}

// WriteText writes the result for people.
func (r Result) WriteText(w io.Writer) error {
	unit, how := "machines", fmt.Sprintf("90th percentile of %d seeds, at most %d tasks pending", r.Seeds, r.Pending)
	switch r.Measure {
	case GPUAt130:
		unit, how = "% of GPU", fmt.Sprintf("mean of %d seeds", r.Seeds)
	case ChurnWait:
		unit = "s that large tasks wait"
		how = fmt.Sprintf("mean of %d seeds; load %g, %.0f large, %.1f%% of them over an hour, all tasks %.2f s, allocated %.2f%%",
			r.Seeds, r.Churn.Load, r.Churn.Large, r.Churn.OverHour, r.Churn.Wait, r.Churn.Allocated)
	}
	if r.Schedulers > 1 {
		how += fmt.Sprintf("; %d schedulers, %s", r.Schedulers, schema.Count(r.Conflicts, "conflict"))
	}
	if r.Overflowed > 0 {
		how += fmt.Sprintf("; for %d of them all machines were too few, counted as one more", r.Overflowed)
	}
	_, err := fmt.Fprintf(w, "%s %s, GPUs as %s: %.2f %s (%s; deviation %.2f; %d machines, %d tasks)\n",
		r.Policy, r.Measure, r.GPUs, r.Value, unit, how, r.Deviation, r.Machines, r.Tasks)
	return err
}
