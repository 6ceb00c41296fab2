package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// DescribeInput is what a status is a function of.
type DescribeInput struct {
	State    *model.State
	Desired  *intent.Desired // intent.Of State; nil to have it found out
	Observed *model.Observed
	Last     control.Output        // of the newest step
	Reserved snapshot.Reservations // what is held back for tasks, nil for their limits
	Head     string                // the repository's newest commit
	Source   model.Seen            // how the repository was seen last
	Trouble  error                 // what keeps Head from being read and compiled, nil if nothing does
	Now      time.Time
	Version  uint64 // of what is described, see Status
}

// facts returns what is so in the cell; known may be nil.
func (in *DescribeInput) facts(known *facts.Known) *facts.Facts {
	return facts.New(facts.Stored(in.State), in.desired(), in.Observed, in.Now, known)
}

// desired returns what is desired of State.
func (in *DescribeInput) desired() *intent.Desired {
	if in.Desired == nil {
		return intent.Of(in.State)
	}
	return in.Desired
}

// Describe returns the cell as its users see it.
func Describe(in DescribeInput) Status { return *new(Describer).Describe(in).Whole() }

func newDescriber(in DescribeInput, kept *Describer) *describer {
	in.Desired = in.desired()
	if kept.jobs == nil {
		kept.jobs, kept.machines = map[schema.JobName]*jobPart{}, map[string]*machinePart{}
		kept.states, kept.loads = map[string]machineState{}, map[string]load{}
	}
	return &describer{in: in, described: kept, status: Status{
		Version: in.Version, Cell: in.State.Cell, At: in.Now, Commit: in.Head, Applied: in.State.Head.Commit, By: in.State.Head.By, SourceStatus: sourceOf(in.Source, in.Trouble),
		Waiting: []string{}, Waits: []Wait{}, Blocked: []Blocker{}, Behind: Behind{Stale: []StalePackage{}, Pending: []PendingPackage{}}, Rejected: []Rejection{}, Held: intent.HoldsOf(in.State.Head.Held), Losses: []control.LossHold{}, Suspended: suspensionsOf(in.State), Warnings: []quota.Warning{}, Machines: []MachineStatus{}, Jobs: []JobStatus{}, Tasks: []TaskStatus{}, Notes: []string{},
	}, inside: map[string][]string{}, alone: map[string][]string{}, kept: map[string]string{}, under: in.State.SuspendedJobs(), desired: in.Desired}
}

// describer is Describe at work.
type describer struct {
	in        DescribeInput
	described *Describer
	status    Status // without tasks
	parts     []*Part
	machine   []*MachineStatus
	job       *jobPart            // that is being described
	inside    map[string][]string // tasks, by the alloc that they run in
	kept      map[string]string   // by job: the guard that holds its removal
	alone     map[string][]string // by machine: jobs that crash there only
	asked     *facts.Facts        // nil until it is
	last      jobData             // that was looked for last
	desired   *intent.Desired

	under model.SuspendedJobs

	// brief has a job end at the first of its tasks that does not run and should, which
	// missing says: the only question is whether something waits.
	brief, missing bool
}

// jobData is a job's data by its digest.
type jobData struct {
	digest schema.Digest
	job    *schema.Job
}

// data returns what is stored under a digest: the tasks of a job, one after the other, mostly
// have the same.
func (d *describer) data(digest schema.Digest) *schema.Job {
	if d.last.job == nil || d.last.digest != digest {
		d.last = jobData{digest, d.in.State.Data[digest]}
	}
	return d.last.job
}

// facts returns what is so in the cell.
func (d *describer) facts() *facts.Facts {
	if d.asked == nil {
		d.asked = d.in.facts(&d.described.facts)
	}
	return d.asked
}

// wait adds to what the cell waits for.
func (d *describer) wait(kind WaitKind, name, message string) {
	d.status.Waits = append(d.status.Waits, Wait{kind, name, message})
}

