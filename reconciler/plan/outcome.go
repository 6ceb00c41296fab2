package plan

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// Version is that of the fields of Outcome: a later one may mean something else by a field.
const Version = 1

// Outcome is what a cell does until nothing happens any more. Field names are stable.
type Outcome struct {
	Version int    `json:"version"`
	Cell    string `json:"cell"`
	// Ending says why nothing happens any more, and Seconds after how long that is so, at
	// the least.
	Ending  Ending  `json:"ending"`
	Seconds float64 `json:"seconds"`
	// Next is what comes by itself after the end, nil if nothing is known to.
	Next *Next `json:"next,omitempty"`
	// Tasks are those to which something happens, by name, and Steps all that happens to
	// them, in order.
	Tasks []Task `json:"tasks"`
	Steps []Step `json:"steps"`
	// Preempted are the tasks that make room for others.
	Preempted []Preempted `json:"preempted"`
	// Pending are the tasks that have no machine in the end.
	Pending  []Pending     `json:"pending"`
	Rollouts []Rollout     `json:"rollouts"`
	Quota    []QuotaChange `json:"quota"`
	Machines MachineChange `json:"machines"`
	// Blocked is what a person has to act on in the end.
	Blocked []status.Blocker `json:"blocked"`
	// Waiting is all that the cell waits for in the end.
	Waiting  []string `json:"waiting"`
	Warnings []string `json:"warnings"`
}

// Task is what happens to one task. Field names are stable.
type Task struct {
	Name string `json:"name"` // user/job/index
	Fate Fate   `json:"fate"`
	// From and To are its machines before and after; "" if it has none.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Causes are why it was stopped, each once.
	Causes []schema.CauseKind `json:"causes,omitempty"`
}

// Fate is a word for what becomes of a task.
type Fate string

// The fates.
const (
	Starts   Fate = "starts"
	Restarts Fate = "restarts" // on the same machine
	Moves    Fate = "moves"
	Stops    Fate = "stops"
	InPlace  Fate = "in place" // it gets a new version, and runs on
	Evicted  Fate = "pending"  // it is stopped, and gets no machine
	Tries    Fate = "fails"    // it was started, and has no machine in the end
)

// Preempted is a task that makes room for another one. Field names are stable.
type Preempted struct {
	Task     string `json:"task"`
	Priority int    `json:"priority"`
	By       string `json:"by"`
	Becomes  string `json:"becomes"` // in words
}

// Pending is a task without a machine. Field names are stable.
type Pending struct {
	Task   string `json:"task"`
	Reason string `json:"reason"`
	Before bool   `json:"before"` // it was pending before, too
}

// Rollout is how a job changes. Field names are stable.
type Rollout struct {
	Job string `json:"job"`
	// Stops is how many of its tasks are stopped, Starts how many times one is started.
	Stops  int `json:"stops"`
	Starts int `json:"starts"`
	// Seconds is from its first step to its last, and until the last of its tasks is healthy that
	// is started, where they have a health check.
	Seconds float64 `json:"seconds"`
	// MostDown is how many tasks that ran before are down at once at most, and MayBeDown how
	// many its disruption budget lets muster take down by its own choice.
	MostDown  int `json:"mostDown"`
	MayBeDown int `json:"mayBeDown"`
	// PerHour is how many its disruption budget lets muster stop in an hour so; 0 is no bound.
	PerHour int    `json:"perHour,omitempty"`
	State   string `json:"state,omitempty"` // in which its rollout is in the end, in words; "" if it is done
	// Steps are how a new version reaches tasks that run, in order; none if it reaches none.
	Steps []RolloutStep `json:"steps,omitempty"`
}

// QuotaChange is what one user uses of one band. Field names are stable.
type QuotaChange struct {
	User   string         `json:"user"`
	Band   schema.Band    `json:"band"`
	Before quota.Amounts  `json:"before"`
	After  quota.Amounts  `json:"after"`
	Limit  *quota.Amounts `json:"limit,omitempty"` // in the end
}

// MachineChange is what machines hold before and after. Field names are stable.
type MachineChange struct {
	Before Machines `json:"before"`
	After  Machines `json:"after"`
}

