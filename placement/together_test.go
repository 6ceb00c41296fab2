package placement_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// wholeJob reports, by trying every number on every machine, whether so many tasks
// of a job have room together.
func wholeJob(machines []placement.Machine, free []schema.Resources, a *placement.Ask, left int, inRack map[string]int) bool {
	if left == 0 {
		return true
	}
	if len(machines) == 0 {
		return false
	}
	rack := machines[0].Attributes["rack"]
	room := free[0]
	for n := 0; ; n++ {
		inRack[rack] += n
		tooMany := len(a.PerDomain) > 0 && n > 0 && (rack == "" || inRack[rack] > a.PerDomain[0].Max)
		ok := !tooMany && n <= left && wholeJob(machines[1:], free[1:], a, left-n, inRack)
		inRack[rack] -= n
		if ok {
			return true
		}
		if !a.Limit.Fits(room) || n >= left {
			return false
		}
		room = room.Sub(a.Limit)
	}
}

// ways are how the tasks of a job go with others: not, all of the job, or all of a gang.
var ways = []string{"", "job", "gang"}

// gather has a task go with others.
func gather(h *placement.Task, way string) {
	switch way {
	case "job":
		h.Together = true
	case "gang":
		h.Gang = "train"
	}
}

// TestEvictTogether compares who makes room, of small full cells in which many go together,
// with a search through all that is possible.
func TestEvictTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := cell{budgets: map[schema.JobName]int{}}
		gangs := map[string]string{}
		for _, job := range []string{"i", "j", "k"} {
			gangs[job] = rapid.SampledFrom(ways).Draw(t, job)
			if rapid.Bool().Draw(t, job+" bound") {
				c.budgets[schema.JobName{Cell: "c", User: "u", Job: job}] = rapid.IntRange(0, 3).Draw(t, job+" left")
			}
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "machines") {
			m := placement.Machine{Name: fmt.Sprint("m", i), Up: true, Capacity: schema.Resources{CPUMilli: 4}}
			c.machines = append(c.machines, m)
			for room := int64(4); room > 0; {
				job := rapid.SampledFrom([]string{"i", "j", "k"}).Draw(t, "job")
				cpu := rapid.Int64Range(1, min(2, room)).Draw(t, "cpu")
				room -= cpu
				h := placement.Task{
					Name: schema.JobName{Cell: "c", User: "u", Job: job}.Task(len(c.tasks)), Machine: m.Name, Priority: 25, Limit: schema.Resources{CPUMilli: cpu},
					Stopping: rapid.IntRange(0, 9).Draw(t, "stopping") == 0,
				}
				gather(&h, gangs[job])
				c.tasks = append(c.tasks, h)
			}
		}
		c.asks = []placement.Ask{{
			Name: schema.JobName{Cell: "c", User: "v", Job: "web"}.Task(0), Priority: 200,
			Limit: schema.Resources{CPUMilli: rapid.Int64Range(1, 4).Draw(t, "ask")},
		}}
		o := placement.Options{Preempt: true, NoRelaxed: true}
		c.follower(o).follow(t, c.place(o))
	})
}

