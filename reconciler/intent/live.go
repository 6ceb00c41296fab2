package intent

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Holding is what the machines that a machine object speaks of hold in a cell that runs.
type Holding struct {
	Machines int        `json:"machines"` // that the cell has
	Tasks    int        `json:"tasks"`    // on all of them
	Jobs     []JobTasks `json:"jobs"`     // of which these are: those with the most first
}

// JobTasks are tasks of one job.
type JobTasks struct {
	Job   string `json:"job"` // USER/JOB
	Tasks int    `json:"tasks"`
}

// settle takes the tasks of a batch job that have finished out of what o counts. Which these
// are only the cell of the job knows: without it, what is counted is the most that it can be.
// next is nil of a job that is removed.
func (o *ObjectChange) settle(old, next *schema.Job, live *model.State) {
	if old == nil || old.Kind != schema.Batch || o.Stop+o.Restart == 0 {
		return
	}
	if live == nil || live.Cell != old.Cell {
		o.AtMost = true
		return
	}
	left, restarts := 0, o.Restart > 0
	if next != nil {
		left = next.Tasks
	}
	for number := range live.Span(old.ID()) {
		c := live.Chunks[model.ChunkName{Job: old.ID(), Number: number}]
		if c == nil {
			continue
		}
		for i := range c.Tasks {
			switch t := &c.Tasks[i]; {
			case t.Done == nil || t.Index >= old.Tasks:
			case t.Index >= left:
				o.Stop, o.Finished = o.Stop-1, o.Finished+1
			case restarts:
				o.Restart, o.Finished = o.Restart-1, o.Finished+1
				if next.Kind != schema.Batch { // which runs them again
					o.Start, o.Finished = o.Start+1, o.Finished-1
				}
			}
		}
	}
}

// holding returns what the machines of a machine object hold, nil if that is not known. objects
// are what is declared beside it: a selector sees the labels that they give to machines.
func holding(m *schema.Machine, objects map[schema.ObjectKey]declaredObject, live *model.State) *Holding {
	if live == nil || live.Cell != m.Cell {
		return nil
	}
	d := Desired{Machines: map[string]DesiredMachine{}}
	for _, o := range objects {
		if named, ok := o.value.(*schema.Machine); ok && named.Cell == m.Cell && named.Match == "" {
			d.addMachine(*named, o.origin)
		}
	}
	out, byJob := &Holding{}, map[string]int{}
	for _, name := range d.pickedBy(m, live) {
		out.Machines++
		for _, chunk := range live.ChunksOn(name) {
			for i := range live.Chunks[chunk].Tasks {
				if live.Chunks[chunk].Tasks[i].Machine == name {
					out.Tasks++
					byJob[chunk.Job.Short()]++
				}
			}
		}
	}
	out.Jobs = make([]JobTasks, 0, len(byJob))
	for job, tasks := range byJob {
		out.Jobs = append(out.Jobs, JobTasks{job, tasks})
	}
	slices.SortFunc(out.Jobs, func(a, b JobTasks) int { return cmp.Or(b.Tasks-a.Tasks, cmp.Compare(a.Job, b.Job)) })
	return out
}
