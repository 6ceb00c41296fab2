package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// DefaultJoinWait is how long after a machine has joined a cell in which nothing
	// runs yet others are waited for: agents that are started together join within
	// a second of each other.
	DefaultJoinWait = 2 * time.Second
	// mostJoinWait is how long that may take in all, since the first of them.
	mostJoinWait = 5 * time.Second
)

// joining reports whether machines have just begun to join a cell in which nothing
// runs yet. What is placed then would all be on the first of them. Once a task runs
// there is no wait: neither for a new master, nor when machines join later. Tasks of
// system jobs do not count, and are not held: they have one place each.
func (s *step) joining() bool {
	wait := s.in.Observed.JoinWait
	if wait == 0 || len(s.names) == 0 {
		return false
	}
	joined := make([]time.Time, 0, len(s.names))
	for _, name := range s.names {
		joined = append(joined, s.base.Machines[name].Joined)
	}
	slices.SortFunc(joined, time.Time.Compare)
	last := len(joined) - 1
	if !Ahead(s.now, joined[last].Add(wait), wait) {
		return false
	}
	first := last
	for first > 0 && joined[first].Sub(joined[first-1]) <= wait {
		first--
	}
	until := joined[last].Add(wait)
	if most := joined[first].Add(mostJoinWait); most.Before(until) {
		until = most
	}
	if s.anyAssigned() || !s.waits(until, mostJoinWait) {
		return false
	}
	s.out.Joining = fmt.Sprintf("machines are joining: the first tasks of the cell are placed at %s", until.UTC().Format(time.TimeOnly))
	return true
}

// anyAssigned reports whether a task has a machine that could be on another one.
func (s *step) anyAssigned() bool {
	for _, key := range s.chunkNames() {
		c := s.chunk(key)
		if slices.ContainsFunc(c.Tasks, func(t schema.TaskRecord) bool {
			return t.Machine != "" && s.dataOf(t.Data).Kind != schema.System
		}) {
			return true
		}
	}
	return false
}