// repository adds the parts of the newest commit that are not in force.
func (d *describer) repository() {
	s := d.in.State
	if w := d.status.unapplied(); w != nil {
		d.wait(w.Kind, w.Name, w.Message)
	}
	if ds := s.Head.Unread; len(ds) > 0 {
		d.status.Unread = &UnreadCommit{intent.ReasonOf(ds), ds, "correct it, check with `muster validate`, and commit; everything keeps running with the previous commit until then"}
	}
	for _, dir := range slices.Sorted(maps.Keys(s.Head.Stale)) {
		ds := s.Head.Stale[dir]
		if schema.Pending(ds) {
			d.status.Pending = append(d.status.Pending, PendingPackage{Dir: dir, Reason: intent.ReasonOf(ds)})
			continue
		}
		d.status.Stale = append(d.status.Stale, StalePackage{
			Dir: dir, Reason: intent.ReasonOf(ds), Diagnostics: ds,
			Next: fmt.Sprintf("correct it, check with `muster validate`, and commit; %s runs its last good version until then", dir),
		})
	}
	for i := range d.status.Held {
		h := &d.status.Held[i]
		for _, job := range h.Jobs {
			d.kept[job] = h.Name.String()
		}
	}
	rejected := d.in.Last.Admission.Rejected
	for _, name := range slices.SortedFunc(maps.Keys(rejected), schema.JobName.Compare) {
		diag := *rejected[name]
		labels := labelsOf(name, d.desired.Jobs[name].Job)
		heals := d.in.Last.Admission.Heals[name]
		r := Rejection{
			User: name.User, Band: schema.Band(labels[schema.LabelBand]), Cause: d.in.Last.Admission.Causes[name],
			Job: name.Short(), Labels: labels, Diagnostic: diag, Next: "muster why " + name.Short(),
			Machines: heals.Machines, Until: heals.At,
		}
		d.status.Rejected = append(d.status.Rejected, r)
	}
	if len(s.Head.Packages) > 0 && len(d.desired.Tenants(s)) == 0 {
		d.status.Notes = append(d.status.Notes, intent.NoTenants.Message)
	}
	d.status.Notes = append(d.status.Notes, d.in.Source.Notes...)
	for _, w := range s.Head.Warnings {
		d.status.Warnings = append(d.status.Warnings, quota.Warning{Diagnostic: w})
	}
	d.status.Warnings = append(d.status.Warnings, d.in.Last.Admission.Warnings...)
	if text := d.in.Last.Recovering; text != "" {
		d.wait(WaitRestore, "", text)
	}
	d.status.Losses = append(d.status.Losses, d.in.Last.Holding...)
}

// task adds the status of one task, and counts it in its job's if that wants
// it.
func (d *describer) task(job schema.JobName, r reportedRecord, record *schema.JobRecord, j *JobStatus, wanted bool) {
	t := TaskStatus{Name: job.Task(r.Index).Short(), Machine: r.Machine, Ports: r.Ports, Devices: r.Devices, Generation: r.Generation, Restarts: r.Failures, History: []string{}}
	if t.Ports == nil {
		t.Ports = schema.Ports{} // in JSON {}
	}
	for _, c := range r.Causes {
		t.History = append(t.History, fmt.Sprintf("%s generation %d on %s: %s", c.At.UTC().Format(time.RFC3339), c.Generation, c.Machine, c))
	}
	if r.Machine != "" {
		m := d.in.State.Machines[r.Machine]
		if m != nil && !r.OwnNetwork {
			t.Address = m.Address
		}
		t.Alternative = snapshot.AlternativeOf(d.data(r.Data), m, r.Devices)
		uses := schema.Resources{}
		if r.Alloc != nil {
			t.Alloc = r.Alloc.Of(job).Short()
		} else {
			uses = d.data(r.Data).Task.Resources.Resources
		}
		own := 0
		if j.Kind == schema.System {
			own = 1
		}
		d.job.loads = append(d.job.loads, machineLoad{r.Machine, load{uses, 1, own, 0}})
		if r.Data != record.Admitted && r.Stop == nil && (wanted || j.Kind != schema.System) {
			j.Updating++
		}
	}
	if j.Kind != schema.System {
		d.coming(job.Task(r.Index), r.TaskRecord)
	}
	t.State, t.Reason = d.state(job.Task(r.Index), r, &t)
	d.missing = d.brief && wanted && t.State != TaskRunning && t.State != TaskDone
	d.misplaced(job.Task(r.Index), &t)
	d.job.cacheable = d.job.cacheable && d.isCacheable(job.Task(r.Index), r, &t)
	if m := d.in.Last.Draining[r.Machine]; m != nil && r.Machine != "" {
		t.Drain = m.Wait(job.Task(r.Index))
	}
	if wanted {
		switch t.State {
		case TaskRunning:
			j.Running++
		case TaskDone:
			j.Done++
		case TaskFailed:
			j.Failed++
		case TaskUnknown:
			j.Unknown++
		default:
			j.Pending++
		}
	}
	d.job.Tasks = append(d.job.Tasks, t)
}

