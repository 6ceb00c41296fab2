package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// What admission says to people.

// inUnits writes an amount of a dimension as schema.CPU and schema.Bytes do; sums may
// be larger than what these take.
func inUnits(d int, s sum) string {
	switch name := nameOf(d); {
	case name == string(schema.CPUMilli):
		return s.cores()
	case strings.HasSuffix(name, "Bytes"):
		return s.size()
	}
	return s.String()
}

// wordOf names a dimension as people do.
func wordOf(d int) string {
	switch name := nameOf(d); schema.Dimension(name) {
	case schema.CPUMilli:
		return "CPU"
	case schema.RAMBytes:
		return "RAM"
	case schema.DiskBytes:
		return "disk"
	default:
		return name
	}
}

// explainAll rejects w, or each job of its gang.
func (a *admission) explainAll(w *wish) {
	taken, lacking := together(w.mates, a.fits, a.take)
	for _, m := range lacking {
		a.explain(m, taken)
	}
	giveBack(taken, a.leave)
	for _, m := range taken {
		a.out.withGang(a.in, m.name, lacking[0].name)
	}
}

// explain rejects w, which asks for more than the quota of its account beside others of its gang: where
// it is over, by how much, what else counts there, and who may do what.
func (a *admission) explain(w *wish, beside []*wish) {
	if len(w.Refused) > 0 {
		a.out.refuse(w.name, &w.Refused[0])
		return
	}
	k := accountOf(w.Job)
	s := shortage{used: a.with(w), budget: a.budgets[k], job: w.Job, over: a.over(w)}
	for _, m := range beside {
		s.beside = append(s.beside, m.Job)
	}
	if len(s.over) == 0 {
		a.out.tooMany(w.name, a.room, &w.DesiredJob, w.tasks)
		return
	}
	out := &schema.Diagnostic{Severity: schema.Error, Rule: schema.RuleQuota, Position: w.Origin, Field: intent.KeyOf(w.Job).Field()}
	a.out.Rejected[w.name] = out
	b := s.budget
	if b == nil {
		a.out.Causes[w.name] = RejectedNoQuota
		out.Message = fmt.Sprintf("owner %s has no quota at band %s in cell %s", k.user, k.band, w.Job.Cell)
		out.Expected = "a quota for them, or a priority of band free"
		out.Hint = fmt.Sprintf("declare a quota for user %q at band %q, or take priority: \"free\"", k.user, k.band)
		return
	}
	if h := a.heal(s); h != (Heal{}) {
		a.out.Heals[w.name] = h
	}
	if notes := a.notes(s); !b.counts() && len(notes) > 0 {
		a.out.Causes[w.name] = RejectedNotNow
		out.Message = fmt.Sprintf("owner %s has no quota at band %s in cell %s now: %s; the job asks for %s",
			k.user, k.band, w.Job.Cell, strings.Join(notes, "; "), listed(w.ask))
		out.Expected = "a quota that is valid now, or a priority of band free"
		out.Hint = a.wayOut(k, s)
		return
	}
	a.out.Causes[w.name] = RejectedOverQuota
	most := make([]string, 0, len(s.over))
	for _, d := range s.over {
		most = append(most, wordOf(d)+" at most "+inUnits(d, b.limit[d]))
	}
	out.Message = fmt.Sprintf("over quota: owner %s, %s: %s", k.user, k.band, a.describe(k, s))
	out.Expected = "together " + strings.Join(most, ", ")
	out.Hint = a.wayOut(k, s)
}

// heal returns what may make up for a shortage but a commit.
func (a *admission) heal(s shortage) Heal {
	var h Heal
	var asked amounts
	for _, g := range s.grants {
		switch {
		case g.counts:
			asked = asked.plus(g.asked)
		case g.From.After(a.in.Now) && (h.At.IsZero() || g.From.Before(h.At)):
			h.At = g.From
		}
	}
	h.Machines = s.fits(asked)
	return h
}

// shortage is an account that uses more than it may.
type shortage struct {
	*budget
	used amounts
	over []int       // dimensions
	job  *schema.Job // whose growth is refused, and counted in used; nil if none is
	// beside are others of its gang, which are refused with it, and counted in used.
	beside []*schema.Job
}

// describe says of each dimension that is over how much is used, of how much,
// and by what jobs; and which quotas are not what they were, or seem.
func (a *admission) describe(k account, s shortage) string {
	parts := make([]string, 0, len(s.over))
	for _, d := range s.over {
		p := fmt.Sprintf("%s %s of %s, over by %s", wordOf(d), inUnits(d, s.used[d]), inUnits(d, s.limit[d]), inUnits(d, s.used[d].minus(s.limit[d])))
		if jobs := a.largest(k, d, s.job, s.beside...); len(jobs) > 0 {
			p += "; largest jobs: " + strings.Join(jobs, ", ")
		}
		parts = append(parts, p)
	}
	return strings.Join(append([]string{strings.Join(parts, "; and ")}, a.notes(s)...), "; ")
}

