package facts

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Changes are the documents of a State that are about to be others. Only the draft
// writes to them; all else reads them through a View.
type Changes struct {
	Jobs      map[schema.JobName]*schema.JobRecord // nil is deleted
	Data      map[schema.Digest]*schema.Job        // added
	Chunks    map[model.ChunkName]*schema.Chunk
	Spans     map[schema.JobName]int           // chunks that a job may have
	Machines  map[string]*schema.MachineRecord // nil is forgotten
	Documents map[string]any                   // all others, by key; nil is deleted
	// Log has the indices of tasks whose records have changed, by job, in order.
	Log map[schema.JobName][]int
	// Records counts the changes of jobs' records.
	Records int
}

// View is a State as it will be with some changes.
type View struct {
	Base    *model.State
	changes *Changes
	// admitted is what records have admitted, as long as they are as they were: a step asks it of
	// each job a dozen times.
	admitted map[*schema.JobRecord]admittedJob
	sized    map[sizedJob]*schema.Job       // see Admitted
	tasks    map[schema.JobName]taskRecords // see Tasks
}

// admittedJob is the data that a record with these values has admitted.
type admittedJob struct {
	digest schema.Digest
	count  *int
	data   *schema.Job
}

// taskRecords are the records of a job's tasks after so many changes of them.
type taskRecords struct {
	changes int
	records []schema.TaskRecord
}

// sizedJob is the data of a job with another number of tasks.
type sizedJob struct {
	data  *schema.Job
	count int
}

// ViewOf returns a view of a state with changes, which may go on.
func ViewOf(base *model.State, changes *Changes) View {
	return View{base, changes, map[*schema.JobRecord]admittedJob{}, map[sizedJob]*schema.Job{}, map[schema.JobName]taskRecords{}}
}

// Stored returns a view of a state as it is.
func Stored(base *model.State) View { return ViewOf(base, &Changes{}) }

// Job returns the record of a job, nil if there is none.
func (v View) Job(name schema.JobName) *schema.JobRecord {
	if j, ok := v.changes.Jobs[name]; ok {
		return j
	}
	return v.Base.Jobs[name]
}

// Data returns job data by its digest.
func (v View) Data(digest schema.Digest) *schema.Job {
	if j := v.changes.Data[digest]; j != nil {
		return j
	}
	return v.Base.Data[digest]
}

// Admitted returns the data that a job runs, with as many tasks as it is to have; nil if
// it is not admitted. It is the same for the same data and count.
func (v View) Admitted(name schema.JobName) *schema.Job {
	r := v.Job(name)
	if r == nil || r.Admitted == "" {
		return nil
	}
	if a := v.admitted[r]; a.digest == r.Admitted && a.count == r.Count {
		return a.data
	}
	data := v.sizedData(r)
	if data != nil {
		v.admitted[r] = admittedJob{r.Admitted, r.Count, data}
	}
	return data
}

// sizedData returns the data that a record has admitted, with as many tasks as it says.
func (v View) sizedData(r *schema.JobRecord) *schema.Job {
	data := v.Data(r.Admitted)
	if data == nil || r.Count == nil {
		return data
	}
	key := sizedJob{data, *r.Count}
	if v.sized[key] == nil {
		v.sized[key] = data.With(r.Count)
	}
	return v.sized[key]
}

// Records are those of the view.
func (v View) Records() intent.Records {
	return intent.Records{Job: v.Job, Data: v.Data, Changed: v.ChangedJobs}
}

// Jobs returns the names of all jobs that have a record, sorted.
func (v View) Jobs() []schema.JobName {
	names := map[schema.JobName]bool{}
	for n := range v.Base.Jobs {
		names[n] = true
	}
	for n, j := range v.changes.Jobs {
		names[n] = j != nil
	}
	maps.DeleteFunc(names, func(_ schema.JobName, there bool) bool { return !there })
	return slices.SortedFunc(maps.Keys(names), schema.JobName.Compare)
}

// Tasks returns the records of a job's tasks, sorted by index. They are not to be
// written to, and are not written to when the draft changes.
func (v View) Tasks(job schema.JobName) []schema.TaskRecord {
	changes := v.Changes(job)
	if changes == 0 && v.Base.Span(job) <= 1 { // documents that are stored are never written to
		if c := v.Base.Chunks[model.ChunkName{Job: job}]; c != nil {
			return slices.Clip(c.Tasks)
		}
		return nil
	}
	if kept, ok := v.tasks[job]; ok && kept.changes == changes {
		return kept.records
	}
	var out []schema.TaskRecord
	for n := range v.Span(job) {
		if c := v.Chunk(model.ChunkName{Job: job, Number: n}); c != nil {
			out = append(out, c.Tasks...)
		}
	}
	out = slices.Clip(out)
	v.tasks[job] = taskRecords{changes, out}
	return out
}

// Changes counts the changes of a job's tasks.
func (v View) Changes(job schema.JobName) int { return len(v.changes.Log[job]) }

// Span returns how many chunks a job may have.
func (v View) Span(job schema.JobName) int {
	return max(v.changes.Spans[job], v.Base.Span(job))
}

// Task returns the record of a task, nil if there is none. It is not to be written to.
func (v View) Task(t schema.TaskName) *schema.TaskRecord {
	c := v.Chunk(model.ChunkName{Job: t.JobName, Number: t.Index / schema.ChunkSize})
	if c == nil {
		return nil
	}
	if i, ok := model.SearchTask(c, t.Index); ok {
		return &c.Tasks[i]
	}
	return nil
}

// Chunk returns a chunk, nil if there is none.
func (v View) Chunk(name model.ChunkName) *schema.Chunk {
	if c := v.changes.Chunks[name]; c != nil {
		return c
	}
	return v.Base.Chunks[name]
}

// ChunkNames returns the names of all chunks, sorted.
func (v View) ChunkNames() []model.ChunkName {
	names := slices.Collect(maps.Keys(v.Base.Chunks))
	for name := range v.changes.Chunks {
		if v.Base.Chunks[name] == nil {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, model.ChunkName.Compare)
	return names
}

// Machine returns the record of a machine, nil if there is none, or it is forgotten.
func (v View) Machine(name string) *schema.MachineRecord {
	if r, ok := v.changes.Machines[name]; ok {
		return r
	}
	return v.Base.Machines[name]
}

// ChangedJobs returns the jobs whose records are changed, sorted.
func (v View) ChangedJobs() []schema.JobName {
	return slices.SortedFunc(maps.Keys(v.changes.Jobs), schema.JobName.Compare)
}

// JobChanged reports whether the record of a job is changed.
func (v View) JobChanged(name schema.JobName) bool {
	_, changed := v.changes.Jobs[name]
	return changed
}

// ChangedChunks returns the chunks that are changed, sorted.
func (v View) ChangedChunks() []model.ChunkName {
	return slices.SortedFunc(maps.Keys(v.changes.Chunks), model.ChunkName.Compare)
}

// ChunkChanged reports whether a chunk is changed.
func (v View) ChunkChanged(name model.ChunkName) bool { return v.changes.Chunks[name] != nil }

// DocumentChanged reports whether the document at a key, of a kind that has no method of
// its own here, is changed or deleted.
func (v View) DocumentChanged(key string) bool {
	_, changed := v.changes.Documents[key]
	return changed
}
