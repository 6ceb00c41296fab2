package reconciler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// AdmitInput is what admission depends on.
type AdmitInput struct {
	Desired Desired
	// Admitted is the data that each job runs now.
	Admitted map[schema.JobName]*schema.Job
	// Capacity is what the cell's machines have together, nil if unknown, as
	// it is offline.
	Capacity *schema.Resources
	// Machines is how many machines the cell knows, the given up ones among
	// them: the tasks that a system job is counted with. Where Capacity is
	// unknown it counts with one.
	Machines int
}

// Admission is the verdict on each desired job.
type Admission struct {
	// Rejected says why a job's desired data is not admitted. A job that is
	// not in it is.
	Rejected map[schema.JobName]*schema.Diagnostic
	Warnings []schema.Diagnostic
	// order is that of the admitted jobs: with those up to any of them at their
	// new data and the rest at their old, growth is within the quotas.
	order []schema.JobName
}

// Admit decides which of the desired jobs the cell takes on. What is admitted
// stays: a job that asks for no more than it has is never rejected, whatever
// became of its quota. Growth is admitted by priority, high to low, then by
// name, as long as the quotas of its user at its band hold. Band free needs
// none (Borg §2.5: infinite quota at priority zero).
func Admit(in AdmitInput) Admission {
	a := admission{in: in, out: Admission{Rejected: map[schema.JobName]*schema.Diagnostic{}}, used: map[account]amount{}}
	a.limit = limits(in.Desired.Quotas)
	names := in.Desired.names()
	for _, n := range names {
		if was := in.Admitted[n]; was != nil {
			a.charge(was, 1)
		}
	}
	slices.SortStableFunc(names, func(x, y schema.JobName) int {
		j, k := in.Desired.Jobs[x].Job, in.Desired.Jobs[y].Job
		// What shrinks goes first: it makes room for what grows.
		return cmp.Or(boolCompare(a.grows(j), a.grows(k)), cmp.Compare(k.Priority, j.Priority))
	})
	// A job that leaves a band makes room there, so those that found none are
	// asked again until nothing changes.
	for left := len(names) + 1; len(names) > 0 && len(names) < left; {
		left = len(names)
		names = slices.DeleteFunc(names, func(n schema.JobName) bool {
			ok := a.decide(n)
			if ok {
				a.out.order = append(a.out.order, n)
			}
			return ok
		})
	}
	a.oversold()
	return a.out
}

// account is what quota is granted to.
type account struct {
	user string
	band schema.Band
}

// amount is what is granted to an account, or used of it.
type amount struct {
	schema.Resources
	tasks int64
}

func (m amount) add(r schema.Resources, tasks int64) amount {
	return amount{m.Resources.Add(r), m.tasks + tasks}
}

// dimension is one of the things that quota is counted in.
type dimension struct {
	name       string
	used, have int64
}

// over returns the dimensions in which m exceeds limit. One job's ask is below
// 2^63, so a sum of what is within a limit and one ask more wraps around at most
// once, to a negative number, and is told from one that fits.
func (m amount) over(limit amount) []dimension {
	var out []dimension
	for _, d := range schema.Dimensions() {
		u, h := m.Of(d), limit.Of(d)
		if u < 0 {
			u = math.MaxInt64
		}
		if h < 0 { // so do the sums of quotas
			h = math.MaxInt64
		}
		if u > h || m.Of(d) < 0 {
			out = append(out, dimension{string(d), u, h})
		}
	}
	if m.tasks > limit.tasks {
		out = append(out, dimension{"tasks", m.tasks, limit.tasks})
	}
	return out
}

func limits(quotas []schema.Quota) map[account]amount {
	out := map[account]amount{}
	for _, q := range quotas {
		k := account{q.User, q.Band}
		out[k] = out[k].add(q.Resources, int64(q.Tasks))
	}
	return out
}

// admission is Admit at work.
type admission struct {
	in    AdmitInput
	out   Admission
	limit map[account]amount
	used  map[account]amount
}

func (a *admission) charge(j *schema.Job, sign int) {
	k := account{j.User, j.Priority.Band()}
	a.used[k] = a.used[k].add(a.ask(j).Times(sign), int64(a.tasks(j)*sign))
}

