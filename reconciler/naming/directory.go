package naming

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

const (
	// takeEvery is the least time between two looks at a cell: what happens in between is one
	// version.
	takeEvery = 25 * time.Millisecond
	// restEvery is the least time between two looks at a cell without services, while nobody reads
	// of anything else.
	restEvery = time.Second
	// takeShare is which part of its time the directory lets a processor look, unless that makes it
	// wait for more than mostPause: on a machine with much else to do a look takes long, too.
	takeShare = 5
	mostPause = 250 * time.Millisecond
	// ackWithin is how long agents are waited for that do not acknowledge a version: on a machine with much else to
	// do, one may need seconds. It is less than an agent that stops a task waits at most, see nodeagent.
	ackWithin = 4 * time.Second
	// backWithin is how long it is kept that a machine's reader has gone, and what the next one
	// has to learn: those that were waited for with it know, or are given up, by then. What is sent
	// later could be taken for a later stop of the same task.
	backWithin = 2 * ackWithin
)

// Config is what a Directory needs.
type Config struct {
	// Cell returns the cell at this moment, and a channel that is closed when there is a newer
	// version.
	Cell func(context.Context) (*status.Snapshot, <-chan struct{}, error)
	// Settle is how long after the last acknowledgement machines learn that nothing is sent to their
	// tasks any more: requests that were sent before are answered meanwhile, and agents that are
	// connected to other masters come to know of it.
	Settle time.Duration
}

// Directory is the directory of a cell, with its readers. Safe for concurrent use.
type Directory struct {
	cfg       Config
	following sync.WaitGroup
	look      chan struct{} // holds a token when somebody begins to read while all others rest

	mu       sync.Mutex // guards what follows
	book     Book
	readers  map[*Reader]struct{}
	machines map[string]*Reader    // the newest of each
	departed map[string]*departure // of machines without a reader that may have one again soon; see left
	waiting  []*unlisting          // by version
	during   context.Context       //nolint:containedctx // of Run; nil before
	stop     context.CancelFunc    // ends what follows the cell, while there are readers
}

// departure is the end of a machine's last reader.
type departure struct {
	at       time.Time
	unlisted []schema.UnlistedTask // for the next one
}

// unlisting waits for all readers to know that nothing is to be sent to some tasks.
type unlisting struct {
	version uint64
	tasks   []Unlisted
	left    map[string]struct{} // machines that have not acknowledged it
	timer   *time.Timer
}

// Reader is one agent's place in the directory. Its methods but Wake are called by one goroutine
// at a time.
type Reader struct {
	d       *Directory
	machine string
	wake    chan struct{}

	// The lock of d guards what follows.
	rests    bool                     // until the cell has a service, or addresses for tasks
	have     *schema.DirectoryDigests // until the first Next
	at       uint64                   // the version that was sent last
	sent     time.Time                // when it was
	acked    uint64
	unlisted []schema.UnlistedTask
}

// New returns the directory of a cell, which Run follows.
func New(cfg Config) *Directory {
	return &Directory{cfg: cfg, look: make(chan struct{}, 1), readers: map[*Reader]struct{}{}, machines: map[string]*Reader{}, departed: map[string]*departure{}}
}

// Run follows the cell, while there are readers, until ctx ends. It is called once.
func (d *Directory) Run(ctx context.Context) {
	d.mu.Lock()
	d.during = ctx
	d.follow()
	d.mu.Unlock()
	<-ctx.Done()
	d.following.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endWaiting()
}

// endWaiting forgets who waits. The caller has the lock.
func (d *Directory) endWaiting() {
	for _, u := range d.waiting {
		u.timer.Stop()
	}
	d.waiting = nil
}

// follow begins to follow the cell, or ends that, as there are readers. The caller has the lock.
func (d *Directory) follow() {
	switch {
	case d.during == nil || d.during.Err() != nil:
	case d.stop == nil && len(d.readers) > 0:
		ctx, cancel := context.WithCancel(d.during)
		d.stop = cancel
		d.following.Go(func() { d.run(ctx) })
	case d.stop != nil && len(d.readers) == 0:
		d.stop()
		d.stop, d.book = nil, Book{} // it is old when somebody reads again
		d.endWaiting()               // which nobody would acknowledge
		for machine := range d.departed {
			d.left(machine, time.Now())
		}
	}
}

