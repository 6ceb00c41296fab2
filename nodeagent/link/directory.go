package link

import (
	"fmt"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// directory is what a session carries of the cell's directory.
type directory struct {
	*session
	pieces  schema.DirectoryChange // of a version, until the last is there
	listing bool
	applied chan uint64 // the version that all on the machine acts by
}

func newDirectory(s *session) *directory {
	return &directory{session: s, applied: make(chan uint64, 1)}
}

// hello says what the machine has; nil if it keeps no directory.
func (d *directory) hello() *linkpb.Directory {
	if d.client.cfg.Directory == nil {
		return nil
	}
	have := d.client.cfg.Directory.Digests()
	return &linkpb.Directory{Digests: linkpb.EncodeDigests(&have), Resting: d.client.cfg.Directory.Rests()}
}

// take takes in a piece of a change. No other version comes before this one is acknowledged.
func (d *directory) take(m *linkpb.DirectoryChange) error {
	cfg := &d.client.cfg
	if cfg.Directory == nil {
		return d.refuse(fmt.Errorf("unexpected message %T", m))
	}
	piece, err := linkpb.DecodeDirectory(m)
	if err != nil {
		return d.refuse(err)
	}
	d.pieces.Shards = append(d.pieces.Shards, piece.Shards...)
	d.pieces.Set = append(d.pieces.Set, piece.Set...)
	d.pieces.Removed = append(d.pieces.Removed, piece.Removed...)
	if m.GetMore() {
		return nil
	}
	if !d.listing {
		if err := cfg.Listed.Listing(); err != nil {
			return d.refuse(err)
		}
		d.listing = true
	}
	change, version := d.pieces, m.GetVersion()
	d.pieces = schema.DirectoryChange{}
	cfg.Directory.Apply(change, func() {
		select {
		case d.applied <- version:
		case <-d.ended:
		}
	})
	return nil
}

// unlisted takes in that nothing is sent to some tasks any more.
func (d *directory) unlisted(m *linkpb.Unlisted) error {
	list, err := linkpb.DecodeUnlisted(m)
	if err != nil {
		return d.refuse(err)
	}
	tasks := make([]schema.TaskRef, 0, len(list))
	for _, x := range list {
		task, err := schema.ParseTaskName(d.client.cfg.Cell + "/" + x.Task)
		if err != nil {
			return d.refuse(err)
		}
		tasks = append(tasks, schema.TaskRef{Task: task, Generation: x.Generation})
	}
	if d.client.cfg.Directory == nil {
		return nil
	}
	return d.client.cfg.Listed.Unlisted(tasks)
}
