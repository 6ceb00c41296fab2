package placement_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// oneEach is a cell of machines m0, m1 and so on, each with one task that fills most of it and is of
// a job of its own. The last has a fast disk.
func oneEach(n int) (machines []placement.Machine, tasks []placement.Task) {
	for i := range n {
		disk := "slow"
		if i == n-1 {
			disk = "fast"
		}
		m := placement.Machine{Name: fmt.Sprint("m", i), Up: true, Capacity: schema.Resources{CPUMilli: 4000}, Attributes: map[string]string{"disk": disk}}
		machines = append(machines, m)
		tasks = append(tasks, placement.Task{
			Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("v", i)}.Task(0), Machine: m.Name, Priority: 50, Generation: uint64(i + 1),
			Limit: schema.Resources{CPUMilli: 3000},
		})
	}
	return machines, tasks
}

func preemptor(index int) placement.Ask {
	return placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(index), Priority: 200, Limit: schema.Resources{CPUMilli: 3000}}
}

// Of equal victims those go on whose machine the task wishes to be, also where one of many
// machines is.
func TestEvictWhereWished(t *testing.T) {
	t.Parallel()
	const machines = 1000
	for _, o := range []placement.Options{
		{Preempt: true, NoRelaxed: true}, {Preempt: true, NoRelaxed: true, Graceful: true}, {Preempt: true}, {Preempt: true, Enough: 2},
	} {
		s := placement.NewSnapshot(oneEach(machines))
		s.Configure(o)
		a := preemptor(0)
		a.Preferences = []placement.Preference{{Constraint: placement.Constraint{Attribute: "disk", Op: placement.OpIn, Values: []string{"fast"}}, Weight: 1}}
		d := placement.Place(s, []placement.Ask{a}, 1)[0]
		if len(d.Victims) != 1 || d.Victims[0].Name.Job != fmt.Sprint("v", machines-1) {
			t.Errorf("%+v: evicts %v, want that of the last machine", o, d.Victims)
		}
	}
}

// Where most machines have what tasks wish, some of these are looked at, whether the tasks are of one
// class or of many; and also where most of those are full of what cannot be evicted.
func TestEvictWhereManyAreWished(t *testing.T) {
	t.Parallel()
	const (
		number = 3000
		asks   = 100
	)
	for _, most := range []bool{true, false} {
		for _, classes := range []int{1, asks} {
			machines, tasks := oneEach(number)
			for i := range machines {
				if i%3 < 2 {
					machines[i].Attributes["disk"] = "fast"
					if !most && i%9 < 6 {
						tasks[i].Priority = 250
					}
				}
			}
			s := placement.NewSnapshot(machines, tasks)
			s.Configure(placement.Options{Preempt: true})
			list := make([]placement.Ask, asks)
			for i := range list {
				list[i] = preemptor(0)
				list[i].Name.Job = fmt.Sprintf("web%03d", i)
				list[i].Limit.CPUMilli += int64(i % classes)
				list[i].Preferences = []placement.Preference{prefers("disk", "fast", 1)}
			}
			fast := map[string]bool{}
			for _, m := range machines {
				fast[m.Name] = m.Attributes["disk"] == "fast"
			}
			for _, d := range placement.Place(s, list, 1) {
				if !fast[d.Machine] || len(d.Victims) != 1 {
					t.Errorf("most %v, %d classes: %s is on %q, evicting %v, want a fast disk, and one evicted", most, classes, d.Name, d.Machine, d.Victims)
				}
			}
			weighed, solved := s.Weighed()
			if t.Logf("most %v, %d classes: %d machines were looked at, %d solved", most, classes, weighed, solved); weighed > 500*classes+40*asks || solved > 40*asks {
				t.Errorf("%d machines were looked at, and %d solved: want 500 a class and 40 an ask at most, and 40 an ask", weighed, solved)
			}
		}
	}
}

// Of equal victims those go whose jobs lose no other task: in the pass, or before.
func TestEvictJobsNotHit(t *testing.T) {
	t.Parallel()
	machines, tasks := oneEach(4)
	for i := range 3 {
		tasks[i].Name = schema.JobName{Cell: "c", User: "u", Job: "a"}.Task(i)
	}
	evicted := func(asks int, hit func(schema.JobName) bool) map[string]int {
		s := placement.NewSnapshot(machines, tasks)
		s.Configure(placement.Options{Preempt: true, Graceful: true})
		s.SetHit(hit)
		list := make([]placement.Ask, asks)
		for i := range list {
			list[i] = preemptor(i)
		}
		out := map[string]int{}
		for _, d := range placement.Place(s, list, 1) {
			for _, v := range d.Victims {
				out[v.Name.Job]++
			}
		}
		return out
	}
	if is := evicted(2, nil); is["a"] != 1 || is["v3"] != 1 {
		t.Errorf("two asks evict %v, want one task of each job", is)
	}
	if is := evicted(1, func(name schema.JobName) bool { return name.Job == "a" }); is["v3"] != 1 {
		t.Errorf("evicted %v, though a has lost another task before", is)
	}
	if is := evicted(1, func(name schema.JobName) bool { return true }); is["a"] != 1 {
		t.Errorf("evicted %v, though both have lost others before", is)
	}
	if is := evicted(3, nil); is["a"] != 2 || is["v3"] != 1 {
		t.Errorf("three asks evict %v, want two tasks of a, since v3 has no other", is)
	}
}

