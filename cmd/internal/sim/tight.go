package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/musterhq/muster/schema"
)

// tightJobs is the catalogue of a world in which room is scarce: services that bound how
// unevenly they may be spread, or name alternatives, batch tasks that run for a known
// time, of one priority, and some of which a machine has room for one only.
var tightJobs = []template{
	{"even", 3, 9, func(p *schema.Package, d declared) {
		j := Service("even", d.tasks, versions[d.version%4])
		// Users share machines with each other's batch tasks, or preempt them.
		j.Priority, j.Task.Health = userPriority(p)+schema.Priority(d.shift%3*30), nil
		j.Spread = &schema.Spread{MaxSkew: map[string]int{"rack": 1 + d.shift/3%2}}
		if d.shift%4 > 1 {
			j.Spread.MinDomains = map[string]int{"rack": 2 + d.shift%3}
		}
		addJob(p, j)
	}},
	{"either", 2, 6, func(p *schema.Package, d declared) {
		j := Service("either", d.tasks, versions[d.version%4])
		j.Priority, j.Task.Health = userPriority(p), nil
		is := func(attribute, value string) schema.Constraint {
			return schema.Constraint{Attribute: attribute, Operator: schema.Equal, Value: value}
		}
		// Of the first two racks, which are there when the cell is left alone, one is named.
		at := (userOf(p) + d.shift) % 2
		j.AnyOf = []schema.Alternative{
			{Constraints: []schema.Constraint{is("rack", fmt.Sprintf("r%d", at))}},
			{Constraints: []schema.Constraint{is("rack", fmt.Sprintf("r%d", at+2)), is("tier", "a")}},
			{Constraints: []schema.Constraint{is("tier", "b")}},
		}
		addJob(p, j)
	}},
	{"short", 4, 40, func(p *schema.Package, d declared) { addJob(p, lasting("short", d, 900, 10+10*(userOf(p)%3))) }},
	{"long", 2, 30, func(p *schema.Package, d declared) { addJob(p, lasting("long", d, 900, 60+60*userOf(p))) }},
	{"huge", 1, 6, func(p *schema.Package, d declared) { addJob(p, lasting("huge", d, 3000, 45)) }},
}

// userOf returns the number of the owner of a package.
func userOf(p *schema.Package) int { return slices.Index(users, p.Dir[len("teams/"):]) }

// userPriority returns the priority of the services of the owner of a package: two of the
// owners have quota for production that a few machines back.
func userPriority(p *schema.Package) schema.Priority {
	if userOf(p) < 2 {
		return 200
	}
	return 0
}

// lasting is a batch job whose tasks run for so many seconds.
func lasting(name string, d declared, cpuMilli int64, seconds int) schema.Job {
	j := Batch(name, d.tasks)
	j.Priority, j.Task.Resources.CPUMilli = d.priority(0), cpuMilli
	j.Task.Process.Command = append(j.Task.Process.Command, fmt.Sprintf("%s%d", secondsWord, seconds))
	j.Task.Env = map[string]string{"RUN": fmt.Sprint(d.version)}
	return j
}

// tightly is what happens there, every few seconds: so much is asked for that most of it
// waits, and now and then a machine, a master or a link is not there.
var tightly = []share{
	{Wait, 20},
	{"scale", 40},
	{"priority", 4},
	{"version", 4},
	{"remove", 5},
	{"relabel", 10},
	{"cordon", 5},
	{"drain", 10},
	{"lose-machine", 4},
	{"halt", 2},
	{"cut", 4},
	{"kill-task", 4},
	{"kill-agent", 4},
	{"kill-master", 6},
	{"split-master", 2},
	{"fail-store", 2},
}

// Tight returns the script of a seed in which room is scarce: a small cell, and so many
// actions, of which each takes up to 50 s.
func Tight(seed uint64, actions int) Script {
	rng := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // a simulation wants what can be repeated
	s := Script{World: Config{Seed: seed, Machines: 5 + int(seed%4), Cut: int(seed % 4), Slow: seed%3 == 0, Tight: true, Gangs: seed%2 == 1, Picky: picky(seed)}, Calm: true}
	jobs := len(users) * len(tightJobs)
	for job := range jobs { // all want much at once
		s.Actions = append(s.Actions, Action{Do: "scale", Job: job, N: rng.IntN(1 << 20)})
	}
	for range actions {
		s.Actions = append(s.Actions, Action{Do: pick(rng, tightly), Machine: rng.IntN(1 << 20), Job: rng.IntN(jobs), N: rng.IntN(1 << 20), Turns: 1 + rng.IntN(200)})
	}
	return s
}
