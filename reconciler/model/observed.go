package model

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// SilentAfter is how long a machine may go without a report before it gets no new
	// tasks: a few missed reports.
	SilentAfter = 10 * time.Second
	// DefaultLostAfter is how long a machine may go without a report before its tasks are
	// rescheduled, unless the master is configured otherwise.
	DefaultLostAfter = 60 * time.Second
	// MinLostAfter is the least that may be configured: longer than SilentAfter.
	MinLostAfter = 15 * time.Second
)

// Observed is what the cell's agents have reported since this master began to lead. It is
// not stored: agents report it again.
type Observed struct {
	// LostAfter is how long a machine may go without a report before its tasks are
	// rescheduled: DefaultLostAfter, or what its owner sets before the first step, at least
	// MinLostAfter.
	LostAfter time.Duration
	// JoinWait is how long more machines are waited for when one joins a cell in
	// which nothing runs yet, see DefaultJoinWait; 0, unless its owner sets it
	// before the first step, for not at all.
	JoinWait time.Duration

	since    time.Time
	lastStep time.Time // when the last step began
	// waited is for how long its master has waited for the store in all, and waitedBefore
	// that at since: no report was taken then.
	waited, waitedBefore time.Duration

	machines map[string]*LastReport
	changed  Log[string] // machines that have said more than that all is as before, or were dismissed
	news     uint64      // counts the reports that did not only repeat
	usage    map[string]Sample
	contents map[string]content         // by machine
	holders  map[schema.Digest][]string // of what is in contents
	refused  map[string]string          // why machines may not join
	joins    map[string]joins           // of machines without a report since
	// contested are the agents that were refused last the names of machines.
	contested map[string]contested
}

// Snapshot returns what is observed now, for readers in other goroutines: later reports do
// not change it. Its cost is proportional to the number of machines.
func (o *Observed) Snapshot() *Observed {
	out := *o
	reports := make([]LastReport, 0, len(o.machines))
	out.machines = make(map[string]*LastReport, len(o.machines))
	for name, h := range o.machines {
		reports = append(reports, *h)
		out.machines[name] = &reports[len(reports)-1]
	}
	out.usage, out.contents, out.refused = maps.Clone(o.usage), maps.Clone(o.contents), maps.Clone(o.refused)
	out.holders = nil
	out.joins, out.contested = maps.Clone(o.joins), maps.Clone(o.contested)
	return &out
}

// joins counts how often a machine has joined since its last report.
type joins struct {
	first time.Time
	again bool
}

// Join records that a machine has joined. The first join since its last report counts as
// one; a machine that joins again and again and never reports is as silent as one that does
// not join.
func (o *Observed) Join(machine string, now time.Time) {
	o.forgetContent(machine) // it says anew what it holds
	o.changed.Add(machine, len(o.machines))
	if j, ok := o.joins[machine]; ok {
		j.again = true
		o.joins[machine] = j
		return
	}
	o.joins[machine] = joins{first: now}
}

// Refuse remembers why a machine may not join, until it reports, and returns that as events
// if it is new.
func (o *Observed) Refuse(machine string, err error, now time.Time) []schema.Event {
	if o.refused[machine] == err.Error() {
		return nil
	}
	o.refused[machine] = err.Error()
	return []schema.Event{{At: now, Kind: schema.EventMachine, Machine: machine, Message: "refused: " + err.Error()}}
}

// HasReported reports whether a machine has reported since this master began
// to lead.
func (o *Observed) HasReported(machine string) bool { return o.machines[machine] != nil }

// ListeningSince is since when reports were taken without a break.
func (o *Observed) ListeningSince() time.Time { return o.since }

// Shift moves the times of all that was observed by so much. A simulated clock, whose
// times have no monotonic reading, has it when the clock is set: what was observed is
// then as long ago as before.
func (o *Observed) Shift(by time.Duration) {
	o.changed.Reset()
	o.since = o.since.Add(by)
	for _, h := range o.machines {
		h.shift(by)
	}
}

// Last returns a machine's last report, nil if it has not reported to this master. It is
// another value after each report that differs from the one before.
func (o *Observed) Last(machine string) *LastReport { return o.machines[machine] }