// shownJobs is how many jobs of an account a message names.
const shownJobs = 3

// largest names the jobs of an account that ask for most in a dimension, with
// their amounts, and job, if it is not nil, at its desired data, as is each of those beside it.
func (a *admission) largest(k account, d int, job *schema.Job, beside ...*schema.Job) []string {
	if d == jobsDimension {
		return nil // none is larger than another
	}
	top := slices.Clone(a.top(k, d))
	if job != nil {
		desired := []*schema.Job{job}
		for _, j := range beside {
			if accountOf(j) == k {
				desired = append(desired, j)
			}
		}
		top = slices.DeleteFunc(top, func(j *schema.Job) bool {
			return slices.ContainsFunc(desired, func(is *schema.Job) bool { return is.Name == j.Name })
		})
		top = append(top, desired...)
		slices.SortFunc(top, byAsk(d))
	}
	var out []string
	for i, j := range top {
		if i < shownJobs || j == job {
			out = append(out, j.Name+" "+inUnits(d, askOf(j)[d]))
		}
	}
	return out
}

// countRuns takes down which jobs each account is charged for when everything is decided.
func (a *admission) countRuns() {
	a.runs, a.tops = map[account][]*schema.Job{}, map[dimensionOf][]*schema.Job{}
	for _, w := range a.wishes {
		if w.runs != nil {
			k := accountOf(w.runs)
			a.runs[k] = append(a.runs[k], w.runs)
		}
	}
}

// top returns the jobs of an account that ask for most in a dimension, one more
// than are shown. Each of many jobs that are rejected may ask for the same.
func (a *admission) top(k account, d int) []*schema.Job {
	of := dimensionOf{k, d}
	if out, known := a.tops[of]; known {
		return out
	}
	if a.runs == nil {
		a.countRuns()
	}
	var out []*schema.Job
	for _, j := range a.runs[k] {
		if n := len(out); n <= shownJobs || byAsk(d)(j, out[n-1]) < 0 {
			out = append(out[:min(n, shownJobs)], j)
			slices.SortFunc(out, byAsk(d))
		}
	}
	a.tops[of] = out
	return out
}

// byAsk orders jobs of one user by what they ask for, most first, then by name.
func byAsk(d int) func(x, y *schema.Job) int {
	return func(x, y *schema.Job) int {
		m, n := askOf(x)[d], askOf(y)[d]
		return cmp.Or(schema.CompareBool(n.over(m), m.over(n)), strings.Compare(x.Name, y.Name))
	}
}

// shownQuotas is how many quotas a message names that do not count.
const shownQuotas = 3

// notes says which quotas of an account are not what they were, or seem, in the
// dimensions that are over.
func (a *admission) notes(s shortage) []string {
	var out []string
	for _, g := range a.absent(s) {
		out = append(out, fmt.Sprintf("%s %s", g, g.period(a.in.Now)))
	}
	for _, g := range s.grants {
		if short := g.short(s.over); short != "" {
			out = append(out, fmt.Sprintf("the machines back %s for %s only", g, short))
		}
	}
	if more := len(out) - shownQuotas; more > 0 {
		out = append(out[:shownQuotas], fmt.Sprintf("and %d more quotas do not count, or not in full", more))
	}
	return out
}

