package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// prefix is what the store would hold if a master died after some of its writes.
// Nothing of it is shared with the master's state, which is left as it is.
type prefix struct {
	base     *model.State
	was      *prefix // before the first of the writes
	counter  uint64
	head     schema.Head
	gone     uint64 // highest epoch of a machine that was forgotten
	packages map[schema.Digest]*schema.Package
	data     map[schema.Digest]*schema.Job
	jobs     map[schema.JobName]*schema.JobRecord
	chunks   map[model.ChunkName]*schema.Chunk
	machines map[string]*schema.MachineRecord
}

func prefixOf(s *model.State) *prefix {
	return &prefix{
		base: s, counter: s.Counter, head: s.Head, gone: s.Gone.Epoch,
		packages: maps.Clone(s.Packages), data: maps.Clone(s.Data), jobs: maps.Clone(s.Jobs), chunks: maps.Clone(s.Chunks), machines: maps.Clone(s.Machines),
	}
}

// checkPrefixes: a master may die between any two writes, so what is stored is whole
// after each of them: it refers to what is stored, nothing runs that is not admitted,
// no quota is exceeded in between, and no number can be given twice.
func (w *World) checkPrefixes(writes []model.Write) {
	if len(writes) == 0 {
		return
	}
	p := prefixOf(w.master.state)
	p.was = prefixOf(w.master.state)
	for i, x := range writes {
		if err := p.take(x); err != nil {
			w.violate("after write %d of %d, of %s, %v", i+1, len(writes), x.Key, err)
			return
		}
	}
	if err := p.admittedTogether(); err != nil {
		w.violate("after all %d writes, %v", len(writes), err)
	}
}

// take does one write, and errs unless what it speaks of is whole then.
func (p *prefix) take(x model.Write) error {
	kind, name, _ := strings.Cut(x.Key, "/")
	switch kind + "/" {
	case model.KeyCounter + "/":
		return json.Unmarshal(x.Value, &p.counter)
	case model.KeyGone + "/":
		var r schema.ForgottenRecord
		err := json.Unmarshal(x.Value, &r)
		p.gone = r.Epoch
		return err
	case model.KeyHead + "/":
		p.head = schema.Head{}
		if err := json.Unmarshal(x.Value, &p.head); err != nil {
			return err
		}
		return p.headWhole()
	case model.KeyPackage:
		if err := replace(p.packages, schema.Digest(name), x); err != nil {
			return err
		}
		return p.headWhole()
	case model.KeyData:
		if err := replace(p.data, schema.Digest(name), x); err != nil || x.Value != nil {
			return err
		}
		return p.unreferred(schema.Digest(name))
	case model.KeyMachine:
		return p.takeMachine(name, x)
	case model.KeyJob:
		return p.takeJob(name, x)
	case model.KeyChunk:
		return p.takeChunk(name, x)
	}
	return nil
}

// replace decodes the document of x into m, or deletes key when it has none.
func replace[K comparable, V any](m map[K]*V, key K, x model.Write) error {
	if x.Value == nil {
		delete(m, key)
		return nil
	}
	v := new(V)
	m[key] = v
	return json.Unmarshal(x.Value, v)
}

func (p *prefix) headWhole() error {
	for dir, digest := range p.head.Packages {
		if p.packages[digest] == nil {
			return fmt.Errorf("the head refers to package %s of %s, which is not stored", digest, dir)
		}
	}
	return nil
}

// unreferred errs when something refers to job data that has gone.
func (p *prefix) unreferred(digest schema.Digest) error {
	for name, r := range p.jobs {
		if r.Admitted == digest || r.Good == digest {
			return fmt.Errorf("job %s refers to data that is not stored any more", name)
		}
	}
	for name, c := range p.chunks {
		for i := range c.Tasks {
			if c.Tasks[i].Data == digest {
				return fmt.Errorf("task %s refers to data that is not stored any more", name.Job.Task(c.Tasks[i].Index))
			}
		}
	}
	return nil
}

func (p *prefix) takeMachine(name string, x model.Write) error {
	was := p.machines[name]
	if err := replace(p.machines, name, x); err != nil || x.Value != nil || was == nil {
		return err
	}
	for n, c := range p.chunks {
		for i := range c.Tasks {
			if c.Tasks[i].Machine == name {
				return fmt.Errorf("machine %s is forgotten, and task %s is left on it", name, n.Job.Task(c.Tasks[i].Index))
			}
		}
	}
	if was.Epoch > p.gone {
		return fmt.Errorf("machine %s is forgotten, and so is its epoch, %d: the highest that is kept is %d", name, was.Epoch, p.gone)
	}
	return nil
}