// Machines are the sums of the machines that are up. Field names are stable.
type Machines struct {
	Up       int              `json:"up"`
	Capacity schema.Resources `json:"capacity"`
	Used     schema.Resources `json:"used"` // limits of what they hold
	// Stranded is what is free on machines that have less than a twentieth left of
	// something else.
	Stranded schema.Resources `json:"stranded"`
}

// Mark is a cell at the moment from which it is followed.
type Mark struct {
	at       time.Time
	status   *status.Snapshot
	accounts []quota.Account
	admitted map[schema.JobName]schema.Digest
}

// Mark begins a plan: what happened before is not in its Outcome.
func (c *Cell) Mark() *Mark {
	c.trace = trace{}
	c.wrote = c.now
	c.look() // steps of before are gone
	m := &Mark{at: c.now, status: c.describe(), accounts: c.accounts(), admitted: map[schema.JobName]schema.Digest{}}
	for name, r := range c.state().Jobs {
		m.admitted[name] = r.Admitted
	}
	return m
}

func (c *Cell) accounts() []quota.Account {
	return quota.Accounts(quota.AdmitInput(c.state(), *c.master.Input(c.now).Desired, c.now))
}

// Outcome returns what has happened since a mark, of a cell that Run has followed.
func (c *Cell) Outcome(m *Mark, ending Ending, last time.Time) *Outcome {
	is := c.describe()
	s := is.Brief()
	o := &Outcome{
		Version: Version, Cell: c.state().Cell, Ending: ending, Seconds: max(0, last.Sub(m.at).Seconds()),
		Tasks: []Task{}, Steps: []Step{}, Preempted: []Preempted{}, Pending: []Pending{}, Rollouts: []Rollout{}, Quota: []QuotaChange{},
		Next: c.ahead, Blocked: s.Blocked, Waiting: s.Waiting, Warnings: []string{},
		Machines: MachineChange{sumMachines(m.status.Brief()), sumMachines(s)},
	}
	for i := range c.trace.steps {
		step := c.trace.steps[i]
		step.Seconds = c.trace.at[i].Sub(m.at).Seconds()
		o.Steps = append(o.Steps, step)
	}
	c.addTasks(o)
	c.addPreempted(o, is)
	before := map[string]bool{}
	for t := range pendingIn(m.status) {
		before[t.Name] = true
	}
	for t := range pendingIn(is) {
		o.Pending = append(o.Pending, Pending{t.Name, t.Reason, before[t.Name]})
	}
	c.addRollouts(o, m, s)
	o.addQuota(m.accounts, c.accounts())
	c.warn(o, m, s)
	return o
}

// pendingIn are the tasks of a cell that have no machine, by name.
func pendingIn(s *status.Snapshot) iter.Seq[*status.TaskStatus] {
	return func(yield func(*status.TaskStatus) bool) {
		for t := range s.Tasks() {
			if t.State == status.TaskPending && !yield(t) {
				return
			}
		}
	}
}

// taskIn returns the task user/job/index of a cell, nil if it has none.
func taskIn(s *status.Snapshot, name string) *status.TaskStatus {
	p := s.Part(shortJob(name))
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.Tasks, func(t status.TaskStatus) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Tasks[i]
}