// absent returns the quotas that would help if they counted now: those that are
// to begin, the next first, then those that have ended, the last first. The
// order is the same until one begins or ends.
func (a *admission) absent(s shortage) []*grant {
	var out []*grant
	for _, g := range s.grants {
		if !g.counts && g.helps(s.over) {
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(x, y *grant) int {
		ended := !a.in.Now.Before(x.From)
		switch {
		case ended != !a.in.Now.Before(y.From):
			return schema.CompareBool(ended, !ended)
		case ended:
			return y.Until.Compare(x.Until)
		}
		return x.From.Compare(y.From)
	})
	return out
}

// helps reports whether g would count for any of the given dimensions.
func (g *grant) helps(over []int) bool {
	return slices.ContainsFunc(over, func(d int) bool { return g.asked[d] != sum{} || d == jobsDimension && g.Jobs == nil })
}

// short says of which of the given dimensions g has less than it says, "" if of
// none.
func (g *grant) short(dims []int) string {
	missing := g.missing()
	var out []string
	for _, d := range dims {
		if missing[d] != (sum{}) {
			out = append(out, fmt.Sprintf("%s %s of %s", wordOf(d), inUnits(d, g.backed[d]), inUnits(d, g.asked[d])))
		}
	}
	return strings.Join(out, ", ")
}

// wayOut says what can be done about a shortage.
func (a *admission) wayOut(k account, s shortage) string {
	full := s.limit
	var counting []string
	for _, g := range s.grants {
		if g.counts {
			full = full.plus(g.missing())
			if len(counting) < shownQuotas {
				counting = append(counting, g.String())
			}
		}
	}
	absent := a.absent(s)
	switch {
	case full != s.limit && s.fits(full) && k.band == schema.BandBatch:
		return fmt.Sprintf("ask for less, or have machines added to cell %s or its oversellPercent raised: more quota does not help", a.in.Desired.Policy.Name)
	case full != s.limit && s.fits(full):
		return fmt.Sprintf("ask for less, or have machines added to cell %s: more quota does not help", a.in.Desired.Policy.Name)
	case len(absent) > 0 && a.in.Now.Before(absent[0].From):
		return fmt.Sprintf("ask for less, or wait until %s, when %s begins", absent[0].From.Format(time.RFC3339), absent[0])
	case len(absent) > 0:
		return fmt.Sprintf("ask for less, or have %s prolonged", absent[0])
	}
	if len(counting) == 0 {
		return fmt.Sprintf("ask for less, or declare a quota for user %q at band %q", k.user, k.band)
	}
	return "ask for less, or have " + strings.Join(counting, " or ") + " raised"
}

// fits reports whether limit would be enough where s is over.
func (s shortage) fits(limit amounts) bool {
	return !slices.ContainsFunc(s.over, func(d int) bool { return s.used[d].over(limit[d]) })
}

// unbacked warns of each quota that says more than the cell has machines for.
func (a *admission) unbacked() []Warning {
	var out []Warning
	for k, b := range a.budgets {
		for _, g := range b.grants {
			var parts []string
			missing := g.missing()
			for d := range missing {
				if missing[d] != (sum{}) {
					p := fmt.Sprintf("%s %s of %s, short by %s", wordOf(d), inUnits(d, g.backed[d]), inUnits(d, g.asked[d]), inUnits(d, missing[d]))
					if before := g.pool[d].minus(g.backed[d]); before != (sum{}) {
						p += fmt.Sprintf(" (of %s in all, %s is sold to quotas before it)", inUnits(d, g.pool[d]), inUnits(d, before))
					}
					parts = append(parts, p)
				}
			}
			if len(parts) > 0 {
				out = append(out, Warning{k.user, k.band, schema.Diagnostic{
					Severity: schema.Warning, Rule: schema.RuleQuota, Position: g.origin, Field: "quota." + g.Name,
					Message: fmt.Sprintf("the machines of cell %s back it in part only: %s", g.Cell, strings.Join(parts, "; and ")),
					Hint:    "add machines, or lower quotas: a job that needs what is short is rejected",
				}})
			}
		}
	}
	return out
}

// exceeded warns of each account whose jobs have more than its quota is now.
func (a *admission) exceeded() []Warning {
	var out []Warning
	for k, used := range a.used {
		b := a.budgets[k]
		if b == nil {
			b = &budget{}
		}
		s := shortage{budget: b, used: *used, over: b.exceeded(*used)}
		if k.band == schema.BandFree || len(s.over) == 0 {
			continue
		}
		d := schema.Diagnostic{
			Severity: schema.Warning, Rule: schema.RuleQuota,
			Message: fmt.Sprintf("owner %s, %s, has more than its quota: %s", k.user, k.band, a.describe(k, s)),
			Hint:    "what runs is left alone, and what is new or grown is refused: " + a.wayOut(k, s),
		}
		if !b.counts() {
			d.Message = fmt.Sprintf("owner %s, %s, has no quota now, and jobs of %s", k.user, k.band, a.without(k, s))
		}
		if g := a.blamed(s); g != nil {
			d.Position, d.Field = g.origin, "quota."+g.Name
		} else {
			j := a.top(k, s.over[0])[0]
			d.Position, d.Field = a.in.Desired.Jobs[j.ID()].Origin, intent.KeyOf(j).Field()
		}
		out = append(out, Warning{k.user, k.band, d})
	}
	return out
}

// without says what an account uses that has no quota, in short: it is over by
// all of it.
func (a *admission) without(k account, s shortage) string {
	said := listed(s.used)
	first := s.over[0]
	if jobs := a.largest(k, first, nil); len(jobs) > 0 {
		said += fmt.Sprintf("; largest jobs by %s: %s", wordOf(first), strings.Join(jobs, ", "))
	}
	return strings.Join(append([]string{said}, a.notes(s)...), "; ")
}

// blamed returns the quota of an account that a shortage is shown at: one that
// ended, one that is not backed, or the first; nil if there is none.
func (a *admission) blamed(s shortage) *grant {
	for _, g := range a.absent(s) {
		if !a.in.Now.Before(g.From) {
			return g
		}
	}
	for _, g := range s.grants {
		if g.short(s.over) != "" {
			return g
		}
	}
	if len(s.grants) > 0 {
		return s.grants[0]
	}
	return nil
}

// listed writes amounts in words, those of 0 left out.
func listed(m amounts) string {
	var out []string
	for d := range m {
		if m[d] != (sum{}) {
			out = append(out, wordOf(d)+" "+inUnits(d, m[d]))
		}
	}
	return strings.Join(out, ", ")
}
