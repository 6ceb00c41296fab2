package control

import (
	"container/heap"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// dueJobs are idle jobs by when their time comes: by the timer, and by the time of day.
// Those that are idle no more may be in it still.
type dueJobs struct{ monotonic, wall dueQueue }

// dueJob is a job that is idle until a time.
type dueJob struct {
	at   time.Time
	name schema.JobName
	job  *idleJob
}

func (d *dueJobs) add(name schema.JobName, r *idleJob, idle map[schema.JobName]*idleJob) {
	for _, q := range []*dueQueue{&d.monotonic, &d.wall} {
		if len(*q) > 2*len(idle)+1024 { // most of it is out of date
			*q = slices.DeleteFunc(*q, func(x dueJob) bool { return idle[x.name] != x.job })
			heap.Init(q)
		}
	}
	if at := r.until.Monotonic; !at.IsZero() {
		heap.Push(&d.monotonic, dueJob{at, name, r})
	}
	if at := r.until.Wall; !at.IsZero() {
		heap.Push(&d.wall, dueJob{at, name, r})
	}
}

// pop removes the jobs whose time has come, and returns them.
func (d *dueJobs) pop(now time.Time, idle map[schema.JobName]*idleJob) []schema.JobName {
	var out []schema.JobName
	for _, q := range []*dueQueue{&d.monotonic, &d.wall} {
		for q.clean(idle); len(*q) > 0 && !(*q)[0].at.After(now); q.clean(idle) {
			out = append(out, (*q)[0].name)
			heap.Pop(q)
		}
	}
	return out
}

// first returns when the first job's time comes.
func (d *dueJobs) first(idle map[schema.JobName]*idleJob) (u facts.Until) {
	if d.monotonic.clean(idle); len(d.monotonic) > 0 {
		u.Monotonic = d.monotonic[0].at
	}
	if d.wall.clean(idle); len(d.wall) > 0 {
		u.Wall = d.wall[0].at
	}
	return u
}

// dueQueue is a container/heap.
type dueQueue []dueJob

// clean removes from the front what is idle no more, or until another time.
func (q *dueQueue) clean(idle map[schema.JobName]*idleJob) {
	for len(*q) > 0 && idle[(*q)[0].name] != (*q)[0].job {
		heap.Pop(q)
	}
}

func (q *dueQueue) Len() int           { return len(*q) }
func (q *dueQueue) Less(i, j int) bool { return (*q)[i].at.Before((*q)[j].at) }
func (q *dueQueue) Swap(i, j int)      { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }
func (q *dueQueue) Push(x any)         { *q = append(*q, x.(dueJob)) }

func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = dueJob{}
	*q = (*q)[:last]
	return x
}
