package nodeagent

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// Life is what an agent knows of its own time. What it finds on the disk when it
// starts was true once: since then its tasks may have been rescheduled.
type Life struct {
	// Began is when the agent started; zero if that was long ago.
	Began time.Time
	// Confirmed is when a master first sent a view to this agent; zero: the view is
	// what the disk had. A master sends one only after its store, which takes
	// writes of the leader alone, has taken the machine's join.
	Confirmed time.Time
	// Refused says that a master has another agent for this machine, and has not
	// welcomed this one since: nothing that was assigned is this agent's to start.
	Refused bool
}

// FirstView is how long an agent that has started waits for the first view before
// it starts what it holds no process of: a master that can be reached sends it
// within a fraction of a second, and what has moved meanwhile is not started for
// a moment.
const FirstView = 3 * time.Second

// ReportFor is how long an ended generation that is out of the view is still
// reported, so that whoever asks finds its end there.
const ReportFor = 10 * time.Minute

// withholds says why a generation that holds no process is not started yet, ""
// if it may be. Tasks that must never run twice, of which it then is one by neverTwice,
// wait for a master however long that takes; all others go on without one after a
// moment, at until.
func (life *Life) withholds(it item, now time.Time) (why string, neverTwice bool, until time.Time) {
	if !life.Confirmed.IsZero() || it.held != nil && it.held.Alive() {
		return "", false, time.Time{}
	}
	if life.Refused {
		return "another agent has the name of this machine: nothing is started here", false, time.Time{}
	}
	if it.job().NeverTwice() {
		return schema.NoteWithheld, true, time.Time{}
	}
	if until := due(now, life.Began, FirstView); !life.Began.IsZero() && until.After(now) {
		return "its agent has just started, and waits for the first assignments from its master", false, until
	}
	return "", false, time.Time{}
}

// unconfirmed reports whether it is still to be said of an incarnation that no
// master had confirmed its assignment when it started: until ReportFor after one
// has, which is until.
func (life *Life) unconfirmed(c *Incarnation, now time.Time) (still bool, until time.Time) {
	if !c.Unconfirmed || life.Confirmed.IsZero() {
		return c.Unconfirmed, time.Time{}
	}
	if until = due(now, life.Confirmed, ReportFor); !until.After(now) {
		return false, time.Time{}
	}
	return true, until
}
