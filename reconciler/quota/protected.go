package quota

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/musterhq/muster/schema"
)

// gang names a gang: its jobs are of one user.
type gang struct{ user, name string }

// standing is a gang that is not preempted, since that is so of one of its jobs: it is evicted
// as a whole, or not at all.
type standing struct {
	name    string
	was, is bool  // it is of what runs, and of what is desired
	growth  int64 // by how many tasks it grows that may not be preempted, of jobs not admitted yet
}

// protectedGangs returns the gangs with a job whose tasks may not be preempted, now or as desired.
func (in Input) protectedGangs() map[gang]*standing {
	out := map[gang]*standing{}
	of := func(j *schema.Job) *standing {
		k := gang{j.User, j.Gang}
		if out[k] == nil {
			out[k] = &standing{name: j.Gang}
		}
		return out[k]
	}
	for name, d := range in.Desired.Jobs {
		if d.Job.Gang != "" && d.Job.NeverPreempted() {
			of(d.Job).is = true
		}
		if was := in.runs(name); was != nil && was.Gang != "" && was.NeverPreempted() {
			of(was).was = true
		}
	}
	return out
}

// protect counts in a claim the tasks that may not be preempted of what a job has, nil if nothing,
// and of what it asks for.
func (r *room) protect(c *claim, was, is *schema.Job) {
	c.gang = r.gangs[gang{is.User, is.Gang}]
	if is.NeverPreempted() || c.gang != nil && c.gang.is {
		c.askProtected = c.ask
	}
	if was != nil {
		if g := r.gangs[gang{was.User, was.Gang}]; was.NeverPreempted() || g != nil && g.was {
			c.hadProtected = c.had
		}
	}
	c.usedProtected += c.hadProtected
	if c.gang != nil {
		c.gang.growth += max(c.askProtected-c.hadProtected, 0)
	}
}

// protectedBound returns how many tasks of a tenant may not be preempted: without tenants, nil, any number.
func protectedBound(t *schema.Tenant) int64 {
	if t == nil {
		return math.MaxInt64
	}
	return int64(t.NonPreemptibleTasks)
}

// overProtected reports whether there are too many tasks that may not be preempted with what c asks
// for, and with what the jobs of its gang do: one of these alone would keep all from being preempted.
func (c claim) overProtected() bool {
	return c.askProtected > c.hadProtected && c.usedProtected > c.boundProtected-c.growthProtected()
}

// growthProtected returns by how many tasks that may not be preempted a job grows, with its gang.
func (c claim) growthProtected() int64 {
	if c.gang != nil {
		return c.gang.growth
	}
	return c.askProtected - c.hadProtected
}

// takeProtected counts what c asks for in the place of what it had.
func (r *room) takeProtected(c claim) {
	c.usedProtected += c.askProtected - c.hadProtected
	if c.gang != nil {
		c.gang.growth -= max(c.askProtected-c.hadProtected, 0)
	}
}

// explainProtected says that there would be too many tasks that may not be preempted.
func (c claim) explainProtected(out *schema.Diagnostic, cell, field string) {
	out.Field = field + ".preemptible"
	who, asks := "the job", sumOf(c.askProtected)
	used := c.usedProtected - c.hadProtected
	if c.gang != nil {
		who, asks, used = "gang "+c.gang.name, sumOf(c.growthProtected()), c.usedProtected
		who += " as a whole"
	}
	out.Message = fmt.Sprintf("too many tasks that may not be preempted: %s has %s of %s in cell %s, and %s asks for %s", c.holder, sumOf(used), sumOf(c.boundProtected), cell, who, asks)
	out.Expected = fmt.Sprintf("together at most %s of jobs with preemptible: false", schema.Count(int(c.boundProtected), "task"))
	out.Hint = fmt.Sprintf("remove preemptible: false, ask for fewer tasks, or have nonPreemptibleTasks of tenant %q (%s) raised", c.tenant.Name, c.origin)
}

// exceeded warns of each tenant that has more tasks admitted that may not be preempted than it may have
// now.
func (r *room) exceeded() (out []Warning) {
	for _, key := range slices.Sorted(maps.Keys(r.holders)) {
		h := r.holders[key]
		if h.tenant == nil || h.usedProtected <= h.boundProtected {
			continue
		}
		out = append(out, Warning{Diagnostic: schema.Diagnostic{
			Severity: schema.Warning, Rule: schema.RuleQuota, Position: h.origin, Field: "tenant." + h.tenant.Name + ".nonPreemptibleTasks",
			Message: fmt.Sprintf("%s tasks of the tenant may not be preempted in cell %s, and it may have %s", sumOf(h.usedProtected), r.in.Desired.Policy.Name, sumOf(h.boundProtected)),
			Hint:    "what is admitted stays, and what is new or grown is refused: remove preemptible: false of jobs, or raise the number",
		}})
	}
	return out
}
