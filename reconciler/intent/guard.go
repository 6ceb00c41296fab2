package intent

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// What may go at once, of a cell and of each tenant, without anybody having said
// that it is meant: the larger of the two.
const (
	pruneTasks = 10
	pruneShare = 5 // a fifth
)

// The guards of which a cell has one.
var (
	guardCell = schema.GuardName{Kind: schema.GuardCell}
	guardJob  = schema.GuardName{Kind: schema.GuardJob}
)

func guardOfTenant(name string) schema.GuardName {
	return schema.GuardName{Kind: schema.GuardTenant, Of: name}
}

// guard judges the removals that lead from what was desired to next, which
// is that of c: it returns what is held, nil if nothing is, and, of a commit in parts, what
// the guards have let go so far. hides knows of directories that are
// not taken. A held job of before is judged
// again with what is gone since: else a cell could be taken apart in small steps
// while the first is being looked at. With the second part of c, what has gone with the
// first counts.
func (a *adoption) guard(s *model.State, next *Desired, c schema.Compiled, hides pendingMoves) (*schema.Held, []schema.Guard) {
	g := guarding{
		state: s, desired: a.desired, hides: hides, emptied: c.Empty, partial: c.Partial,
		before: map[schema.GuardName]schema.Guard{}, of: map[schema.GuardName]int{}, going: map[schema.GuardName]int{},
	}
	for _, before := range goneBefore(s, c) {
		g.before[before.Name], g.of[before.Name], g.going[before.Name] = before, before.Of, before.Tasks
	}
	g.find(next)
	free := 0
	for _, r := range g.removed {
		if r.Guard == (schema.GuardName{}) {
			free += r.Tasks
		}
	}
	if g.partial || free > c.AllowPrune { // else no guard that counts says anything
		g.count()
	}
	if len(g.removed) == 0 {
		return nil, g.gone()
	}
	if free > c.AllowPrune {
		g.hold()
	}
	return g.held(c.AllowPrune), g.gone()
}

// guarding is adoption.guard at work.
type guarding struct {
	state   *model.State
	desired *Desired // of state
	hides   pendingMoves
	emptied bool                              // the repository has nothing left
	partial bool                              // more of the commit is to come
	before  map[schema.GuardName]schema.Guard // by which some of the commit has gone
	// tenantOf is what tenants returns, once it was asked for.
	tenantOf func(schema.JobName) string
	removed  []schema.HeldJob
	of       map[schema.GuardName]int // tasks by guard
	going    map[schema.GuardName]int // of these, those that are to go
}

// find gathers what is to go.
func (g *guarding) find(next *Desired) {
	for name, d := range g.desired.Jobs {
		is, there := next.Jobs[name]
		if r := g.state.Jobs[name]; r == nil || r.Admitted == "" || there && is.Job == d.Job && r.Admitted == d.Digest && r.Count == nil {
			continue // it runs nothing, or what it is to run, as nearly all do
		}
		was := g.state.Runs(name)
		if there && !removes(was, is.Job) {
			continue
		}
		r := g.heldJob(name, was)
		switch {
		case d.Job.Kept():
			r.Guard = guardJob
		case !there:
			r.Guard = g.hides.guard(name)
		}
		g.removed = append(g.removed, r)
	}
	slices.SortFunc(g.removed, func(a, b schema.HeldJob) int { return strings.Compare(a.Job, b.Job) })
}

// heldJob returns a job that is live, as guards count it; no guard holds it yet.
func (g *guarding) heldJob(name schema.JobName, was *schema.Job) schema.HeldJob {
	if g.tenantOf == nil {
		g.tenantOf = g.tenants()
	}
	records, done := taskCounts(g.state, name)
	tasks := was.Tasks - done
	if was.Kind == schema.System {
		tasks = records
	}
	return schema.HeldJob{Job: name.Short(), Tasks: tasks, Tenant: g.tenantOf(name)}
}

