package draft

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Draft is what a step changes of a State: documents, and what is said of them.
type Draft struct {
	view    facts.View
	changed facts.Changes
	now     time.Time
	counter uint64
	order   []schema.JobName // of changed jobs, as they were admitted, or changed first
	events  []schema.Event
	watch   func(job schema.JobName, was, is *schema.TaskRecord) // nil for nobody
}

// New returns a draft of a state without changes.
func New(s *model.State, now time.Time) *Draft {
	d := &Draft{now: now, counter: s.Counter, changed: facts.Changes{
		Jobs: map[schema.JobName]*schema.JobRecord{}, Data: map[schema.Digest]*schema.Job{}, Chunks: map[model.ChunkName]*schema.Chunk{},
		Spans: map[schema.JobName]int{}, Machines: map[string]*schema.MachineRecord{}, Documents: map[string]any{}, Log: map[schema.JobName][]int{},
	}}
	d.view = facts.ViewOf(s, &d.changed)
	return d
}

// View returns the state as the draft has it, also when it changes later.
func (d *Draft) View() facts.View { return d.view }

// Watch has changed called for each task whose record is about to change, with what it
// was and will be; nil stands for none.
func (d *Draft) Watch(changed func(job schema.JobName, was, is *schema.TaskRecord)) {
	d.watch = changed
}

// SetJob changes the record of a job, or deletes it with nil.
func (d *Draft) SetJob(name schema.JobName, r *schema.JobRecord) {
	was, again := d.changed.Jobs[name]
	if again && was != nil && r != nil && was.Admitted != r.Admitted {
		d.order = slices.DeleteFunc(d.order, func(n schema.JobName) bool { return n == name })
		again = false
	}
	if !again {
		d.order = append(d.order, name)
	}
	d.changed.Jobs[name] = r
	d.changed.Records++
}

// AddData adds job data under its digest, unless it is there.
func (d *Draft) AddData(digest schema.Digest, job *schema.Job) {
	if d.view.Base.Data[digest] == nil {
		d.changed.Data[digest] = job
	}
}

// Set changes the record of one task of a job. Maps and slices in r must not be shared
// with a record that is changed later.
func (d *Draft) Set(job schema.JobName, r schema.TaskRecord) {
	c := d.own(job, r.Index)
	i, ok := model.SearchTask(c, r.Index)
	d.notify(job, c, i, ok, &r)
	if ok {
		c.Tasks[i] = r
	} else {
		c.Tasks = slices.Insert(c.Tasks, i, r)
	}
}

// Remove deletes the record of one task.
func (d *Draft) Remove(job schema.JobName, index int) {
	c := d.own(job, index)
	if i, ok := model.SearchTask(c, index); ok {
		d.notify(job, c, i, ok, nil)
		c.Tasks = slices.Delete(c.Tasks, i, i+1)
	}
}

// notify shows who watches the draft the record that c has at i, if there is one, and what
// becomes of it.
func (d *Draft) notify(job schema.JobName, c *schema.Chunk, i int, there bool, next *schema.TaskRecord) {
	if d.watch == nil {
		return
	}
	var was *schema.TaskRecord
	if there {
		was = &c.Tasks[i]
	}
	d.watch(job, was, next)
}

// own returns the draft's own copy of the chunk that index lies in.
func (d *Draft) own(job schema.JobName, index int) *schema.Chunk {
	name := model.ChunkName{Job: job, Number: index / schema.ChunkSize}
	d.changed.Log[job] = append(d.changed.Log[job], index) // who asks for it changes it
	c := d.changed.Chunks[name]
	if c == nil {
		c = &schema.Chunk{Job: job, Number: name.Number}
		if b := d.view.Base.Chunks[name]; b != nil {
			c.Tasks = slices.Clone(b.Tasks)
		}
		d.changed.Chunks[name] = c
		d.changed.Spans[job] = max(d.changed.Spans[job], name.Number+1)
	}
	return c
}

// NextGeneration counts a generation, and returns its number.
func (d *Draft) NextGeneration() uint64 {
	d.counter++
	return d.counter
}

// Generation returns the number of the newest generation.
func (d *Draft) Generation() uint64 { return d.counter }

// SetMachine changes the record of a machine, or forgets it with nil.
func (d *Draft) SetMachine(name string, r *schema.MachineRecord) { d.changed.Machines[name] = r }

// Put changes the document at a key, of a kind that has no method of its own here: no other
// document refers to it.
func (d *Draft) Put(key string, v any) { d.changed.Documents[key] = v }

// Delete deletes such a document.
func (d *Draft) Delete(key string) { d.changed.Documents[key] = nil }

// Event says that something happens with the changes. Its time is set.
func (d *Draft) Event(e schema.Event) {
	e.At = d.now
	d.events = append(d.events, e)
}

// Events returns what was said, in order.
func (d *Draft) Events() []schema.Event { return d.events }

