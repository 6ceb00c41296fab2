package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// varied is the first seed whose history may leave actions out. Those before are the fixed
// ones, by which CI decides: they have all.
const varied = 1000

// profile is how a history is drawn. Where any action comes at any time, what takes several
// of a kind in a row is rare, and some keep others from having an effect. So one history in
// four has all of them, as often as their tables say; each other one leaves some out and has
// some more often, of few jobs, in a small cell that is quiet or busy. Each finds what the
// others do not.
type profile struct {
	users   int        // whose jobs a small cell has, 0: it is not small
	jobs    []int      // that are there at first, and that changes are mostly of: see repository.job
	often   int        // one of them, that every third change is of
	changes int        // in a hundred steps
	faults  int        // in a hundred steps
	rng     *rand.Rand // nil: all actions, as often as their tables say
}

// whole reports whether the history of a seed has all actions and jobs.
func whole(seed uint64) bool { return seed < varied || seed%4 == seed/4%4 }

// everything is the profile of a history that has them.
var everything = profile{changes: 4, faults: 40}

// profileOf returns the profile of a seed.
func profileOf(seed uint64) profile {
	if whole(seed) {
		return everything
	}
	rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a simulation wants what can be repeated
	p := profile{users: 1 + rng.IntN(3), changes: []int{2, 4, 8, 16}[rng.IntN(4)], faults: []int{5, 20, 40}[rng.IntN(3)], rng: rng}
	p.jobs = draw(rng, p.users)
	p.often = p.jobs[rng.IntN(len(p.jobs))]
	return p
}

// roughProfileOf returns that of a seed's history in which machines come and go.
func roughProfileOf(seed uint64) profile {
	p := profile{jobs: numbered(roughJobs)}
	if whole(seed) {
		return p
	}
	p.rng = rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // a simulation wants what can be repeated
	if p.rng.IntN(2) == 0 {
		p.jobs = draw(p.rng, 1+p.rng.IntN(2))
	}
	p.often = p.jobs[p.rng.IntN(len(p.jobs))]
	return p
}

// draw returns some of the jobs of so many users, one at least.
func draw(rng *rand.Rand, of int) []int {
	var out []int
	for len(out) == 0 {
		for _, user := range rng.Perm(len(users))[:of] {
			for t := range templates {
				if name := users[user] + "/" + templates[t].name; rng.IntN(3) > 0 && (name == "a/logs" || templates[t].name != "logs") {
					out = append(out, t*len(users)+user)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// numbered returns the numbers of jobs by their names.
func numbered(names []string) []int {
	all := Config{}.allJobs()
	var out []int
	for _, name := range names {
		i := slices.Index(all, name)
		out = append(out, i%len(templates)*len(users)+i/len(templates))
	}
	return out
}

// catalogue names the jobs that are there at first, as Config.Jobs has them.
func (p *profile) catalogue() string {
	var names []string
	for _, n := range p.jobs {
		names = append(names, fmt.Sprintf("%s/%s", users[n%len(users)], templates[n/len(users)].name))
	}
	return strings.Join(names, ",")
}

// job draws the job that an action is of: where some are left out one in six is any, and
// two are the same.
func (p *profile) job(rng *rand.Rand) int {
	n := rng.IntN(1 << 20)
	if p.rng == nil {
		return n
	}
	switch of := rng.IntN(6); {
	case of == 0:
		return n
	case of <= 2:
		return p.often
	}
	return p.jobs[n%len(p.jobs)]
}

// skew leaves out a third of the actions of a table and of those that only such a history
// has, and has the others come more or less often.
func (p *profile) skew(table, more []share) []share {
	if p.rng == nil {
		return table
	}
	var out []share
	for _, s := range slices.Concat(table, more) {
		if p.rng.IntN(3) > 0 {
			out = append(out, share{s.do, s.often << (2 * p.rng.IntN(3))})
		}
	}
	return out
}