// ChangedSince returns the machines whose Last is another since an earlier call returned
// next, 0 for the first, or whose last report counts from an earlier time; some may be
// there more than once. It is not ok if any may have been.
func (o *Observed) ChangedSince(last int) (names []string, next int, ok bool) {
	return o.changed.Since(last)
}

// UpUntil returns until when a machine counts as up if no further report comes, and whether
// it is up now.
func (o *Observed) UpUntil(machine string, now time.Time) (until time.Time, ok bool) {
	h := o.machines[machine]
	if h == nil {
		return time.Time{}, false
	}
	silent := now.Sub(h.at)
	return now.Add(SilentAfter - silent), silent < SilentAfter
}

// Refusals returns why machines may not join, by name of machine.
func (o *Observed) Refusals() []string {
	out := make([]string, 0, len(o.refused))
	for _, machine := range slices.Sorted(maps.Keys(o.refused)) {
		out = append(out, o.refused[machine])
	}
	return out
}

// NewObserved returns what a master knows that begins to lead now: nothing.
func NewObserved(now time.Time) *Observed {
	return &Observed{
		LostAfter: DefaultLostAfter, since: now, lastStep: now,
		machines: map[string]*LastReport{}, usage: map[string]Sample{}, contents: map[string]content{}, holders: map[schema.Digest][]string{}, refused: map[string]string{}, joins: map[string]joins{}, contested: map[string]contested{},
	}
}

// Repeats takes a report that is the same as the machine's last one, and reports whether it
// is: there is nothing to decide then, and AddReport need not be called. The machine must
// be up, and nothing about it in doubt.
func (o *Observed) Repeats(r *schema.Report, now time.Time) bool {
	name := r.Machine.Name
	was := o.machines[name]
	_, joined := o.joins[name]
	_, refused := o.refused[name]
	_, contested := o.contested[name]
	if was == nil || joined || refused || contested || now.Sub(was.at) >= SilentAfter || !SameReport(&was.Report, r) {
		return false
	}
	if now.Before(was.at) { // else it is only up for longer
		o.changed.Add(name, len(o.machines))
	}
	was.at, was.waited = now, o.waited
	return true
}

// SameReport reports whether b is a, as it is when an agent has sent but its digest. Two
// that were sent whole are not looked through for whether they say the same.
func SameReport(a, b *schema.Report) bool {
	same := len(a.Tasks) == len(b.Tasks) && (len(a.Tasks) == 0 || &a.Tasks[0] == &b.Tasks[0])
	return same && a.View == b.View && a.Overload == b.Overload && a.Machine.Boot == b.Machine.Boot && a.Machine.ID == b.Machine.ID &&
		slices.Equal(a.BusyPorts, b.BusyPorts) && slices.Equal(a.Conditions, b.Conditions)
}

// AddReport takes a report, and returns what is new in it as events.
func (o *Observed) AddReport(r schema.Report, now time.Time) []schema.Event {
	was := o.machines[r.Machine.Name]
	o.news++
	h := newLastReport(&r, o.news)
	h.at, h.waited = now, o.waited
	o.machines[r.Machine.Name] = h
	o.changed.Add(r.Machine.Name, len(o.machines))
	delete(o.refused, r.Machine.Name)
	delete(o.joins, r.Machine.Name)
	events := o.uncontested(r.Machine.Name, now)
	if was != nil {
		events = append(events, conditionEvents(was.Report.Conditions, r.Conditions, r.Machine.Name, now)...)
	}
	if o := r.Overload; o != nil && (was == nil || was.Report.Overload == nil) {
		events = append(events, schema.Event{At: now, Kind: schema.EventMachine, Machine: r.Machine.Name, Message: "overloaded: " + o.Message})
	}
	unconfirmed := 0
	for i := range r.Tasks {
		t := &r.Tasks[i]
		var before ReportedTask
		if was != nil {
			before = was.Task(t.Generation)
		}
		h.add(t, before, now)
		// The first report to a master is no news: another one saw it happen.
		if was != nil && t.State == schema.Running {
			events = append(events, started(before, t, r.Machine.Name, now)...)
		}
		if was != nil {
			events = append(events, unhealthyEvents(before, t, r.Machine.Name, now)...)
			events = append(events, oomEvents(before, t, r.Machine.Name, now)...)
		}
		if was == nil && t.Unconfirmed { // what no master saw happen
			unconfirmed++
		}
	}
	h.complete(was)
	if unconfirmed > 0 {
		events = append(events, schema.Event{
			At: now, Kind: schema.EventMachine, Machine: r.Machine.Name,
			Message: schema.Count(unconfirmed, "task") + " " + schema.Unconfirmed,
		})
	}
	return events
}

