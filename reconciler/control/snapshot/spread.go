package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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
	if u.FromWanted >= 0 && u.ToWanted >= 0 {
		return fmt.Sprintf("%s has %d of %d wanted; %s has %s of %d, and room", u.value(u.From), u.FromTasks, u.FromWanted, u.value(u.To), has, u.ToWanted)
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
	// inOuter is by value of what the job is spread over first, where its domains are nested,
	// or have shares: how many tasks are wanted, by value.
	inOuter, shares map[string]int
}

// occupancyOf is of use until it is asked for again.
func (c *Cell) occupancyOf(name schema.JobName, want *schema.Job) occupancy {
	out := &c.occupied
	if out.inDomain == nil {
		out.inDomain, out.onMachine, out.inOuter = map[string]int{}, map[string]int{}, map[string]int{}
	}
	out.tasks, out.shares = out.tasks[:0], nil
	clear(out.inDomain)
	clear(out.onMachine)
	clear(out.inOuter)
	for _, x := range want.Spread.Shares(want.Tasks) {
		if out.shares == nil {
			out.shares = map[string]int{}
		}
		out.shares[x.Value] = x.Tasks
	}
	by, domains, outer, tasks := SpreadBy(want), domainsOf(want), nested(want), c.facts.Tasks(name)
	for i := range tasks {
		t := &tasks[i]
		if t.Machine == "" || t.Stop != nil || !c.facts.IsUp(t.Machine) {
			continue
		}
		out.tasks = append(out.tasks, t)
		out.inDomain[c.facts.DomainOf(t.Machine, domains)]++
		if outer {
			out.inOuter[c.facts.DomainOf(t.Machine, by)]++
		}
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

// domainsOf returns the attribute whose values are the domains over which a job
// is spread: with another one within it, that of both.
func domainsOf(want *schema.Job) string {
	if want.Spread == nil || want.Spread.Then == "" {
		return SpreadBy(want)
	}
	return schema.Nested(SpreadBy(want), want.Spread.Then)
}

// nested reports whether the domains of a job are not just those of one attribute, with as many
// tasks wanted in each.
func nested(want *schema.Job) bool {
	return want.Spread != nil && (want.Spread.Then != "" || want.Spread.Targets != nil)
}

// mayImproveNested is mayImprove of domains that are nested, or have shares: where one outer
// domain has more than its share another one has to have less, and there is no hurry as long as
// none has too many.
func (c *Cell) mayImproveNested(now *occupancy, want *schema.Job) bool {
	outer := c.facts.Domains(SpreadBy(want))
	most, fewest := 0, len(now.tasks)
	over, under := false, false
	for domain := range outer {
		n, share := now.inOuter[domain], now.shares[domain]
		most, fewest, over, under = max(most, n), min(fewest, n), over || n > share, under || n < share
	}
	if now.shares == nil && most-fewest >= 2 || now.shares != nil && over && under {
		return true
	}
	if want.Spread.Then == "" {
		return false
	}
	fewestIn := c.fewestWithin(now, want)
	for domain, n := range now.inDomain {
		of, _, _ := schema.Unnest(domain)
		if few, ok := fewestIn[of]; ok && n-few >= 2 {
			return true
		}
	}
	return false
}

// fewestWithin returns how many tasks there are in the domain with the fewest, by the outer one
// that it is in.
func (c *Cell) fewestWithin(now *occupancy, want *schema.Job) map[string]int {
	out := map[string]int{}
	for domain := range c.facts.Domains(domainsOf(want)) {
		of, _, _ := schema.Unnest(domain)
		n := now.inDomain[domain]
		if few, ok := out[of]; !ok || n < few {
			out[of] = n
		}
	}
	return out
}

// fullness orders outer domains by how much more than its share each has, or by how much it has.
func (o *occupancy) fullness(outer string) float64 {
	n := o.inOuter[outer]
	share, ok := o.shares[outer]
	switch {
	case o.shares == nil:
		return float64(n)
	case !ok:
		return math.MaxInt32 + float64(n)
	case share == 0:
		return float64(n + 1)
	}
	return float64(n-1) / float64(share)
}

// Shares says where a job has more tasks than it wants there, and where less: "zone z1 has 6 of 5
// wanted, zone z2 none of 1". It is "" if it wants no certain number anywhere, or has too many
// nowhere.
func (c *Cell) Shares(name schema.JobName, want *schema.Job) string {
	if want.Spread == nil || want.Spread.Targets == nil || want.Spread.By == schema.NoSpread || want.AllocSet != "" {
		return ""
	}
	now := c.occupancyOf(name, want)
	var parts []string
	over := false
	for _, domain := range slices.Sorted(maps.Keys(now.inOuter)) {
		if n, share := now.inOuter[domain], now.shares[domain]; n > share {
			u := Uneven{Uneven: placement.Uneven{Attribute: SpreadBy(want)}}
			parts, over = append(parts, fmt.Sprintf("%s has %d of %d wanted", u.value(domain), n, share)), true
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(now.shares)) {
		if n, share := now.inOuter[domain], now.shares[domain]; n < share {
			parts = append(parts, fmt.Sprintf("%s %s has %d of %d", SpreadBy(want), domain, n, share))
		}
	}
	if !over {
		return ""
	}
	return strings.Join(parts, ", ") + c.levelled(&now, want)
}

// levelled says that it is the limit of skew that keeps a domain from what is wanted there, "" if it does
// not.
func (c *Cell) levelled(now *occupancy, want *schema.Job) string {
	by := SpreadBy(want)
	most, limited := want.Spread.MaxSkew[by]
	if !limited {
		return ""
	}
	fewest := len(now.tasks) // once a task has left a domain that has too many
	for domain := range c.facts.Domains(by) {
		switch n := now.inOuter[domain]; {
		case domain == "":
		case n > now.shares[domain]:
			fewest = min(fewest, n-1)
		default:
			fewest = min(fewest, n)
		}
	}
	for domain, share := range now.shares {
		if n := now.inOuter[domain]; n < share && n+1-fewest > most {
			return fmt.Sprintf("; spread.maxSkew keeps it so: no %s may have more than %s more than another one", by, schema.Count(most, "task"))
		}
	}
	return ""
}

// mayImprove reports whether a task may be better elsewhere. It asks no placement.
func (c *Cell) mayImprove(now *occupancy, want *schema.Job) bool {
	onOne := 0
	for _, n := range now.onMachine {
		onOne = max(onOne, n)
	}
	if onOne >= 2 || nested(want) {
		return onOne >= 2 || c.mayImproveNested(now, want)
	}
	most, fewest := 0, len(now.tasks)
	for domain := range c.facts.Domains(SpreadBy(want)) {
		most, fewest = max(most, now.inDomain[domain]), min(fewest, now.inDomain[domain])
	}
	return most-fewest >= 2
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
	domain := func(t *schema.TaskRecord) string { return c.facts.DomainOf(t.Machine, domainsOf(want)) }
	fullness := func(t *schema.TaskRecord) float64 {
		if !nested(want) {
			return 0
		}
		return now.fullness(c.facts.DomainOf(t.Machine, SpreadBy(want)))
	}
	byDomain := slices.MaxFunc(now.tasks, func(a, b *schema.TaskRecord) int {
		return cmp.Or(cmp.Compare(fullness(a), fullness(b)), cmp.Compare(now.inDomain[domain(a)], now.inDomain[domain(b)]), cmp.Compare(now.onMachine[a.Machine], now.onMachine[b.Machine]), cmp.Compare(a.Index, b.Index))
	})
	byMachine := slices.MaxFunc(now.tasks, func(a, b *schema.TaskRecord) int {
		return cmp.Or(cmp.Compare(now.onMachine[a.Machine], now.onMachine[b.Machine]), cmp.Compare(a.Index, b.Index))
	})
	var until facts.Until
	candidates := []*schema.TaskRecord{byDomain}
	if nested(want) {
		fewest := c.fewestWithin(&now, want)
		ahead := func(t *schema.TaskRecord) int {
			of, _, _ := schema.Unnest(domain(t))
			return now.inDomain[domain(t)] - fewest[of]
		}
		candidates = append(candidates, slices.MaxFunc(now.tasks, func(a, b *schema.TaskRecord) int {
			return cmp.Or(cmp.Compare(ahead(a), ahead(b)), cmp.Compare(a.Index, b.Index))
		}))
	}
	for i, t := range append(candidates, byMachine) {
		if i > 0 && t.Machine == byDomain.Machine {
			continue
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