func (p *prefix) takeJob(short string, x model.Write) error {
	name, err := schema.ParseJobName(p.base.Cell + "/" + short)
	if err != nil {
		return err
	}
	if err := replace(p.jobs, name, x); err != nil {
		return err
	}
	r := p.jobs[name]
	if r == nil {
		for n, c := range p.chunks {
			if n.Job == name && len(c.Tasks) > 0 {
				return fmt.Errorf("chunk %d of %s is left without its job", n.Number, name)
			}
		}
		return nil
	}
	for _, d := range []schema.Digest{r.Admitted, r.Good} {
		if d != "" && p.data[d] == nil {
			return fmt.Errorf("job %s refers to data %s, which is not stored", name, d)
		}
	}
	if r.Admitted == "" {
		return nil
	}
	if err := p.withinProtected(name.User); err != nil {
		return err
	}
	return p.withinQuota(account{name.User, p.data[r.Admitted].Priority.Band()})
}

// withinQuota errs when an account is over its quota, and by more than it was before.
func (p *prefix) withinQuota(k account) error {
	is, was, have := p.asked(k), p.was.asked(k), p.sold(k)
	if k.band != schema.BandFree && is.exceeds(have) && is.exceedsBoth(have, was) {
		return fmt.Errorf("%s at %s: %d tasks with %+v are admitted, quota is %d with %+v", k.user, k.band, is.tasks, is.resources, have.tasks, have.resources)
	}
	return nil
}

func (p *prefix) takeChunk(key string, x model.Write) error {
	at := strings.LastIndexByte(key, '/')
	job, err := schema.ParseJobName(p.base.Cell + "/" + key[:at])
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(key[at+1:])
	if err != nil {
		return err
	}
	name := model.ChunkName{Job: job, Number: number}
	if err := replace(p.chunks, name, x); err != nil || x.Value == nil {
		return err
	}
	if p.jobs[job] == nil {
		return fmt.Errorf("chunk %d of %s is left without its job", number, job)
	}
	for i := range p.chunks[name].Tasks {
		if err := p.taskWhole(job, &p.chunks[name].Tasks[i]); err != nil {
			return err
		}
	}
	return nil
}

// taskWhole errs unless a task's record refers to what is stored, and what it was
// given anew is what its job was admitted with, or had before.
func (p *prefix) taskWhole(job schema.JobName, t *schema.TaskRecord) error {
	task := job.Task(t.Index)
	if t.Generation > p.counter {
		return fmt.Errorf("task %s has generation %d, and the counter is at %d", task, t.Generation, p.counter)
	}
	if t.Data != "" && p.data[t.Data] == nil {
		return fmt.Errorf("task %s refers to data %s, which is not stored", task, t.Data)
	}
	was := snap(p.was.chunks).record(task)
	if t.Machine == "" || was != nil && was.Data == t.Data || p.base.Restored != nil && t.Generation <= p.base.Restored.Floor {
		return nil
	}
	r := p.jobs[job]
	if t.Data == r.Admitted || t.Data == r.Good {
		return nil
	}
	// A step changes in place what it can before it admits other data, which then does not
	// reach what stops or has to be replaced.
	before, goesOn := p.was.jobs[job], was != nil && was.Generation == t.Generation
	if before != nil && (t.Data == before.Good || goesOn && t.Data == before.Admitted) {
		return nil
	}
	return fmt.Errorf("task %s is given data %s, which its job was not admitted with", task, t.Data)
}

// account is whose quota it is.
type account struct {
	user string
	band schema.Band
}

// asked is what an account's admitted jobs ask for together.
type asked struct {
	resources schema.Resources
	tasks     int
}

// exceeds reports whether a is more than b in anything.
func (a asked) exceeds(b asked) bool { return !a.resources.Fits(b.resources) || a.tasks > b.tasks }

// exceedsBoth reports whether a is more than b, and more than c, in the same thing.
func (a asked) exceedsBoth(b, c asked) bool {
	x := a.resources
	return a.tasks > max(b.tasks, c.tasks) || x.CPUMilli > max(b.resources.CPUMilli, c.resources.CPUMilli) ||
		x.RAMBytes > max(b.resources.RAMBytes, c.resources.RAMBytes) || x.DiskBytes > max(b.resources.DiskBytes, c.resources.DiskBytes)
}

// asked returns what an account's jobs are admitted with: but for those in alloc sets,
// which the set counts for, and system jobs, which machines that join make larger.
func (p *prefix) asked(k account) asked {
	var sum asked
	for name, r := range p.jobs {
		d := p.data[r.Admitted]
		if name.User != k.user || d == nil || d.AllocSet != "" || d.Kind == schema.System || d.Priority.Band() != k.band {
			continue
		}
		sum.tasks += d.Tasks
		sum.resources = sum.resources.Add(d.Task.Resources.Resources.Times(d.Tasks))
	}
	return sum
}

// sold returns an account's quota by what the head declares.
func (p *prefix) sold(k account) asked {
	var sum asked
	for _, digest := range p.head.Packages {
		pkg := p.packages[digest]
		if pkg == nil {
			continue
		}
		for _, q := range pkg.Objects.Quotas {
			if q.User == k.user && q.Band == k.band {
				sum.tasks += q.Tasks
				sum.resources = sum.resources.Add(q.Resources)
			}
		}
	}
	return sum
}
