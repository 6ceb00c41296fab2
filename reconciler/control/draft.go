package control

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// draft is a State with changes that are not stored yet: Step works on it, and
// what differs in the end is written.
type draft struct {
	base     *model.State
	now      time.Time
	counter  uint64
	jobs     map[schema.JobName]*schema.JobRecord // changed; nil is deleted
	order    []schema.JobName                     // of jobs, as they were admitted, or changed first
	data     map[schema.Digest]*schema.Job        // added
	chunks   map[model.ChunkName]*schema.Chunk    // copied to be changed
	spans    map[schema.JobName]int               // chunks that a job may have
	machines map[string]*schema.MachineRecord     // changed; nil is forgotten
	loss     *schema.LossRecord                   // changed; nil if it is not
	restored *schema.Restored                     // changed; nil: it is not
	changes  map[schema.JobName]int               // of task records, counted
	over     []string                             // suspensions whose time is over
	suspends []*schema.Suspension                 // changed
	restarts map[string]*schema.RestartRequest    // changed; nil is over
	events   []schema.Event
	cell     *mirror // what placement sees of it; nil until it is asked for
}

func newDraft(s *model.State, now time.Time) *draft {
	return &draft{
		base: s, now: now, counter: s.Counter, jobs: map[schema.JobName]*schema.JobRecord{}, data: map[schema.Digest]*schema.Job{},
		chunks: map[model.ChunkName]*schema.Chunk{}, machines: map[string]*schema.MachineRecord{}, spans: s.Spans(),
		changes: map[schema.JobName]int{}, restarts: map[string]*schema.RestartRequest{},
	}
}

// job returns the record of a job as the draft has it, nil if there is none.
func (d *draft) job(name schema.JobName) *schema.JobRecord {
	if j, ok := d.jobs[name]; ok {
		return j
	}
	return d.base.Jobs[name]
}

// setJob changes the record of a job, or deletes it.
func (d *draft) setJob(name schema.JobName, r *schema.JobRecord) {
	was, again := d.jobs[name]
	if again && was != nil && r != nil && was.Admitted != r.Admitted {
		d.order = slices.DeleteFunc(d.order, func(n schema.JobName) bool { return n == name })
		again = false
	}
	if !again {
		d.order = append(d.order, name)
	}
	d.jobs[name] = r
}

// dataOf returns job data by its digest.
func (d *draft) dataOf(digest schema.Digest) *schema.Job {
	if j := d.data[digest]; j != nil {
		return j
	}
	return d.base.Data[digest]
}

// records are those of the draft.
func (d *draft) records() intent.Records { return intent.Records{Job: d.job, Data: d.dataOf} }

// allJobs returns the names of all jobs that have a record, sorted.
func (d *draft) allJobs() []schema.JobName {
	names := map[schema.JobName]bool{}
	for n := range d.base.Jobs {
		names[n] = true
	}
	for n, j := range d.jobs {
		names[n] = j != nil
	}
	maps.DeleteFunc(names, func(_ schema.JobName, there bool) bool { return !there })
	return slices.SortedFunc(maps.Keys(names), schema.JobName.Compare)
}

// tasks returns the records of a job as the draft has them, sorted by index.
// They are not to be written to: see set.
func (d *draft) tasks(job schema.JobName) []schema.TaskRecord {
	var out []schema.TaskRecord
	for n := range d.spans[job] {
		if c := d.chunk(model.ChunkName{Job: job, Number: n}); c != nil {
			out = append(out, c.Tasks...)
		}
	}
	return out
}

func (d *draft) chunk(name model.ChunkName) *schema.Chunk {
	if c := d.chunks[name]; c != nil {
		return c
	}
	return d.base.Chunks[name]
}

// set stores the record of one task of job in the draft. Maps and slices in r
// must not be shared with a record that is changed later.
func (d *draft) set(job schema.JobName, r schema.TaskRecord) {
	c := d.own(job, r.Index)
	i, ok := model.SearchTask(c, r.Index)
	d.moved(job, c, i, ok, &r)
	if ok {
		c.Tasks[i] = r
	} else {
		c.Tasks = slices.Insert(c.Tasks, i, r)
	}
}

// remove deletes the record of one task.
func (d *draft) remove(job schema.JobName, index int) {
	c := d.own(job, index)
	if i, ok := model.SearchTask(c, index); ok {
		d.moved(job, c, i, ok, nil)
		c.Tasks = slices.Delete(c.Tasks, i, i+1)
	}
}

// moved tells the snapshot, once there is one, what becomes of the record that
// c has or has not at i.
func (d *draft) moved(job schema.JobName, c *schema.Chunk, i int, there bool, next *schema.TaskRecord) {
	if d.cell == nil {
		return
	}
	var was *schema.TaskRecord
	if there {
		was = &c.Tasks[i]
	}
	d.cell.change(d, job, was, next)
}

// own returns the draft's own copy of the chunk that index lies in.
func (d *draft) own(job schema.JobName, index int) *schema.Chunk {
	name := model.ChunkName{Job: job, Number: index / schema.ChunkSize}
	d.changes[job]++ // who asks for it changes it
	c := d.chunks[name]
	if c == nil {
		c = &schema.Chunk{Job: job, Number: name.Number}
		if b := d.base.Chunks[name]; b != nil {
			c.Tasks = slices.Clone(b.Tasks)
		}
		d.chunks[name] = c
		d.spans[job] = max(d.spans[job], name.Number+1)
	}
	return c
}