// coming adds to the load of a machine that a task is to be there: it moves there, others make room
// there for it, or the machine is held for it.
func (d *describer) coming(name schema.TaskName, r *schema.TaskRecord) {
	to := ""
	switch claim, claims := d.in.Last.Claims[name]; {
	case r.Done != nil:
	case r.Stop != nil:
		to = r.Stop.To
	case r.Machine != "":
	case claims:
		to = claim.Machine
	case len(r.Causes) > 0 && r.Causes[len(r.Causes)-1].To != "":
		to = r.Causes[len(r.Causes)-1].To
	case r.Held != nil:
		to = r.Held.Machine
	}
	if to != "" {
		d.job.loads = append(d.job.loads, machineLoad{to, load{coming: 1}})
	}
}

// restartsOf counts the restarts of a generation of a task that has so many steps before it,
// each of which is an incarnation, too.
func restartsOf(status *schema.TaskStatus, before int) int {
	if status.Attempt > 0 {
		return status.Attempt - 1
	}
	return max(0, status.Incarnation-1) / (1 + before) // of an agent of an earlier release it is not known where they failed
}

// state returns the word for a task's state and why it is not running, and
// fills what its agent said of it into t.
func (d *describer) state(name schema.TaskName, r reportedRecord, t *TaskStatus) (state TaskState, reason string) {
	switch {
	case r.Done != nil:
		return TaskDone, r.Done.String()
	case r.Machine == "":
		return d.unplaced(name, r.TaskRecord)
	}
	status := r.said.TaskStatus
	absent := d.absent(name, r.Machine)
	switch {
	case status == nil && absent != "":
		return TaskUnknown, absent
	case status == nil:
		return TaskStarting, "its machine has not acknowledged it yet"
	}
	t.PID, t.StartedAt, t.Incarnation, t.Health = status.PID, status.StartedAt, status.Incarnation, status.Health
	t.HealthMessage, t.Line, t.RestartAt = status.HealthMessage, status.Line, status.RestartAt
	if r.OwnNetwork {
		t.Address, t.Address6 = ownAddresses(status.Own, d.in.State.Machines[r.Machine])
	}
	t.Restarts += restartsOf(status, len(d.data(r.Data).Task.Before))
	for _, e := range status.Exits {
		t.History = append(t.History, fmt.Sprintf("%s generation %d incarnation %d on %s: %s", e.At.UTC().Format(time.RFC3339), r.Generation, e.Incarnation, r.Machine, e))
	}
	switch {
	case r.Stop != nil && status.Stuck:
		return TaskStopping, r.Stop.String() + "; " + schema.NoteStuck
	case r.Stop != nil && absent != "" && r.Stop.Kind == schema.CauseAllocGone: // which its machine may not know
		return TaskUnknown, r.Stop.Message + "; " + absent
	case r.Stop != nil && absent != "":
		return TaskStopping, r.Stop.String() + "; " + absent
	case r.Stop != nil:
		return TaskStopping, r.Stop.String()
	case absent != "":
		return TaskUnknown, absent
	}
	reason, remark := said(status, d.data(r.Data))
	if remark && status.State == schema.Running {
		d.job.remarks[t.Name] = true
	}
	return TaskState(status.State), reason
}

