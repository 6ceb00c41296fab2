package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

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
	return h.Reason + ": their tasks are left where they are"
}

// rescheduler is what a step decides of the tasks of silent machines.
type rescheduler struct {
	*step
	policy schema.LossPolicy
	next   schema.LossRecord
	cell   domainHealth
	parts  map[string]*domainHealth // by domain
}

// domainHealth counts the machines of a cell, or of a domain.
type domainHealth struct {
	all  int // that were not given up long ago, nor are declared gone
	down int // of them: silent, or given up of late
	due  bool
}

// over reports whether more are silent than may be.
func (c *domainHealth) over(percent int) bool { return c.down > c.most(percent) }

// most is how many may be silent at once.
func (c *domainHealth) most(percent int) int { return max(1, c.all*percent/100) }

// newRescheduler counts the machines.
func (s *step) newRescheduler() *rescheduler {
	l := &rescheduler{step: s, policy: s.desired.Policy.Loss(), parts: map[string]*domainHealth{}}
	l.next = schema.LossRecord{Full: maps.Clone(s.base.Loss.Full), Held: s.past(s.base.Loss.Held), HeldDomains: maps.Clone(s.base.Loss.HeldDomains)}
	for domain, since := range l.next.HeldDomains {
		l.next.HeldDomains[domain] = s.past(since)
	}
	for _, name := range s.names {
		domain := s.machineSpec(name).Attributes[l.policy.Domain]
		if l.parts[domain] == nil {
			l.parts[domain] = &domainHealth{}
		}
		l.count(&l.cell, name, l.next.Held)
		l.count(l.parts[domain], name, l.next.HeldDomains[domain])
	}
	if len(l.parts) == 1 { // which is the cell
		clear(l.parts)
	}
	return l
}