// count counts for each guard what there is, and what is to go of it. It looks at all jobs.
func (g *guarding) count() {
	for name := range g.desired.Jobs {
		was := g.state.Runs(name)
		if was == nil {
			continue
		}
		r := g.heldJob(name, was)
		for _, guard := range guardsOf(r.Tenant) {
			if _, counted := g.before[guard]; !counted {
				g.of[guard] += r.Tasks
			}
		}
	}
	for i := range g.removed {
		r := &g.removed[i]
		if r.Guard != (schema.GuardName{}) {
			continue
		}
		for _, guard := range guardsOf(r.Tenant) {
			g.going[guard] += r.Tasks
		}
	}
}

// removes reports whether what a name stands for now takes away all that it stood
// for before: it has no tasks any more, or is a job where it was an alloc set or
// the other way round.
func removes(was, is *schema.Job) bool {
	if (was.Kind == schema.Allocs) != (is.Kind == schema.Allocs) {
		return was.Kind == schema.System || was.Tasks > 0
	}
	return is.Kind != schema.System && is.Tasks == 0 && (was.Kind == schema.System || was.Tasks > 0)
}

// tenants returns who owned a job's directory when the job was last in the
// repository.
func (g *guarding) tenants() func(schema.JobName) string {
	held := map[string]string{}
	if h := g.state.Head.Held; h != nil {
		for _, j := range h.Jobs {
			held[j.Job] = j.Tenant
		}
	}
	owners, desired := g.desired.Tenants(g.state), g.desired
	byDir := map[string]string{} // of many jobs in one directory
	return func(name schema.JobName) string {
		if tenant, ok := held[name.Short()]; ok {
			return tenant
		}
		dir := path.Dir(desired.Jobs[name].Origin.Path)
		tenant, ok := byDir[dir]
		if !ok {
			if o, _ := owners.owner(dir); o != nil {
				tenant = o.Name
			}
			byDir[dir] = tenant
		}
		return tenant
	}
}

// taskCounts returns how many tasks of a job have records, and how many of these are done.
func taskCounts(s *model.State, job schema.JobName) (records, done int) {
	for n := range s.Span(job) {
		c := s.Chunks[model.ChunkName{Job: job, Number: n}]
		if c == nil {
			continue
		}
		records += len(c.Tasks)
		for i := range c.Tasks {
			if c.Tasks[i].Done != nil {
				done++
			}
		}
	}
	return records, done
}

// hold gives each removal the guard that holds it, if one does.
func (g *guarding) hold() {
	for i := range g.removed {
		r := &g.removed[i]
		for _, guard := range guardsOf(r.Tenant) {
			if r.Guard == (schema.GuardName{}) && g.going[guard] > g.most(guard) {
				r.Guard = guard
			}
		}
	}
}

// gone returns what the guards that count have let go of a commit in parts, sorted by name,
// with what there was before it.
func (g *guarding) gone() []schema.Guard {
	if !g.partial {
		return nil
	}
	gone := map[schema.GuardName]int{}
	for name, before := range g.before {
		gone[name] = before.Tasks
	}
	for _, r := range g.removed {
		if r.Guard == (schema.GuardName{}) {
			for _, guard := range guardsOf(r.Tenant) {
				gone[guard] += r.Tasks
			}
		}
	}
	var out []schema.Guard
	for _, name := range slices.SortedFunc(maps.Keys(g.of), schema.GuardName.Compare) {
		out = append(out, schema.Guard{Name: name, Tasks: gone[name], Of: g.of[name]})
	}
	return out
}

// guardsOf returns the guards that count the jobs of a tenant, "" for none.
func guardsOf(tenant string) []schema.GuardName {
	if tenant == "" {
		return []schema.GuardName{guardCell}
	}
	return []schema.GuardName{guardCell, guardOfTenant(tenant)}
}

// most returns how many of a guard's tasks may go at once.
func (g *guarding) most(guard schema.GuardName) int {
	if g.emptied {
		return 0
	}
	return max(pruneTasks, g.of[guard]/pruneShare)
}

