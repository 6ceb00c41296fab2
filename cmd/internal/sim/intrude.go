package sim

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// steals commits that the directory of a job's owner also declares a job of
// somebody else, which it may not: the whole package is refused.
func (w *World) steals(a Action) bool {
	user, _, _ := w.repo.job(a.Job)
	was := w.repo.packages["teams/"+user]
	if was == nil {
		return false
	}
	j := Service("stolen", 1, "v1")
	j.User, j.Cell = users[(slices.Index(users, user)+1)%len(users)], cellName
	p := *was
	p.Objects.Jobs = append(slices.Clone(p.Objects.Jobs), j)
	p.Origins = maps.Clone(p.Origins)
	p.Origins[schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()}] = schema.Position{Path: p.Dir + "/jobs.cue", Line: 100, Column: 1}
	packages := maps.Clone(w.repo.packages)
	packages[p.Dir] = &p
	w.Commit(packages)
	return true
}

// lawful reports whether a package declares jobs of the owner of its directory
// only.
func lawful(p *schema.Package) bool {
	return !slices.ContainsFunc(p.Objects.Jobs, func(j schema.Job) bool {
		return strings.HasPrefix(p.Dir, "teams/") && p.Dir != "teams/"+j.User
	})
}

// checkOwners: what is admitted comes from a directory of its owner.
func (w *World) checkOwners() {
	for name, r := range w.master.state.Jobs {
		if r.Admitted != "" && strings.HasPrefix(r.Origin.Path, "teams/") && !strings.HasPrefix(r.Origin.Path, "teams/"+name.User+"/") {
			w.violate("job %s is admitted from %s, which is not its owner's", name, r.Origin)
		}
	}
}

// deletesRest commits the directory of a job's owner alone, or in a mixed world none when N
// is odd, and does not say that the removal of all others is meant: the guard holds them.
func (w *World) deletesRest(a Action) bool {
	user, _, _ := w.repo.job(a.Job)
	packages := maps.Clone(w.repo.packages)
	for _, u := range users {
		if u != user || w.cfg.Mixed && a.N%2 == 1 {
			delete(packages, "teams/"+u)
		}
	}
	w.Commit(packages)
	w.head.AllowPrune = 0
	w.past[len(w.past)-1] = w.head
	return true
}

// guarded reports whether so much goes with a commit that does not say that it is
// meant that the guard is to hold it all. Near its bound nothing is expected.
func (o *oracle) guarded(c schema.Compiled) bool {
	if c.AllowPrune > 0 {
		return false
	}
	stays := map[string]bool{}
	for _, p := range c.Packages {
		stays[p.Dir] = true
	}
	all, going := 0, 0
	for name, r := range o.durable.Jobs {
		d := o.durable.Data[r.Admitted]
		if d == nil || d.Kind != schema.Service || o.declared(name) == nil { // others count by what is left of them
			continue
		}
		if all += d.Tasks; !stays["teams/"+name.User] {
			going += d.Tasks
		}
	}
	return going > 12 && going > all/3
}