// runs reports whether t, which may be empty, says that an incarnation runs.
func runs(t ReportedTask, incarnation int) bool {
	return t.TaskStatus != nil && t.State == schema.Running && t.Incarnation == incarnation
}

// started returns the event of an incarnation that runs and did not before.
func started(was ReportedTask, t *schema.TaskStatus, machine string, now time.Time) []schema.Event {
	if runs(was, t.Incarnation) {
		return nil
	}
	e := schema.Event{
		At: now, Kind: schema.EventStart, Job: t.Task.JobName.Short(), Task: t.Task.Short(), Machine: machine, Generation: t.Generation,
		Message: fmt.Sprintf("runs as pid %d", t.PID),
	}
	if n := len(t.Exits); n > 0 {
		e.Kind = schema.EventRestart
		e.Message = fmt.Sprintf("%s; restarted as pid %d", t.Exits[n-1], t.PID)
	}
	if t.Unconfirmed {
		e.Message += ", " + schema.Unconfirmed
	}
	return []schema.Event{e}
}

// conditionEvents returns the events of conditions that began and that are over.
func conditionEvents(was, is []schema.Condition, machine string, now time.Time) []schema.Event {
	var events []schema.Event
	event := func(c schema.EventCondition, message string) {
		events = append(events, schema.Event{At: now, Kind: schema.EventMachine, Machine: machine, Message: "condition " + message, Input: &schema.EventInput{Condition: &c}})
	}
	has := func(list []schema.Condition, kind schema.ConditionKind) bool {
		return slices.ContainsFunc(list, func(c schema.Condition) bool { return c.Kind == kind })
	}
	for _, c := range is {
		// More of the same kind is reported too: each has a message of its own.
		more := c.Kind == schema.DamagedState && !slices.Contains(was, c)
		if !has(was, c.Kind) || more {
			event(schema.EventCondition{Condition: c}, c.String())
		}
	}
	for _, c := range was {
		if !has(is, c.Kind) {
			event(schema.EventCondition{Condition: c, Over: true}, string(c.Kind)+" is over")
		}
	}
	return events
}

// Conditions returns what machine last said is wrong with it.
func (o *Observed) Conditions(machine string) []schema.Condition {
	if h := o.machines[machine]; h != nil {
		return h.Report.Conditions
	}
	return nil
}

// Admits reports whether no condition of machine keeps tasks of a priority away.
func (o *Observed) Admits(machine string, p schema.Priority) bool {
	return !slices.ContainsFunc(o.Conditions(machine), func(c schema.Condition) bool { return p < c.Kind.MinPriority() })
}

// unhealthyEvents returns the event of an incarnation that is unhealthy and was not.
func unhealthyEvents(was ReportedTask, t *schema.TaskStatus, machine string, now time.Time) []schema.Event {
	if t.Health != schema.Unhealthy || was.TaskStatus != nil && was.Health == schema.Unhealthy && was.Incarnation == t.Incarnation {
		return nil
	}
	return []schema.Event{{
		At: now, Kind: schema.EventUnhealthy, Job: t.Task.JobName.Short(), Task: t.Task.Short(), Machine: machine, Generation: t.Generation,
		Message: Saw("its health check fails", t),
	}}
}

// oomEvents returns the event of an incarnation that has lost processes for lack of
// memory, and lives.
func oomEvents(was ReportedTask, t *schema.TaskStatus, machine string, now time.Time) []schema.Event {
	kills := t.OOMKills
	if was.TaskStatus != nil && was.Incarnation == t.Incarnation {
		kills -= was.OOMKills
	}
	if kills <= 0 {
		return nil
	}
	return []schema.Event{{
		At: now, Kind: schema.EventOOM, Job: t.Task.JobName.Short(), Task: t.Task.Short(), Machine: machine, Generation: t.Generation,
		Message: fmt.Sprintf("out of memory: the kernel killed processes of the task (%d); the task keeps running", kills),
	}}
}