// TestTogether compares jobs whose tasks get places together, or none, with a search
// through all that is possible.
func TestTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var machines []placement.Machine
		var held []placement.Task
		var free []schema.Resources
		amount := func(most int, what string) schema.Resources {
			return schema.Resources{CPUMilli: int64(rapid.IntRange(1, most).Draw(t, what+" cpu")), RAMBytes: int64(rapid.IntRange(1, most).Draw(t, what+" ram"))}
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "machines") {
			m := placement.Machine{
				Name: fmt.Sprint("m", i), Up: true, Capacity: amount(8, "machine"),
				Attributes: map[string]string{"rack": rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "rack")},
			}
			room := m.Capacity
			if h := amount(4, "held"); rapid.Bool().Draw(t, "holds") && h.Fits(room) {
				held = append(held, placement.Task{Name: schema.JobName{Cell: "c", User: "u", Job: "held"}.Task(i), Machine: m.Name, Priority: 100, Limit: h})
				room = room.Sub(h)
			}
			machines, free = append(machines, m), append(free, room)
		}
		gang := func(job string, priority schema.Priority, more int) (asks []placement.Ask) {
			n := rapid.IntRange(1, 5).Draw(t, job)
			a := placement.Ask{Priority: priority, Limit: amount(4, job), Together: n + more}
			if rapid.Bool().Draw(t, job+" bound") {
				a.PerDomain = []placement.DomainLimit{{Attribute: "rack", Max: rapid.IntRange(1, 3).Draw(t, job+" max")}}
			}
			for i := range n {
				a.Name = schema.JobName{Cell: "c", User: "u", Job: job}.Task(i)
				asks = append(asks, a)
			}
			return asks
		}
		first, second := gang("first", 200, 0), gang("second", 110, 0)
		partial := gang("partial", 300, 1) // one of it does not ask
		got := map[string]int{}
		s := placement.NewSnapshot(machines, held)
		decisions := placement.Place(s, append(append(append([]placement.Ask{}, second...), first...), partial...), 1)
		if want := len(first) + len(second) + len(partial); len(decisions) != want {
			t.Fatalf("%d decisions, want %d", len(decisions), want)
		}
		used := map[string]schema.Resources{}
		for _, d := range decisions {
			a := &first[0]
			if d.Name.Job == "second" {
				a = &second[0]
			}
			if d.Machine != "" {
				got[d.Name.Job]++
				used[d.Machine] = used[d.Machine].Add(a.Limit)
			} else if d.Why.Together != a.Together && d.Name.Job != "partial" {
				t.Fatalf("%v waits, and why has no number of places: %+v", d.Name, d.Why)
			}
		}
		for i, m := range machines {
			if !used[m.Name].Fits(free[i]) {
				t.Fatalf("%s: %v does not fit into %v", m.Name, used[m.Name], free[i])
			}
		}
		want := 0
		if wholeJob(machines, free, &first[0], len(first), map[string]int{}) {
			want = len(first)
		}
		if got["first"] != want || got["partial"] != 0 || got["second"] != 0 && got["second"] != len(second) {
			t.Fatalf("placed %v: want %d of %d tasks of first, none of partial, none or all %d of second", got, want, len(first), len(second))
		}
	})
}

// TestTogetherWithoutStopping: a task that is stopping has no place for those that get theirs
// with it: one that is not wanted any more as little as one that is to get another.
func TestTogetherWithoutStopping(t *testing.T) {
	t.Parallel()
	job := schema.JobName{Cell: "c", User: "u", Job: "j"}
	for _, test := range []struct {
		what   string
		held   map[int]bool // the tasks that are there, and whether they are stopping
		places int          // of the job, of which two have to have one
		placed bool
	}{
		{"runs beside it", map[int]bool{1: false}, 2, true},
		{"stops", map[int]bool{1: true}, 1, false},
		{"waits, and two stop that are not wanted", map[int]bool{2: true, 3: true}, 1, false},
		{"runs beside it, and one stops that is not wanted", map[int]bool{1: false, 2: true}, 2, true},
	} {
		for _, way := range ways[1:] {
			m := placement.Machine{Name: "m", Up: true, Capacity: schema.Resources{CPUMilli: 100}}
			var held []placement.Task
			for i, stopping := range test.held {
				h := placement.Task{Name: job.Task(i), Machine: "m", Priority: 100, Limit: schema.Resources{CPUMilli: 1}, Stopping: stopping}
				gather(&h, way)
				held = append(held, h)
			}
			a := placement.Ask{Name: job.Task(0), Priority: 100, Limit: schema.Resources{CPUMilli: 1}}
			if way == "job" {
				a.Together = 2
			} else {
				a.Gang = &placement.Gang{Name: "train", Jobs: []placement.GangJob{{Job: job, Tasks: 2}}}
			}
			d := placement.Place(placement.NewSnapshot([]placement.Machine{m}, held), []placement.Ask{a}, 1)[0]
			if placed := d.Machine != ""; placed != test.placed || !placed && d.Why.Places != test.places {
				t.Errorf("%s, the other one %s: placed %t, %d of 2 places: want %t, %d", way, test.what, placed, d.Why.Places, test.placed, test.places)
			}
		}
	}
}