// run takes newer snapshots in until ctx ends.
func (d *Directory) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		s, newer, err := d.cfg.Cell(ctx)
		var due <-chan time.Time
		if err == nil { // else the cell's owner is ending, and another follows
			if again := d.take(ctx, s); !again.IsZero() {
				due = time.After(time.Until(again))
			}
		}
		pause := time.NewTimer(max(d.every(), min(takeShare*time.Since(began), mostPause)))
		if err == nil {
			select {
			case <-newer:
			case <-d.look:
			case <-due:
			case <-ctx.Done():
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// take takes a snapshot in, and returns when to take one again.
func (d *Directory) take(ctx context.Context, s *status.Snapshot) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return time.Time{}
	}
	if needs(s) {
		for r := range d.readers {
			r.begin()
		}
	}
	if d.awake() == 0 {
		return time.Time{}
	}
	was := d.book.Version()
	gone, again := d.book.Take(s, time.Now())
	gone = slices.DeleteFunc(gone, func(u Unlisted) bool { return d.machines[u.Machine] == nil && d.left(u.Machine, time.Now()) == nil })
	gone = slices.DeleteFunc(gone, d.sendIdle)
	if d.book.Version() == was {
		return again
	}
	d.relist()
	if len(gone) > 0 {
		u := &unlisting{version: d.book.Version(), tasks: gone, left: d.awaited(time.Now())}
		u.timer = time.AfterFunc(ackWithin, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.unlist(u)
		})
		d.waiting = append(d.waiting, u)
	}
	for r := range d.readers {
		r.notify()
	}
	return again
}

// relist forgets to let machines know of tasks that have become ready again: the next stop of one is another. The
// caller has the lock.
func (d *Directory) relist() {
	for _, u := range d.waiting {
		for i := range u.tasks {
			of := &u.tasks[i]
			of.Tasks = slices.DeleteFunc(of.Tasks, func(x schema.UnlistedTask) bool { return d.book.lists(of.Machine, x.Task) })
		}
	}
	for r := range d.readers {
		r.unlisted = slices.DeleteFunc(r.unlisted, func(x schema.UnlistedTask) bool { return d.book.lists(r.machine, x.Task) })
	}
}

// awake returns how many readers do not rest. The caller has the lock.
func (d *Directory) awake() int {
	n := 0
	for r := range d.readers {
		if !r.rests {
			n++
		}
	}
	return n
}

// awaited returns the machines that have to acknowledge what changes now: those that read, and those
// whose agent has just gone, since one that is started again is back in a moment, and its
// kernel sends on as before until then. The caller has the lock.
func (d *Directory) awaited(now time.Time) map[string]struct{} {
	of := map[string]struct{}{}
	for r := range d.readers {
		if !r.rests {
			of[r.machine] = struct{}{}
		}
	}
	for machine := range d.departed {
		if left := d.left(machine, now); left != nil && now.Sub(left.at) < ackWithin {
			of[machine] = struct{}{}
		}
	}
	return of
}

// left returns the end of the last reader of a machine that has none, nil if that is none or long ago: then it
// is forgotten. The caller has the lock.
func (d *Directory) left(machine string, now time.Time) *departure {
	left := d.departed[machine]
	if left != nil && now.Sub(left.at) > backWithin {
		delete(d.departed, machine)
		return nil
	}
	return left
}

// every is the least time between two looks at the cell.
func (d *Directory) every() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.awake() == 0 {
		return restEvery
	}
	return takeEvery
}

// begin ends the rest of a reader. The caller has the lock.
func (r *Reader) begin() {
	if r.rests {
		r.rests = false
		r.notify()
	}
}

// Read begins to read the directory for a machine that has one with the given digests, until
// Close is called. If it rests, there is nothing for it until the cell has a service, or addresses for tasks.
func (d *Directory) Read(machine string, have *schema.DirectoryDigests, rests bool) *Reader {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &Reader{d: d, machine: machine, rests: rests, wake: make(chan struct{}, 1), have: have}
	if d.book.Needed() {
		r.rests = false
	}
	if !r.rests && d.stop != nil && d.awake() == 0 {
		select {
		case d.look <- struct{}{}:
		default: // it is said already
		}
	}
	if left := d.left(machine, time.Now()); left != nil {
		r.unlisted = left.unlisted
		delete(d.departed, machine)
	}
	d.readers[r], d.machines[machine] = struct{}{}, r
	d.follow()
	r.notify()
	return r
}