// tasks returns how many tasks a job may have: for a system job, one on each
// machine that the cell knows, eligible or not. So a machine that changes its
// labels changes nobody's quota.
func (a *admission) tasks(j *schema.Job) int {
	switch {
	case j.Kind != schema.System:
		return j.Tasks
	case a.in.Capacity == nil:
		return 1
	}
	return min(a.in.Machines, schema.MaxTasks)
}

// ask returns what all the job's tasks together may use at most.
func (a *admission) ask(j *schema.Job) schema.Resources {
	return j.Task.Resources.Resources.Times(a.tasks(j))
}

// grows reports whether a job asks for more than it was admitted with, or at
// another band.
func (a *admission) grows(j *schema.Job) bool {
	was := a.in.Admitted[j.ID()]
	return was == nil || was.Priority.Band() != j.Priority.Band() || a.tasks(j) > a.tasks(was) || !a.ask(j).Fits(a.ask(was))
}

// decide reports whether a job is admitted, and charges its account with what
// it then runs.
func (a *admission) decide(name schema.JobName) bool {
	d := a.in.Desired.Jobs[name]
	was := a.in.Admitted[name]
	if len(d.Unresolved) > 0 { // it names what there is not
		a.out.Rejected[name] = &d.Unresolved[0]
		return false
	}
	delete(a.out.Rejected, name)
	grows := a.grows(d.Job)
	if was != nil {
		a.charge(was, -1)
	}
	a.charge(d.Job, 1)
	k := account{d.Job.User, d.Job.Priority.Band()}
	if !grows || a.in.Desired.Policy.Quota == "off" || k.band == schema.BandFree {
		return true
	}
	over := a.used[k].over(a.limit[k])
	if len(over) == 0 {
		return true
	}
	a.out.Rejected[name] = a.explain(d, k, over)
	a.charge(d.Job, -1)
	if was != nil {
		a.charge(was, 1)
	}
	return false
}

// explain says which dimensions are over, with their numbers, and who may do
// what about it.
func (a *admission) explain(d DesiredJob, k account, over []dimension) *schema.Diagnostic {
	out := &schema.Diagnostic{Severity: schema.Error, Position: d.Origin, Field: "job." + d.Job.Name}
	var quotas []string
	for _, q := range a.in.Desired.Quotas {
		if q.User == k.user && q.Band == k.band {
			quotas = append(quotas, fmt.Sprintf("quota %q (%s)", q.Name, a.in.Desired.QuotaOrigins[q.Name]))
		}
	}
	if len(quotas) == 0 {
		out.Message = fmt.Sprintf("owner %s has no quota at band %s in cell %s", k.user, k.band, d.Job.Cell)
		out.Expected = "a quota for them, or a priority of band free"
		out.Hint = fmt.Sprintf("declare a quota for user %q at band %q, or take priority: \"free\"", k.user, k.band)
		return out
	}
	parts := make([]string, 0, len(over))
	fits := make([]string, 0, len(over))
	for _, o := range over {
		parts = append(parts, fmt.Sprintf("%s %d of %d, over by %d", o.name, o.used, o.have, o.used-o.have))
		fits = append(fits, fmt.Sprintf("%s at most %d", o.name, o.have))
	}
	out.Message = fmt.Sprintf("over quota: owner %s, %s: %s", k.user, k.band, strings.Join(parts, "; "))
	out.Expected = "together " + strings.Join(fits, ", ")
	out.Hint = "ask for less, or have " + strings.Join(quotas, " and ") + " raised"
	return out
}

// oversold warns when quota at the bands that may not be oversold is more than
// the machines have (Borg §2.5).
func (a *admission) oversold() {
	if a.in.Capacity == nil {
		return
	}
	var sold schema.Resources
	var last schema.Quota
	for _, q := range a.in.Desired.Quotas {
		if q.Band == schema.BandProduction || q.Band == schema.BandMonitoring {
			sold, last = sold.Add(q.Resources), q
		}
	}
	for _, d := range schema.Dimensions() {
		if s, have := sold.Of(d), a.in.Capacity.Of(d); s > have {
			a.out.Warnings = append(a.out.Warnings, schema.Diagnostic{
				Severity: schema.Warning, Position: a.in.Desired.QuotaOrigins[last.Name], Field: "quota." + last.Name + "." + string(d),
				Message: fmt.Sprintf("quota at production and monitoring is sold for %s %d, and the cell has %d", d, s, have),
				Hint:    "add machines, or lower the quotas: tasks within their quota may stay pending",
			})
		}
	}
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
