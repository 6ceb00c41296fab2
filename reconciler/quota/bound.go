package quota

import (
	"fmt"
	"math"
	"path"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// room is how many tasks there are, beside how many there may be, whatever quota there is: those
// that need none of each holder, and all of the cell. It is there for the master, whose memory and
// rounds grow with the tasks that are admitted, placed or not.
type room struct {
	in      Input
	holders map[string]*holder // by tenant, and by user where there is none
	places  map[place]*holder  // those of jobs
	bound   int64              // of the cell
	used    int64
}

// place is where a job is declared, and whose it is.
type place struct{ dir, user string }

// holder is who the tasks without quota are counted for: a tenant, or a user where there are
// none.
type holder struct {
	user   string
	tenant *schema.Tenant // nil if the user is of none
	origin schema.Position
	bound  int64
	used   int64
	// boundProtected and usedProtected are of tasks that may not be preempted.
	boundProtected, usedProtected int64
}

// String names h as messages do.
func (h *holder) String() string {
	if h.tenant == nil {
		return "owner " + h.user
	}
	return "tenant " + h.tenant.Name
}

// claim is how many tasks a job has, and asks for.
type claim struct {
	*holder
	had, ask                   int64
	hadWithout, askWithout     int64 // of these, those that need no quota
	hadProtected, askProtected int64 // of these, those that may not be preempted
	// from has the tasks that are left there by a job that comes from another holder, and has had
	// nothing of what this one may have; nil for none.
	from                       *holder
	leftWithout, leftProtected int64
}

// grows reports whether a job asks for more tasks than it has.
func (c claim) grows() bool {
	return c.ask > c.had || c.askWithout > c.hadWithout || c.askProtected > c.hadProtected
}

// shrinks reports whether a job asks for fewer tasks than it has.
func (c claim) shrinks() bool {
	return c.from != nil || c.ask < c.had || c.askWithout < c.hadWithout || c.askProtected < c.hadProtected
}

// back returns the claim that undoes c when it is taken.
func (c claim) back() claim {
	c.had, c.ask = c.ask, c.had
	c.hadWithout, c.askWithout = c.askWithout, c.hadWithout
	c.hadProtected, c.askProtected = c.askProtected, c.hadProtected
	c.leftWithout, c.leftProtected = -c.leftWithout, -c.leftProtected
	return c
}

func newRoom(in Input) *room {
	return &room{in: in, holders: map[string]*holder{}, places: map[place]*holder{}, bound: int64(in.Desired.Policy.TasksBound())}
}

// claim counts what a job has, nil if nothing, and returns what it asks for with its desired data.
// Both have the number of tasks that they count with.
func (r *room) claim(name schema.JobName, d *intent.DesiredJob, was, is *schema.Job) claim {
	c := claim{holder: r.holderOf(d.Origin, name.User), ask: int64(is.Tasks), askWithout: r.without(is), askProtected: protected(is)}
	if was == nil {
		return c
	}
	c.had = int64(was.Tasks)
	r.used += c.had
	holder, without, protected := c.holder, r.without(was), protected(was)
	if runs := r.in.Records[name]; runs != nil && runs.Origin.Path != "" && runs.Origin.Path != d.Origin.Path {
		holder = r.holderOf(runs.Origin, name.User)
	}
	holder.used += without
	holder.usedProtected += protected
	if holder == c.holder {
		c.hadWithout, c.hadProtected = without, protected
	} else {
		c.from, c.leftWithout, c.leftProtected = holder, without, protected
	}
	return c
}

// without returns how many tasks of a job need no quota.
func (r *room) without(j *schema.Job) int64 {
	if r.in.free() || j.AllocSet != "" || j.Priority.Band() == schema.BandFree {
		return int64(j.Tasks)
	}
	return 0
}

// holderOf returns who the tasks of a user's job are counted for that is declared somewhere.
func (r *room) holderOf(declared schema.Position, user string) *holder {
	at := place{path.Dir(declared.Path), user}
	if h := r.places[at]; h != nil {
		return h
	}
	t, origin := r.in.Desired.Owner(at.dir, at.user)
	h := &holder{user: at.user, tenant: t, origin: origin, bound: schema.DefaultTasksWithoutQuota, boundProtected: protectedBound(t)}
	key := "user/" + at.user
	if t != nil {
		key = "tenant/" + t.Name
	}
	switch {
	case r.holders[key] != nil:
		h = r.holders[key]
	case t != nil && t.TasksWithoutQuota != nil:
		h.bound = int64(*t.TasksWithoutQuota)
	case r.in.free():
		h.bound = math.MaxInt64 // one team, or several that agree: the bound of the cell holds
	}
	r.holders[key], r.places[at] = h, h
	return h
}

// verdict is whether there is room for a claim.
type verdict int

const (
	fits verdict = iota
	overHolder
	overProtected
	overCell
)

// over says whether there are too many tasks with what c asks for. What asks for no more than it
// has is never too much.
func (r *room) over(c claim) verdict {
	switch {
	case c.askWithout > c.hadWithout && c.used-c.hadWithout+c.askWithout > c.bound:
		return overHolder
	case c.overProtected():
		return overProtected
	case c.ask > c.had && r.used-c.had+c.ask > r.bound:
		return overCell
	}
	return fits
}

// take counts what c asks for in the place of what it had.
func (r *room) take(c claim) {
	r.used += c.ask - c.had
	c.used += c.askWithout - c.hadWithout
	c.usedProtected += c.askProtected - c.hadProtected
	if c.from != nil {
		c.from.used -= c.leftWithout
		c.from.usedProtected -= c.leftProtected
	}
}

// tooMany rejects a job with which there would be too many tasks. The message is the same for jobs
// with the same number, so that they are shown as one.
func (a *Admission) tooMany(name schema.JobName, r *room, d *intent.DesiredJob, c claim) {
	out := &schema.Diagnostic{Severity: schema.Error, Rule: schema.RuleQuota, Position: d.Origin, Field: intent.KeyOf(d.Job).Field() + ".tasks"}
	cell := r.in.Desired.Policy.Name
	switch r.over(c) {
	case overProtected:
		c.explainProtected(out, cell, intent.KeyOf(d.Job).Field())
	case overHolder:
		out.Message = fmt.Sprintf("too many tasks without quota: %s has %s of %s in cell %s, and the job asks for %s",
			c.holder, sumOf(c.used-c.hadWithout), sumOf(c.bound), cell, sumOf(c.askWithout))
		out.Expected = fmt.Sprintf("together at most %s tasks that need no quota", sumOf(c.bound))
		out.Hint = "ask for fewer, or take a band with quota"
		if c.tenant != nil {
			out.Hint = fmt.Sprintf("ask for fewer, take a band with quota, or have tasksWithoutQuota of tenant %q (%s) raised", c.tenant.Name, c.origin)
		}
	default:
		out.Message = fmt.Sprintf("too many tasks: cell %s has %s of %s, and the job asks for %s", cell, sumOf(r.used-c.had), sumOf(r.bound), sumOf(c.ask))
		out.Expected = fmt.Sprintf("together at most %s tasks in the cell", sumOf(r.bound))
		out.Hint = fmt.Sprintf("ask for fewer, or have maxTasks of cell %q raised", cell)
	}
	a.Causes[name], a.Rejected[name] = RejectedTooMany, out
}