func (d *draft) event(e schema.Event) {
	e.At = d.now
	d.events = append(d.events, e)
}

// writes returns the changes in an order in which each prefix is a state that
// a master can go on from: a generation is counted before it is given, data is
// there before what refers to it, and goes after it; jobs change in the order
// in which they were admitted, so that no quota is exceeded in between.
func (d *draft) writes() []model.Write {
	var out []model.Write
	if d.counter != d.base.Counter {
		out = append(out, d.base.Document(model.KeyCounter, d.counter))
	}
	for _, digest := range slices.Sorted(maps.Keys(d.data)) {
		out = append(out, d.base.Document(model.KeyData+string(digest), d.data[digest]))
	}
	out = append(out, d.machineWrites()...)
	for _, name := range d.order {
		j, was := d.jobs[name], d.base.Jobs[name]
		if j == nil && was != nil && was.Admitted != "" {
			gone := *was // until its tasks are
			gone.Admitted = ""
			j = &gone
		}
		if j != nil {
			out = append(out, d.base.Document(model.KeyJob+name.Short(), j))
		}
	}
	out = append(out, d.chunkWrites()...)
	for _, name := range d.order {
		if d.jobs[name] == nil && d.base.Jobs[name] != nil {
			out = append(out, model.Write{Key: model.KeyJob + name.Short()})
		}
	}
	for _, x := range d.suspends {
		out = append(out, d.base.Document(model.KeySuspend+x.Name, x))
	}
	for _, name := range d.over {
		out = append(out, model.Write{Key: model.KeySuspend + name})
	}
	for _, name := range slices.Sorted(maps.Keys(d.restarts)) { // after the tasks that they are of
		w := model.Write{Key: model.KeyRestart + name}
		if x := d.restarts[name]; x != nil {
			w = d.base.Document(model.KeyRestart+name, x)
		}
		out = append(out, w)
	}
	if d.restored != nil { // last: until then all is found out anew
		out = append(out, d.base.Document(model.KeyRestored, d.restored))
	}
	return append(out, d.garbage()...)
}

// machineWrites returns what changed of machines. A machine is forgotten after
// its epoch was noted, and what is spent on lost ones is counted before it is.
func (d *draft) machineWrites() []model.Write {
	var out []model.Write
	if d.loss != nil {
		w := model.Write{Key: model.KeyLoss}
		if !d.loss.Empty() {
			w = d.base.Document(model.KeyLoss, d.loss)
		}
		out = append(out, w)
	}
	epoch := d.base.Gone.Epoch
	for name, r := range d.machines {
		if r == nil {
			epoch = max(epoch, d.base.Machines[name].Epoch)
		}
	}
	if epoch != d.base.Gone.Epoch {
		out = append(out, d.base.Document(model.KeyGone, schema.ForgottenRecord{Epoch: epoch}))
	}
	for _, name := range slices.Sorted(maps.Keys(d.machines)) {
		w := model.Write{Key: model.KeyMachine + name}
		if r := d.machines[name]; r != nil {
			w = d.base.Document(model.KeyMachine+name, r)
		}
		out = append(out, w)
	}
	return out
}

// chunkWrites returns the chunks that differ from what is stored.
func (d *draft) chunkWrites() []model.Write {
	var out []model.Write
	names := slices.SortedFunc(maps.Keys(d.chunks), model.ChunkName.Compare)
	for _, name := range names {
		key := model.KeyChunk + name.Job.Short() + "/" + strconv.Itoa(name.Number)
		was, is := d.base.Chunks[name], d.chunks[name]
		switch {
		case len(is.Tasks) == 0 && was != nil:
			out = append(out, model.Write{Key: key})
		case len(is.Tasks) == 0:
		default:
			w := d.base.Document(key, is)
			if was == nil || !bytes.Equal(w.Value, d.base.Document(key, was).Value) {
				out = append(out, w)
			}
		}
	}
	return out
}

// garbage returns deletions of job data that nothing refers to any more. Data has
// its job's name in it, so none but the job's record and tasks refer to it: only
// the jobs that have changed are looked at, and those that are gone.
func (d *draft) garbage() []model.Write {
	changed := map[schema.JobName]bool{}
	for name := range d.jobs {
		changed[name] = true
	}
	for name := range d.chunks {
		changed[name.Job] = true
	}
	if len(changed) == 0 {
		return nil
	}
	used := map[schema.Digest]bool{}
	for name := range changed {
		if j := d.job(name); j != nil {
			used[j.Admitted], used[j.Good] = true, true
		}
		for n := range d.spans[name] {
			if c := d.chunk(model.ChunkName{Job: name, Number: n}); c != nil {
				for i := range c.Tasks {
					used[c.Tasks[i].Data] = true
				}
			}
		}
	}
	var out []model.Write
	for digest, j := range d.base.Data {
		if name := j.ID(); !used[digest] && (changed[name] || d.job(name) == nil && d.spans[name] == 0) {
			out = append(out, model.Write{Key: model.KeyData + string(digest)})
		}
	}
	slices.SortFunc(out, func(a, b model.Write) int { return strings.Compare(a.Key, b.Key) })
	return out
}