// addTasks adds what becomes of each task.
func (c *Cell) addTasks(o *Outcome) {
	causes, started := map[string][]schema.CauseKind{}, map[string]bool{}
	for i := range o.Steps {
		s := &o.Steps[i]
		started[s.Task] = started[s.Task] || s.Do == Start
		if s.Cause != "" && !slices.Contains(causes[s.Task], s.Cause) {
			causes[s.Task] = append(causes[s.Task], s.Cause)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(c.trace.first), schema.TaskName.Compare) {
		was, is := c.trace.first[name], c.state().Record(name)
		if is == nil {
			is = &schema.TaskRecord{}
		}
		t := Task{Name: name.Short(), From: was.Machine, To: is.Machine, Causes: causes[name.Short()]}
		if is.Stop != nil {
			t.To = ""
		}
		switch want := c.state().Runs(name.JobName); {
		case t.From == "" && t.To != "":
			t.Fate = Starts
		case t.From == "":
			t.Fate = Tries
		case t.To == "" && want != nil && (want.Kind == schema.System || name.Index < want.Tasks) && is.Done == nil:
			t.Fate = Evicted
		case t.To == "":
			t.Fate = Stops
		case t.From != t.To:
			t.Fate = Moves
		case was.Generation != is.Generation || started[t.Name]:
			t.Fate = Restarts
		default:
			t.Fate = InPlace
		}
		o.Tasks = append(o.Tasks, t)
	}
}

// addPreempted adds the tasks that make room for others.
func (c *Cell) addPreempted(o *Outcome, after *status.Snapshot) {
	for i := range o.Steps {
		s := &o.Steps[i]
		if s.Cause != schema.CausePreempted || s.Do != Stop {
			continue
		}
		p := Preempted{Task: s.Task, By: s.By, Becomes: "it is gone"}
		if name, err := schema.ParseJobName(o.Cell + "/" + shortJob(s.Task)); err == nil {
			if want := c.state().Runs(name); want != nil {
				p.Priority = int(want.Priority)
			}
		}
		if t := taskIn(after, s.Task); t != nil && t.Machine != "" {
			p.Becomes = "it runs on " + t.Machine
		} else if t != nil {
			p.Becomes = "it is pending: " + t.Reason
		}
		o.Preempted = append(o.Preempted, p)
	}
}

// addRollouts adds how each job changes to which something happens.
func (c *Cell) addRollouts(o *Outcome, m *Mark, s *status.Status) {
	state := map[string]string{}
	for i := range s.Jobs {
		if r := s.Jobs[i].Rollout; r != nil {
			state[s.Jobs[i].Name] = r.Message
		}
	}
	stops, starts, steps := map[string]int{}, map[string]int{}, c.trace.rollouts(m.at)
	for i := range o.Steps {
		switch job := shortJob(o.Steps[i].Task); o.Steps[i].Do {
		case Stop, End:
			stops[job]++
		case Start:
			starts[job]++
		case Change:
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(c.trace.jobs), schema.JobName.Compare) {
		j, job := c.trace.jobs[name], name.Short()
		r := Rollout{Job: job, Stops: stops[job], Starts: starts[job], Seconds: j.ended.Sub(j.began).Seconds(), MostDown: j.down, State: state[job], Steps: steps[job]}
		if want := c.state().Runs(name); want != nil {
			if r.MayBeDown = want.MayBeDown(); want.Disruption != nil {
				r.PerHour = want.Disruption.PerHour
			}
		}
		o.Rollouts = append(o.Rollouts, r)
	}
}

// addQuota adds the accounts that change.
func (o *Outcome) addQuota(before, after []quota.Account) {
	type key struct {
		user string
		band schema.Band
	}
	all := map[key]*QuotaChange{}
	of := func(a *quota.Account) *QuotaChange {
		k := key{a.User, a.Band}
		if all[k] == nil {
			all[k] = &QuotaChange{User: a.User, Band: a.Band}
		}
		return all[k]
	}
	was := map[key]*quota.Amounts{}
	for i := range before {
		of(&before[i]).Before = before[i].Used
		was[key{before[i].User, before[i].Band}] = before[i].Limit
	}
	for i := range after {
		q := of(&after[i])
		q.After, q.Limit = after[i].Used, after[i].Limit
	}
	for k, q := range all {
		same := was[k] == nil && q.Limit == nil || was[k] != nil && q.Limit != nil && *was[k] == *q.Limit
		if q.Before != q.After || !same {
			o.Quota = append(o.Quota, *q)
		}
	}
	slices.SortFunc(o.Quota, func(a, b QuotaChange) int {
		return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(string(a.Band), string(b.Band)))
	})
}

// strandedBelow is the part of a resource, one in so many, below which a machine has too little
// of it for the rest to be of use.
const strandedBelow = 20

func sumMachines(s *status.Status) Machines {
	var out Machines
	for i := range s.Machines {
		m := &s.Machines[i]
		if m.Health != string(model.HealthUp) {
			continue
		}
		out.Up++
		out.Capacity, out.Used = out.Capacity.Add(m.Capacity), out.Used.Add(m.Used)
		free, full := m.Capacity.Sub(m.Used), false
		for _, d := range schema.Dimensions() {
			full = full || free.Of(d) < m.Capacity.Of(d)/strandedBelow
		}
		if full {
			out.Stranded = out.Stranded.Add(schema.Resources{CPUMilli: max(0, free.CPUMilli), RAMBytes: max(0, free.RAMBytes), DiskBytes: max(0, free.DiskBytes)})
		}
	}
	return out
}

// newWarnings returns the warnings of commits and quotas that were not there before. One whose line
// has moved is no new one.
func newWarnings(before, after []quota.Warning) (out []string) {
	type key struct{ path, field, message string }
	of := func(w *quota.Warning) key { return key{w.Diagnostic.Path, w.Diagnostic.Field, w.Diagnostic.Message} }
	had := map[key]bool{}
	for i := range before {
		had[of(&before[i])] = true
	}
	for i := range after {
		if !had[of(&after[i])] {
			out = append(out, after[i].Diagnostic.Error())
		}
	}
	return out
}

// warn adds what is legal and yet likely to hurt of what has changed: new warnings, and the jobs that
// have another version than before.
func (c *Cell) warn(o *Outcome, m *Mark, s *status.Status) {
	o.Warnings = append(o.Warnings, newWarnings(m.status.Brief().Warnings, s.Warnings)...)
	pending := map[string]int{}
	for i := range o.Pending {
		pending[shortJob(o.Pending[i].Task)]++
	}
	for _, name := range c.state().JobNames() {
		r, job := c.state().Jobs[name], c.state().Runs(name)
		if job == nil || r.Admitted == m.admitted[name] {
			continue
		}
		say := func(format string, args ...any) {
			o.Warnings = append(o.Warnings, name.Short()+": "+fmt.Sprintf(format, args...))
		}
		prod := job.Priority.Band() == schema.BandProduction || job.Priority.Band() == schema.BandMonitoring
		if prod && job.Kind == schema.Service && job.Task.Health == nil {
			say("a production service without a health check: a rollout cannot see that it does not work")
		}
		if rack, n := c.oneRack(name); prod && n > 1 && rack != "" {
			say("all %d tasks are on %s: one failure takes them all", n, rack)
		}
		for _, what := range c.nobodyHas(job) {
			say("no machine has %s yet: its tasks wait until it is pulled, and whether that can be had is not known here", what)
		}
		if n := pending[name.Short()]; job.Disruption != nil && n >= job.MayBeDown() {
			say("%s pending, and its disruption budget allows %d down: no drain may stop any of its tasks", schema.Part(n, job.Tasks, "task", "is", "are"), job.MayBeDown())
		}
	}
}

// nobodyHas returns the images and packages of a job that no machine holds. Where none says that it
// holds anything, none is known to.
func (c *Cell) nobodyHas(job *schema.Job) []string {
	observed := c.master.Observed()
	if !slices.ContainsFunc(c.sorted, func(m *machine) bool {
		held, _ := observed.Content(m.name())
		return len(held) > 0
	}) {
		return nil
	}
	return slices.DeleteFunc(job.Task.Brings(), func(name string) bool {
		d := schema.Content(name)
		return d == "" || len(observed.Holders(d)) > 0
	})
}

// oneRack returns the rack, or the machine, that all tasks of a job are on, and how many
// they are; "" if there are several.
func (c *Cell) oneRack(name schema.JobName) (where string, n int) {
	racks, machines := map[string]bool{}, map[string]bool{}
	for i := range c.state().Span(name) {
		chunk := c.state().Chunks[model.ChunkName{Job: name, Number: i}]
		for j := 0; chunk != nil && j < len(chunk.Tasks); j++ {
			if t := &chunk.Tasks[j]; t.Machine != "" && c.state().Machines[t.Machine] != nil {
				n++
				machines[t.Machine] = true
				racks[c.state().Machines[t.Machine].Attributes["rack"]] = true
			}
		}
	}
	for machine := range machines {
		if len(machines) == 1 && len(c.machines) > 1 {
			return "machine " + machine, n
		}
	}
	for rack := range racks {
		if len(racks) == 1 && rack != "" {
			return "rack " + rack, n
		}
	}
	return "", n
}
