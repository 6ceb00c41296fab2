package control

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// followAllocs stops the tasks whose alloc has ended, or is to. Jobs that are at
// rest are looked at only when the step has changed something of their set.
func followAllocs(s pass, jobs []schema.JobName) {
	var more []schema.JobName
	for _, chunk := range s.ChangedChunks() {
		if !s.hasAllocs(s.Base.Chunks[chunk]) && !s.hasAllocs(s.Chunk(chunk)) {
			continue
		}
		more = append(more, s.InsideOf(chunk.Job)...)
	}
	if len(more) > 0 {
		jobs = slices.Concat(jobs, more)
		slices.SortFunc(jobs, schema.JobName.Compare)
		jobs = slices.Compact(jobs)
	}
	for _, name := range jobs {
		if s.Job(name) == nil {
			continue
		}
		for _, t := range s.Tasks(name) {
			if t.Alloc == nil || t.Machine == "" || t.Stop != nil {
				continue
			}
			if why := s.AllocLeft(name, &t); why != "" {
				s.stop(name, t, schema.Cause{Kind: schema.CauseAllocGone, Message: why, At: s.Now})
			}
		}
	}
}

// hasAllocs reports whether any record of a chunk is of an alloc. c may be nil.
func (s pass) hasAllocs(c *schema.Chunk) bool {
	return c != nil && slices.ContainsFunc(c.Tasks, func(t schema.TaskRecord) bool {
		data := s.Data(t.Data)
		return data != nil && data.Kind == schema.Allocs
	})
}
