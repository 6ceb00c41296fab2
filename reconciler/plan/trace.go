package plan

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Step is one decision about one task. Field names are stable.
type Step struct {
	Seconds float64 `json:"seconds"` // since the commit
	Task    string  `json:"task"`    // user/job/index
	Do      Do      `json:"do"`
	Machine string  `json:"machine"`
	// Cause is why it stops, and By the task for which it is preempted.
	Cause schema.CauseKind `json:"cause,omitempty"`
	By    string           `json:"by,omitempty"`
}

// Do is a word for what is done to a task.
type Do string

// The words.
const (
	Start  Do = "start"
	Stop   Do = "stop"
	Change Do = "change" // in place
	End    Do = "end"    // it ended without being stopped
)

// trace is what has happened to tasks.
type trace struct {
	at    []time.Time // of steps
	steps []Step
	tasks []schema.TaskName // of steps
	// first are the records of tasks before their first step; nil of tasks that had none.
	first map[schema.TaskName]*schema.TaskRecord
	jobs  map[schema.JobName]*jobTrace
	notes []note
}

// jobTrace is what has happened to a job.
type jobTrace struct {
	began, ended time.Time         // of its steps, and of what follows from them
	served       []schema.TaskName // that had a machine before
	down         int               // the most of these that were down at once
}

// after takes what a batch has changed.
func (t *trace) after(s *model.State, was model.Chunks, now time.Time) {
	for _, name := range slices.SortedFunc(maps.Keys(was), model.ChunkName.Compare) {
		is := s.Chunks[name]
		seen := map[int]bool{}
		if was[name] != nil {
			for i := range was[name].Tasks {
				old := &was[name].Tasks[i]
				seen[old.Index] = true
				t.changed(name.Job.Task(old.Index), old, recordIn(is, old.Index), now)
			}
		}
		for i := 0; is != nil && i < len(is.Tasks); i++ {
			if !seen[is.Tasks[i].Index] {
				t.changed(name.Job.Task(is.Tasks[i].Index), nil, &is.Tasks[i], now)
			}
		}
	}
}

func recordIn(c *schema.Chunk, index int) *schema.TaskRecord {
	if c == nil {
		return nil
	}
	if i, ok := model.SearchTask(c, index); ok {
		return &c.Tasks[i]
	}
	return nil
}

// changed takes that the record of a task is another one; each may be nil.
func (t *trace) changed(name schema.TaskName, was, is *schema.TaskRecord, now time.Time) {
	if was == nil {
		was = &schema.TaskRecord{Index: name.Index}
	}
	if is == nil {
		is = &schema.TaskRecord{Index: name.Index}
	}
	add := func(s Step) {
		s.Task = name.Short()
		if t.first == nil {
			t.first, t.jobs = map[schema.TaskName]*schema.TaskRecord{}, map[schema.JobName]*jobTrace{}
		}
		t.at, t.steps, t.tasks = append(t.at, now), append(t.steps, s), append(t.tasks, name)
		j := t.jobs[name.JobName]
		if j == nil {
			j = &jobTrace{began: now}
			t.jobs[name.JobName] = j
		}
		j.ended = now
		if _, ok := t.first[name]; !ok {
			t.first[name] = was
			if was.Machine != "" && was.Stop == nil {
				j.served = append(j.served, name)
			}
		}
	}
	same := was.Generation == is.Generation
	switch {
	case was.Machine != "" && was.Stop == nil && is.Stop != nil && same:
		add(Step{Do: Stop, Machine: was.Machine, Cause: is.Stop.Kind, By: is.Stop.By})
	case was.Machine != "" && was.Stop == nil && (!same || is.Machine == ""):
		s := Step{Do: End, Machine: was.Machine}
		if n := len(is.Causes); n > 0 {
			s.Cause = is.Causes[n-1].Kind
		}
		add(s)
	}
	switch {
	case is.Machine != "" && (!same || was.Machine == ""):
		add(Step{Do: Start, Machine: is.Machine})
	case same && is.Machine != "" && was.Data != is.Data:
		add(Step{Do: Change, Machine: is.Machine})
	}
}

// healthy takes that tasks of jobs are healthy, which is when a change of them has come to its end.
func (t *trace) healthy(jobs []schema.JobName, now time.Time) {
	for _, name := range jobs {
		if j := t.jobs[name]; j != nil {
			j.ended = now
		}
	}
}

// count finds how many tasks are down of each job that something has happened to, of those
// that the job wants and that were there before.
func (t *trace) count(c *Cell) {
	for name, j := range t.jobs {
		want := c.state().Runs(name)
		if want == nil {
			continue
		}
		down := 0
		for _, task := range j.served {
			if (want.Kind == schema.System || task.Index < want.Tasks) && !c.serves(task) {
				down++
			}
		}
		j.down = max(j.down, down)
	}
}

// serves reports whether a task runs, and its health check does not fail.
func (c *Cell) serves(name schema.TaskName) bool {
	r := c.state().Record(name)
	if r == nil || r.Machine == "" || r.Stop != nil {
		return false
	}
	m := c.machines[r.Machine]
	if m == nil || m.silent {
		return false
	}
	t := m.tasks()[r.Generation]
	return t != nil && t.State == schema.Running && (t.Health == "" || t.Health == schema.Healthy)
}

// shortJob is the job of user/job/index.
func shortJob(task string) string { return task[:strings.LastIndexByte(task, '/')] }
