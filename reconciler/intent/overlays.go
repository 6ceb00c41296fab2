package intent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Overlay is why what is desired of a job is not what its package declares, "" where it
// is.
type Overlay string

// The overlays, in the order in which they are laid over what is declared: a later one
// has the last word. Each is a function of what it is given, and of nothing else.
const (
	// Held: a guard holds the job's removal, and it stays as it is.
	Held Overlay = "held"
	// Suspended: nothing of the job is changed until somebody resumes it.
	Suspended Overlay = "suspended"
	// Retained: an alloc set is declared no more, and jobs that run name it.
	Retained Overlay = "retained"
	// Returned: the newest version of the job has failed, and it runs the last healthy
	// one.
	Returned Overlay = "returned"
)

// overlay is one that depends on what is stored alone.
type overlay struct {
	// applies reports whether there is anything to be laid over a head which holds what held says.
	applies func(s *model.State, held *schema.Held) bool
	lay     func(s *model.State, d *Desired, held *schema.Held)
}

// overlays are those that depend on what is stored alone. Retained and Returned depend
// on what is admitted in the same step, see RetainedSets and WithReturned.
var overlays = []overlay{
	{func(_ *model.State, held *schema.Held) bool { return held != nil }, keepHeld},
	{func(s *model.State, _ *schema.Held) bool { return len(s.Suspensions) > 0 }, keepSuspended},
}

// laid returns what is desired of a cell whose head declares that, and holds what held says.
func (b *base) laid(s *model.State, held *schema.Held) *Desired {
	d, owned := b.declared, false
	for _, over := range overlays {
		if !over.applies(s, held) {
			continue
		}
		if !owned {
			d.Jobs, d.names, owned = maps.Clone(d.Jobs), nil, true
		}
		over.lay(s, &d, held)
	}
	return &d
}

// keepSuspended puts the suspended jobs into d as they were admitted last. While
// the cell is suspended, what was not admitted before is not admitted.
func keepSuspended(s *model.State, d *Desired, _ *schema.Held) {
	x := s.SuspendedJobs()
	if x.All == nil && len(x.Jobs) == 0 {
		return
	}
	d.Waiting = map[schema.JobName]*DesiredJob{}
	for name, r := range s.Jobs {
		if x.Of(name) == nil || r.Admitted == "" {
			continue
		}
		newest, declared := d.Jobs[name]
		switch {
		case declared && newest.Digest == r.Admitted && len(newest.Refused) == 0:
			continue
		case declared:
			d.Waiting[name] = &newest
		default:
			d.Waiting[name] = nil
		}
		d.Jobs[name] = keptJob(s, r, Suspended)
	}
	if x.All == nil {
		return
	}
	for name, job := range d.Jobs {
		if r := s.Jobs[name]; r == nil || r.Admitted == "" {
			job.Refused = []schema.Diagnostic{{
				Severity: schema.Error, Rule: schema.RuleSuspended, Position: job.Origin, Field: KeyOf(job.Job).Field(),
				Message:  "nothing is admitted while the cell is suspended",
				Expected: "a cell that is not suspended", Hint: "muster resume all",
			}}
			d.Jobs[name] = job
		}
	}
}

// keepHeld puts the held jobs into d, as they were admitted last.
func keepHeld(s *model.State, d *Desired, held *schema.Held) {
	for _, h := range held.Jobs {
		name := s.JobName(h.Job)
		if r := s.Jobs[name]; r != nil && r.Admitted != "" {
			d.Jobs[name] = keptJob(s, r, Held)
		}
	}
}

// keptJob returns what a job runs as what is desired, by an overlay.
func keptJob(s *model.State, r *schema.JobRecord, by Overlay) DesiredJob {
	return DesiredJob{Job: s.Data[r.Admitted], Digest: r.Admitted, Origin: r.Origin, Count: r.Count, By: by}
}

