package directory

import (
	"sync"
	"sync/atomic"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

// Follower acts by a directory. It gets each snapshot, with what may differ from the one before, and
// calls done, from any goroutine, as soon as it acts by that snapshot or a newer one. It must
// not block.
type Follower func(now *naming.Snapshot, touched naming.Touched, done func())

// Directory is the directory of a machine.
type Directory struct {
	followers []Follower
	now       atomic.Pointer[naming.Snapshot]
	disk      disk
	changed   chan struct{} // holds a token while there is something to write

	mu      sync.Mutex // guards what follows
	holds   *naming.Directory
	unsaved map[int]struct{} // shards
}

// New returns an empty directory that is not on disk.
func New(followers ...Follower) *Directory {
	d := &Directory{followers: followers, changed: make(chan struct{}, 1), holds: naming.New(), unsaved: map[int]struct{}{}}
	d.now.Store(d.holds.Snapshot())
	return d
}

// Digests are those of what the machine has.
func (d *Directory) Digests() schema.DirectoryDigests {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holds.Digests()
}

// Snapshot returns what the machine has. It never waits.
func (d *Directory) Snapshot() *naming.Snapshot { return d.now.Load() }

// Apply takes in a change, whose entries are not the caller's any more, and has done called as
// soon as all followers act by it; that may be before it returns.
func (d *Directory) Apply(c schema.DirectoryChange, done func()) {
	now, touched := d.take(c)
	var left atomic.Int64
	left.Store(int64(len(d.followers)) + 1)
	one := func() {
		if left.Add(-1) == 0 {
			done()
		}
	}
	for _, f := range d.followers {
		f(now, touched, one)
	}
	one()
}

// take makes a change part of what the machine has.
func (d *Directory) take(c schema.DirectoryChange) (*naming.Snapshot, naming.Touched) {
	d.mu.Lock()
	defer d.mu.Unlock()
	touched := d.holds.Apply(c)
	now := d.holds.Snapshot()
	d.now.Store(now)
	for _, shard := range touched.Shards {
		d.unsaved[shard] = struct{}{}
	}
	if len(touched.Shards) > 0 {
		d.wake()
	}
	return now, touched
}

// wake has Run look for what is to be written.
func (d *Directory) wake() {
	select {
	case d.changed <- struct{}{}:
	default: // it will
	}
}
