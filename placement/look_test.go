package placement_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// atOnce runs each call in a goroutine of its own.
func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// backwards makes the calls one after the other, the last first.
func backwards(n int, do func(i int)) {
	for i := n - 1; i >= 0; i-- {
		do(i)
	}
}

// Workers decide nothing: with them all decisions, and their reasons, are what they are
// without, pass after pass.
func TestWorkersDecideNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := drawOptions(t)
		alone, others := c.snapshot(o), []*placement.Snapshot{c.snapshot(o), c.snapshot(o)}
		others[0].SetParallel(atOnce)
		others[1].SetParallel(backwards)
		for pass := range 3 {
			asks := c.asks
			if pass > 0 {
				asks = drawCell(t).asks
				for i := range asks {
					asks[i].Name.Index += 100 * pass
				}
			}
			want := placement.Place(alone, append([]placement.Ask(nil), asks...), 7)
			for i, s := range others {
				got := placement.Place(s, append([]placement.Ask(nil), asks...), 7)
				if diff := cmp.Diff(want, got, selectors); diff != "" {
					t.Fatalf("pass %d of %d (-without +with workers):\n%s", pass, i, diff)
				}
			}
		}
	})
}

// mixed returns asks of all kinds: alone and of jobs, small and as large as a machine, with
// constraints, wishes, ports and relations.
func mixed(random *rand.Rand, pass, n int) (asks []placement.Ask) {
	for len(asks) < n {
		name := schema.JobName{Cell: "c", User: fmt.Sprint("u", random.IntN(9)), Job: fmt.Sprintf("p%d-%05d", pass, len(asks))}
		a := placement.Ask{
			Priority: []schema.Priority{25, 110, 200}[random.IntN(3)],
			Limit:    schema.Resources{CPUMilli: 1 << random.IntN(17), RAMBytes: int64(1+random.IntN(64)) << (25 + random.IntN(6))},
		}
		switch random.IntN(8) {
		case 0:
			a.Constraints = []placement.Constraint{{Attribute: "arch", Op: placement.OpIn, Values: []string{"arm64"}}}
		case 1:
			a.Preferences = []placement.Preference{{Constraint: placement.Constraint{Attribute: "rack", Op: placement.OpIn, Values: []string{"r0007"}}, Weight: 50}}
		case 2:
			a.Ports = []string{"http"}
		case 3:
			a.PerDomain = []placement.DomainLimit{{Attribute: "rack", Max: 1}}
		case 4:
			a.Relations = &placement.Relations{
				Labels:       map[string]string{"app": fmt.Sprint(random.IntN(3))},
				AntiAffinity: []placement.Affinity{{Selector: selector("app=1"), By: "rack"}},
			}
		}
		tasks := 1
		if random.IntN(4) == 0 {
			tasks = 1 + random.IntN(20)
			if random.IntN(4) == 0 {
				a.Together = tasks
			}
		}
		for i := range tasks {
			a.Name = name.Task(i)
			asks = append(asks, a)
		}
	}
	return asks
}

func selector(text string) schema.Selector {
	s, err := schema.ParseSelector(text)
	if err != nil {
		panic(err)
	}
	return s
}

// The same in a cell so large that samples are taken, from nearly empty to full, where full
// machines are skipped.
func TestWorkersInLargeCell(t *testing.T) {
	t.Parallel()
	for _, percent := range []int64{10, 97} {
		t.Run(fmt.Sprint(percent, " percent"), func(t *testing.T) {
			t.Parallel()
			machines := fleet(4200)
			alone, with := full(machines, percent), full(machines, percent)
			with.SetParallel(atOnce)
			alone.SearchesAll()
			for _, s := range []*placement.Snapshot{alone, with} {
				s.Configure(placement.Options{Preempt: true, Graceful: percent == 10})
			}
			random := rand.New(rand.NewPCG(uint64(percent), 3))
			for pass := range 3 {
				asks := mixed(random, pass, 400)
				want := placement.Place(alone, append([]placement.Ask(nil), asks...), 7)
				got := placement.Place(with, append([]placement.Ask(nil), asks...), 7)
				if diff := cmp.Diff(want, got, selectors); diff != "" {
					t.Fatalf("pass %d (-without +with workers):\n%s", pass, diff)
				}
			}
			if alone.Skips() || !with.Skips() && percent > 50 {
				t.Fatal("full machines are skipped by both or by none: the test says nothing")
			}
			if looked, again := with.LookedAhead(); looked == 0 || again == 0 {
				t.Fatalf("%d machines were looked at ahead, %d of them again: the test says nothing", looked, again)
			}
		})
	}
}