// RetainedSets returns the alloc sets that are removed from the repository, or are no
// alloc sets there any more, with the jobs that name them by the data that they
// run, which runs says. Such a set stays: what runs is not stopped since its set
// is missing.
func RetainedSets(s *model.State, desired *Desired, runs func(schema.JobName) *schema.Job) map[schema.JobName][]string {
	var out map[schema.JobName][]string
	for name, r := range s.Jobs {
		if r.Admitted == "" || s.Data[r.Admitted].Kind != schema.Allocs {
			continue
		}
		if d, ok := desired.Jobs[name]; ok && d.Job.Kind == schema.Allocs {
			continue
		}
		if out == nil {
			out = map[schema.JobName][]string{}
		}
		out[name] = nil
	}
	if out == nil {
		return nil
	}
	for name := range desired.Jobs {
		if data := runs(name); data != nil {
			if host, inside := data.HostSet(); inside {
				if jobs, gone := out[host]; gone {
					out[host] = append(jobs, name.Short())
				}
			}
		}
	}
	maps.DeleteFunc(out, func(_ schema.JobName, jobs []string) bool { slices.Sort(jobs); return len(jobs) == 0 })
	return out
}

// WithRetained returns what is desired, and the alloc sets that jobs keep alive
// as they are: refused, so that each is reported, and charged to their quota.
func WithRetained(s *model.State, desired *Desired, retained map[schema.JobName][]string) Desired {
	d := *desired
	if len(retained) == 0 {
		return d
	}
	d.Jobs, d.names = maps.Clone(d.Jobs), nil
	for name, jobs := range retained {
		r := s.Jobs[name]
		data := s.Data[r.Admitted]
		d.Jobs[name] = DesiredJob{Job: data, Digest: r.Admitted, Origin: r.Origin, Count: r.Count, By: Retained, Refused: []schema.Diagnostic{{
			Severity: schema.Error, Rule: schema.RuleNoEffect, Position: r.Origin, Field: KeyOf(data).Field(),
			Message:  fmt.Sprintf("alloc set %s is no longer declared, and is kept for the jobs that run in it: %s", name.Short(), strings.Join(jobs, ", ")),
			Expected: "an alloc set that no job names",
			Hint:     "declare it again, or take allocset out of the job first",
		}}}
	}
	return d
}

// Records are the records of jobs, and data by its digest, as a step has them: stored,
// or about to be.
type Records struct {
	Job  func(schema.JobName) *schema.JobRecord // nil if there is none
	Data func(schema.Digest) *schema.Job
	// Changed returns the jobs whose records are others than those of the state; nil for none.
	Changed func() []schema.JobName
}

// Stored are the records of a state.
func Stored(s *model.State) Records {
	return Records{
		Job:  func(name schema.JobName) *schema.JobRecord { return s.Jobs[name] },
		Data: func(digest schema.Digest) *schema.Job { return s.Data[digest] },
	}
}

// InsteadOf returns what a job runs in place of what is desired, whose data failed; false
// if it runs what is desired.
func (x Records) InsteadOf(name schema.JobName, desired *DesiredJob) (DesiredJob, bool) {
	r := x.Job(name)
	if r == nil || r.Rollout == nil || r.Rollout.Returned == "" || r.Rollout.Returned != desired.Digest {
		return DesiredJob{}, false
	}
	return DesiredJob{Job: x.Data(r.Good), Digest: r.Good, Origin: r.Origin, Count: desired.Count, By: Returned}, true
}

// returned returns the jobs whose records say that they run the last healthy version, and maybe
// others.
func (x Records) returned(s *model.State) (names []schema.JobName) {
	for name, r := range s.Jobs {
		if r.Rollout != nil && r.Rollout.Returned != "" {
			names = append(names, name)
		}
	}
	if x.Changed != nil {
		names = append(names, x.Changed()...)
	}
	return names
}

// WithReturned returns what is desired of a cell, with jobs that return to their last
// healthy data at that: it is admitted as any other.
func WithReturned(s *model.State, d Desired, records Records) Desired {
	owned := false
	for _, name := range records.returned(s) {
		job, desired := d.Jobs[name]
		base, ok := records.InsteadOf(name, &job)
		if !ok || !desired {
			continue
		}
		if !owned {
			d.Jobs, owned = maps.Clone(d.Jobs), true
		}
		d.Jobs[name] = base
	}
	return d
}

