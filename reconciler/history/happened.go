package history

import (
	"slices"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// Finishes is the fate of a batch task that is done, which a plan takes not to happen.
const Finishes plan.Fate = "finishes"

// happening is what the events say that has become of one task.
type happening struct {
	plan.Task
	begun bool            // something has happened to it
	ended map[uint64]bool // generations that were stopped, or ended
	first []schema.EventRecord
	last  schema.CauseKind // why it ended last
	start bool             // it was started at least once
}

// happened returns what has become of tasks by name, by events; stopping are the generations that
// were being stopped before, which is not said again of them but for their end.
func happened(records []*schema.EventRecord, stopping []uint64) map[string]*happening {
	all, before := map[string]*happening{}, map[uint64]bool{}
	for _, generation := range stopping {
		before[generation] = true
	}
	for _, r := range records {
		if r.Task == "" {
			continue
		}
		h := all[r.Task]
		if h == nil {
			h = &happening{Task: plan.Task{Name: r.Task}, ended: map[uint64]bool{}}
			if before[r.Generation] {
				h.ended[r.Generation], h.From = true, r.Machine
			}
			all[r.Task] = h
		}
		h.take(r)
	}
	for name, h := range all {
		if !h.begun {
			delete(all, name)
			continue
		}
		h.Fate = h.fate()
	}
	return all
}

// take takes the next event of the task. A generation that is stopped has two: when that is
// decided, and when it has ended.
func (h *happening) take(r *schema.EventRecord) {
	switch r.Kind {
	case schema.EventSchedule:
		h.To, h.begun, h.start = r.Machine, true, true
	case schema.EventEvict, schema.EventKill, schema.EventLost, schema.EventFail, schema.EventFinish:
		if h.ended[r.Generation] {
			return
		}
		h.ended[r.Generation] = true
		if !h.begun {
			h.From = r.Machine
		}
		h.To, h.begun, h.last = "", true, r.Cause
		if !slices.Contains(h.Causes, r.Cause) {
			h.Causes = append(h.Causes, r.Cause)
			h.first = append(h.first, *r)
		}
	}
}

func (h *happening) fate() plan.Fate {
	switch {
	case h.To == "" && h.last == schema.CauseFinished:
		return Finishes
	case h.To == "" && (h.last == schema.CauseRemoved || h.last == schema.CauseScaledDown):
		return plan.Stops
	case h.To == "" && h.From == "":
		return plan.Tries
	case h.To == "":
		return plan.Evicted
	case h.From == "":
		return plan.Starts
	case h.From != h.To:
		return plan.Moves
	}
	return plan.Restarts
}