// misplaced says of a task that is as desired otherwise that it runs in another
// alloc than it belongs in. It is not as desired if it is moved there.
func (d *describer) misplaced(name schema.TaskName, t *TaskStatus) {
	m, ok := d.in.Last.Misplaced[name]
	if !ok || t.State != TaskRunning || t.Reason != "" && !d.job.remarks[t.Name] {
		return
	}
	remark := t.Reason
	if t.Reason = m.Text; remark != "" {
		t.Reason += "; " + remark
	}
	d.job.remarks[t.Name] = !m.Due
}

// unplaced is state of a task that has no machine.
func (d *describer) unplaced(name schema.TaskName, r *schema.TaskRecord) (state TaskState, reason string) {
	if facts.Ahead(d.in.Now, r.NotBefore, facts.RetryCap) {
		again := fmt.Sprintf("next try in %s", r.NotBefore.Sub(d.in.Now).Round(time.Second))
		if r.Failures == 0 {
			return TaskPending, fmt.Sprintf("%s; %s", r.Causes[len(r.Causes)-1], again)
		}
		return TaskFailed, fmt.Sprintf("failed %s; %s", schema.Times(r.Failures), again)
	}
	if claim, ok := d.in.Last.Claims[name]; ok {
		return TaskPending, claim.String()
	}
	if why, ok := d.in.Last.Why[name]; ok {
		return TaskPending, why.String()
	}
	if text := d.in.Last.Joining; text != "" {
		return TaskPending, text
	}
	return TaskPending, "not evaluated yet"
}

// absent says why a task's machine does not report, and what the task waits
// for; "" if the machine is up.
func (d *describer) absent(name schema.TaskName, machine string) string {
	health := cmp.Or(d.facts().Health(machine), model.HealthLost)
	if health == model.HealthUp {
		return ""
	}
	s := fmt.Sprintf("machine %s is %s", machine, health)
	if left := d.in.Last.Left[name]; left != "" {
		s += ": " + left
	}
	return s
}

func (d *describer) machines() {
	n := len(d.facts().Machines())
	d.machine = make([]*MachineStatus, 0, n)
	if !d.brief {
		d.status.Machines = slices.Grow(d.status.Machines, n)
	}
	for _, name := range d.facts().Machines() {
		m := d.described.machines[name]
		if basis := d.basisOfMachine(name); m == nil || !m.cacheable || m.basis != basis || len(d.alone[name]) > 0 {
			m = d.describeMachine(name, basis)
			d.described.machines[name] = m
		}
		d.machine = append(d.machine, &m.MachineStatus)
		if !d.brief {
			d.status.Machines = append(d.status.Machines, m.MachineStatus)
		}
	}
	for _, m := range d.desired.Unmatched(d.in.State) {
		missing := m.NeverJoined()
		d.status.Unmatched = append(d.status.Unmatched, missing)
		d.status.Notes = append(d.status.Notes, missing.Error())
	}
	d.status.Notes = append(d.status.Notes, d.in.Observed.Refusals()...)
	if n == 0 && len(d.status.Jobs) > 0 {
		d.wait(WaitNoMachine, "", "no machine has joined: start muster-agent on one")
	}
}

