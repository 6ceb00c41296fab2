package directory

import (
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
	holds     *naming.Directory
	now       atomic.Pointer[naming.Snapshot]
}

// New returns an empty directory.
func New(followers ...Follower) *Directory {
	d := &Directory{followers: followers, holds: naming.New()}
	d.now.Store(d.holds.Snapshot())
	return d
}

// Digests are those of what the machine has.
func (d *Directory) Digests() schema.DirectoryDigests { return d.holds.Digests() }

// Snapshot returns what the machine has.
func (d *Directory) Snapshot() *naming.Snapshot { return d.now.Load() }

// Apply takes in a change, whose entries are not the caller's any more, and has done called as
// soon as all followers act by it; that may be before it returns.
func (d *Directory) Apply(c schema.DirectoryChange, done func()) {
	touched := d.holds.Apply(c)
	now := d.holds.Snapshot()
	d.now.Store(now)
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
