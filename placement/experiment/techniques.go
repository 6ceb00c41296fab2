package experiment

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
)

// technique is what is switched off, and how many tasks are placed to see what that costs.
type technique struct {
	name    string
	options placement.Options
	most    int // tasks; 0 is all
}

// fewTasks are enough for a time where each of them takes long.
const fewTasks = 1000

var techniques = []technique{
	{name: "no score cache", options: placement.Options{NoCache: true}},
	{name: "no equivalence classes", options: placement.Options{NoClasses: true}},
	{name: "no randomization", options: placement.Options{NoRelaxed: true}},
	{name: "none of them", options: placement.Options{NoCache: true, NoClasses: true, NoRelaxed: true}, most: fewTasks},
}

// timed takes the time to place all work of each cell, from empty, with what makes that fast
// and without.
func timed(c *Config) ([]Found, error) {
	if c.Clock == nil {
		return nil, errNoClock
	}
	var out []Found
	for i := range c.Cells {
		cell := &c.Cells[i]
		found := Found{Cell: cell.Name, Machines: len(cell.Machines), Tasks: len(cell.Asks)}
		found.As = c.time(cell, &technique{name: "as it is"})
		for j := range techniques {
			found.Ways = append(found.Ways, c.time(cell, &techniques[j]))
		}
		out = append(out, found)
	}
	return out, nil
}

// time places the work of a cell as often as there are trials. Where it places a part, that is
// of jobs at random, as many tasks of each as it has.
func (c *Config) time(cell *Cell, t *technique) Way {
	out := Way{Name: t.name}
	options := t.options
	options.Policy = c.Policy
	var seconds []float64
	for trial := range c.Trials {
		asks := cell.Asks
		if t.most > 0 && t.most < len(asks) {
			asks = some(cell, t.most, uint64(trial))
			out.Tasks = len(asks)
		}
		s := placement.NewSnapshot(cell.Machines, cell.Held)
		s.Configure(options)
		began := c.Clock()
		placement.Place(s, asks, uint64(trial))
		took := max(c.Clock()-began, time.Nanosecond)
		seconds = append(seconds, took.Seconds()*float64(len(cell.Asks))/float64(len(asks)))
	}
	slices.Sort(seconds)
	out.Min, out.Max, out.Value = seconds[0], seconds[len(seconds)-1], seconds[(9*len(seconds)+9)/10-1]
	return out
}

// some returns so many asks of a cell, at random.
func some(cell *Cell, n int, seed uint64) []placement.Ask {
	random := rand.New(rand.NewPCG(seed, 34))
	picked := random.Perm(len(cell.Asks))[:n]
	slices.Sort(picked)
	out := make([]placement.Ask, 0, n)
	for _, i := range picked {
		out = append(out, cell.Asks[i])
	}
	return out
}
