package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

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

// Each machine is a domain. Tasks come and go, of two shapes, so that what is known of the
// machines is followed, and made anew; none waits, and no machine comes to have two more of the
// job than another. Where one is left behind, since it has no room any more, one waits.
func TestSkewOverMachines(t *testing.T) {
	t.Parallel()
	const many = 2000
	machines := fleet(many)
	s := placement.NewSnapshot(machines, nil)
	counts, on := map[string]int{}, map[schema.TaskName]string{}
	name := schema.JobName{Cell: "c", User: "u", Job: "web"}.Task
	asks := func(from, to int) []placement.Ask {
		list := same(to - from)
		for i := range list {
			list[i].Name, list[i].Spread = name(from+i), placement.NoSpread
			list[i].MaxSkew = []placement.SkewLimit{{Attribute: placement.MachineAttribute, Max: 1}}
			if i%7 == 1 {
				list[i].Limit.CPUMilli += 10
			}
		}
		return list
	}
	place := func(from, to int) {
		t.Helper()
		for _, d := range placement.Place(s, asks(from, to), 1) {
			if d.Machine == "" {
				t.Fatalf("%v is pending: %v", d.Name, d.Why)
			}
			counts[d.Machine]++
			on[d.Name] = d.Machine
		}
		fewest, most := many, 0
		for _, m := range machines {
			fewest, most = min(fewest, counts[m.Name]), max(most, counts[m.Name])
		}
		if most-fewest > 1 {
			t.Fatalf("a machine has %d tasks and another %d", most, fewest)
		}
	}
	place(0, 1500)
	place(1500, many+10)
	remove := func(i int) {
		s.RemoveTask(name(i), on[name(i)], 0)
		counts[on[name(i)]]--
	}
	for i := range 300 {
		remove(300 + i)
	}
	place(many+10, many+310)
	place(many+310, 2*many+300) // two each
	remove(900)
	for _, m := range machines { // and the room for it is taken
		if m.Name == on[name(900)] {
			s.SetTask(placement.Task{Name: schema.JobName{Cell: "c", User: "u", Job: "db"}.Task(0), Machine: m.Name, Priority: 200, Limit: m.Capacity})
		}
	}
	for _, d := range placement.Place(s, asks(3*many, 3*many+2), 1) { // of both shapes
		if d.Machine != "" {
			t.Errorf("%s, which has two, gets a third task while one is left with one", d.Machine)
		}
	}
}

// While tasks of a job are on their way, its skew holds with them and without them, and who may get
// a place does; also when that changes from pass to pass.
func TestSkewWhileTasksCome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := coming{most: rapid.IntRange(1, 2).Draw(t, "skew"), there: map[string]int{}, with: map[string]int{}, left: map[string]int{}}
		var machines []placement.Machine
		for i := range rapid.IntRange(2, 7).Draw(t, "machines") {
			m := placement.Machine{Name: fmt.Sprint("m", i), Up: true, Attributes: map[string]string{"rack": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "rack")}}
			c.left[m.Name] = rapid.IntRange(0, 4).Draw(t, "room")
			m.Capacity.CPUMilli = int64(1000 * c.left[m.Name])
			machines = append(machines, m)
		}
		c.s = placement.NewSnapshot(machines, nil)
		c.machines = machines
		by := rapid.SampledFrom([]string{placement.NoSpread, "", "rack"}).Draw(t, "by")
		for range rapid.IntRange(1, 4).Draw(t, "passes") {
			c.claim(t, by)
			c.place(t, by)
			c.s.ClearClaims()
			for name, rack := range c.claims {
				c.left[name]++
				c.with[rack]--
			}
		}
	})
}

// coming is a job of which tasks come to racks.
type coming struct {
	s           *placement.Snapshot
	most, next  int
	machines    []placement.Machine
	there, with map[string]int    // tasks by rack, without those on their way and with them
	left        map[string]int    // tasks that machines have room for
	claims      map[string]string // machines that tasks are on their way to, and their racks
}

func (c *coming) ask(by string) placement.Ask {
	c.next++
	return placement.Ask{
		Name: schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(c.next), Limit: schema.Resources{CPUMilli: 1000}, Spread: by,
		Where: placement.Where{MaxSkew: []placement.SkewLimit{{Attribute: "rack", Max: c.most}}},
	}
}

// may reports whether a machine may get a task.
func (c *coming) may(m *placement.Machine) bool {
	rack := m.Attributes["rack"]
	for _, other := range c.machines {
		if o := other.Attributes["rack"]; c.there[rack]+1-c.there[o] > c.most || c.with[rack]+1-c.with[o] > c.most {
			return false
		}
	}
	return c.left[m.Name] > 0
}

// claim has tasks come to some machines, one to each.
func (c *coming) claim(t *rapid.T, by string) {
	c.claims = map[string]string{}
	for i := range c.machines {
		m := &c.machines[i]
		if !rapid.Bool().Draw(t, "comes") {
			continue
		}
		a, may := c.ask(by), c.may(m)
		if got := c.s.ClaimMove(a, m.Name, nil); got != may {
			t.Fatalf("a claim on %s is %v, want %v: there %v, with those that come %v", m.Name, got, may, c.there, c.with)
		}
		if may {
			c.claims[m.Name] = m.Attributes["rack"]
			c.left[m.Name]--
			c.with[m.Attributes["rack"]]++
		}
	}
}

// place decides some tasks.
func (c *coming) place(t *rapid.T, by string) {
	var asks []placement.Ask
	for range rapid.IntRange(0, 4).Draw(t, "asks") {
		asks = append(asks, c.ask(by))
	}
	for _, d := range placement.Place(c.s, asks, 1) {
		at := slices.IndexFunc(c.machines, func(m placement.Machine) bool { return m.Name == d.Machine })
		switch {
		case at >= 0 && !c.may(&c.machines[at]):
			t.Fatalf("%s is placed on %s: there %v, with those that come %v", d.Name.Short(), d.Machine, c.there, c.with)
		case at >= 0:
			rack := c.machines[at].Attributes["rack"]
			c.there[rack]++
			c.with[rack]++
			c.left[d.Machine]--
		case slices.ContainsFunc(c.machines, func(m placement.Machine) bool { return c.may(&m) }):
			t.Fatalf("%s gets no place: there %v, with those that come %v, room %v", d.Name.Short(), c.there, c.with, c.left)
		}
	}
}
