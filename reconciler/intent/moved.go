package intent

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// A job that its directory declares no more may have been moved to one whose
// newest version is not taken. Then it is not gone, and is held until that directory
// is corrected: a mistake in a move must not stop what runs.

// pendingMoves finds the directories that may declare what no other does any more.
type pendingMoves struct {
	refused     map[string]*schema.Package // not taken, by directory; nil for those that did not compile
	newlyBroken map[string]bool            // of the latter: those of which the commit before said something else
	before      map[schema.JobName]string  // that held jobs were thought to be in
	tenants     Tenants
}

// hides returns the directories of a's commit that are not taken. stale is what
// the next head says of them.
func (a *adoption) hides(s *model.State, c schema.Compiled, stale map[string][]schema.Diagnostic) pendingMoves {
	h := pendingMoves{refused: a.refused, newlyBroken: map[string]bool{}, before: map[schema.JobName]string{}, tenants: TenantsOf(a.packages)}
	staleBefore := staleBefore(s, c)
	for dir := range a.refused {
		was, too := staleBefore(dir)
		h.newlyBroken[dir] = !too || schema.Pending(stale[dir]) || !slices.Equal(withoutRules(was), withoutRules(stale[dir]))
	}
	if held := s.Head.Held; held != nil {
		for _, j := range held.Jobs {
			if j.Guard.Kind == schema.GuardDirectory {
				h.before[s.JobName(j.Job)] = j.Guard.Of
			}
		}
	}
	return h
}

// of returns the directory that may declare a job, or alloc set; "" if none may.
// Of one that did not compile nothing is known but who may have jobs there. A
// mistake that has been there for a while says nothing of what goes now; that one
// is still being compiled is said alike of each commit, and is news with each.
func (h pendingMoves) of(name schema.JobName) string {
	for _, dir := range slices.Sorted(maps.Keys(h.refused)) {
		p := h.refused[dir]
		if p != nil {
			if _, ok := declaredAs(p, schema.ObjectKey{Kind: schema.KindJob, Name: name.String()}); ok {
				return dir
			}
			continue
		}
		owner, _ := h.tenants.owner(dir)
		may := owner == nil || slices.Contains(owner.Users, name.User)
		if may && h.newlyBroken[dir] || h.before[name] == dir {
			return dir
		}
	}
	return ""
}

// guard returns the guard that holds a job which nothing declares, none if it may
// be in no such directory.
func (h pendingMoves) guard(name schema.JobName) schema.GuardName {
	if dir := h.of(name); dir != "" {
		return schema.GuardName{Kind: schema.GuardDirectory, Of: dir}
	}
	return schema.GuardName{}
}