// What is cheaper as far as is known is solved again if its job was hit since, however many were solved
// before: it still has the fewest victims.
func TestEvictFewestThoughHit(t *testing.T) {
	t.Parallel()
	var machines []placement.Machine
	var tasks []placement.Task
	add := func(priority schema.Priority, job string, limits ...int64) {
		m := placement.Machine{Name: fmt.Sprintf("m%02d", len(machines)), Up: true, Capacity: schema.Resources{CPUMilli: 3000}}
		machines = append(machines, m)
		for _, cpu := range limits {
			tasks = append(tasks, placement.Task{
				Name: schema.JobName{Cell: "c", User: "u", Job: job}.Task(len(tasks)), Machine: m.Name, Priority: priority,
				Limit: schema.Resources{CPUMilli: cpu},
			})
		}
	}
	add(50, "hit", 3000)
	for i := range 20 { // are solved once the first has gone
		add(60, fmt.Sprint("v", i), 3000)
	}
	add(50, "three", 1000, 1000, 1000)
	add(50, "hit", 1500, 1500)
	s := placement.NewSnapshot(machines, tasks)
	s.Configure(placement.Options{Preempt: true})
	asks := []placement.Ask{preemptor(0), preemptor(0)}
	asks[1].Name.Job = "web2"
	for i, d := range placement.Place(s, asks, 1) {
		if want := []string{"m00", "m22"}[i]; d.Machine != want || len(d.Victims) != i+1 {
			t.Errorf("%s is on %s, evicting %v, want %s", d.Name, d.Machine, d.Victims, want)
		}
	}
}

// Of tasks that are otherwise as good to evict that goes which came last, of many machines and of
// many tasks of one, also if these are too many for all sets of them to be tried.
func TestEvictTheLastToCome(t *testing.T) {
	t.Parallel()
	for last := range 5 {
		machines, tasks := oneEach(5)
		for i := range tasks {
			tasks[i].Since = noon.Add(time.Duration(i) * time.Minute)
		}
		tasks[last].Since = noon.Add(time.Hour)
		checkVictims(t, machines, tasks, preemptor(0), tasks[last].Name)
	}
	for _, n := range []int{5, 64} {
		for _, jobs := range []int{1, n} {
			machines, _ := oneEach(1)
			machines[0].Capacity.CPUMilli = int64(n) * 1000
			var tasks []placement.Task
			for i := range n {
				tasks = append(tasks, placement.Task{
					Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("v", i%jobs)}.Task(i), Machine: "m0", Priority: 50,
					Limit: schema.Resources{CPUMilli: 1000}, Since: noon.Add(time.Duration(i*7%n) * time.Minute),
				})
			}
			var want []schema.TaskName
			for _, x := range tasks {
				if x.Since.Sub(noon) >= time.Duration(n-3)*time.Minute {
					want = append(want, x.Name)
				}
			}
			checkVictims(t, machines, tasks, preemptor(0), want...)
		}
	}
	// What has just been placed goes first, and of what is as good the first by name.
	machines, tasks := oneEach(3)
	for i := range tasks {
		tasks[i].Since = noon
	}
	checkVictims(t, machines, tasks, preemptor(0), tasks[0].Name)
	tasks[1].Since = time.Time{}
	checkVictims(t, machines, tasks, preemptor(0), tasks[1].Name)
}

func checkVictims(t *testing.T, machines []placement.Machine, tasks []placement.Task, a placement.Ask, want ...schema.TaskName) {
	t.Helper()
	s := placement.NewSnapshot(machines, tasks)
	s.Configure(placement.Options{Preempt: true})
	var is []schema.TaskName
	for _, v := range placement.Place(s, []placement.Ask{a}, 1)[0].Victims {
		is = append(is, v.Name)
	}
	slices.SortFunc(is, schema.TaskName.Compare)
	slices.SortFunc(want, schema.TaskName.Compare)
	if !slices.Equal(is, want) {
		t.Errorf("evicts %v, want %v", is, want)
	}
}
