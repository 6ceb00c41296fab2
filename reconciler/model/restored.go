package model

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// Floor is the highest generation, and epoch, that may have been given by a
// master whose store was lost; 0 in a cell that was never restored.
func (s *State) Floor() uint64 {
	if s.Restored == nil {
		return 0
	}
	return s.Restored.Floor
}

// Recovering reports whether the cell was restored and its machines have not had the time
// to report. No machine may be sent anything until then: it would stop tasks that the state
// does not know.
func (s *State) Recovering() bool { return s.Restored != nil && s.Restored.Settled.IsZero() }

// restoredAhead is how many generations, and epochs of a machine, are left out after a
// restore: more than a cell can have given since the snapshot, at 3,800 a second for a
// month, and few enough for 900,000 restores in what JSON readers take for whole numbers
// (2^53).
const restoredAhead = 10_000_000_000

// restoredRate is how many a cell assigns in a second at most. A restored cell begins after
// as many for each second since 1970: so after all that were assigned since an earlier
// restore, from whichever snapshot, which this snapshot does not know.
const restoredRate = 4000

// Restore returns what must be stored together with the documents of a snapshot
// before a master may lead from them. Machines hold what was decided after the
// snapshot: generations that the state does not know, under epochs that are
// higher than the state's. Neither is ever given a second time.
func Restore(s *State, snapshot, now time.Time) []Write {
	r := schema.Restored{At: now.UTC(), Snapshot: snapshot.UTC(), Counter: s.Counter, Floor: max(s.Counter, s.Floor())}
	for _, m := range s.Machines {
		r.Floor = max(r.Floor, m.Epoch)
	}
	if floor := restoredAhead + restoredRate*uint64(max(0, now.Unix())); r.Floor < floor { //nolint:gosec // it is not negative
		r.Floor = floor
	} else { // the clock is behind what it was
		r.Floor += restoredAhead
	}
	return []Write{s.Document(KeyCounter, r.Floor), s.Document(KeyRestored, &r)}
}
