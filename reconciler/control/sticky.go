package control

import (
	"fmt"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// stays returns the machine that a task stays on, since it has its sticky
// directory: "" of one that may be elsewhere, or whose machine is gone for good.
func (s *step) stays(want *schema.Job, t *schema.TaskRecord) string {
	if want.Task.Sticky != schema.StickyStay || want.Kind == schema.System {
		return ""
	}
	home := t.On
	if t.Machine != "" && s.dataOf(t.Data).Task.Sticky.Has() {
		home = t.Machine
	}
	if s.base.Machines[home] == nil || s.silent[home] != nil && s.silent[home].dead() {
		return ""
	}
	return home
}

// waitsForHome says what a task waits for that stays on a machine.
func waitsForHome(machine string) string {
	return fmt.Sprintf("waits for machine %s, which has its sticky directory", machine)
}

// noRoomAtHome says why a task that stays on a machine does not get it.
func (s *step) noRoomAtHome(a *placement.Ask, snapshot *placement.Snapshot) string {
	why := "it is silent"
	switch {
	case s.isUp(a.On) && s.machineSpec(a.On).Drain != nil:
		why = "it is being drained"
	case s.isUp(a.On):
		v, _ := snapshot.Verdict(*a, a.On)
		why = "it has no room yet"
		if v.Reason != "" {
			why = "it " + v.Reason.One()
		}
	}
	return waitsForHome(a.On) + ": " + why
}
