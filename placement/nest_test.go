package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// estate is a cell of zones, each with racks of its own number, and what a job wants in
// each zone, or nothing where it does not say.
type estate struct {
	machines []placement.Machine
	zoneOf   map[string]string
	rackOf   map[string]string // within the zone
	racks    map[string]int    // by zone
	wanted   []placement.Target
	tasks    int
	// pairs are machines of one rack of which one is full with the task of another job.
	pairs [][2]string // the first is
}

// drawEstate draws a cell with room for a job that is spread over racks in zones, and for not
// much more: machines have room for one task or for two. A large one has thousands of machines
// beside these, of which those of one zone have room.
func drawEstate(t *rapid.T, large bool) *estate {
	e := &estate{zoneOf: map[string]string{}, rackOf: map[string]string{}, racks: map[string]int{}}
	add := func(zone, rack string, cpu int64) {
		m := placement.Machine{
			Name: fmt.Sprintf("m%05d", len(e.machines)), Up: true, Capacity: schema.Resources{CPUMilli: cpu, RAMBytes: 64 * gib},
			Attributes: map[string]string{"zone": zone, "rack": rack},
		}
		e.machines = append(e.machines, m)
		e.zoneOf[m.Name], e.rackOf[m.Name] = zone, rack
	}
	zones := rapid.IntRange(1, 4).Draw(t, "zones")
	targets := rapid.Bool().Draw(t, "targets")
	for z := range zones {
		want := rapid.IntRange(0, 12).Draw(t, "wanted")
		if e.tasks += want; targets {
			e.wanted = append(e.wanted, placement.Target{Value: fmt.Sprint("z", z), Tasks: want})
		}
	}
	for z := range zones {
		zone := fmt.Sprint("z", z)
		want := (e.tasks + zones - 1) / zones
		if targets {
			want = e.wanted[z].Tasks
		}
		racks := rapid.IntRange(1, 4).Draw(t, "racks")
		e.racks[zone] = racks
		for r := range racks {
			each := int64(rapid.IntRange(1, 2).Draw(t, "each"))
			for have := 0; have < (want+racks-1)/racks; have += int(each) {
				for range 2 {
					add(zone, fmt.Sprint("r", r), each*1000)
				}
				n := len(e.machines)
				e.pairs = append(e.pairs, [2]string{e.machines[n-2].Name, e.machines[n-1].Name})
			}
		}
	}
	if targets { // and one of which nothing is said
		add("other", "r0", 64_000)
	}
	if large {
		r := rand.New(rand.NewPCG(uint64(rapid.IntRange(0, 1000).Draw(t, "seed")), 1))
		for len(e.machines) < 4200 {
			zone, cpu := fmt.Sprint("z", r.IntN(zones)), int64(10)
			if zone == "z0" {
				cpu = 1000
			}
			add(zone, fmt.Sprint("r", r.IntN(e.racks[zone])), cpu)
		}
		r.Shuffle(len(e.machines), func(i, k int) { e.machines[i], e.machines[k] = e.machines[k], e.machines[i] })
	}
	return e
}

// blocker returns the task that has one of a pair of machines full.
func (e *estate) blocker(pair int) placement.Task {
	machine := e.pairs[pair][0]
	return placement.Task{
		Name: schema.JobName{Cell: "c", User: "u", Job: "blocker"}.Task(pair), Machine: machine, Priority: 200, Limit: schema.Resources{CPUMilli: 1000, RAMBytes: 64 * gib},
	}
}

// flip has the other machines of some pairs be full that have no task of a job.
func (e *estate) flip(t *rapid.T, s *placement.Snapshot, where map[schema.TaskName]string) {
	used := map[string]bool{}
	for _, m := range where {
		used[m] = true
	}
	for i := range e.pairs {
		if p := &e.pairs[i]; !used[p[1]] && rapid.Bool().Draw(t, "flip") {
			b := e.blocker(i)
			s.RemoveTask(b.Name, b.Machine, 0)
			p[0], p[1] = p[1], p[0]
			s.SetTask(e.blocker(i))
		}
	}
}

// check fails unless the tasks of a job are where it wants them: exactly so many in each zone
// as its targets say, or else as many as in the others, and as many in each rack as in the
// other ones of its zone, but for one.
func (e *estate) check(t *rapid.T, where map[schema.TaskName]string) {
	inZone, inRack := map[string]int{}, map[string]int{}
	for _, m := range where {
		inZone[e.zoneOf[m]]++
		inRack[e.zoneOf[m]+"/"+e.rackOf[m]]++
	}
	wanted := map[string]int{}
	for _, w := range e.wanted {
		wanted[w.Value] = w.Tasks
	}
	for zone, racks := range e.racks {
		n := inZone[zone]
		if even := len(where) / len(e.racks); e.wanted == nil && (n < even || n > even+1) || e.wanted != nil && n != wanted[zone] {
			t.Fatalf("zone %s has %d of %d tasks: want %v", zone, n, len(where), e.wanted)
		}
		for r := range racks {
			if in := inRack[fmt.Sprintf("%s/r%d", zone, r)]; in < n/racks || in > (n+racks-1)/racks {
				t.Fatalf("rack r%d of zone %s has %d of its %d tasks, and there are %d racks", r, zone, in, n, racks)
			}
		}
	}
}

