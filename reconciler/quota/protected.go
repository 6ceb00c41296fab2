package quota

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/musterhq/muster/schema"
)

// protected returns how many tasks of a job may not be preempted.
func protected(j *schema.Job) int64 {
	if j.NeverPreempted() {
		return int64(j.Tasks)
	}
	return 0
}

// protectedBound returns how many tasks of a tenant may not be preempted: without tenants, nil, any number.
func protectedBound(t *schema.Tenant) int64 {
	if t == nil {
		return math.MaxInt64
	}
	return int64(t.NonPreemptibleTasks)
}

// overProtected reports whether there are too many tasks that may not be preempted with what c asks for.
func (c claim) overProtected() bool {
	return c.askProtected > c.hadProtected && c.usedProtected-c.hadProtected+c.askProtected > c.boundProtected
}

// explainProtected says that there would be too many tasks that may not be preempted.
func (c claim) explainProtected(out *schema.Diagnostic, cell, field string) {
	out.Field = field + ".preemptible"
	out.Message = fmt.Sprintf("too many tasks that may not be preempted: %s has %s of %s in cell %s, and the job asks for %s",
		c.holder, sumOf(c.usedProtected-c.hadProtected), sumOf(c.boundProtected), cell, sumOf(c.askProtected))
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