// Writes returns the changes in an order in which each prefix is a state that
// a master can go on from: a generation is counted before it is given, data is
// there before what refers to it, and goes after it; jobs change in the order
// in which they were admitted, so that no quota is exceeded in between.
func (d *Draft) Writes() []model.Write {
	var out []model.Write
	if d.counter != d.view.Base.Counter {
		out = append(out, d.view.Base.Document(model.KeyCounter, d.counter))
	}
	for _, digest := range slices.Sorted(maps.Keys(d.changed.Data)) {
		out = append(out, d.view.Base.Document(model.KeyData+string(digest), d.changed.Data[digest]))
	}
	out = append(out, d.machineWrites()...)
	for _, name := range d.order {
		j, was := d.changed.Jobs[name], d.view.Base.Jobs[name]
		if j == nil && was != nil && was.Admitted != "" {
			gone := *was // until its tasks are
			gone.Admitted = ""
			j = &gone
		}
		if j != nil {
			out = append(out, d.view.Base.Document(model.KeyJob+name.Short(), j))
		}
	}
	out = append(out, d.chunkWrites()...)
	for _, name := range slices.Sorted(maps.Keys(d.changed.Machines)) { // now nothing is on it
		if d.changed.Machines[name] == nil {
			out = append(out, model.Write{Key: model.KeyMachine + name})
		}
	}
	for _, name := range d.order {
		if d.changed.Jobs[name] == nil && d.view.Base.Jobs[name] != nil {
			out = append(out, model.Write{Key: model.KeyJob + name.Short()})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(d.changed.Documents)) { // after the tasks that they are of
		if key != model.KeyLoss && key != model.KeyMoves && key != model.KeyRestored {
			out = append(out, d.document(key)...)
		}
	}
	out = append(out, d.document(model.KeyRestored)...) // last: until then all is found out again
	return append(out, d.garbage()...)
}

// machineWrites returns what changed of machines that stay, before which what is spent
// on lost ones, and on moves, is counted; and the epochs of those that are to be forgotten, which are
// kept before the machines go.
func (d *Draft) machineWrites() []model.Write {
	out := append(d.document(model.KeyLoss), d.document(model.KeyMoves)...)
	epoch := d.view.Base.Gone.Epoch
	for name, r := range d.changed.Machines {
		if r == nil {
			epoch = max(epoch, d.view.Base.Machines[name].Epoch)
		}
	}
	if epoch != d.view.Base.Gone.Epoch {
		out = append(out, d.view.Base.Document(model.KeyGone, schema.ForgottenRecord{Epoch: epoch}))
	}
	for _, name := range slices.Sorted(maps.Keys(d.changed.Machines)) {
		if r := d.changed.Machines[name]; r != nil {
			out = append(out, d.view.Base.Document(model.KeyMachine+name, r))
		}
	}
	return out
}

// document returns the write of a document that Put or Delete has changed, none if they
// have not.
func (d *Draft) document(key string) []model.Write {
	switch v, changed := d.changed.Documents[key]; {
	case !changed:
		return nil
	case v == nil:
		return []model.Write{{Key: key}}
	default:
		return []model.Write{d.view.Base.Document(key, v)}
	}
}

// chunkWrites returns the chunks that differ from what is stored.
func (d *Draft) chunkWrites() []model.Write {
	var out []model.Write
	names := slices.SortedFunc(maps.Keys(d.changed.Chunks), model.ChunkName.Compare)
	for _, name := range names {
		key := model.KeyChunk + name.Job.Short() + "/" + strconv.Itoa(name.Number)
		was, is := d.view.Base.Chunks[name], d.changed.Chunks[name]
		switch {
		case len(is.Tasks) == 0 && was != nil:
			out = append(out, model.Write{Key: key})
		case len(is.Tasks) == 0:
		case d.differ(name, was, is):
			out = append(out, d.view.Base.Document(key, is))
		}
	}
	return out
}

// differ reports whether a chunk is stored as another than it was, nil if it was not there:
// by the tasks that were changed, most often by the first.
func (d *Draft) differ(name model.ChunkName, was, is *schema.Chunk) bool {
	if was == nil || len(was.Tasks) != len(is.Tasks) {
		return true
	}
	for _, index := range d.changed.Log[name.Job] {
		if index/schema.ChunkSize != name.Number {
			continue
		}
		at, there := model.SearchTask(was, index)
		now, stays := model.SearchTask(is, index)
		if there != stays || there && !bytes.Equal(schema.Canonical(&was.Tasks[at]), schema.Canonical(&is.Tasks[now])) {
			return true
		}
	}
	return false
}

// garbage returns deletions of job data that nothing refers to any more. Data has
// its job's name in it, so none but the job's record and tasks refer to it: only
// the jobs that have changed are looked at, and those that are gone.
func (d *Draft) garbage() []model.Write {
	changed := map[schema.JobName]bool{}
	for name := range d.changed.Jobs {
		changed[name] = true
	}
	for name := range d.changed.Chunks {
		changed[name.Job] = true
	}
	if len(changed) == 0 {
		return nil
	}
	used := map[schema.Digest]bool{}
	for name := range changed {
		if j := d.view.Job(name); j != nil {
			used[j.Admitted], used[j.Good] = true, true
		}
		for n := range d.view.Span(name) {
			if c := d.view.Chunk(model.ChunkName{Job: name, Number: n}); c != nil {
				for i := range c.Tasks {
					used[c.Tasks[i].Data] = true
				}
			}
		}
	}
	for name := range d.view.Base.Orphans() {
		changed[name] = true
	}
	var out []model.Write
	for name := range changed {
		for _, digest := range d.view.Base.DataOf(name) {
			if !used[digest] {
				out = append(out, model.Write{Key: model.KeyData + string(digest)})
			}
		}
	}
	slices.SortFunc(out, func(a, b model.Write) int { return strings.Compare(a.Key, b.Key) })
	return out
}
