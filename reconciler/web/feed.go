package web

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

const (
	// takeEvery is the least time between two looks at a cell that is watched: what happens
	// in between is one change.
	takeEvery = 200 * time.Millisecond
	// takeShare is which part of its time the cell's watchers let a processor look.
	takeShare = 5
	// maxKept and maxDeltas bound what is kept for watchers that are behind, or come
	// again: the changes, and the versions.
	maxKept   = 20_000
	maxDeltas = 1000
)

// snapshots returns the cell, as Cell.Snapshot does.
type snapshots = func(context.Context) (*status.Snapshot, <-chan struct{}, error)

// feed is what has changed in a cell from one version to the next. All watchers share it:
// each has a place in it and nothing else, so that one more costs what it is sent. It is
// bounded, and whoever is so far behind that its place is gone must list again. (The
// form is that of the event buffer of HashiCorp's Consul and Nomad, and what a watcher
// is promised that of Kubernetes' watch cache.)
//
// What is taken in are the snapshots that anybody asks for, so that the version of each
// answer is one to watch from, and, while anybody watches, the newest every takeEvery at
// most.
type feed struct {
	cell snapshots

	mu       sync.Mutex // guards what follows; and the oldest delta that is kept
	now      *status.Snapshot
	oldest   *delta // whose version is the first to watch from
	newest   *delta
	deltas   int // from oldest to newest
	kept     int // changes in them
	watchers int
	stop     context.CancelFunc // what takes snapshots in while there are watchers
}

// delta is what has changed from the version before to its own.
type delta struct {
	version  uint64
	jobs     []change[status.JobStatus]
	tasks    []change[status.TaskStatus]
	machines []change[status.MachineStatus]
	// endpoints are the changes of endpoints, which are found when somebody watches them.
	endpoints func() []change[status.Endpoint]
	next      *delta // set before newer is closed
	newer     chan struct{}
}

// change is of one item. What it was and is are nil where there was or is none.
type change[T any] struct {
	was, is       *T
	wasOf, isOf   *status.JobStatus // the job, of a task
	onlyItsLabels bool              // of the job have changed, and nothing of the item
}

func newFeed(cell snapshots) *feed {
	return &feed{cell: cell}
}

// look returns the cell at this moment, whose version is one to watch from.
func (f *feed) look(ctx context.Context) (*status.Snapshot, <-chan struct{}, error) {
	s, newer, err := f.cell(ctx)
	if err == nil {
		f.take(s)
	}
	return s, newer, err
}

// take takes a snapshot in, if it is the newest.
func (f *feed) take(s *status.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil && s.Brief().Version <= f.now.Brief().Version {
		return
	}
	d := &delta{version: s.Brief().Version, newer: make(chan struct{})}
	d.endpoints = sync.OnceValue(d.ofEndpoints)
	n := 0
	if f.now != nil {
		n = d.compare(f.now, s)
	}
	f.now = s
	if f.newest == nil || f.watchers == 0 && n > maxKept {
		f.oldest, f.newest, f.deltas, f.kept = d, d, 1, 0
		return
	}
	was := f.newest
	was.next = d
	f.newest, f.deltas, f.kept = d, f.deltas+1, f.kept+n
	for (f.kept > maxKept || f.deltas > maxDeltas) && f.oldest.next != f.newest {
		f.oldest, f.deltas = f.oldest.next, f.deltas-1
		f.kept -= f.oldest.size()
	}
	close(was.newer)
}

func (d *delta) size() int { return len(d.jobs) + len(d.tasks) + len(d.machines) }

// after returns the place of a version, whose changes are what follows it; nil if that is
// not known any more, or was never one of this master's. For a version within a delta some
// changes are sent again.
func (f *feed) after(version uint64) *delta {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.oldest == nil || version < f.oldest.version || version > f.newest.version {
		return nil
	}
	d := f.oldest
	for d.next != nil && d.next.version <= version {
		d = d.next
	}
	return d
}

// current returns the newest snapshot that was taken in, and its place.
func (f *feed) current() (*status.Snapshot, *delta) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.newest
}

// behind reports whether a place is gone.
func (f *feed) behind(d *delta) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return d.version < f.oldest.version
}

// enter counts one watcher more, until leave is called.
func (f *feed) enter() (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers++; f.watchers == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		f.stop = cancel
		go f.follow(ctx)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.watchers--; f.watchers == 0 {
			f.stop()
		}
	}
}

// follow takes newer snapshots in until ctx ends.
func (f *feed) follow(ctx context.Context) {
	for {
		began := time.Now()
		_, newer, err := f.look(ctx)
		pause := time.NewTimer(max(takeEvery, takeShare*time.Since(began)))
		if err == nil { // else the cell's owner is ending, and another follows
			select {
			case <-newer:
			case <-ctx.Done():
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// compare fills in what has changed between two snapshots, and returns how much. It costs
// a look at each job and machine, and at each task of the jobs that they do not share.
func (d *delta) compare(was, is *status.Snapshot) int {
	status.Merge(was.Parts(), is.Parts(), func(p *status.Part) string { return p.Job.Name }, func(a, b *status.Part) {
		if a == b {
			return
		}
		var before, after status.Part
		if a != nil {
			before = *a
		}
		if b != nil {
			after = *b
		}
		if !reflect.DeepEqual(before.Job, after.Job) {
			d.jobs = append(d.jobs, change[status.JobStatus]{was: before.Job, is: after.Job})
		}
		labels := before.Job != nil && after.Job != nil && !reflect.DeepEqual(before.Job.Labels, after.Job.Labels)
		status.Merge(status.Pointers(before.Tasks), status.Pointers(after.Tasks), func(t *status.TaskStatus) string { return t.Name }, func(x, y *status.TaskStatus) {
			same := reflect.DeepEqual(x, y)
			if !same || labels {
				d.tasks = append(d.tasks, change[status.TaskStatus]{clone(x), clone(y), before.Job, after.Job, same})
			}
		})
	})
	machine := func(m *status.MachineStatus) string { return m.Name }
	status.Merge(was.Machines(), is.Machines(), machine, func(a, b *status.MachineStatus) {
		if a != b && !reflect.DeepEqual(a, b) {
			d.machines = append(d.machines, change[status.MachineStatus]{was: a, is: b})
		}
	})
	return d.size()
}

// ofEndpoints finds the changes of endpoints: those of tasks that others see.
func (d *delta) ofEndpoints() []change[status.Endpoint] {
	var out []change[status.Endpoint]
	for i := range d.tasks {
		c := &d.tasks[i]
		was, is := status.EndpointOf(c.wasOf, c.was), status.EndpointOf(c.isOf, c.is)
		if was == nil && is == nil || was != nil && is != nil && was.Equal(is) {
			continue
		}
		out = append(out, change[status.Endpoint]{was: was, is: is, wasOf: c.wasOf, isOf: c.isOf})
	}
	return out
}

// clone returns a copy of x, which keeps nothing beside it in memory.
func clone[T any](x *T) *T {
	if x == nil {
		return nil
	}
	out := *x
	return &out
}
