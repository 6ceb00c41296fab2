package control

import (
	"fmt"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// Spread says what is wrong with how a job is spread and what becomes of that, "" if
// nothing is. reserved is what is held back for tasks, nil for their limits, and last what the
// newest step decided.
func Spread(f *facts.Facts, reserved snapshot.Reservations, last *Output, name schema.JobName) string {
	want := f.Admitted(name)
	if want == nil {
		return ""
	}
	s := uneven{f, snapshot.New(f, nil), newMoveBounds(f)}
	s.cell.Reserve(reserved)
	s.bounds.holding, s.bounds.draining = last.Holding, last.Draining
	if !mayBeUneven(want) {
		return s.cell.Shares(name, want)
	}
	u, ok, _ := s.cell.Uneven(name, want)
	if !ok {
		return s.cell.Shares(name, want)
	}
	text := u.String()
	if why := neverRepaired(want); why != "" {
		return text + "; its tasks are not moved for that: " + why
	}
	task := name.Task(u.Index).Short()
	if why, _ := s.waitsFor(name, &u); why != "" {
		return fmt.Sprintf("%s; %s is to move there, and waits: %s", text, task, why)
	}
	return fmt.Sprintf("%s; %s is to move there at %s", text, task, f.Say(lookedAt(name, f.Now).Add(repairEvery)))
}
