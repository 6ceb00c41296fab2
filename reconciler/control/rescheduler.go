package control

import (
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// LossHold is a part of a cell in which the tasks of silent machines are left
// where they are: so many are silent at once that they are more likely cut off
// than gone.
type LossHold struct {
	Domain   string    `json:"domain,omitempty"` // as rack=r3; "" is the whole cell
	Since    time.Time `json:"since"`
	Silent   int       `json:"silent"`   // machines
	Machines int       `json:"machines"` // of so many
	Reason   string    `json:"reason"`
	Next     string    `json:"next"` // what ends it
}

// Waiting says what stands between the cell and its repository.
func (h *LossHold) Waiting() string {
	return h.Reason + ": their tasks are not rescheduled"
}

// rescheduler decides what becomes of the tasks of silent machines.
type rescheduler struct {
	pass
	policy schema.LossPolicy
	next   schema.LossRecord
	cell   domainHealth
	parts  map[string]*domainHealth // by domain

	// released are the tasks of silent machines that are rescheduled, and why.
	released map[schema.TaskName]string
	// kept are the tasks of system jobs that would be, but for that they have no
	// other machine: see systems.dropKept.
	kept map[schema.TaskName]string
	// holding says where tasks are left where they are, and left, of tasks on machines
	// that are lost, what they wait for.
	holding []LossHold
	left    map[schema.TaskName]string
}

// decide finds which machines are given up, and which of the tasks of silent ones are
// rescheduled.
func (l *rescheduler) decide() {
	m := machines{l.pass}
	for _, name := range l.ReturningMachines() {
		if l.IsUp(name) {
			m.returned(name)
		}
	}
	if len(l.SilentMachines()) == 0 && l.Base.Loss.Empty() {
		return
	}
	l.count()
	due, until := l.DueTasks()
	l.bookCell(until)
	for i := range due {
		l.leave(due[i].Name, due[i].Left)
	}
	l.hold(due)
	for _, name := range slices.Sorted(maps.Keys(l.SilentMachines())) {
		if q := l.SilentMachines()[name]; l.Machine(name).LostSince.IsZero() && (q.Dead() || q.Lost && !l.held(q.Domain)) {
			m.giveUp(q)
		}
	}
	l.release(due)
	l.keep()
}

// domainHealth counts the machines of a cell, or of a domain.
type domainHealth struct {
	all  int // that were not given up long ago, nor are declared gone
	down int // of them: silent, or given up recently
	due  bool
}

// over reports whether more are silent than may be.
func (c *domainHealth) over(percent int) bool { return c.down > c.most(percent) }

// most is how many may be silent at once.
func (c *domainHealth) most(percent int) int { return max(1, c.all*percent/100) }

func newRescheduler(p pass) *rescheduler {
	return &rescheduler{
		pass: p, policy: p.Desired.Policy.Loss(), parts: map[string]*domainHealth{},
		released: map[schema.TaskName]string{}, kept: map[schema.TaskName]string{},
	}
}

// count counts the machines.
func (l *rescheduler) count() {
	was := &l.Base.Loss
	l.next = schema.LossRecord{Full: maps.Clone(was.Full), Held: l.Past(was.Held), HeldDomains: maps.Clone(was.HeldDomains)}
	for domain, since := range l.next.HeldDomains {
		l.next.HeldDomains[domain] = l.Past(since)
	}
	l.cell.all = len(l.Up())
	for domain, up := range l.Domains(l.policy.Domain) {
		l.parts[domain] = &domainHealth{all: up}
	}
	for _, q := range l.SilentMachines() {
		if l.parts[q.Domain] == nil {
			l.parts[q.Domain] = &domainHealth{}
		}
		l.countIn(&l.cell, q, l.next.Held)
		l.countIn(l.parts[q.Domain], q, l.next.HeldDomains[q.Domain])
	}
	if len(l.parts) == 1 { // which is the cell
		clear(l.parts)
	}
}

// countIn takes a machine that is not up into the health of a domain. While the tasks of a part are held since
// a time, what was given up shortly before that goes on counting: time alone
// does not end it.
func (l *rescheduler) countIn(c *domainHealth, q *facts.Silent, held time.Time) {
	switch since := l.Machine(q.Name).LostSince; {
	case q.Dead():
		return
	case since.IsZero():
		c.due = c.due || q.Lost
	default:
		late := since.Add(atOnce)
		if held.IsZero() {
			l.bookCell(l.At(late))
			held = l.Now
		}
		if !held.Before(late) {
			return
		}
	}
	c.all++
	c.down++
}

// hold finds in which parts of the cell tasks are left where they are. That
// begins when there is something to give to others, and ends when machines
// return or are declared gone.
func (l *rescheduler) hold(due []facts.DueTask) {
	for i := range due {
		if t := &due[i]; t.Why != "" && !t.On.Dead() {
			l.cell.due = true
			if part := l.parts[t.On.Domain]; part != nil {
				part.due = true
			}
		}
	}
	alone := len(l.Up()) == 0 && l.cell.down > 0
	l.next.Held = l.turn(l.next.Held, &l.cell, alone, "")
	if !l.next.Held.IsZero() {
		l.holding = append(l.holding, l.lossHold(&l.cell, "", l.next.Held))
	}
	for _, domain := range slices.Sorted(maps.Keys(l.parts)) {
		since := l.turn(l.next.HeldDomains[domain], l.parts[domain], false, l.name(domain))
		if since.IsZero() {
			delete(l.next.HeldDomains, domain)
			continue
		}
		if l.next.HeldDomains == nil {
			l.next.HeldDomains = map[string]time.Time{}
		}
		l.next.HeldDomains[domain] = since
		l.holding = append(l.holding, l.lossHold(l.parts[domain], domain, since))
	}
	maps.DeleteFunc(l.next.HeldDomains, func(domain string, _ time.Time) bool { return l.parts[domain] == nil })
}

// turn returns since when a part is held from now on, zero if it is not.
func (l *rescheduler) turn(since time.Time, c *domainHealth, alone bool, name string) time.Time {
	switch over := c.over(l.policy.MaxPercent) || alone; {
	case !over && !since.IsZero():
		l.Event(schema.Event{Kind: schema.EventMachine, Message: "tasks of lost machines are rescheduled again" + in(name)})
		return time.Time{}
	case over && since.IsZero() && c.due:
		l.Event(schema.Event{Kind: schema.EventMachine, Message: "tasks of silent machines are not rescheduled" + in(name) + ": " + l.reason(c)})
		return l.Now
	}
	return since
}

func in(name string) string {
	if name == "" {
		return ""
	}
	return " in " + name
}

// name writes a domain as people do.
func (l *rescheduler) name(domain string) string {
	if domain == "" {
		return "machines without " + l.policy.Domain
	}
	return l.policy.Domain + "=" + domain
}

func (l *rescheduler) reason(c *domainHealth) string {
	if c == &l.cell && len(l.Up()) == 0 {
		return schema.Part(c.down, c.all, "machine", "is", "are") + " silent and none is up"
	}
	return fmt.Sprintf("%s silent, and more than %d at once is likely a fault of the network", schema.Part(c.down, c.all, "machine", "is", "are"), c.most(l.policy.MaxPercent))
}

// lossHold describes a hold.
func (l *rescheduler) lossHold(c *domainHealth, domain string, since time.Time) LossHold {
	h := LossHold{
		Since: since, Silent: c.down, Machines: c.all, Reason: l.reason(c),
		Next: "bring machines back; or commit machine objects with gone: true for those that are gone for good",
	}
	if c != &l.cell {
		h.Domain = l.name(domain)
		h.Reason += " in " + h.Domain
	}
	return h
}

// held reports whether the tasks of a domain are left where they are.
func (l *rescheduler) held(domain string) bool {
	_, held := l.next.HeldDomains[domain]
	return held || !l.next.Held.IsZero()
}

// lookAgain has the next step come in time for tasks on silent machines whose jobs
// have other data since it was decided what becomes of them: they may tolerate less
// of silence now.
func (l *rescheduler) lookAgain() {
	if len(l.SilentMachines()) == 0 {
		return
	}
	for _, name := range l.ChangedJobs() {
		if r, was := l.Job(name), l.Base.Jobs[name]; r == nil || was != nil && was.Admitted == r.Admitted {
			continue
		}
		for _, t := range l.Tasks(name) {
			l.lookAgainAt(name, &t)
		}
	}
}

// lookAgainAt has the next step come in time for a task, if its machine is silent.
func (l *rescheduler) lookAgainAt(job schema.JobName, t *schema.TaskRecord) {
	q := l.SilentMachines()[t.Machine]
	if q == nil {
		return
	}
	due, until := l.DueTask(job, t, q)
	l.bookCell(until)
	l.leave(due.Name, due.Left)
	if due.Why != "" {
		l.another()
	}
}

// leave says what a task waits for that stays on a silent machine, nothing with "".
func (l *rescheduler) leave(task schema.TaskName, why string) {
	if why == "" {
		return
	}
	if l.left == nil {
		l.left = map[schema.TaskName]string{}
	}
	l.left[task] = why
}

// dueTasks is a container/heap, from which tasks come in the order in which they are
// rescheduled: of thousands a step takes few, and need not sort them all.
type dueTasks []*facts.DueTask

func (q *dueTasks) Len() int           { return len(*q) }
func (q *dueTasks) Less(i, j int) bool { return (*q)[i].Before((*q)[j]) }
func (q *dueTasks) Swap(i, j int)      { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }
func (q *dueTasks) Push(x any)         { *q = append(*q, x.(*facts.DueTask)) }

func (q *dueTasks) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

// releasedAtOnce is how many tasks of silent machines a step reschedules. The others are those of
// the next step, so that commits and reports are decided upon in between: 10,000 tasks at once
// take seconds. In the order that due tasks have, a step has few jobs to look at.
const releasedAtOnce = 80

// release gives tasks of silent machines to others, as far as the buckets go.
func (l *rescheduler) release(due []facts.DueTask) {
	queue := make(dueTasks, 0, len(due))
	for i := range due {
		if due[i].Why != "" {
			queue = append(queue, &due[i])
		}
	}
	for heap.Init(&queue); len(queue) > 0; {
		d := heap.Pop(&queue).(*facts.DueTask)
		switch {
		case len(l.released) == releasedAtOnce:
			l.another()
			return
		case d.On.Forgotten != nil: // by somebody who wants it now
			l.released[d.Name] = d.Why
		case !d.On.Dead() && l.held(d.On.Domain):
			l.leave(d.Name, "too many machines are silent: "+l.holder(d.On.Domain))
		case d.Own:
			l.kept[d.Name] = d.Why
			l.leave(d.Name, "it continues when the machine returns")
		case d.Free || l.takeToken(d.On.Domain):
			l.released[d.Name] = d.Why
		default:
			l.leave(d.Name, fmt.Sprintf("it waits its turn: of %s, %s a minute %s rescheduled", l.name(d.On.Domain), schema.Count(l.policy.TasksPerMinute, "task"), schema.Verb(l.policy.TasksPerMinute, "is", "are")))
		}
	}
}

// holder says why a domain is held.
func (l *rescheduler) holder(domain string) string {
	if !l.next.Held.IsZero() {
		return l.reason(&l.cell)
	}
	return l.reason(l.parts[domain]) + " in " + l.name(domain)
}

// takeToken takes a token of a domain's bucket; if there is none it asks for a step
// when there is.
func (l *rescheduler) takeToken(domain string) bool {
	b := bucket{every: time.Minute / time.Duration(l.policy.TasksPerMinute), burst: l.policy.Burst}
	full, ready := b.take(l.next.Full[domain], l.Now)
	if l.next.Full == nil {
		l.next.Full = map[string]time.Time{}
	}
	l.next.Full[domain] = full
	l.bookCell(l.At(ready))
	return !ready.After(l.Now)
}

// bucket is a token bucket: burst tokens, and one more every so often. All that
// there is to remember of one is when it is full again.
type bucket struct {
	every time.Duration
	burst int
}

// take takes a token if there is one, and returns when the bucket is full again then,
// and when the token was or will be there. A clock that went back leaves the bucket
// empty at worst: that has to be kept also when nothing was taken, since it would be
// as empty at every other time that comes before full.
func (b bucket) take(full, now time.Time) (next, ready time.Time) {
	size := b.every * time.Duration(b.burst)
	if full.Before(now) {
		full = now
	}
	if empty := now.Add(size); full.After(empty) {
		full = empty
	}
	next = full.Add(b.every)
	if ready = next.Add(-size); ready.After(now) {
		return full, ready
	}
	return next, ready
}

// keep takes down what has changed.
func (l *rescheduler) keep() {
	was := &l.Base.Loss
	if maps.EqualFunc(l.next.Full, was.Full, time.Time.Equal) && l.next.Held.Equal(was.Held) && maps.EqualFunc(l.next.HeldDomains, was.HeldDomains, time.Time.Equal) {
		return
	}
	maps.DeleteFunc(l.next.Full, func(_ string, full time.Time) bool { return !full.After(l.Now) })
	if l.next.Empty() {
		l.Delete(model.KeyLoss)
	} else {
		l.Put(model.KeyLoss, &l.next)
	}
}
