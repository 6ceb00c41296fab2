package facts

import (
	"cmp"
	"fmt"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Facts answers what is so in a cell at a time.
type Facts struct {
	View
	Clock
	Desired  *intent.Desired
	Observed *model.Observed
	// Suspended are the jobs that commits leave as they are.
	Suspended model.SuspendedJobs
	// Asked are the restarts that are stored, by job, and sorted by name.
	Asked map[schema.JobName][]model.Restart

	known    *Known
	silent   map[string]*Silent
	surveyed Until

	down   map[schema.JobName]*downTasks // see Down
	hosted map[schema.JobName][]schema.JobName
	asOf   int                     // of the records of jobs that hosted is of
	diffs  map[versions]difference // see Diff
}

// Silent is a machine that gets no tasks, since it says nothing, or is being forgotten.
type Silent struct {
	Name   string
	Domain string        // of failures, by the policy of the cell
	Quiet  time.Duration // that it has said nothing
	Lost   bool          // for longer than the cell waits
	// Gone is the object that declares it gone; nil if none does, or it has spoken
	// since.
	Gone      *intent.DesiredMachine
	Forgotten *schema.Forgotten
}

// Dead reports whether somebody has said that the machine is gone for good.
func (q *Silent) Dead() bool { return q.Gone != nil || q.Forgotten != nil }

// New returns the facts of a view at a time, and looks at the machines that may be other
// than known has it. That may be nil.
func New(v View, desired *intent.Desired, observed *model.Observed, now time.Time, known *Known) *Facts {
	if known == nil {
		known = &Known{}
	}
	known.Update(Roster{v.Base, desired, observed, now})
	f := &Facts{
		View: v, Clock: Clock{now}, Desired: desired, Observed: observed, known: known,
		Suspended: v.Base.SuspendedJobs(), Asked: v.Base.RestartsByJob(),
		silent: make(map[string]*Silent, len(known.down)), down: map[schema.JobName]*downTasks{},
		diffs: map[versions]difference{},
	}
	if len(known.silences) > 0 {
		f.surveyed = f.At(known.silences[0].at)
	}
	for name := range known.down {
		f.survey(name)
	}
	return f
}

// survey finds out how a machine is that is not up.
func (f *Facts) survey(name string) {
	r := f.Machine(name)
	health, until := f.Observed.HealthOf(r, f.Now)
	f.surveyed = f.surveyed.Or(f.At(until))
	d := f.MachineSpec(name)
	q := &Silent{
		Name: name, Domain: d.Attributes[f.Desired.Policy.Loss().Domain], Forgotten: r.Forgotten,
		Quiet: max(0, f.Observed.Silence(r, f.Now)), Lost: health == model.HealthLost,
	}
	if f.DeclaredGone(name) {
		if q.Quiet >= model.SilentAfter {
			q.Gone = d.Gone
		} else {
			f.surveyed = f.surveyed.Or(f.In(model.SilentAfter - q.Quiet))
		}
	}
	f.silent[name] = q
}

// Surveyed returns until when the machines are as they are.
func (f *Facts) Surveyed() Until { return f.surveyed }

// Machines returns the names of all machines, sorted.
func (f *Facts) Machines() []string { return f.known.names }

// Up returns the names of the machines that may get tasks, sorted.
func (f *Facts) Up() []string { return f.known.up }

// MachinesChangedSince returns the machines whose record, last report or spec is another,
// or that are up and were not or the other way round, since an earlier Facts of the same
// Known returned next, 0 for the first; some may be there more than once, and some may be
// gone. It is not ok if any may have changed.
func (f *Facts) MachinesChangedSince(last int) (names []string, next int, ok bool) {
	return f.known.changes.Since(last)
}

// Places is another after each change of which machines are up, and of what is declared of
// them, for the same Known.
func (f *Facts) Places() uint64 { return f.known.places }

// DrainingMachines returns those that are declared to be drained, sorted.
func (f *Facts) DrainingMachines() []string { return f.known.marked[markDraining] }

// OverloadedMachines returns those that have said last that they are overloaded, sorted.
func (f *Facts) OverloadedMachines() []string { return f.known.marked[markOverloaded] }

// ReturningMachines is Known.Returning.
func (f *Facts) ReturningMachines() []string { return f.known.Returning() }

// IsUp reports whether a machine may get tasks.
func (f *Facts) IsUp(name string) bool {
	return f.silent[name] == nil && f.Base.Machines[name] != nil
}

// SilentMachines returns those that are not up, by name.
func (f *Facts) SilentMachines() map[string]*Silent { return f.silent }

// Health returns how a machine is, "" of one that the cell does not know.
func (f *Facts) Health(machine string) model.Health {
	r := f.Machine(machine)
	if r == nil {
		return ""
	}
	health, _ := f.Observed.HealthOf(r, f.Now)
	return health
}

// MachineSpec returns what is declared of a machine that the cell knows.
func (f *Facts) MachineSpec(name string) *intent.MachineSpec {
	return f.known.machines[name].spec
}

// Closed reports whether a machine shall get nothing new.
func (f *Facts) Closed(machine string) bool {
	return f.Base.Machines[machine] != nil && f.MachineSpec(machine).Closed()
}

// DeclaredGone reports whether a machine is declared gone, and has not spoken since.
func (f *Facts) DeclaredGone(machine string) bool {
	return f.MachineSpec(machine).Gone != nil && !f.Machine(machine).Spoke
}

// GivenUp reports whether a machine was given up and has not returned.
func (f *Facts) GivenUp(machine string) bool {
	r := f.Machine(machine)
	return r == nil || !r.LostSince.IsZero()
}

// WhyLost says why the tasks of a machine are rescheduled.
func (f *Facts) WhyLost(q *Silent) string {
	switch {
	case q.Forgotten != nil:
		return q.Forgotten.String()
	case q.Gone != nil:
		return "declared gone at " + q.Gone.Origin.String()
	}
	return "silent for " + f.Observed.LostAfter.String()
}

// DomainOf returns the value that a machine has of an attribute.
func (f *Facts) DomainOf(machine, attribute string) string {
	if attribute == schema.AttributeMachine {
		return machine
	}
	if outer, inner, ok := schema.Unnest(attribute); ok {
		return schema.Nested(f.DomainOf(machine, outer), f.DomainOf(machine, inner))
	}
	return f.MachineSpec(machine).Attributes[attribute]
}

// Domains returns how many machines are up, by the value that they have of an attribute.
// It is not to be written to.
func (f *Facts) Domains(attribute string) map[string]int { return f.known.in(attribute) }

// DueTask is a task on a silent machine.
type DueTask struct {
	Name schema.TaskName
	On   *Silent
	Data *schema.Job // that its owner wants now, or that it runs
	Why  string      // it is to be rescheduled; "" if it is not yet
	Free bool        // nobody gets it: that costs the others nothing
	Own  bool        // it is of a system job: nobody else can have it
	// Left says what it waits for, of one that stays on a machine which is lost.
	Left string
}

// DueTasks returns the tasks on silent machines of which there is something to say: that are
// to be rescheduled, or wait for something on a machine that is lost. They are in no order,
// see DueTask.Before.
func (f *Facts) DueTasks() ([]DueTask, Until) {
	keys := map[model.ChunkName]bool{}
	for name := range f.silent {
		for _, key := range f.Base.ChunksOn(name) {
			keys[key] = true
		}
	}
	for _, key := range f.ChangedChunks() {
		keys[key] = true
	}
	var out []DueTask
	var until Until
	for key := range keys {
		c := f.Chunk(key)
		for i := range c.Tasks {
			if q := f.silent[c.Tasks[i].Machine]; q != nil {
				due, changes := f.DueTask(key.Job, &c.Tasks[i], q)
				if until = until.Or(changes); due.Why != "" || due.Left != "" {
					out = append(out, due)
				}
			}
		}
	}
	return out, until
}

// Before reports whether a task is rescheduled before another one: those of higher priority
// come first, then by name.
func (d *DueTask) Before(o *DueTask) bool {
	return cmp.Or(cmp.Compare(o.Data.Priority, d.Data.Priority), d.Name.Compare(o.Name)) < 0
}

// DueTask says whether a task on a silent machine is to be rescheduled.
func (f *Facts) DueTask(job schema.JobName, t *schema.TaskRecord, q *Silent) (DueTask, Until) {
	d := DueTask{Name: job.Task(t.Index), On: q, Data: f.Data(t.Data), Free: true}
	if want := f.Admitted(job); want != nil {
		d.Data = want
		d.Own = want.Kind == schema.System && t.Stop == nil && !q.Dead()
		d.Free = want.Kind == schema.System || t.Index >= want.Tasks
	}
	usual := f.Observed.LostAfter
	tolerates, quiet := d.Data.After(usual), q.Quiet
	if since := f.Machine(q.Name).LostSince; q.Lost && !since.IsZero() && !f.Observed.HasReported(q.Name) {
		quiet = max(quiet, f.Now.Sub(since)+usual) // as the masters before it knew
	}
	var until Until
	switch {
	case q.Dead():
		d.Why = "the machine was " + f.WhyLost(q)
	case d.Data.NeverTwice() || !d.Free && f.Stays(d.Data, t) != "":
	case quiet >= tolerates && (tolerates < usual || q.Lost):
		d.Why = "the machine has been silent for " + tolerates.String()
	default:
		until = f.In(tolerates - quiet)
	}
	if q.Lost && d.Why == "" {
		d.Left = f.left(&d, t, tolerates-quiet)
	}
	return d, until
}

// left says what a task waits for that stays on a machine which is lost; its job tolerates
// so much more of silence.
func (f *Facts) left(d *DueTask, t *schema.TaskRecord, more time.Duration) string {
	switch {
	case d.Data.NeverTwice():
		return fmt.Sprintf("it must never run twice: it waits for %s, for a commit that declares it gone, or for muster machine forget", d.On.Name)
	case !d.Free && f.Stays(d.Data, t) != "":
		return fmt.Sprintf("it %s, for a commit that declares it gone, or for muster machine forget", WaitsForHome(d.On.Name))
	default:
		return fmt.Sprintf("its job tolerates %s of silence, until %s", d.Data.After(f.Observed.LostAfter), f.Now.Add(more).UTC().Format(time.RFC3339))
	}
}
