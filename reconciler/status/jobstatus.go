package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// JobStatus is one job. Desired = Running + Pending + Failed + Unknown + Done once
// the cell is idle; tasks that are starting or stopping count as Pending.
type JobStatus struct {
	Name string `json:"name"` // user/job
	// Labels are its owner's and those that muster gives (schema.OwnLabels).
	Labels map[string]string `json:"labels,omitempty"`
	Origin schema.Position   `json:"origin"` // where the newest version is declared
	Since  time.Time         `json:"since"`  // when the version that it runs was admitted
	// Commit is the one with which that version came; it is left out of a job that
	// has returned to its previous version.
	Commit   string          `json:"commit,omitempty"`
	Kind     schema.JobKind  `json:"kind"`
	Band     schema.Band     `json:"band"`
	Priority int             `json:"priority"`
	AppClass schema.AppClass `json:"appclass,omitempty"` // left out of a job that was removed
	// Image is that of the version that it runs, of containers.
	Image    string `json:"image,omitempty"`
	Desired  int    `json:"desired"`
	Running  int    `json:"running"`
	Pending  int    `json:"pending"`
	Failed   int    `json:"failed"`  // waiting to be tried again after a failure
	Unknown  int    `json:"unknown"` // on machines that are silent or lost
	Done     int    `json:"done"`
	Updating int    `json:"updating"` // run data older than admitted
	Reason   string `json:"reason"`   // why it is not as desired, "" if it is
	// Cause is why the first of its tasks that is not as desired is so: the part
	// of Reason that other jobs may share. It is left out if no task says.
	Cause string `json:"cause,omitempty"`
	// Rollout is how far its newest version has come; nil once all tasks have it.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Restarting are the restarts that somebody has asked for and that are in progress, or
	// have failed.
	Restarting []RestartStatus `json:"restarting,omitempty"`
	// Crashes says where its tasks crash, and whether on one machine only; it is
	// left out if they do not.
	Crashes string `json:"crashes,omitempty"`
	// Held is the guard that holds its removal, or its scaling to 0; "" if none
	// does.
	Held string `json:"held,omitempty"`
	// Suspended is the name of the suspension that it is under: its own, "all",
	// or, of an alloc set, that of a job inside; "" if it is under none.
	Suspended string `json:"suspended,omitempty"`
	// Policy is who may connect to its tasks, of the version that it runs; nil if that does not
	// say.
	Policy *schema.Policy `json:"policy,omitempty"`
	// Annotations are set only for a job that is requested by name: those of all
	// jobs may be larger than all else.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// RestartStatus is the status of a restart.
type RestartStatus struct {
	schema.RestartRequest
	Done    int    `json:"done"`    // of Tasks
	Message string `json:"message"` // how far it is, in words
	Next    string `json:"next"`    // the command that ends it
}

// take sets what the version that a job runs says of it.
func (j *JobStatus) take(runs *schema.Job) {
	j.Kind, j.Band, j.Priority, j.Desired = runs.Kind, runs.Priority.Band(), int(runs.Priority), runs.Tasks
	j.AppClass, j.Image, j.Policy = runs.Class(), runs.Task.Image(), runs.Policy
}

// describe returns the status of a job and its tasks.
func (d *describer) describe(name schema.JobName) *jobPart {
	r := d.in.State.Jobs[name]
	want := d.in.State.Runs(name)
	d.job = &jobPart{origin: d.desired.Jobs[name].Origin, cacheable: d.mayCache(name, r, want), remarks: map[string]bool{}}
	j := JobStatus{Name: name.Short(), Origin: r.Origin, Since: r.Since, Commit: r.Commit, Labels: labelsOf(name, want), Held: d.kept[name.Short()]}
	if newest, ok := d.desired.Jobs[name]; ok {
		j.Origin = newest.Origin
	}
	if want != nil {
		j.take(want)
	}
	if x := d.under.Of(name); x != nil {
		j.Suspended = x.Name
	}
	have := d.records(name)
	all := have
	d.job.Tasks, d.job.loads = make([]TaskStatus, 0, max(len(have), j.Desired)), make([]machineLoad, 0, len(have))
	if want != nil && want.Kind == schema.System {
		j.Desired = 0 // counted as they are added
		have = d.systemTasks(name, have, r, &j)
	} else {
		have = d.indexedTasks(name, have, r, &j)
	}
	if d.missing {
		d.job.waits = "not all of its tasks run"
		return d.job
	}
	for _, t := range have { // beyond the count: on their way out, or done
		if t.Done == nil {
			d.task(name, t, r, &j, false)
		}
	}
	if want != nil {
		d.crashes(r, all, &j)
	}
	j.Rollout = d.rollout(name, j.Desired)
	j.Reason = d.jobReason(r, &j, d.job.Tasks)
	d.addRollout(name, r, &j)
	for _, x := range d.restartsOf(name) {
		j.Restarting = append(j.Restarting, x)
		if j.Suspended == "" { // else its suspension says so
			j.Reason = strings.TrimPrefix(j.Reason+"; "+x.Message, "; ")
		}
	}
	if j.Reason != "" {
		d.job.waits = j.waiting()
	}
	d.job.cacheable = d.job.cacheable && j.Reason == "" && j.Crashes == "" && j.Rollout == nil && j.Updating == 0
	if rejection := d.in.Last.Admission.Rejected[name]; rejection != nil {
		j.Reason = "runs its last admitted version: " + rejection.Message
	}
	d.job.Job = &j
	return d.job
}

// addRollout adds what the newest version waits for to the reason that a job is not as desired.
func (d *describer) addRollout(name schema.JobName, r *schema.JobRecord, j *JobStatus) {
	switch {
	case j.Reason == "" && j.Updating == 0 && r.Rollout != nil && r.Rollout.Returned == "" && r.Rollout.Failed == "" && (j.Rollout == nil || j.Rollout.State == RolloutGoing):
		j.Reason = "its tasks have not been healthy for minHealthySeconds yet"
	case j.Rollout == nil && j.Updating > 0 && j.Suspended == "" && d.in.Last.Holds[name] != "": // of an alloc set, or kind batch
		j.Reason += "; held: " + d.in.Last.Holds[name]
	case j.Rollout == nil || j.Rollout.State == RolloutGoing:
	case j.Reason == "" || j.Rollout.Failed() && j.Running+j.Done == j.Desired: // that some run another version is known
		j.Reason = j.Rollout.Message
	case j.Rollout.Failed():
		j.Reason = j.Rollout.Message + "; " + j.Reason
	default:
		j.Reason += "; " + j.Rollout.Message
	}
}

// indexedTasks adds the tasks of a job that has a count, and returns the records
// of the others.
func (d *describer) indexedTasks(name schema.JobName, have []reportedRecord, r *schema.JobRecord, j *JobStatus) (others []reportedRecord) {
	for index := range j.Desired {
		if d.missing {
			return nil
		}
		if len(have) > 0 && have[0].Index == index {
			d.task(name, have[0], r, j, true)
			have = have[1:]
			continue
		}
		d.task(name, reportedRecord{TaskRecord: &schema.TaskRecord{Index: index}}, r, j, true)
	}
	return have
}

// systemTasks adds the tasks of a system job, whose count is that of the
// machines that shall have one, and returns the records of the others.
func (d *describer) systemTasks(name schema.JobName, have []reportedRecord, r *schema.JobRecord, j *JobStatus) (others []reportedRecord) {
	for _, t := range have {
		m := d.in.State.Machines[t.On]
		switch {
		case d.missing:
			return nil
		case t.Machine == "" && d.facts().Closed(t.On): // it gets nothing new
		case t.Machine != "" && t.Stop == nil && m != nil && !m.LostSince.IsZero(): // it is not missed
			d.task(name, t, r, j, false)
			d.job.remarks[d.job.Tasks[len(d.job.Tasks)-1].Name] = true
		case m == nil || !m.LostSince.IsZero():
			if t.Machine != "" {
				others = append(others, t)
			}
		case t.Stop != nil && (t.Stop.Kind == schema.CauseScaledDown || t.Stop.Kind == schema.CauseRemoved):
			others = append(others, t)
		default:
			j.Desired++
			d.task(name, t, r, j, true)
		}
	}
	return others
}

// records returns the records of a job's tasks, sorted by index.
func (d *describer) records(name schema.JobName) (out []reportedRecord) {
	for n := range d.in.State.Span(name) {
		c := d.in.State.Chunks[model.ChunkName{Job: name, Number: n}]
		if c == nil {
			continue
		}
		out = slices.Grow(out, len(c.Tasks))
		for i := range c.Tasks {
			t := reportedRecord{TaskRecord: &c.Tasks[i]}
			if t.Machine != "" {
				t.said = d.in.Observed.Task(t.Machine, name.Task(t.Index), t.Generation)
			}
			out = append(out, t)
		}
	}
	return out
}

// jobReason says why a job is not as desired, "" if it is. A batch task that
// runs is as desired; so is one that is done.
func (d *describer) jobReason(r *schema.JobRecord, j *JobStatus, tasks []TaskStatus) string {
	stopping, unknown := 0, 0
	var example *TaskStatus // the first that is not as desired
	for i := range tasks {
		t := &tasks[i]
		switch t.State {
		case TaskStopping:
			stopping++
		case TaskUnknown:
			unknown++
		}
		if example == nil && t.Reason != "" && t.State != TaskDone && !d.job.remarks[t.Name] {
			example, j.Cause = t, t.Reason
		}
	}
	switch {
	case r.Admitted == "" && unknown > 0:
		return fmt.Sprintf("removed; %s %s unknown", schema.Count(unknown, "task"), schema.Verb(unknown, "is", "are")) + example.unknown()
	case r.Admitted == "":
		if task := d.occupant(r.Name); task != "" && stopping == 0 {
			return fmt.Sprintf("removed; its allocs stop when nothing runs in them any more: %s does", task)
		}
		return fmt.Sprintf("removed; %s %s stopping", schema.Count(stopping, "task"), schema.Verb(stopping, "is", "are"))
	case j.Running+j.Done+j.Unknown < j.Desired:
		missing := schema.Part(j.Desired-j.Running-j.Done-j.Unknown, j.Desired, "task", "does not run", "do not run")
		if j.Unknown > 0 {
			missing += fmt.Sprintf(", %d %s unknown", j.Unknown, schema.Verb(j.Unknown, "is", "are"))
		}
		return missing + example.example()
	case j.Unknown > 0:
		return schema.Part(j.Unknown, j.Desired, "task", "is unknown", "are unknown") + example.unknown()
	case j.Updating > 0 && j.Suspended == "": // else its suspension says so
		return schema.Part(j.Updating, j.Desired, "task", "is", "are") + " on the previous version" + example.example()
	case stopping > 0:
		return fmt.Sprintf("%s %s stopping", schema.Count(stopping, "task"), schema.Verb(stopping, "is", "are"))
	case example != nil:
		return example.example()[2:]
	}
	return ""
}

// occupant names the first task that runs in an alloc of a set, "" if none does.
func (d *describer) occupant(set schema.JobName) (first string) {
	for name, c := range d.in.State.Chunks {
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if task := name.Job.Task(t.Index).Short(); t.Machine != "" && t.Alloc != nil && t.Alloc.Of(name.Job).JobName == set && (first == "" || task < first) {
				first = task
			}
		}
	}
	return first
}

