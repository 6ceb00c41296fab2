package intent

import (
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// What a package may not declare depends on that package, and of the others on what these say of
// who owns what: on tenants, cells, secrets. Most commits change few packages, which declare jobs.
// Then only these are looked at: the others were found right with the head, and would be again.

// sinceHead returns the packages of a commit, those that are as the head has them as they are
// there, if nothing about them was wrong or can be by what the commit changes. held are the
// packages of the head. compiled is not written to.
func sinceHead(s *model.State, held map[string]*schema.Package, compiled []schema.CompiledPackage) []schema.CompiledPackage {
	if len(s.Head.Stale)+len(s.Head.Unread) > 0 {
		return compiled
	}
	same, missing := make([]int, 0, len(compiled)), len(held)
	for i := range compiled {
		p := &compiled[i]
		was := held[p.Dir]
		if was != nil {
			missing--
		}
		switch {
		case p.Package == nil:
		case was != nil && p.Digest == s.Head.Packages[p.Dir]:
			same = append(same, i)
		case !declaresJobsOnly(p.Package) || was != nil && !declaresJobsOnly(was):
			return compiled
		}
	}
	if missing > 0 && slices.ContainsFunc(gone(held, compiled), func(p *schema.Package) bool { return !declaresJobsOnly(p) }) {
		return compiled
	}
	compiled = slices.Clone(compiled)
	for _, i := range same {
		compiled[i].Package = held[compiled[i].Dir]
	}
	return compiled
}

// gone returns the packages that a commit does not have any more.
func gone(held map[string]*schema.Package, compiled []schema.CompiledPackage) (out []*schema.Package) {
	there := make(map[string]bool, len(compiled))
	for i := range compiled {
		there[compiled[i].Dir] = true
	}
	for dir, p := range held {
		if !there[dir] {
			out = append(out, p)
		}
	}
	return out
}

// declaresJobsOnly reports whether all that p declares are jobs and alloc sets.
func declaresJobsOnly(p *schema.Package) bool {
	o := &p.Objects
	return len(o.Cells)+len(o.Machines)+len(o.Priorities)+len(o.Tenants)+len(o.Quotas)+len(o.Secrets)+len(o.Services) == 0
}