// Behind returns since when machines that are connected have not acknowledged what was sent to them, of those that
// may lack an entry with one of some keys.
func (d *Directory) Behind(lacks func(key string) bool) map[string]time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	out, known := map[string]time.Time{}, map[uint64]bool{}
	for machine, r := range d.machines {
		if r.rests || r.at == r.acked {
			continue
		}
		is, ok := known[r.acked]
		if !ok {
			is = d.book.changedSince(r.acked, lacks)
			known[r.acked] = is
		}
		if is {
			out[machine] = r.sent
		}
	}
	return out
}

// Wake returns a channel that receives when Next may have something.
func (r *Reader) Wake() <-chan struct{} { return r.wake }

func (r *Reader) notify() {
	select {
	case r.wake <- struct{}{}:
	default: // it is said already
	}
}

// Next takes in up to which version everything on the machine acts by the directory, and returns
// what the agent is to be sent now: changes, unless it has not acknowledged those before, or
// knows all; and tasks to which nothing is sent any more.
func (r *Reader) Next(acked uint64) (u schema.DirectoryUpdate, news bool) {
	d := r.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.rests {
		r.unlisted = nil
		return schema.DirectoryUpdate{}, false
	}
	if acked <= r.at && acked > r.acked { // it says nothing that it cannot know
		d.count(r.machine, acked)
		r.acked = acked
	}
	if now := d.book.Version(); now != 0 && r.at == r.acked && r.at != now {
		since, ok := d.book.Since(r.at)
		switch {
		case ok:
			u = since
		case r.have != nil:
			u = d.book.From(r.have)
		default: // it is so far behind that it is not known what it has
			u = d.book.From(&schema.DirectoryDigests{})
			u.Shards = allShards()
		}
		r.at, r.sent, r.have = now, time.Now(), nil
	}
	u.Unlisted, r.unlisted = r.unlisted, nil
	return u, u.Version != 0 || len(u.Unlisted) > 0
}

func allShards() []int {
	all := make([]int, schema.DirectoryShards)
	for i := range all {
		all[i] = i
	}
	return all
}

// Close ends the reading.
func (r *Reader) Close() {
	d := r.d
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.readers, r)
	if d.machines[r.machine] == r {
		delete(d.machines, r.machine)
		if !r.rests {
			d.departed[r.machine] = &departure{at: time.Now(), unlisted: r.unlisted}
		}
	}
	d.follow()
}

// count takes in that a machine acts by all up to a version. The caller has the lock.
func (d *Directory) count(machine string, version uint64) {
	var known []*unlisting
	for _, u := range d.waiting {
		if u.version > version {
			break
		}
		if _, waits := u.left[machine]; !waits {
			continue
		}
		if delete(u.left, machine); len(u.left) == 0 {
			known = append(known, u)
		}
	}
	for _, u := range known {
		if d.cfg.Settle == 0 {
			d.unlist(u)
		} else {
			u.timer.Reset(d.cfg.Settle)
		}
	}
}

// sendIdle lets the machine of tasks to which nothing was sent know that, but for those that have just stopped
// being ready, of which it gets to know in time. It reports whether u is of such tasks. The caller has the lock.
func (d *Directory) sendIdle(u Unlisted) bool {
	if u.Version != 0 {
		return false
	}
	d.send(Unlisted{0, u.Machine, slices.DeleteFunc(u.Tasks, func(task schema.UnlistedTask) bool {
		return slices.ContainsFunc(d.waiting, func(w *unlisting) bool {
			return slices.ContainsFunc(w.tasks, func(of Unlisted) bool { return slices.Contains(of.Tasks, task) })
		})
	})})
	return true
}

// unlist lets the machines of tasks know that nothing is sent to these any more. The caller has the
// lock.
func (d *Directory) unlist(u *unlisting) {
	i := slices.Index(d.waiting, u)
	if i < 0 {
		return
	}
	d.waiting = slices.Delete(d.waiting, i, i+1)
	u.timer.Stop()
	for _, of := range u.tasks {
		d.send(of)
	}
}

// send has a machine informed that nothing is sent to some of its tasks. The caller has the lock.
func (d *Directory) send(of Unlisted) {
	if r := d.machines[of.Machine]; r != nil {
		r.unlisted = append(r.unlisted, of.Tasks...)
		r.notify()
	} else if left := d.left(of.Machine, time.Now()); left != nil {
		left.unlisted = append(left.unlisted, of.Tasks...)
	}
}
