package placement

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/placement/layers"
)

// sharing is the content that some snapshots share, all of which have what they
// changed since in a layer of their own.
type sharing struct {
	users int      // snapshots, and forks of them that share more
	below *sharing // what these share with others
}

// mostShared is how deep snapshots may share before one takes a copy of all: each
// fork that is not released adds one, and makes reading slower.
const mostShared = 8

// Fork returns a snapshot of the same content to try things on. What is done to the
// one is not seen by the other, in either direction. Fork and all that is done to
// the fork cost what changes, whatever the size of the cell, but for what searches
// the whole cell on any snapshot. The fork remembers no scores of earlier passes: it
// decides as a new snapshot of the content would that has learnt as much of what
// asks are typical.
//
// Snapshot and fork may be used from different goroutines at a time; Fork and
// Release are called by the one that uses the snapshot. Release says that the fork
// is done with. A snapshot whose forks are not released stays right, but keeps what
// it changes apart, which is slower, and at last copies all.
func (s *Snapshot) Fork() *Snapshot {
	s.merge()
	for _, c := range s.attributes {
		c.Share()
	}
	s.sharing = &sharing{users: 2, below: s.sharing}
	f := &Snapshot{
		options: s.options, weights: s.weights,
		content: content{
			slots: s.slots.Fork(), nodes: s.nodes.Fork(), rows: s.rows.Fork(), jobIDs: s.jobIDs.Fork(), jobs: s.jobs.Fork(), tasks: s.tasks.Fork(),
			here: s.here.Fork(), stopping: s.stopping.Fork(), claims: s.claims.Fork(), packages: s.packages.Fork(), gangs: s.gangs.fork(), kinds: s.kinds.fork(),
			sharing: s.sharing,
		},
		learnt: learnt{
			attributes: maps.Clone(s.attributes), layouts: maps.Clone(s.layouts), typical: s.typical,
			classes: map[string]*class{}, rests: map[string]*Ask{},
		},
		spare: slices.Clone(s.spare), holding: holding{holds: slices.Clone(s.holds), time: s.time, ends: s.ends}, disruption: s.disruption.fork(), parallel: s.parallel, largest: s.largest,
		forked: true, trimmed: s.now(), epoch: s.epoch, ofPriority: s.ofPriority, removals: s.removals, passes: s.passes, fill: s.fill, burden: s.burden,
	}
	f.kindred = s.kindred.fork(f.column)
	return f
}

// Release says that a fork is not used any more. It holds nothing from then on.
func (s *Snapshot) Release() {
	b := s.sharing
	if s.copied != nil {
		b = s.copied
	}
	*s = Snapshot{}
	for ; b != nil; b = b.below {
		if b.users--; b.users > 0 {
			return
		}
	}
}

// merge makes the content the snapshot's own again as far as nobody shares it any
// more. Whatever changes a snapshot begins with it.
func (s *Snapshot) merge() {
	depth := 0
	for b := s.sharing; b != nil; b = b.below {
		depth++
	}
	if depth > mostShared {
		s.flatten()
	}
	for s.sharing != nil && s.sharing.users == 1 {
		s.sharing = s.sharing.below
		for _, t := range s.tables() {
			t.Merge()
		}
	}
}

// flatten makes a copy of all content, for what changes most of it.
func (s *Snapshot) flatten() {
	if s.sharing == nil {
		return
	}
	// Others learn that they share with one less when the snapshot is released:
	// they may be at work.
	if s.copied == nil {
		s.copied = s.sharing
	}
	s.sharing = nil
	for _, t := range s.tables() {
		t.Flatten()
	}
}

func (c *content) tables() []layers.Part {
	return append(slices.Concat(c.kindred.tables(), c.packages.Parts(), c.gangs.parts(), c.kinds.parts()), &c.slots, &c.nodes, &c.rows, &c.jobIDs, &c.jobs, &c.tasks, &c.here, &c.stopping, &c.claims)
}

// detach gives a copy of a node lists of its own, which are written to in place.
func (n *node) detach() {
	n.ports.Detach()
	n.devices = slices.Clone(n.devices)
}
