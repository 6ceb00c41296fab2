package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/model"
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

// joining says that machines have just begun to join a cell in which nothing runs yet, ""
// if that is not so, and until when tasks are held for it. What is placed then would all be on the first of them. Once a task runs
// there is no wait: neither for a new master, nor when machines join later. Tasks of
// system jobs do not count, and are not held, since they have one place each, unless tasks
// of a higher priority are: these might preempt them right after.
func joining(s *facts.Facts) (why string, until facts.Until) {
	wait := s.Observed.JoinWait
	if wait == 0 || len(s.Machines()) == 0 || anyAssigned(s) {
		return "", facts.Until{}
	}
	joined := make([]time.Time, 0, len(s.Machines()))
	for _, name := range s.Machines() {
		joined = append(joined, s.Base.Machines[name].Joined)
	}
	slices.SortFunc(joined, time.Time.Compare)
	last := len(joined) - 1
	if !facts.Ahead(s.Now, joined[last].Add(wait), wait) {
		return "", facts.Until{}
	}
	first := last
	for first > 0 && joined[first].Sub(joined[first-1]) <= wait {
		first--
	}
	end := joined[last].Add(wait)
	if most := joined[first].Add(mostJoinWait); most.Before(end) {
		end = most
	}
	waits, until := s.Waits(end, mostJoinWait)
	if !waits {
		return "", facts.Until{}
	}
	return fmt.Sprintf("machines are joining: the first tasks of the cell are placed at %s", s.Say(end)), until
}

// anyAssigned reports whether a task has a machine that could be on another one.
// Where there are many, one of the first is.
func anyAssigned(s *facts.Facts) bool {
	has := func(key model.ChunkName) bool {
		return slices.ContainsFunc(s.Chunk(key).Tasks, func(t schema.TaskRecord) bool {
			return t.Machine != "" && s.Data(t.Data).Kind != schema.System
		})
	}
	for key := range s.Base.Chunks {
		if has(key) {
			return true
		}
	}
	return slices.ContainsFunc(s.ChangedChunks(), has)
}