// Audit errs when kept is not what is desired of s.
func Audit(s *model.State, kept *Desired) error {
	want := Of(s)
	if !maps.EqualFunc(kept.Jobs, want.Jobs, func(a, b DesiredJob) bool {
		return a.Digest == b.Digest && a.Origin == b.Origin && a.By == b.By && a.Job.With(a.Count).Tasks == b.Job.With(b.Count).Tasks && len(a.Refused) == len(b.Refused)
	}) {
		return fmt.Errorf("the kept jobs of %s are %v: want %v", s.Head.Commit, kept.Names(), want.Names())
	}
	return nil
}

// jobDigest is the digest of a job of a package with its names resolved. All
// that the names of other packages put into it is its priority.
type jobDigest struct {
	priority schema.Priority
	digest   schema.Digest
}

// Of returns what is desired of a cell: what the packages of its head declare,
// with what stays as it is though they say otherwise.
func Of(s *model.State) *Desired { return new(Cache).Of(s) }

// Cache holds what is desired of one State from one version to the next. It
// is a function of the state, and only spares work. The zero value is empty. It
// belongs to one goroutine at a time.
type Cache struct {
	// Parallel makes n calls and returns when all have returned: those that make digests. nil is one
	// after the other.
	Parallel func(n int, do func(i int))

	version uint64   // of the state that desired is of
	desired *Desired // nil until it is asked for
	base    *base    // of the head that desired is of
	// digests are those of the jobs of the head's packages: those of many jobs take
	// their time.
	digests map[*schema.Package][]jobDigest
	missing []undigested // that are to be found out
}

// Of returns what intent.Of returns. It is shared, and must not be written to.
func (c *Cache) Of(s *model.State) *Desired {
	if c.desired != nil && c.version == s.Desires {
		return c.desired
	}
	c.base = c.base.next(s.Cell, s.HeadPackages(), c.digest)
	c.fill(&c.base.declared)
	maps.DeleteFunc(c.digests, func(p *schema.Package, _ []jobDigest) bool { return c.base.packages[p.Dir] != p })
	c.version, c.desired = s.Desires, c.base.laid(s, s.Head.Held)
	return c.desired
}

// digest returns the digest of a job of a package, which is found out once; "" if fill is to find
// it out.
func (c *Cache) digest(p *schema.Package, i int, j *schema.Job) schema.Digest {
	ds, ok := c.digests[p]
	if !ok {
		if c.digests == nil {
			c.digests = map[*schema.Package][]jobDigest{}
		}
		ds = make([]jobDigest, len(p.Objects.Jobs))
		c.digests[p] = ds
	}
	if ds[i].digest == "" || ds[i].priority != j.Priority {
		ds[i].digest = ""
		c.missing = append(c.missing, undigested{j, &ds[i]})
	}
	return ds[i].digest
}

// undigested is a job of a package, and where its digest is to be.
type undigested struct {
	job *schema.Job
	to  *jobDigest
}

// fill puts the digests that are missing into what was just declared.
func (c *Cache) fill(declared *Desired) {
	made := make([]jobDigest, len(c.missing))
	of := func(i int) { made[i] = jobDigest{c.missing[i].job.Priority, schema.DigestOf(c.missing[i].job)} }
	if c.Parallel != nil {
		c.Parallel(len(made), of)
	} else {
		for i := range made {
			of(i)
		}
	}
	for i, m := range c.missing { // which has a job twice where a base was begun, and another made instead
		*m.to = made[i]
	}
	for _, m := range c.missing {
		name := m.job.ID()
		if j := declared.Jobs[name]; j.Job == m.job { // else it is declared twice
			j.Digest = m.to.digest
			declared.Jobs[name] = j
		}
	}
	c.missing = nil
}
