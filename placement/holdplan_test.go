package placement_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// busyCell is a cell of racks of machines that others have, each until a time of its own.
type busyCell struct {
	gangCell

	now  time.Time
	held []placement.Task
	ends map[schema.TaskName]time.Time
}

func newBusyCell(racks, machines int, ends func(rack, machine int) time.Duration) *busyCell {
	c := &busyCell{now: time.Unix(1000, 0), ends: map[schema.TaskName]time.Time{}}
	for r := range racks {
		for m := range machines {
			name := fmt.Sprintf("r%d-m%d", r, m)
			c.machine(name, 4, "rack", fmt.Sprint("r", r))
			h := placement.Task{Name: schema.JobName{Cell: "c", User: "v", Job: "s"}.Task(len(c.held)), Machine: name, Priority: 100, Limit: schema.Resources{CPUMilli: 3}}
			c.held = append(c.held, h)
			if d := ends(r, m); d > 0 {
				c.ends[h.Name] = c.now.Add(d)
			}
		}
	}
	return c
}

func (c *busyCell) snapshot() *placement.Snapshot {
	s := placement.NewSnapshot(c.machines, c.held)
	s.SetTimes(c.now, func(t schema.TaskName) time.Time { return c.ends[t] })
	return s
}

// waiting returns the asks of the gang, which have waited for long.
func (c *busyCell) waiting() []placement.Ask {
	asks := c.list()
	for i := range asks {
		asks[i].Waited = placement.DefaultReserveAfter
	}
	return asks
}

// holds returns which machine is held for each ask, which it says from then on.
func holds(s *placement.Snapshot, asks []placement.Ask) (held []string, room time.Time) {
	for _, d := range placement.Place(s, asks, 1) {
		if d.Why.Held == "" {
			continue
		}
		held, room = append(held, d.Why.Held), d.Why.Room
		i := slices.IndexFunc(asks, func(a placement.Ask) bool { return a.Name == d.Name })
		asks[i].Held = d.Why.Held
	}
	slices.Sort(held)
	return held, room
}

// apart has tasks of a job be apart from each other.
func apart(own, by string) func(*placement.Ask) {
	return func(a *placement.Ask) {
		near(own, own, by)(a)
		a.Relations.Affinity, a.Relations.AntiAffinity = nil, a.Relations.Affinity
	}
}

// TestGangHoldsWhereItMayBe: machines are held together where all asks may be at last: in one rack, each on a
// machine of its own, or spread evenly.
func TestGangHoldsWhereItMayBe(t *testing.T) {
	t.Parallel()
	rackOf := func(racks ...int) func(rack, machine int) time.Duration { // each in its turn, within an hour
		return func(rack, machine int) time.Duration {
			return time.Duration(10*slices.Index(racks, rack)+machine+1) * time.Minute
		}
	}
	for _, tt := range []struct {
		name   string
		tasks  int
		cores  int64
		change func(*placement.Ask)
		want   []string
		in     time.Duration
	}{
		{"in one rack, the first that has room for all", 3, 4, near("a", "a", "rack"), []string{"r1-m0", "r1-m1", "r1-m2"}, 3 * time.Minute},
		{"two on each machine of a rack", 4, 2, near("a", "a", "rack"), []string{"r1-m0", "r1-m0", "r1-m1", "r1-m1"}, 2 * time.Minute},
		{"all on one machine", 2, 2, near("a", "a", ""), []string{"r1-m0", "r1-m0"}, time.Minute},
		{"each in a rack of its own", 3, 2, apart("a", "rack"), []string{"r0-m0", "r1-m0", "r2-m0"}, 21 * time.Minute},
		{"one on each machine", 3, 2, func(a *placement.Ask) {
			a.PerDomain = []placement.DomainLimit{{Attribute: placement.MachineAttribute, Max: 1}}
		}, []string{"r1-m0", "r1-m1", "r1-m2"}, 3 * time.Minute},
		{"evenly over racks", 4, 4, func(a *placement.Ask) {
			a.MaxSkew = []placement.SkewLimit{{Attribute: "rack", Max: 1}}
		}, []string{"r0-m0", "r1-m0", "r1-m1", "r2-m0"}, 21 * time.Minute},
		{"nowhere: no rack is as large", 5, 4, near("a", "a", "rack"), nil, 0},
	} {
		c := newBusyCell(3, 4, rackOf(1, 0, 2))
		c.job("a", tt.tasks, tt.cores, tt.change)
		s, asks := c.snapshot(), c.waiting()
		for pass := range 10 { // those are kept that are held
			held, room := holds(s, asks)
			if !slices.Equal(held, tt.want) || tt.want != nil && !room.Equal(c.now.Add(tt.in)) {
				t.Errorf("%s: pass %d: holds %v until %v, want %v, %v", tt.name, pass, held, room.Sub(c.now), tt.want, tt.in)
			}
		}
	}
}

