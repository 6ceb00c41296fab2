package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// selects returns an affinity to what a selector picks.
func selects(t testing.TB, selector, by string, weight int) placement.Affinity {
	t.Helper()
	s, err := schema.ParseSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return placement.Affinity{Selector: s, By: by, Weight: weight}
}

// A large cell does not examine all machines for each ask. What a job prefers to be near
// it is near all the same, also when that comes only after machines were examined for it,
// and nothing is put where something has come meanwhile that is to be apart.
func TestRelationsInLargeCell(t *testing.T) {
	t.Parallel()
	machines := fleet(5000) // in 125 racks
	s := placement.NewSnapshot(machines, nil)
	s.Configure(placement.Options{Enough: 8})
	rackOf := map[string]string{}
	for _, m := range machines {
		rackOf[m.Name] = m.Attributes["rack"]
	}
	near := &placement.Relations{Affinity: []placement.Affinity{selects(t, "tier=cache", "rack", 100)}}
	apart := &placement.Relations{AntiAffinity: []placement.Affinity{selects(t, "tier=db", "rack", 100)}}
	cache := &placement.Relations{Labels: map[string]string{"tier": "cache"}}
	db := &placement.Relations{Labels: map[string]string{"tier": "db"}}
	ask := func(user, job string, r *placement.Relations, n int) []placement.Ask {
		asks := same(n)
		for i := range asks {
			asks[i].Name = schema.JobName{Cell: "c", User: user, Job: job}.Task(i)
			asks[i].Relations, asks[i].Spread = r, placement.NoSpread
		}
		return asks
	}
	// Users take turns: one of near, one of apart, then cache and db, then the others.
	asks := slices.Concat(ask("u", "near", near, 6), ask("v", "apart", apart, 6), ask("w", "cache", cache, 1), ask("x", "db", db, 1))
	asks[12].Prefer = machines[4800].Name
	fork := s.Fork()
	first := placement.Place(fork, asks[6:8], 1)[1].Machine // where apart would be again
	fork.Release()
	asks[13].Prefer = machines[slices.IndexFunc(machines, func(m placement.Machine) bool { return m.Name != first && rackOf[m.Name] == rackOf[first] })].Name
	caches, dbs := "", ""
	for _, d := range placement.Place(s, asks, 1) {
		rack := rackOf[d.Machine]
		switch {
		case d.Machine == "":
			t.Fatalf("%v is pending: %v", d.Name, d.Why)
		case d.Name.Job == "cache":
			caches = rack
		case d.Name.Job == "db":
			dbs = rack
		case caches != "" && d.Name.Job == "near" && rack != caches:
			t.Errorf("%v is in %s, the cache that it prefers to be near in %s", d.Name, rack, caches)
		case dbs != "" && d.Name.Job == "apart" && rack == dbs:
			t.Errorf("%v is in %s, where the db is", d.Name, rack)
		}
	}
}

// Asks are of one class only if machines treat them alike.
func TestWeightsMakeClasses(t *testing.T) {
	t.Parallel()
	s, seen := placement.NewSnapshot(fleet(1), nil), map[string]int{}
	for weight := range 101 {
		a := same(1)[0]
		a.Relations = &placement.Relations{Affinity: []placement.Affinity{selects(t, "tier=cache", "rack", weight)}}
		key := s.KeyOf(a)
		if other, taken := seen[key]; taken {
			t.Errorf("asks with weights %d and %d are of one class", other, weight)
		}
		seen[key] = weight
	}
}

// What another task must be near does not leave it to make the cell better.
func TestNeededStays(t *testing.T) {
	t.Parallel()
	near := func(by string) *placement.Relations {
		return &placement.Relations{Affinity: []placement.Affinity{selects(t, "tier=cache", by, 0)}}
	}
	cache := &placement.Relations{Labels: map[string]string{"tier": "cache"}}
	for name, c := range map[string]struct {
		needs  *placement.Relations // of the task on m0
		second string               // where another cache is
		stays  bool
	}{
		"its machine has no other cache":   {near(placement.MachineAttribute), "m1", true},
		"its machine has one":              {near(placement.MachineAttribute), "m0", false},
		"its rack has one":                 {near("rack"), "m1", false},
		"it only wishes to be near":        {&placement.Relations{Affinity: []placement.Affinity{selects(t, "tier=cache", "machine", 100)}}, "m1", false},
		"it is to be apart, and is not so": {&placement.Relations{AntiAffinity: []placement.Affinity{selects(t, "tier=cache", "machine", 0)}}, "m1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var machines []placement.Machine
			for i, rack := range []string{"r1", "r1", "r2"} {
				machines = append(machines, placement.Machine{Name: fmt.Sprint("m", i), Up: true, Capacity: schema.Resources{CPUMilli: 9000}, Attributes: map[string]string{"rack": rack}})
			}
			task := func(job string, index int, machine string, r *placement.Relations) placement.Task {
				a := placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: job}.Task(index), Priority: 200, Limit: schema.Resources{CPUMilli: 1000}, Relations: r}
				return placement.Task{Name: a.Name, Machine: machine, Priority: a.Priority, Limit: a.Limit, Ask: &a}
			}
			first := task("cache", 0, "m0", cache)
			// In rack r2 the caches would be spread better, but for the task that needs them.
			s := placement.NewSnapshot(machines, []placement.Task{task("web", 0, "m0", c.needs), first, task("cache", 1, c.second, cache)})
			fork := s.Fork()
			fork.RemoveTask(first.Name, first.Machine, 0)
			if u, better := fork.Uneven(*first.Ask, "m0"); better == c.stays {
				t.Errorf("spread has it move: %t, to %+v", better, u)
			}
			if moved := placement.Move(s, *first.Ask, "m0", "m2"); moved == c.stays {
				t.Errorf("it can be moved: %t", moved)
			}
		})
	}
}