// Where there is room, the tasks of a job come to be where it wants them, and do again when
// some have gone, whether all machines are looked at or some, with what is remembered and
// without, and on forks.
func TestNestedSpread(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { nestedSpread(t, drawEstate(t, rapid.IntRange(0, 5).Draw(t, "large") >= 3)) })
}

func nestedSpread(t *rapid.T, e *estate) {
	var blockers []placement.Task
	for i := range e.pairs {
		blockers = append(blockers, e.blocker(i))
	}
	s := placement.NewSnapshot(e.machines, blockers)
	s.Configure(placement.Options{
		Enough: rapid.IntRange(1, 8).Draw(t, "enough"), NoRelaxed: rapid.Bool().Draw(t, "whole"), NoCache: rapid.Bool().Draw(t, "no cache"),
	})
	job := schema.JobName{Cell: "c", User: "u", Job: "web"}
	where := map[schema.TaskName]string{}
	for range rapid.IntRange(1, 4).Draw(t, "passes") {
		var asks []placement.Ask
		for i := range e.tasks {
			if name := job.Task(i); where[name] == "" {
				asks = append(asks, placement.Ask{
					Name: name, Priority: 200, Limit: schema.Resources{CPUMilli: 1000, RAMBytes: gib}, Spread: "zone", Nesting: placement.Nesting{Then: "rack", Targets: e.wanted},
				})
			}
		}
		if rapid.Bool().Draw(t, "fork") {
			s = s.Fork()
		}
		for _, d := range placement.Place(s, asks, 1) {
			if d.Machine == "" {
				t.Fatalf("%v is pending: %v", d.Name, d.Why)
			}
			where[d.Name] = d.Machine
		}
		e.check(t, where)
		for i := range e.tasks {
			name := job.Task(i)
			a := placement.Ask{Name: name, Priority: 200, Limit: schema.Resources{CPUMilli: 1000, RAMBytes: gib}, Spread: "zone", Nesting: placement.Nesting{Then: "rack", Targets: e.wanted}}
			if i == 0 { // it is as good as can be where it is
				fork := s.Fork()
				fork.RemoveTask(name, where[name], 0)
				if u, better := fork.Uneven(a, where[name]); better && u.Attribute != placement.MachineAttribute {
					t.Fatalf("%v would be better elsewhere: %+v", name, u)
				}
				fork.Release()
			}
			if rapid.IntRange(0, 2).Draw(t, "goes") == 0 {
				s.RemoveTask(name, where[name], 0)
				delete(where, name)
			}
		}
		e.flip(t, s, where)
	}
}

// Two jobs that are decided in turns look at the same few machines of a zone first, and each
// finds others there when these are full.
func TestNestedSpreadBesideAnother(t *testing.T) {
	t.Parallel()
	e := &estate{}
	for i := range 4200 {
		zone := "z0"
		if i%20 == 0 {
			zone = "z1"
		}
		e.machines = append(e.machines, placement.Machine{
			Name: fmt.Sprintf("m%05d", i), Up: true, Capacity: schema.Resources{CPUMilli: 1000, RAMBytes: gib}, Attributes: map[string]string{"zone": zone},
		})
	}
	s := placement.NewSnapshot(e.machines, nil)
	s.Configure(placement.Options{Enough: 1})
	wanted := []placement.Target{{Value: "z0", Tasks: 10}, {Value: "z1", Tasks: 60}}
	var asks []placement.Ask
	for _, job := range []string{"a", "b"} {
		for i := range 70 {
			asks = append(asks, placement.Ask{
				Name: schema.JobName{Cell: "c", User: job, Job: job}.Task(i), Priority: 200, Limit: schema.Resources{CPUMilli: 1000, RAMBytes: gib}, Spread: "zone", Nesting: placement.Nesting{Targets: wanted},
			})
		}
	}
	in := map[string]int{}
	for _, d := range placement.Place(s, asks, 1) {
		for _, m := range e.machines {
			if m.Name == d.Machine {
				in[d.Name.Job+" in "+m.Attributes["zone"]]++
			}
		}
	}
	if in["a in z1"] != 60 || in["b in z1"] != 60 || in["a in z0"] != 10 || in["b in z0"] != 10 {
		t.Errorf("the tasks are where they are not wanted: %v", in)
	}
}
