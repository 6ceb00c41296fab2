package model

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Load returns the state that the documents of a cell's store hold. Documents
// of kinds that this version does not know are left alone. It errs when a
// document cannot be read, or refers to one that is not there. Most of what it takes is
// reading documents, which parallel spreads over goroutines: it makes n calls and returns when all
// have returned. nil is one after the other.
func Load(cell string, docs map[string][]byte, parallel func(n int, do func(i int))) (*State, error) {
	s := NewState(cell)
	keys := slices.Sorted(maps.Keys(docs))
	ahead := make([]document, len(keys))
	if parallel != nil {
		parallel(len(keys), func(i int) { ahead[i] = read(Write{Key: keys[i], Value: docs[keys[i]]}) })
	}
	for i, key := range keys {
		s.ahead = ahead[i]
		if err := s.Apply([]Write{{Key: key, Value: docs[key]}}); err != nil {
			return nil, err
		}
	}
	s.ahead = document{}
	return s, s.check()
}

// document is what one says, before it is part of a state.
type document struct {
	v       any // a pointer; nil if it is not read yet
	unknown *schema.Unknown
	err     error
}

// read reads a document of those kinds of which a cell has many.
func read(w Write) document {
	var d document
	kind, _, _ := strings.Cut(w.Key, "/")
	switch kind + "/" {
	case KeyPackage:
		d.v = new(schema.Package)
	case KeyData:
		d.v = new(schema.Job)
	case KeyMachine:
		d.v = new(schema.MachineRecord)
	case KeyJob:
		d.v = new(schema.JobRecord)
	case KeyChunk:
		d.v = new(schema.Chunk)
	default:
		return document{}
	}
	d.unknown, d.err = schema.Decode(w.Value, d.v)
	return d
}
