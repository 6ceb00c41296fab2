package status

import (
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// SuspensionStatus is the status of a suspension.
type SuspensionStatus struct {
	schema.Suspension
	// Waits says what waits for its end, "" if all is as the newest commit says.
	Waits string `json:"waits,omitempty"`
	Next  string `json:"next"` // the command that ends it
}

// waiting returns what of the newest commit the suspension keeps back.
func (x *SuspensionStatus) waiting() string {
	return fmt.Sprintf("%s is %s; %s", subjectOf(x.Name), x.Suspension.String(), x.Waits)
}

// subjectOf names what a suspension is of.
func subjectOf(name string) string {
	if name == schema.AllJobs {
		return "the cell"
	}
	return "job " + name
}

// suspensionsOf returns what is suspended, sorted by name.
func suspensionsOf(s *model.State) []SuspensionStatus {
	out := []SuspensionStatus{}
	for _, name := range slices.Sorted(maps.Keys(s.Suspensions)) {
		out = append(out, SuspensionStatus{Suspension: *s.Suspensions[name], Next: "muster resume " + name})
	}
	return out
}

// suspended adds what waits for suspensions to end, when the jobs have been added
// of.
func (d *describer) suspended() {
	s := d.in.State
	waits := map[string][]string{}
	desired := d.desired
	for i := range d.status.Jobs {
		j := &d.status.Jobs[i]
		if j.Suspended == "" {
			continue
		}
		newest, waiting := desired.Waiting[s.JobName(j.Name)]
		switch {
		case waiting && newest == nil:
			waits[j.Suspended] = append(waits[j.Suspended], "the removal of "+j.Name)
		case waiting:
			waits[j.Suspended] = append(waits[j.Suspended], "the newest version of "+j.Name)
		case j.Updating > 0:
			waits[j.Suspended] = append(waits[j.Suspended], fmt.Sprintf("the update of %d of %s of %s", j.Updating, schema.Count(j.Desired, "task"), j.Name))
		case len(j.Restarting) > 0:
			waits[j.Suspended] = append(waits[j.Suspended], "the restart of "+j.Name)
		}
	}
	for i := range d.status.Suspended {
		x := &d.status.Suspended[i]
		if x.All() && d.in.Head != s.Head.Commit && d.in.Trouble == nil {
			waits[x.Name] = append([]string{"commit " + model.ShortCommit(d.in.Head)}, waits[x.Name]...)
		}
		if x.Waits = schema.ShortList(waits[x.Name]); x.Waits != "" {
			x.Waits += schema.Verb(len(waits[x.Name]), " waits", " wait")
		}
	}
}
