package placement_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// A task does not leave its rack to make the cell better when that fell further behind than
// the job's skew allows; a rack that drains does not matter.
func TestMoveKeepsSkew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		skew     int
		tasks    string // racks of them; the last one is to move
		to       string
		draining string
		moves    bool
	}{
		"another rack would be ahead":       {2, "aaacb", "c", "", false},
		"it would be as far as it may":      {3, "aaacb", "c", "", true},
		"none is behind":                    {1, "acbb", "a", "", true},
		"its own would be too far ahead":    {1, "abab", "a", "", false},
		"another rack is as far behind":     {2, "aaabb", "c", "", true},
		"the rack that it leaves drains":    {2, "aaacb", "c", "b", true},
		"the rack that is ahead drains":     {2, "aaacb", "c", "a", true},
		"another machine of the same rack":  {1, "aacb", "b", "", true},
		"it comes to be in one that drains": {2, "ab", "c", "c", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var machines []placement.Machine
			for _, rack := range []string{"a", "b", "c"} {
				for i := range 2 {
					machines = append(machines, placement.Machine{
						Name: fmt.Sprint(rack, i), Up: true, Draining: rack == c.draining, Capacity: schema.Resources{CPUMilli: 9000}, Attributes: map[string]string{"rack": rack},
					})
				}
			}
			var tasks []placement.Task
			var last placement.Ask
			for i, rack := range c.tasks {
				last = placement.Ask{
					Name: schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(i), Priority: 200, Limit: schema.Resources{CPUMilli: 1000}, Spread: placement.NoSpread,
					Where: placement.Where{MaxSkew: []placement.SkewLimit{{Attribute: "rack", Max: c.skew}}},
				}
				a := last
				tasks = append(tasks, placement.Task{Name: a.Name, Machine: string(rack) + "0", Priority: a.Priority, Limit: a.Limit, Ask: &a})
			}
			from := tasks[len(tasks)-1].Machine
			s := placement.NewSnapshot(machines, tasks)
			fork := s.Fork()
			fork.RemoveTask(last.Name, from, 0)
			nearest := false
			for _, n := range placement.Nearest(fork, last, from, 0) {
				nearest = nearest || n.Machine == c.to+"1"
			}
			fork.Release()
			if moved := placement.Move(s, last, from, c.to+"1"); moved != c.moves || nearest != c.moves {
				t.Errorf("it can be moved: %t, and is said to be: %t; want %t", moved, nearest, c.moves)
			}
		})
	}
}

// A large cell does not examine all machines for each ask. The tasks of a job keep to its
// skew all the same, also where a rack has room on one machine only, and none waits that
// has a place.
func TestSkewInLargeCell(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"rack", placement.NoSpread} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			machines := fleet(5000) // in 125 racks
			rackOf, seen := map[string]string{}, 0
			for i, m := range machines {
				rackOf[m.Name] = m.Attributes["rack"]
				if m.Attributes["rack"] != machines[0].Attributes["rack"] {
					continue
				}
				if seen++; seen > 1 {
					machines[i].Capacity.CPUMilli = 1
				}
			}
			s := placement.NewSnapshot(machines, nil)
			s.Configure(placement.Options{Enough: 8})
			counts := map[string]int{}
			for pass := range 4 {
				asks := same(70)
				for i := range asks {
					asks[i].Name = schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(100*pass + i)
					asks[i].Spread, asks[i].MaxSkew = by, []placement.SkewLimit{{Attribute: "rack", Max: 1}}
				}
				for _, d := range placement.Place(s, asks, 1) {
					if d.Machine == "" {
						t.Fatalf("%v is pending: %v", d.Name, d.Why)
					}
					rack := rackOf[d.Machine]
					fewest := 1000
					for _, m := range machines {
						fewest = min(fewest, counts[m.Attributes["rack"]])
					}
					if counts[rack]++; counts[rack]-fewest > 1 {
						t.Fatalf("%v is in %s, which has %d then, while another has %d", d.Name, rack, counts[rack], fewest)
					}
				}
			}
		})
	}
}
