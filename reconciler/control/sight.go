package control

import (
	"maps"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// sight is what a look at the whole cell depends on: what it has found out holds as long as that
// is the same.
type sight struct {
	jobs, machines int // see model.State.WrittenSince, facts.MachinesChangedSince
	reserved       int // see snapshot.Cell.Reserved
	desired        *intent.Desired
	suspended      map[string]*schema.Suspension
	now            time.Time
	until          facts.Until // when what was found out may be otherwise by itself
}

// follow reports whether what was found out still holds, and forgets until when if it does not.
// Of the jobs in written documents were written, or of any if all is true. Other reservations alone
// call for no step: a look is made by the next one that there is.
func (v *sight) follow(f *facts.Facts, reserved int) (holds bool, written []schema.JobName, all bool) {
	is := sight{desired: f.Desired, suspended: f.Base.Suspensions, now: f.Now.Round(0), until: v.until, reserved: reserved}
	written, jobs, ok := f.Base.WrittenSince(v.jobs)
	is.jobs = jobs
	_, is.machines, _ = f.MachinesChangedSince(v.machines)
	same := is.jobs == v.jobs && is.machines == v.machines && is.desired == v.desired && is.reserved == v.reserved && maps.Equal(is.suspended, v.suspended)
	isOver := f.At(v.until.Wall).Or(f.At(v.until.Monotonic)) != v.until // or a part of it
	if holds = same && !isOver && !is.now.Before(v.now); !holds {
		is.until = facts.Until{}
	}
	is.suspended = maps.Clone(is.suspended)
	*v = is
	return holds, written, !ok
}