// count takes a machine into the health of a domain. While the tasks of a part are held since
// a time, what was given up shortly before that goes on counting: time alone
// does not end it.
func (l *rescheduler) count(c *domainHealth, name string, held time.Time) {
	q := l.silent[name]
	switch {
	case q == nil:
		c.all++
		return
	case q.dead():
		return
	case q.record.LostSince.IsZero():
		c.due = c.due || q.lost
	default:
		late := q.record.LostSince.Add(atOnce)
		if held.IsZero() {
			l.wake(late)
			held = l.now
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
func (l *rescheduler) hold(due []dueTask) {
	for i := range due {
		if t := &due[i]; t.why != "" && !t.on.dead() {
			l.cell.due = true
			if part := l.parts[t.on.domain]; part != nil {
				part.due = true
			}
		}
	}
	alone := len(l.up) == 0 && l.cell.down > 0
	l.next.Held = l.turn(l.next.Held, &l.cell, alone, "")
	if !l.next.Held.IsZero() {
		l.out.Holding = append(l.out.Holding, l.lossHold(&l.cell, "", l.next.Held))
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
		l.out.Holding = append(l.out.Holding, l.lossHold(l.parts[domain], domain, since))
	}
	maps.DeleteFunc(l.next.HeldDomains, func(domain string, _ time.Time) bool { return l.parts[domain] == nil })
}

// turn returns since when a part is held from now on, zero if it is not.
func (l *rescheduler) turn(since time.Time, c *domainHealth, alone bool, name string) time.Time {
	switch over := c.over(l.policy.MaxPercent) || alone; {
	case !over && !since.IsZero():
		l.event(schema.Event{Kind: schema.EventMachine, Message: "tasks of lost machines are rescheduled again" + in(name)})
		return time.Time{}
	case over && since.IsZero() && c.due:
		l.event(schema.Event{Kind: schema.EventMachine, Message: "tasks of silent machines are left where they are" + in(name) + ": " + l.reason(c)})
		return l.now
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
	if c == &l.cell && len(l.up) == 0 {
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

// dueTask is a task on a silent machine.
type dueTask struct {
	name schema.TaskName
	on   *silent
	data *schema.Job // that its owner wants now, or that it runs
	why  string      // it is to be rescheduled; "" if it is not yet
	free bool        // nobody gets it: that costs the others nothing
	own  bool        // it is of a system job: nobody else can have it
}

// dueTasks returns the tasks on silent machines: those of higher priority first,
// then by name.
func (s *step) dueTasks() []dueTask {
	if s.memo.empty == nil {
		s.memo.empty = map[string]bool{}
	}
	anything := false
	for name := range s.silent {
		anything = anything || !s.memo.empty[name]
	}
	if !anything {
		return nil
	}
	for name := range s.silent {
		s.memo.empty[name] = true
	}
	var out []dueTask
	for _, key := range s.chunkNames() {
		c := s.chunk(key)
		for i := range c.Tasks {
			if q := s.silent[c.Tasks[i].Machine]; q != nil {
				s.memo.empty[c.Tasks[i].Machine] = false
				out = append(out, s.dueTask(key.Job, &c.Tasks[i], q))
			}
		}
	}
	slices.SortFunc(out, func(a, b dueTask) int {
		return cmp.Or(cmp.Compare(b.data.Priority, a.data.Priority), a.name.Compare(b.name))
	})
	return out
}

// dueTask says whether a task on a silent machine is to be rescheduled.
func (s *step) dueTask(job schema.JobName, t *schema.TaskRecord, q *silent) dueTask {
	d := dueTask{name: job.Task(t.Index), on: q, data: s.dataOf(t.Data), free: true}
	if r := s.job(job); r.Admitted != "" {
		d.data = s.dataOf(r.Admitted)
		d.own = d.data.Kind == schema.System && t.Stop == nil && !q.dead()
		d.free = d.data.Kind == schema.System || t.Index >= d.data.Tasks
	}
	usual := s.in.Observed.LostAfter
	tolerates, quiet := d.data.After(usual), q.quiet
	if since := q.record.LostSince; q.lost && !since.IsZero() && !s.in.Observed.Heard(q.record.Name) {
		quiet = max(quiet, s.now.Sub(since)+usual) // as the masters before it knew
	}
	switch {
	case q.dead():
		d.why = "the machine was " + s.whyLost(q)
	case d.data.NeverTwice():
		if q.lost {
			s.leave(d.name, fmt.Sprintf("it must never run twice: it waits for %s, for a commit that declares it gone, or for muster machine forget", q.record.Name))
		}
	case !d.free && s.stays(d.data, t) != "":
		if q.lost {
			s.leave(d.name, fmt.Sprintf("it %s, for a commit that declares it gone, or for muster machine forget", waitsForHome(q.record.Name)))
		}
	case quiet >= tolerates && (tolerates < usual || q.lost):
		d.why = "the machine has been silent for " + tolerates.String()
	default:
		s.wake(s.now.Add(tolerates - quiet))
		if q.lost {
			s.leave(d.name, fmt.Sprintf("its job tolerates %s of silence, until %s", tolerates, s.now.Add(tolerates-quiet).UTC().Format(time.RFC3339)))
		}
	}
	return d
}

// lookAgain has the next step come in time for tasks on silent machines whose jobs
// have other data since it was decided what becomes of them: they may tolerate less
// of silence now.
func (s *step) lookAgain() {
	if len(s.silent) == 0 {
		return
	}
	for name, r := range s.jobs {
		if was := s.base.Jobs[name]; r == nil || was != nil && was.Admitted == r.Admitted {
			continue
		}
		for _, t := range s.tasks(name) {
			if q := s.silent[t.Machine]; q != nil && s.dueTask(name, &t, q).why != "" {
				s.wakeAtOnce()
			}
		}
	}
}

// leave says what a task waits for that stays on a silent machine.
func (s *step) leave(task schema.TaskName, why string) {
	if s.out.Left == nil {
		s.out.Left = map[schema.TaskName]string{}
	}
	s.out.Left[task] = why
}

// release gives tasks of silent machines to others, as far as the buckets go.
func (l *rescheduler) release(due []dueTask) {
	for i := range due {
		d := &due[i]
		switch {
		case d.why == "":
		case d.on.record.Forgotten != nil: // by somebody who wants it now
			l.released[d.name] = d.why
		case !d.on.dead() && l.held(d.on.domain):
			l.leave(d.name, "too many machines are silent: "+l.holder(d.on.domain))
		case d.own:
			l.kept[d.name] = d.why
			l.leave(d.name, "it goes on when the machine returns")
		case d.free || l.takeToken(d.on.domain):
			l.released[d.name] = d.why
		default:
			l.leave(d.name, fmt.Sprintf("it waits its turn: of %s, %s a minute %s rescheduled", l.name(d.on.domain), schema.Count(l.policy.TasksPerMinute, "task"), schema.Verb(l.policy.TasksPerMinute, "is", "are")))
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
	full, ready := b.take(l.next.Full[domain], l.now)
	if l.next.Full == nil {
		l.next.Full = map[string]time.Time{}
	}
	l.next.Full[domain] = full
	l.wake(ready)
	return !ready.After(l.now)
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
	was := &l.base.Loss
	if maps.EqualFunc(l.next.Full, was.Full, time.Time.Equal) && l.next.Held.Equal(was.Held) && maps.EqualFunc(l.next.HeldDomains, was.HeldDomains, time.Time.Equal) {
		return
	}
	maps.DeleteFunc(l.next.Full, func(_ string, full time.Time) bool { return !full.After(l.now) })
	l.loss = &l.next
}
