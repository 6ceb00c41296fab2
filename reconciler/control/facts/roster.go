package facts

import (
	"container/heap"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Known is how each machine is, as one Facts found it out, and spares the next one work:
// that looks at those of which something was stored, that have said something, or whose
// time to fall silent has come, and at those that are not up. It goes with one State and
// one Observed, and their snapshots. The zero value is empty.
type Known struct {
	now               time.Time // when it was brought up to date
	desired           *intent.Desired
	written, reported int // how much of what was stored, and said, is in it
	machines          map[string]*knownMachine
	names, up         nameSet
	down              map[string]bool // machines that are not up
	silences          silenceQueue
	marked            [markCount]nameSet
	domains           map[string]map[string]int // machines that are up, by attribute and value
	changes           model.Log[string]
	places            uint64 // counts the changes of which machines are up, and of what is declared of them
	said              saidOfJobs
}

// knownMachine is how a machine is.
type knownMachine struct {
	record     *schema.MachineRecord
	report     uint64 // number of its last, 0 if there is none
	overloaded bool   // by that
	spec       *intent.MachineSpec
	up         bool
	queued     time.Time // of its entry in silences that counts; zero if there is none
	over       bool      // it is another by now, or gone
}

// mark is what few machines have, and is looked for in each step.
type mark int

const (
	// markReturning is of machines whose records say that they were lost, or are to be
	// watched, and of those that are declared gone.
	markReturning mark = iota
	markDraining
	markOverloaded
	markCount
)

func (m *knownMachine) has(x mark) bool {
	switch x {
	case markReturning:
		return m.spec.Gone != nil || !m.record.LostSince.IsZero() || m.record.Spoke || !m.record.GoneSince.IsZero()
	case markDraining:
		return m.spec.Drain != nil
	case markOverloaded:
		return m.overloaded
	}
	return false
}

// Roster is what a Known is brought up to date with.
type Roster struct {
	State    *model.State
	Desired  *intent.Desired
	Observed *model.Observed
	Now      time.Time
}

// Update brings k up to date.
func (k *Known) Update(r Roster) {
	written, nextWritten, known := r.State.MachinesWrittenSince(k.written)
	reported, nextReported, alsoKnown := r.Observed.ChangedSince(k.reported)
	k.written, k.reported = nextWritten, nextReported
	if known && alsoKnown && k.machines != nil && !r.Now.Before(k.now) && k.desired.SameMachines(r.Desired) {
		k.now, k.desired = r.Now, r.Desired
		for _, names := range [][]string{written, reported} {
			for _, name := range names {
				k.refresh(&r, name)
			}
		}
	} else {
		*k = Known{
			now: r.Now, desired: r.Desired, written: nextWritten, reported: nextReported, changes: k.changes, places: k.places,
			machines: make(map[string]*knownMachine, len(r.State.Machines)), down: map[string]bool{},
		}
		k.changes.Reset()
		for _, name := range r.State.MachineNames() {
			k.refresh(&r, name)
		}
	}
	k.settle(&r)
	k.said.forget()
}

// refresh looks at one machine.
func (k *Known) refresh(r *Roster, name string) {
	was, record := k.machines[name], r.State.Machines[name]
	if record == nil {
		k.forget(name, was)
		return
	}
	until, up := r.Observed.UpUntil(name, r.Now)
	is := &knownMachine{record: record, up: up && record.Forgotten == nil}
	if h := r.Observed.Last(name); h != nil {
		is.report, is.overloaded = h.Number, h.Report.Overload != nil
	}
	if was != nil {
		is.spec, is.queued = was.spec, was.queued
	}
	if was == nil || was.record != record {
		if spec := r.Desired.DeclaredOf(&record.MachineInfo); was == nil || !reflect.DeepEqual(*was.spec, spec) {
			is.spec = &spec
		}
	}
	if is.up && (is.queued.IsZero() || until.Before(is.queued)) {
		heap.Push(&k.silences, silence{until, name})
		is.queued = until
	}
	k.replace(name, was, is)
}

// replace keeps how a machine is; was is nil of one that is new.
func (k *Known) replace(name string, was, is *knownMachine) {
	if was != nil && was.record == is.record && was.report == is.report && was.up == is.up {
		was.queued = is.queued
		return
	}
	k.changes.Add(name, len(k.machines))
	k.machines[name] = is
	if was == nil {
		k.names.add(name)
	} else {
		was.over = true
	}
	if was == nil || was.up != is.up || was.spec != is.spec {
		k.count(name, was, -1)
		k.count(name, is, 1)
	}
	if is.up {
		k.up.add(name)
		delete(k.down, name)
	} else {
		k.up.remove(name)
		k.down[name] = true
	}
	for x := range markCount {
		if is.has(x) {
			k.marked[x].add(name)
		} else {
			k.marked[x].remove(name)
		}
	}
}

// forget drops a machine that is out of the state; was is nil if it was not known.
func (k *Known) forget(name string, was *knownMachine) {
	if was == nil {
		return
	}
	k.changes.Add(name, len(k.machines))
	k.count(name, was, -1)
	was.over = true
	delete(k.machines, name)
	delete(k.down, name)
	k.names.remove(name)
	k.up.remove(name)
	for x := range markCount {
		k.marked[x].remove(name)
	}
}

// settle finds the machines that have fallen silent, and has the first of silences be
// when the next one will.
func (k *Known) settle(r *Roster) {
	for len(k.silences) > 0 {
		first := &k.silences[0]
		name, m := first.name, k.machines[first.name]
		if m == nil || !m.queued.Equal(first.at) {
			heap.Pop(&k.silences)
			continue
		}
		until, up := r.Observed.UpUntil(name, r.Now)
		switch {
		case !m.up || !up:
			heap.Pop(&k.silences)
			m.queued = time.Time{}
			k.refresh(r, name)
		case until.After(first.at): // it has reported since
			first.at, m.queued = until, until
			heap.Fix(&k.silences, 0)
		default:
			return
		}
	}
}

// count counts a machine in the domains that were asked for by so much, if it is up.
func (k *Known) count(name string, m *knownMachine, by int) {
	k.places++
	if m == nil || !m.up {
		return
	}
	for attribute, counts := range k.domains {
		domain := m.domain(name, attribute)
		if counts[domain] += by; counts[domain] == 0 {
			delete(counts, domain)
		}
	}
}

func (m *knownMachine) domain(name, attribute string) string {
	if attribute == schema.AttributeMachine {
		return name
	}
	if outer, inner, ok := schema.Unnest(attribute); ok {
		return schema.Nested(m.domain(name, outer), m.domain(name, inner))
	}
	return m.spec.Attributes[attribute]
}

// in returns how many machines are up, by the value that they have of an attribute.
func (k *Known) in(attribute string) map[string]int {
	counts, ok := k.domains[attribute]
	if !ok {
		counts = map[string]int{}
		for _, name := range k.up {
			counts[k.machines[name].domain(name, attribute)]++
		}
		if k.domains == nil {
			k.domains = map[string]map[string]int{}
		}
		k.domains[attribute] = counts
	}
	return counts
}

// Returning returns the machines of which it is to be seen whether they are back, sorted:
// others are up, or are not, and nothing else is to be said of them.
func (k *Known) Returning() []string { return k.marked[markReturning] }

// Describe returns what is known, line by line, for tests: a Known that was updated has the
// same as a new one.
func (k *Known) Describe() []string {
	out := []string{
		fmt.Sprint("machines ", k.names), fmt.Sprint("up ", k.up), fmt.Sprint("down ", slices.Sorted(maps.Keys(k.down))), fmt.Sprint("marked ", k.marked),
	}
	if len(k.silences) > 0 {
		out = append(out, fmt.Sprint("the first is silent in ", k.silences[0].at.Sub(k.now)))
	}
	for _, name := range k.names {
		m := k.machines[name]
		out = append(out, fmt.Sprintf("%s %p %d %v %v %t", name, m.record, m.report, m.spec.Attributes, m.spec.Closed(), m.up))
	}
	return out
}

// DescribeDomains returns how many machines are up in each domain that another Known has
// counted.
func (k *Known) DescribeDomains(o *Known) []string {
	var out []string
	for _, attribute := range slices.Sorted(maps.Keys(o.domains)) {
		out = append(out, fmt.Sprint(attribute, " ", k.in(attribute)))
	}
	return out
}

// nameSet is a set of names, sorted.
type nameSet []string

func (s *nameSet) add(name string) {
	if at, there := slices.BinarySearch(*s, name); !there {
		*s = slices.Insert(*s, at, name)
	}
}

func (s *nameSet) remove(name string) {
	if at, there := slices.BinarySearch(*s, name); there {
		*s = slices.Delete(*s, at, at+1)
	}
}

// silence is when a machine falls silent unless it reports before.
type silence struct {
	at   time.Time
	name string
}

// silenceQueue is a container/heap. An entry counts if it is that of its machine; the
// machine may have reported since, but its last report never counts from an earlier time.
type silenceQueue []silence

func (q *silenceQueue) Len() int           { return len(*q) }
func (q *silenceQueue) Less(i, j int) bool { return (*q)[i].at.Before((*q)[j].at) }
func (q *silenceQueue) Swap(i, j int)      { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }
func (q *silenceQueue) Push(x any)         { *q = append(*q, x.(silence)) }

func (q *silenceQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
