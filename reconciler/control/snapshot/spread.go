package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// UnevenFor is for how long tasks must have been where they are, and a machine
// there, before one is moved to it for its spread.
const UnevenFor = 5 * time.Minute

// Uneven is a task that would be better elsewhere for the spread of its job.
type Uneven struct {
	placement.Uneven
	Index  int // of the task
	Placed int // tasks of the job that have a place
}

// String says what is wrong: "3 of 4 tasks are on rack r3; rack r1 has none, and room".
func (u *Uneven) String() string {
	has := "none"
	if u.ToTasks > 0 {
		has = fmt.Sprint(u.ToTasks)
	}
	return fmt.Sprintf("%s on %s; %s has %s, and room", schema.Part(u.FromTasks, u.Placed, "task", "is", "are"), u.value(u.From), u.value(u.To), has)
}

func (u *Uneven) value(v string) string {
	if v == "" {
		return "machines without " + u.Attribute
	}
	return u.Attribute + " " + v
}

// occupancy counts the tasks of a job that stay, by domain and by machine, as far as
// these are up.
type occupancy struct {
	tasks               []*schema.TaskRecord
	inDomain, onMachine map[string]int
}

// occupancyOf is of use until it is asked for again.
func (c *Cell) occupancyOf(name schema.JobName, want *schema.Job) occupancy {
	out := &c.occupied
	if out.inDomain == nil {
		out.inDomain, out.onMachine = map[string]int{}, map[string]int{}
	}
	out.tasks = out.tasks[:0]
	clear(out.inDomain)
	clear(out.onMachine)
	by, tasks := SpreadBy(want), c.facts.Tasks(name)
	for i := range tasks {
		t := &tasks[i]
		if t.Machine == "" || t.Stop != nil || !c.facts.IsUp(t.Machine) {
			continue
		}
		out.tasks = append(out.tasks, t)
		out.inDomain[c.facts.DomainOf(t.Machine, by)]++
		out.onMachine[t.Machine]++
	}
	return *out
}

// SpreadBy returns the attribute over which a job is spread.
func SpreadBy(want *schema.Job) string {
	if want.Spread == nil || want.Spread.By == "" {
		return placement.DefaultSpread
	}
	return want.Spread.By
}

// mayImprove reports whether a task may be better elsewhere. It asks no placement.
func (c *Cell) mayImprove(now *occupancy, want *schema.Job) bool {
	most, fewest := 0, len(now.tasks)
	for domain := range c.facts.Domains(SpreadBy(want)) {
		most, fewest = max(most, now.inDomain[domain]), min(fewest, now.inDomain[domain])
	}
	onOne := 0
	for _, n := range now.onMachine {
		onOne = max(onOne, n)
	}
	return most-fewest >= 2 || onOne >= 2
}

// Even reports whether Uneven finds no task of a job for as long as its tasks are where
// they are, and the same machines are up. That is so of most jobs.
func (c *Cell) Even(name schema.JobName, want *schema.Job) bool {
	now := c.occupancyOf(name, want)
	return !c.mayImprove(&now, want)
}

// Uneven finds a task that would be better elsewhere: one of where most are. Most
// jobs are seen to have none without asking placement.
func (c *Cell) Uneven(name schema.JobName, want *schema.Job) (Uneven, bool, facts.Until) {
	now := c.occupancyOf(name, want)
	if !c.mayImprove(&now, want) {
		return Uneven{}, false, facts.Until{}
	}
	domain := func(t *schema.TaskRecord) string { return c.facts.DomainOf(t.Machine, SpreadBy(want)) }
	byDomain := slices.MaxFunc(now.tasks, func(a, b *schema.TaskRecord) int {
		return cmp.Or(cmp.Compare(now.inDomain[domain(a)], now.inDomain[domain(b)]), cmp.Compare(now.onMachine[a.Machine], now.onMachine[b.Machine]), cmp.Compare(a.Index, b.Index))
	})
	byMachine := slices.MaxFunc(now.tasks, func(a, b *schema.TaskRecord) int {
		return cmp.Or(cmp.Compare(now.onMachine[a.Machine], now.onMachine[b.Machine]), cmp.Compare(a.Index, b.Index))
	})
	var until facts.Until
	for i, t := range []*schema.TaskRecord{byDomain, byMachine} {
		if i > 0 && t.Machine == byDomain.Machine {
			break
		}
		u, ok, changes := c.betterFor(name, want, t)
		if until = until.Or(changes); ok {
			return Uneven{u, t.Index, len(now.tasks)}, true, until
		}
	}
	return Uneven{}, false, until
}

// betterFor asks placement where a task would be better: on a machine that has been
// there for long enough if there is one, else on any.
func (c *Cell) betterFor(name schema.JobName, want *schema.Job, t *schema.TaskRecord) (u placement.Uneven, better bool, until facts.Until) {
	task := name.Task(t.Index)
	a, until := c.Placement(Ask{task, want, c.facts.Job(name).Admitted})
	fork := c.Without(On{task, t.Machine})
	defer fork.Release()
	u, better = fork.Uneven(a, t.Machine)
	if !better {
		return u, false, until
	}
	// Most jobs need not be asked about with all the machines that have just joined.
	if recent := c.JoinedRecently(); len(recent) > 0 {
		settled := a
		settled.Avoid = slices.Concat(a.Avoid, recent)
		if on, ok := fork.Uneven(settled, t.Machine); ok {
			u = on
		}
	}
	return u, true, until
}

// JoinedRecently returns the machines that have not been there for long enough to have
// a running task moved to them.
func (c *Cell) JoinedRecently() []string {
	var out []string
	for _, name := range c.facts.Up() {
		if facts.Ahead(c.facts.Now, c.facts.Base.Machines[name].Joined.Add(UnevenFor), UnevenFor) {
			out = append(out, name)
		}
	}
	return out
}