// crashes adds where the tasks of a job crash.
func (d *describer) crashes(r *schema.JobRecord, tasks []reportedRecord, j *JobStatus) {
	if !slices.ContainsFunc(tasks, reportedRecord.hasFailed) {
		return
	}
	var only string
	j.Crashes, only = crashPattern(crashes(r.Since, tasks, d.in.Now))
	if only != "" {
		d.job.only = only
	}
}

// restartsOf returns the restarts of a job, sorted by name.
func (d *describer) restartsOf(name schema.JobName) []RestartStatus {
	r := d.in.State.Jobs[name]
	if r == nil || r.Admitted == "" {
		return nil
	}
	var out []RestartStatus
	for _, x := range d.facts().Asked[name] {
		p, _ := d.facts().RestartProgress(name, x)
		done := p.Done(x.RestartRequest)
		message := fmt.Sprintf("%s: %d of %s done", x, done, schema.Count(x.Tasks, "task"))
		switch {
		case x.Failed != "":
			message += "; paused: " + x.Failed
		case d.in.Last.Holds[name] != "":
			message += "; held: " + d.in.Last.Holds[name]
		}
		out = append(out, RestartStatus{RestartRequest: *x.RestartRequest, Done: done, Message: message, Next: "muster restart --cancel " + x.Name})
	}
	return out
}