// held returns what is held, and by what.
func (g *guarding) held(allowed int) *schema.Held {
	h := schema.Held{Allowed: allowed, Jobs: slices.DeleteFunc(slices.Clone(g.removed), func(r schema.HeldJob) bool { return r.Guard == (schema.GuardName{}) })}
	if len(h.Jobs) == 0 {
		return nil
	}
	for _, j := range h.Jobs {
		i := slices.IndexFunc(h.Guards, func(x schema.Guard) bool { return x.Name == j.Guard })
		if i < 0 {
			i = len(h.Guards)
			h.Guards = append(h.Guards, schema.Guard{Name: j.Guard})
			if j.Guard.Counts() {
				h.Guards[i].Of, h.Guards[i].Most = g.of[j.Guard], g.most(j.Guard)
			}
		}
		h.Guards[i].Tasks += j.Tasks
	}
	slices.SortFunc(h.Guards, func(a, b schema.Guard) int { return a.Name.Compare(b.Name) })
	return &h
}

// Hold is the status of a guard that holds removals.
type Hold struct {
	schema.Guard
	Jobs []string `json:"jobs"` // user/job, sorted
	// Reason says what is held and why, Next what to do if it is meant.
	Reason string `json:"reason"`
	Next   string `json:"next"`
}

// HoldsOf returns what is held, a Hold for each guard.
func HoldsOf(held *schema.Held) []Hold {
	out := []Hold{}
	if held == nil {
		return out
	}
	meant := 0
	for _, g := range held.Guards {
		if g.Name.Counts() {
			meant += g.Tasks
		}
	}
	for _, g := range held.Guards {
		h := Hold{Guard: g}
		for _, j := range held.Jobs {
			if j.Guard == g.Name {
				h.Jobs = append(h.Jobs, j.Job)
			}
		}
		h.Reason, h.Next = reasonOfGuard(g, len(h.Jobs), held.Allowed), nextOfGuard(g, meant)
		out = append(out, h)
	}
	return out
}

func reasonOfGuard(g schema.Guard, jobs, allowed int) string {
	what := fmt.Sprintf("the removal of %s of %s", schema.Count(g.Tasks, "task"), schema.Count(jobs, "job"))
	switch g.Name.Kind {
	case schema.GuardJob:
		return what + ", for prune: false"
	case schema.GuardDirectory:
		return what + ", which may have been moved to " + g.Name.Of + ", whose newest version is not accepted"
	}
	reason := fmt.Sprintf("%s: %d of the %s of the %s, at most %d at once", what, g.Tasks, schema.Count(g.Of, "task"), g.Name, g.Most)
	if g.Most == 0 {
		reason = what + ": the repository is empty"
	}
	if allowed > 0 {
		reason += fmt.Sprintf(", and %d were allowed", allowed)
	}
	return reason
}

func nextOfGuard(g schema.Guard, meant int) string {
	switch g.Name.Kind {
	case schema.GuardJob:
		return "restore them with prune: true, then remove them with another commit"
	case schema.GuardDirectory:
		return "correct " + g.Name.Of + ", check with `muster validate`, and commit"
	}
	return fmt.Sprintf("if this is intended, commit with the trailer %s: %d (git commit --allow-empty --trailer %q); else restore them",
		schema.AllowPruneTrailer, meant, fmt.Sprintf("%s: %d", schema.AllowPruneTrailer, meant))
}

// Waiting says it in one line, as what keeps the cell from Converged.
func (h *Hold) Waiting() string { return "held: " + h.Reason }

// holdEvents returns what the history says of a hold that was and is now.
func holdEvents(was, is *schema.Held) []schema.Event {
	var out []schema.Event
	before := HoldsOf(was)
	for _, h := range HoldsOf(is) {
		same := func(o Hold) bool {
			return o.Guard == h.Guard && slices.Equal(o.Jobs, h.Jobs) && (!h.Name.Counts() || was.Allowed == is.Allowed)
		}
		if !slices.ContainsFunc(before, same) {
			out = append(out, schema.Event{Kind: schema.EventHold, Message: h.Reason + "; " + h.Next})
		}
	}
	if was != nil && is == nil {
		out = append(out, schema.Event{Kind: schema.EventHold, Message: "no removal is held any more"})
	}
	return out
}