// TestGangFitsWhereItHolds: once all tasks of others have gone from the machines that are held for a gang, it gets
// its places there, whatever it wants.
func TestGangFitsWhereItHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newBusyCell(rapid.IntRange(1, 4).Draw(t, "racks"), rapid.IntRange(1, 4).Draw(t, "machines"), func(int, int) time.Duration {
			return time.Duration(rapid.IntRange(0, 5).Draw(t, "ends")) * time.Minute
		})
		for _, job := range []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(t, "jobs")] {
			change := rapid.SampledFrom([]func(*placement.Ask){
				nil, near(job, job, "rack"), near(job, "a", "rack"), near(job, "a", ""), apart(job, "rack"), apart(job, ""),
				func(a *placement.Ask) {
					a.PerDomain = []placement.DomainLimit{{Attribute: "rack", Max: 2}}
				},
				func(a *placement.Ask) { a.MaxSkew = []placement.SkewLimit{{Attribute: "rack", Max: 1}} },
			}).Draw(t, "wants")
			c.job(job, rapid.IntRange(1, 6).Draw(t, "tasks"), int64(rapid.IntRange(1, 4).Draw(t, "cores")), change)
		}
		s, asks := c.snapshot(), c.waiting()
		held, _ := holds(s, asks)
		if len(held) == 0 {
			return
		}
		for _, h := range c.held {
			if slices.Contains(held, h.Machine) {
				s.RemoveTask(h.Name, h.Machine, 0)
			}
		}
		var got []string
		for _, d := range placement.Place(s, asks, 1) {
			got = append(got, d.Machine)
		}
		if slices.Contains(got, "") {
			t.Fatalf("it holds %v, and gets %q when they are empty", held, got)
		}
	})
}

// TestGangHoldsBesideAHopelessOne: a gang of which it is not known when there is room keeps no other one from holding
// machines, and holds none itself beside others.
func TestGangHoldsBesideAHopelessOne(t *testing.T) {
	t.Parallel()
	c := newBusyCell(2, 2, func(rack, _ int) time.Duration { return time.Duration(rack) * time.Minute }) // never in the first one
	first := func(job string, rack string, waited time.Duration) (asks []placement.Ask) {
		for i := range 2 {
			a := placement.Ask{
				Name: schema.JobName{Cell: "c", User: "u", Job: job}.Task(i), Priority: 100, Limit: schema.Resources{CPUMilli: 4000}, Together: 2,
				Constraints: []placement.Constraint{{Attribute: "rack", Op: placement.OpIn, Values: []string{rack}}},
			}
			a.Waited = waited
			asks = append(asks, a)
		}
		return asks
	}
	for i := range c.machines {
		c.machines[i].Capacity.CPUMilli, c.held[i].Limit.CPUMilli = 4000, 3000
	}
	long := placement.DefaultReserveAfter
	for _, tt := range []struct {
		asks [][]placement.Ask
		want []string
	}{
		{[][]placement.Ask{first("never", "r0", long+1), first("soon", "r1", long)}, []string{"r0-m0", "r0-m1", "r1-m0", "r1-m1"}},
		{[][]placement.Ask{first("soon", "r1", long+1), first("never", "r0", long)}, []string{"r1-m0", "r1-m1"}},
	} {
		if held, _ := holds(c.snapshot(), slices.Concat(tt.asks...)); !slices.Equal(held, tt.want) {
			t.Errorf("%s comes first: %v are held, want %v", tt.asks[0][0].Name.Short(), held, tt.want)
		}
	}
}

// BenchmarkGangHolds is a pass in which a gang of 256 tasks waits in a cell that others fill, and holds machines.
func BenchmarkGangHolds(b *testing.B) {
	for name, change := range map[string]func(*placement.Ask){"anywhere": nil, "in one rack": near("a", "a", "rack")} {
		b.Run(name, func(b *testing.B) {
			c := newBusyCell(20, 500, func(rack, machine int) time.Duration { return time.Duration(rack*machine+1) * time.Second })
			c.job("a", 256, 4, change)
			s, asks := c.snapshot(), c.waiting()
			for i, d := range placement.Place(s, asks, 1) {
				if asks[i].Held = d.Why.Held; d.Why.Held == "" || d.Name != asks[i].Name {
					b.Fatalf("%s holds %q", d.Name.Short(), d.Why.Held)
				}
			}
			for b.Loop() {
				placement.Place(s, asks, 1)
			}
		})
	}
}

// TestGangHoldsForOldTasksFirst: a task that had a place holds a machine, and those that are to join its gang hold
// none before it has one; nothing is held that needs the room of one that runs.
func TestGangHoldsForOldTasksFirst(t *testing.T) {
	t.Parallel()
	c := newBusyCell(1, 3, func(_, machine int) time.Duration { return time.Duration(machine) * time.Minute })
	name := func(i int) schema.TaskName { return schema.JobName{Cell: "c", User: "u", Job: "g"}.Task(i) }
	c.held[1] = placement.Task{Name: name(0), Machine: "r0-m1", Priority: 100, Limit: schema.Resources{CPUMilli: 3}}
	delete(c.ends, schema.JobName{Cell: "c", User: "v", Job: "s"}.Task(1))
	c.ends[name(0)] = c.now.Add(time.Second)
	var asks []placement.Ask
	for i := range 2 {
		asks = append(asks, placement.Ask{
			Name: name(2 - i), Priority: 100, Limit: schema.Resources{CPUMilli: 4}, Together: 3 - i,
			Waiting: placement.Waiting{Waited: placement.DefaultReserveAfter, Returns: i == 1},
		})
	}
	for _, d := range placement.Place(c.snapshot(), asks, 1) {
		want := ""
		if d.Name == name(1) {
			want = "r0-m2"
		}
		if d.Machine != "" || d.Why.Held != want {
			t.Errorf("%v is placed on %q and holds %q, want %q", d.Name, d.Machine, d.Why.Held, want)
		}
	}
}
