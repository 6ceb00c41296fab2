package model

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// parseChunkName reads the key of a chunk without its kind.
func parseChunkName(cell, key string) (ChunkName, error) {
	i := strings.LastIndexByte(key, '/')
	job, err := schema.ParseJobName(cell + "/" + key[:max(i, 0)])
	if err != nil {
		return ChunkName{}, err
	}
	number, err := strconv.Atoi(key[i+1:])
	return ChunkName{job, number}, err
}

// holders is an index of chunks: by machine, the names of those with a task assigned to
// it, sorted. What there is of a list is never written to: readers share it.
type holders map[string][]ChunkName

// longList is how many chunks a machine has for which it matters that a list which grows at its
// end is not copied each time.
const longList = 64

// replace takes that the chunk of a name was one and is another; each may be nil. Of a chunk
// with a change it looks at the machines of the tasks that have moved.
func (h holders) replace(name ChunkName, was, is *schema.Chunk) {
	left, come := map[string]struct{}{}, map[string]struct{}{}
	EachTask(was, is, func(was, is *schema.TaskRecord) {
		if was != nil && is != nil && was.Machine == is.Machine {
			return
		}
		if was != nil && was.Machine != "" {
			left[was.Machine] = struct{}{}
		}
		if is != nil && is.Machine != "" {
			come[is.Machine] = struct{}{}
		}
	})
	for i := 0; len(left) > 0 && is != nil && i < len(is.Tasks); i++ {
		delete(left, is.Tasks[i].Machine) // it has another task of the chunk
	}
	for machine := range left {
		if rest := slices.DeleteFunc(slices.Clone(h[machine]), func(n ChunkName) bool { return n == name }); len(rest) > 0 {
			h[machine] = rest
		} else {
			delete(h, machine)
		}
	}
	for machine := range come {
		list := h[machine]
		switch at, has := slices.BinarySearchFunc(list, name, ChunkName.Compare); {
		case has:
		case at == len(list) && at >= longList:
			h[machine] = append(list, name)
		default:
			h[machine] = slices.Concat(list[:at], []ChunkName{name}, list[at:])
		}
	}
}

// Chunks are documents with tasks of a State at a moment; nil is one that is not there.
type Chunks map[ChunkName]*schema.Chunk

// ChunksOf returns the chunks that are about to be written.
func ChunksOf(s *State, writes []Write) Chunks {
	out := Chunks{}
	for _, w := range writes {
		if name, ok := strings.CutPrefix(w.Key, KeyChunk); ok {
			if key, err := parseChunkName(s.Cell, name); err == nil {
				out[key] = s.Chunks[key]
			}
		}
	}
	return out
}

// Affected adds to machines those whose view is another since a moment, by what has become
// of the chunks of that moment: of a job with a change the tasks that have one.
func (was Chunks) Affected(s *State, machines map[string]struct{}) {
	for name, before := range was {
		EachTask(before, s.Chunks[name], func(was, is *schema.TaskRecord) {
			if was != nil && is != nil && SameAssignment(was, is) {
				return
			}
			for _, r := range []*schema.TaskRecord{was, is} {
				if r != nil && r.Machine != "" {
					machines[r.Machine] = struct{}{}
				}
			}
		})
	}
}

// EachTask calls f for each task of two versions of a chunk, by index, with its records in
// both; nil is a chunk, or a record, that is not there.
func EachTask(was, is *schema.Chunk, f func(was, is *schema.TaskRecord)) {
	var old, next []schema.TaskRecord
	if was != nil {
		old = was.Tasks
	}
	if is != nil {
		next = is.Tasks
	}
	for len(old) > 0 || len(next) > 0 {
		switch {
		case len(next) == 0 || len(old) > 0 && old[0].Index < next[0].Index:
			f(&old[0], nil)
			old = old[1:]
		case len(old) == 0 || next[0].Index < old[0].Index:
			f(nil, &next[0])
			next = next[1:]
		default:
			f(&old[0], &next[0])
			old, next = old[1:], next[1:]
		}
	}
}

// SameAssignment reports whether two records of a task assign the same, to the same
// machine, if to any: see SameView.
func SameAssignment(a, b *schema.TaskRecord) bool {
	return a.Machine == b.Machine && a.Generation == b.Generation && a.Data == b.Data && (a.Stop == nil) == (b.Stop == nil) && slices.Equal(a.Bring, b.Bring)
}

// View returns the view of a machine, which has not been sent: all its assignments, sorted
// by task, but for those whose data cannot be sent: no machine can have any of these, and
// with one of them it would get none of the others. With them is what registries, which may be
// nil, says of where to get what they need. It costs what the machine holds, and not what the
// cell does.
func View(s *State, machine string, registries *Registries) schema.View {
	var view schema.View
	view.Assignments = slices.Grow(view.Assignments, len(s.holders[machine])) // most have one task of a job
	for _, name := range s.holders[machine] {
		c := s.Chunks[name]
		for i := range c.Tasks {
			if c.Tasks[i].Machine == machine && s.Heavy(c.Tasks[i].Data) == 0 {
				view.Assignments = append(view.Assignments, assignment(s, c, &c.Tasks[i]))
			}
		}
	}
	view.Registries = registries.For(view.Assignments)
	return view
}

// Views returns the view of each machine that has assignments.
func Views(s *State) map[string]schema.View {
	views := make(map[string]schema.View, len(s.holders))
	registries, _ := RegistriesOf(s, nil)
	for machine := range s.holders {
		views[machine] = View(s, machine, registries)
	}
	return views
}

func assignment(s *State, c *schema.Chunk, r *schema.TaskRecord) schema.Assignment {
	data := r.Data
	if known, ok := s.known[data]; ok {
		data = known
	}
	return schema.Assignment{
		Task: c.Job.Task(r.Index), Generation: r.Generation, Data: data, Job: s.Data[r.Data], Ports: r.Ports, OwnNetwork: r.OwnNetwork, Devices: r.Devices, Alloc: r.Alloc, Stop: r.Stop, Bring: r.Bring,
	}
}

// SameView compares what two views say, whenever they were sent; Job is a function of Data,
// and ports are chosen once per generation.
func SameView(a, b schema.View) bool {
	return slices.EqualFunc(a.Assignments, b.Assignments, func(x, y schema.Assignment) bool {
		return x.Generation == y.Generation && x.Data == y.Data && (x.Stop == nil) == (y.Stop == nil) && slices.Equal(x.Bring, y.Bring)
	}) && slices.EqualFunc(a.Registries, b.Registries, func(x, y schema.Registry) bool { return x.Equal(&y) })
}
