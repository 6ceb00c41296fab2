package intent

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// A commit may come in parts: first what compiles quickly, then more, and all of it at last. What belongs
// together is taken with one of them: the packages of a tenant, and of those that share a
// user with it, have their quotas, gangs and the names of their jobs in common. If one of
// them is still being compiled, the others wait for it, and nobody else does.

// parting says what of the first part of a commit waits for the second. The zero value
// says that nothing does.
type parting struct {
	all    bool // a package is missing that may change what everybody may do, or there are or were no tenants
	joined joined
	late   map[string]schema.Diagnostic // by what is joined: why it waits
}

// user reports whether what a user has waits.
func (p *parting) user(name string) bool {
	_, late := p.late[p.joined.of(userNode(name))]
	return late
}

// joined are nodes of which some belong together. The zero value joins none, and may not be
// added to.
type joined map[string]string

func userNode(name string) string   { return "user " + name }
func tenantNode(name string) string { return "tenant " + name }
func dirNode(dir string) string     { return "dir " + dir }

// of returns what stands for all nodes that belong together with one.
func (j joined) of(node string) string {
	for j[node] != "" {
		node = j[node]
	}
	return node
}

func (j joined) join(a, b string) {
	if a, b = j.of(a), j.of(b); a != b {
		j[b] = a
	}
}

// tenants joins each tenant with its users, and with those of dirs that it owns.
func (j joined) tenants(all Tenants, dirs []string) {
	for i := range all {
		for _, user := range all[i].Users {
			j.join(tenantNode(all[i].Name), userNode(user))
		}
	}
	for _, dir := range dirs {
		if owner, _ := all.owner(dir); owner != nil {
			j.join(tenantNode(owner.Name), dirNode(dir))
		}
	}
}

// part leaves for the second part of a commit what belongs together with packages that are
// still being compiled. Who owns what is settled.
func (a *adoption) part(s *model.State) {
	late := slices.DeleteFunc(slices.Sorted(maps.Keys(a.stale)), func(dir string) bool { return !schema.Pending(a.stale[dir]) })
	if len(late) == 0 {
		return
	}
	is, was := TenantsOf(a.packages), TenantsOf(a.held)
	if len(is) == 0 || len(was) == 0 && len(a.held) > 0 || slices.ContainsFunc(late, func(dir string) bool { return is.admin(dir) || was.admin(dir) }) {
		a.waits.all = true
		return
	}
	dirs := slices.Concat(late, slices.Collect(maps.Keys(a.packages)), slices.Collect(maps.Keys(a.held)))
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	j := joined{}
	j.tenants(is, dirs)
	j.tenants(was, dirs)
	a.waits = parting{joined: j, late: map[string]schema.Diagnostic{}}
	for _, dir := range late {
		why := a.stale[dir][0]
		why.Message = fmt.Sprintf("waits for %s, which is still being compiled: what a tenant changes with a commit is applied as one", dir)
		a.waits.late[j.of(dirNode(dir))] = why
	}
	for _, dir := range dirs {
		why, waits := a.waits.late[j.of(dirNode(dir))]
		if _, wrong := a.stale[dir]; waits && !wrong && a.digests[dir] != s.Head.Packages[dir] {
			a.reject(dir, []schema.Diagnostic{why})
		}
	}
}

// owed are the trailers of a commit with what an earlier one that it comes from, or its first
// part, has left of its own.
func owed(rest schema.Rest, t schema.Trailers) schema.Trailers {
	if t.Alone { // that one was taken back before it has had all its effect
		return t
	}
	t.AllowPrune = min(t.AllowPrune, math.MaxInt-rest.AllowPrune) + rest.AllowPrune
	t.Promote = slices.Concat(rest.Promote, t.Promote)
	t.PromoteNew = slices.Concat(rest.PromoteNew, t.PromoteNew)
	return t
}

// divide returns which of the jobs (user/job) that trailers name do not wait, and which do.
func (p *parting) divide(jobs []string) (now, later []string) {
	for _, short := range jobs {
		if user, _, _ := strings.Cut(short, "/"); p.user(user) {
			later = append(later, short)
		} else {
			now = append(now, short)
		}
	}
	return now, later
}

// rest is what the second part of a commit has to know of the first, which c is, stale what
// it does not take, and gone what guards have let go.
func (a *adoption) rest(s *model.State, c schema.Compiled, stale map[string][]schema.Diagnostic, gone []schema.Guard) schema.Rest {
	if !c.Partial {
		return schema.Rest{}
	}
	before := goneBefore(s, c)
	if gone == nil { // nothing is taken
		gone = before
	}
	out := schema.Rest{AllowPrune: max(0, c.AllowPrune-ofCell(gone)+ofCell(before)), Gone: gone}
	_, out.Promote = a.waits.divide(c.Promote)
	_, out.PromoteNew = a.waits.divide(c.PromoteNew)
	staleBefore := staleBefore(s, c)
	for dir := range stale {
		if was, ok := staleBefore(dir); ok {
			if out.Stale == nil {
				out.Stale = map[string][]schema.Diagnostic{}
			}
			out.Stale[dir] = was
		}
	}
	return out
}

// ofCell returns the tasks that the guard of the cell counts.
func ofCell(guards []schema.Guard) int {
	i := slices.IndexFunc(guards, func(g schema.Guard) bool { return g.Name == guardCell })
	if i < 0 {
		return 0
	}
	return guards[i].Tasks
}

// staleBefore returns what says what was wrong with a directory before commit c came, whole
// or in parts, and whether anything was.
func staleBefore(s *model.State, c schema.Compiled) func(dir string) ([]schema.Diagnostic, bool) {
	begun := c.Commit == s.Head.Commit && lateDirs(&s.Head) > 0 // the first part of c is applied
	return func(dir string) ([]schema.Diagnostic, bool) {
		was, ok := s.Head.Stale[dir]
		if begun || schema.Pending(was) {
			was, ok = s.Head.Rest.Stale[dir]
		}
		return was, ok
	}
}

// lateDirs returns how many directories of a head wait for what is still being compiled.
func lateDirs(h *schema.Head) int {
	n := 0
	for _, ds := range h.Stale {
		if schema.Pending(ds) {
			n++
		}
	}
	return n
}

// goneBefore returns what guards have let go with the first part of a commit.
func goneBefore(s *model.State, c schema.Compiled) []schema.Guard {
	if c.Commit != s.Head.Commit {
		return nil
	}
	return s.Head.Rest.Gone
}