// describeMachine returns the status of a machine, and adds what the cell waits for there.
func (d *describer) describeMachine(name string, basis machineBasis) *machinePart {
	r, spec := basis.record, d.facts().MachineSpec(name)
	d.waitGone(name)
	conflict := d.in.Observed.NameConflict(name, d.in.Now)
	m := &machinePart{basis: basis, MachineStatus: MachineStatus{
		Name: name, Health: string(basis.health), Address: r.Address, Subnets: r.Subnets, Leaving: r.Leaving, Draining: d.drainingOf(name), Capacity: r.Capacity, Reserved: r.Reserved, Used: basis.load.used, Tasks: basis.load.tasks,
		Empty:    basis.health == model.HealthUp && d.desired.Policy.Moves().EmptyBelow > 0 && basis.load.tasks == basis.load.own && basis.load.coming == 0,
		Cordoned: spec.Closed(), Conditions: append(slices.Clip(d.in.Observed.Conditions(name)), conflict...), Devices: r.Devices, Attributes: spec.Attributes, Notes: d.machineNotes(name), Place: model.PlaceOf(r),
	}}
	m.cacheable = m.Draining == nil && spec.Gone == nil && len(conflict) == 0 && len(d.alone[name]) == 0
	return m
}

// machineNotes returns what is remarkable of a machine.
func (d *describer) machineNotes(name string) []string {
	h := d.in.Observed.Last(name)
	notes := append(slices.Clone(d.in.State.Machines[name].Notes), busyNote(h)...)
	notes = append(notes, crashNote(d.alone[name])...)
	notes = append(notes, subnetNote(d.in.State.Machines[name], d.desired.Policy.Network)...)
	notes = append(notes, volumeNote(d.in.State.Machines[name], &d.desired.Policy)...)
	notes = append(notes, foreignNote(d.in.State.Machines[name], h)...)
	notes = append(notes, d.goneNote(name)...)
	if h != nil && h.Report.Overload != nil {
		notes = append(notes, "overloaded: "+h.Report.Overload.Message)
	}
	return notes
}

// drainingOf returns the progress of a machine's drain, nil if it is not draining.
func (d *describer) drainingOf(name string) *control.Draining {
	m := d.in.Last.Draining[name]
	if m != nil && m.Left > 0 {
		d.wait(WaitDrain, name, fmt.Sprintf("machine %s is %s", name, m))
	}
	return m
}

// waitGone says that the tasks of a machine which is declared gone have yet to be
// rescheduled, until it is silent or has spoken since.
func (d *describer) waitGone(name string) {
	r, gone := d.in.State.Machines[name], d.facts().MachineSpec(name).Gone
	if gone != nil && !r.Spoke && r.LostSince.IsZero() && d.described.loads[name].tasks > 0 {
		d.wait(WaitGone, name, fmt.Sprintf("machine %s is declared gone: its tasks are rescheduled when it has been silent for %s", name, model.SilentAfter))
	}
}

// goneNote describes a machine that is declared gone.
func (d *describer) goneNote(name string) []string {
	r, gone := d.in.State.Machines[name], d.facts().MachineSpec(name).Gone
	switch {
	case gone == nil:
		return nil
	case r.Spoke:
		return []string{fmt.Sprintf("declared gone at %s, but it has reported since: remove the declaration", gone.Origin)}
	case d.described.loads[name].tasks > 0:
		return []string{fmt.Sprintf("declared gone at %s: it is forgotten when it has no tasks left", gone.Origin)}
	}
	return []string{fmt.Sprintf("declared gone at %s", gone.Origin)}
}

// busyNote lists ports of a machine's range that other processes use.
func busyNote(h *model.LastReport) []string {
	if h == nil || len(h.Report.BusyPorts) == 0 {
		return nil
	}
	const most = 5
	ports := h.Report.BusyPorts
	list := strings.Trim(fmt.Sprint(ports[:min(len(ports), most)]), "[]")
	if len(ports) > most {
		list += " …"
	}
	return []string{fmt.Sprintf("%d of its ports in use by other processes: %s", len(ports), list)}
}
