package model

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// parseChunkName reads the key of a chunk without its kind.
func (s *State) parseChunkName(key string) (ChunkName, error) {
	i := strings.LastIndexByte(key, '/')
	job, err := schema.ParseJobName(s.Cell + "/" + key[:max(i, 0)])
	if err != nil {
		return ChunkName{}, err
	}
	number, err := strconv.Atoi(key[i+1:])
	return ChunkName{job, number}, err
}

// applyChunk takes a chunk of task records, and keeps the index of machines.
func (s *State) applyChunk(name ChunkName, w Write) error {
	for machine := range assigned(s.Chunks[name]) {
		delete(s.holds[machine], name)
		if len(s.holds[machine]) == 0 {
			delete(s.holds, machine)
		}
	}
	err := put(s, s.Chunks, name, w)
	for machine := range assigned(s.Chunks[name]) {
		if s.holds[machine] == nil {
			s.holds[machine] = map[ChunkName]struct{}{}
		}
		s.holds[machine][name] = struct{}{}
	}
	return err
}

// assigned returns the machines to which the tasks of a chunk are assigned; c may be
// nil.
func assigned(c *schema.Chunk) map[string]struct{} {
	if c == nil {
		return nil
	}
	out := map[string]struct{}{}
	for i := range c.Tasks {
		if machine := c.Tasks[i].Machine; machine != "" {
			out[machine] = struct{}{}
		}
	}
	return out
}

// Affected adds to machines those that have a task in a chunk that is written. Called
// before and after the writes are applied, it finds all whose view they change.
func (s *State) Affected(writes []Write, machines map[string]struct{}) {
	for _, w := range writes {
		if name, ok := strings.CutPrefix(w.Key, KeyChunk); ok {
			if key, err := s.parseChunkName(name); err == nil {
				maps.Copy(machines, assigned(s.Chunks[key]))
			}
		}
	}
}

// View returns what a machine shall be told: all its assignments, sorted by task; nil
// if it has none. It costs what the machine holds, and not what the cell does.
func (s *State) View(machine string) []schema.Assignment {
	var view []schema.Assignment
	for _, name := range slices.SortedFunc(maps.Keys(s.holds[machine]), ChunkName.Compare) {
		c := s.Chunks[name]
		for i := range c.Tasks {
			if c.Tasks[i].Machine == machine {
				view = append(view, s.assignment(c, &c.Tasks[i]))
			}
		}
	}
	return view
}

// Views returns the view of each machine that has one.
func (s *State) Views() map[string][]schema.Assignment {
	views := make(map[string][]schema.Assignment, len(s.holds))
	for machine := range s.holds {
		views[machine] = s.View(machine)
	}
	return views
}

func (s *State) assignment(c *schema.Chunk, r *schema.TaskRecord) schema.Assignment {
	data := r.Data
	if known, ok := s.known[data]; ok {
		data = known
	}
	return schema.Assignment{
		Task: c.Job.Task(r.Index), Generation: r.Generation, Data: data, Job: s.Data[r.Data], Ports: r.Ports, Devices: r.Devices, Alloc: r.Alloc, Stop: r.Stop,
	}
}