// Task returns what machine last said of a generation, which is unique in the
// cell; it is empty if it said nothing.
func (o *Observed) Task(machine string, name schema.TaskName, generation uint64) ReportedTask {
	if h := o.machines[machine]; h != nil {
		if t := h.Task(generation); t.TaskStatus != nil && t.Task == name {
			return t
		}
	}
	return ReportedTask{}
}

// Status returns what machine last said of a generation, nil if it said
// nothing.
func (o *Observed) Status(machine string, name schema.TaskName, generation uint64) *schema.TaskStatus {
	return o.Task(machine, name, generation).TaskStatus
}

// refusedFor is how long a port counts as busy after a generation was refused
// for it: longer than the agent takes to look again who listens (3 s), since then
// what it sees counts, and longer than the wait between two tries, so that others
// are tried first. A port that was released must come back.
const refusedFor = 12 * time.Second

// BusyPorts returns the ports of a machine that the cell shall not choose although none of its tasks has them:
// those that its agent saw in use, and those of generations that were refused recently for one that is in use.
// It also returns when the first of these may be tried again, zero if there are none.
func (o *Observed) BusyPorts(machine string, now time.Time) (busy []int, until time.Time) {
	h := o.machines[machine]
	if h == nil {
		return nil, time.Time{}
	}
	busy = slices.Clip(h.Report.BusyPorts) // what is appended is not the report's
	for i := range h.Report.Tasks {
		t := &h.Report.Tasks[i]
		if t.End == nil || t.End.Kind != schema.CausePortInUse || t.Own != nil {
			continue // with a network of its own they are none of the machine's
		}
		again := h.Task(t.Generation).Since.Add(refusedFor)
		if !now.Before(again) {
			continue
		}
		if until.IsZero() || again.Before(until) {
			until = again
		}
		for _, p := range t.Ports {
			busy = append(busy, p.Port)
		}
	}
	return busy, until
}

// Health is a word for how a machine is.
type Health string

// The values. A machine that has not reported to this master yet is silent.
const (
	HealthUp     Health = "up"
	HealthSilent Health = "silent"
	HealthLost   Health = "lost"
)

// HealthOf returns how a machine is, and when that will change if it goes on
// saying nothing (zero if never). One that has joined and not reported yet is
// silent since then.
func (o *Observed) HealthOf(r *schema.MachineRecord, now time.Time) (Health, time.Time) {
	if until, up := o.UpUntil(r.Name, now); up {
		return HealthUp, until
	}
	silence := o.Silence(r, now)
	if silence >= o.LostAfter {
		return HealthLost, time.Time{}
	}
	return HealthSilent, now.Add(o.LostAfter - silence)
}

// Silence returns for how long a machine has said nothing: neither reported, nor
// joined, see join.
func (o *Observed) Silence(r *schema.MachineRecord, now time.Time) time.Duration {
	waited := o.waited - o.waitedBefore
	if h := o.machines[r.Name]; h != nil {
		waited = o.waited - h.waited
	}
	silence := now.Sub(o.LastSeen(r.Name)) - waited
	// What is stored has the time of day only. Where the clock was set forward
	// since, the other one is the shorter.
	joined := now.Sub(r.Joined)
	if j := o.joins[r.Name]; j.again {
		joined = now.Sub(j.first)
	}
	if joined >= 0 {
		silence = min(silence, joined)
	}
	return silence
}

// LastSeen returns when a machine last reported, or since when its report is awaited.
func (o *Observed) LastSeen(machine string) time.Time {
	if h := o.machines[machine]; h != nil {
		return h.at
	}
	return o.since
}

// Saw adds what the last health check that failed has seen.
func Saw(what string, status *schema.TaskStatus) string {
	if status.HealthMessage == "" {
		return what
	}
	return what + ": " + status.HealthMessage
}
