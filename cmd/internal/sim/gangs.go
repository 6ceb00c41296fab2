package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// gangJobs is the catalogue of tightJobs with tasks that get places together: those of a job
// alone, services among them, and those of two jobs that name a gang.
var gangJobs = ganged(tightJobs)

// ganged returns a catalogue of whose jobs some get their places together.
func ganged(list []template) []template {
	out := slices.Clone(list)
	for i := range out {
		t, add := &out[i], list[i].add
		change := func(*schema.Job) {}
		switch t.name {
		case "short", "long": // few enough to have room together, now and then
			t.tasks, t.most = 2, 6
			change = func(j *schema.Job) {
				if j.Gang, j.Priority = "train", 0; slices.Index(users, j.User)%2 == 1 { // quota is enough for eight of them
					j.Priority, j.Task.Resources.CPUMilli = 100, 400
				}
			}
		case "huge":
			t.tasks, t.most = 1, 3
			change = func(j *schema.Job) { j.Together = true }
		case "either":
			change = func(j *schema.Job) { j.Together = true }
		}
		t.add = func(p *schema.Package, d declared) {
			add(p, d)
			change(&p.Objects.Jobs[len(p.Objects.Jobs)-1])
		}
	}
	return out
}

// admittedTogether errs when writes have given a job of a gang what is declared of it, while another one has not
// got that: what is suspended, or held, has no part in it.
func (p *prefix) admittedTogether() error {
	came, lacks := map[company]schema.JobName{}, map[company]schema.JobName{}
	kept := p.base.SuspendedJobs()
	for _, digest := range p.head.Packages {
		pkg := p.packages[digest]
		if pkg == nil {
			continue // headWhole has said so
		}
		for i := range pkg.Objects.Jobs {
			job := &pkg.Objects.Jobs[i]
			name, c := job.ID(), company{user: job.User, gang: job.Gang}
			is, was := p.jobs[name], p.was.jobs[name]
			held := p.head.Held != nil && slices.ContainsFunc(p.head.Held.Jobs, func(h schema.HeldJob) bool { return h.Job == name.Short() })
			switch {
			case job.Gang == "" || held || kept.Of(name) != nil:
			case is == nil || is.Admitted != schema.DigestOf(job):
				lacks[c] = name
			case was == nil || was.Admitted != is.Admitted:
				came[c] = name
			}
		}
	}
	for c, name := range came {
		if other, part := lacks[c]; part {
			return fmt.Errorf("job %s is admitted, and %s of its gang is not", name, other)
		}
	}
	return nil
}

// member is a task that needs a place together with others.
type member struct {
	task   schema.TaskName
	was    *schema.TaskRecord // before a step, nil for none
	is     *schema.TaskRecord // after it
	claims bool
}

// has reports whether a record says that a task has a place that stays.
func has(r *schema.TaskRecord) bool { return r != nil && r.Machine != "" && r.Stop == nil }

// came reports whether the step has given it a place.
func (m *member) came() bool {
	if !has(m.is) {
		return false
	}
	return m.was == nil || m.was.Generation != m.is.Generation
}

// lacks reports whether it had no place that others could have got theirs beside: what the
// step has stopped had one until then.
func (m *member) lacks() bool {
	if m.claims || has(m.is) {
		return false
	}
	return m.is == nil || m.was == nil || m.is.Generation != m.was.Generation || !has(m.was)
}

// company is jobs whose tasks get places together, by the name of their gang or of the job.
type company struct{ user, gang, job string }

// companies returns which jobs get their places together, by the data that is admitted.
func (w *World) companies() map[company][]schema.JobName {
	out, s := map[company][]schema.JobName{}, w.master.state
	for name, r := range s.Jobs {
		switch want := s.Data[r.Admitted]; {
		case want == nil || !want.Gathers():
		case want.Gang != "":
			c := company{user: name.User, gang: want.Gang}
			out[c] = append(out[c], name)
		default:
			out[company{user: name.User, job: name.Job}] = []schema.JobName{name}
		}
	}
	for _, jobs := range out {
		slices.SortFunc(jobs, schema.JobName.Compare)
	}
	return out
}

// members returns the tasks of jobs that need places.
func (w *World) members(jobs []schema.JobName, before snap) (out []member) {
	s := w.master.state
	for _, job := range jobs {
		for i := range s.Data[s.Jobs[job].Admitted].Tasks {
			m := member{task: job.Task(i), was: before.record(job.Task(i)), is: w.oracle.record(job.Task(i))}
			if _, m.claims = w.master.last.Claims[m.task]; m.is == nil || m.is.Done == nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// ran is what had places together of a gang, and how many tasks its jobs wanted then.
type ran struct {
	had   map[schema.TaskName]bool
	tasks map[schema.JobName]int
}

// needs reports whether a task may have a place only if another one has: not if it had one before
// the other one came to the gang, which has had none yet.
func (r *ran) needs(task, other schema.TaskName) bool {
	return r == nil || !r.had[task] || r.had[other]
}

// tookPart reports whether a task has a place, or has lost one otherwise than with its gang.
func tookPart(r *schema.TaskRecord) bool {
	if r == nil || has(r) {
		return r != nil
	}
	ends := slices.Clone(r.Causes)
	if r.Stop != nil {
		ends = append(ends, *r.Stop)
	}
	ends = slices.DeleteFunc(ends, func(c schema.Cause) bool { return c.Kind == schema.CauseGang })
	return len(ends) > 0 && ends[len(ends)-1].Kind != schema.CausePreempted
}

// noteRan takes down what has places together.
func (w *World) noteRan(c company, jobs []schema.JobName, members []member) {
	r, tasks := w.oracle.ran[c], w.tasksOf(jobs)
	whole := !slices.ContainsFunc(members, func(m member) bool { return !m.claims && !has(m.is) })
	if r == nil && !whole {
		return
	}
	grows := r != nil && (&torn{tasks: r.tasks}).joined(tasks)
	next := &ran{map[schema.TaskName]bool{}, tasks}
	part := false
	for _, m := range members {
		if whole || r.had[m.task] || grows && m.is != nil && m.is.Generation > 0 {
			next.had[m.task] = true
			part = part || m.claims || tookPart(m.is)
		}
	}
	if w.oracle.ran[c] = next; !part {
		delete(w.oracle.ran, c)
	}
}

// checkGangs: of tasks that get places together none gets one while another has none, nor a
// claim on one, unless that one came to the gang later; when one of them is preempted all are; and what a
// crash has left in part is whole again, or goes back. before is what was stored when a step decided.
func (w *World) checkGangs(before snap) {
	if !w.cfg.Gangs {
		return
	}
	all := w.companies()
	maps.DeleteFunc(w.oracle.parts, func(c company, _ torn) bool { return all[c] == nil })
	maps.DeleteFunc(w.oracle.ran, func(c company, _ *ran) bool { return all[c] == nil })
	for c, jobs := range all {
		members := w.members(jobs, before)
		w.checkCame(members, w.oracle.ran[c])
		w.checkGoneTogether(jobs, members)
		w.checkPart(c, jobs, members)
		w.noteRan(c, jobs, members)
	}
}

// checkCame: who gets a place gets it with all others that it needs.
func (w *World) checkCame(members []member, r *ran) {
	for i := range members {
		came := &members[i]
		if !came.came() {
			continue
		}
		lacks := slices.IndexFunc(members, func(m member) bool { return m.lacks() && r.needs(came.task, m.task) })
		if lacks >= 0 {
			w.violate("task %s is placed on %s, and %s, which goes together with it, has no place", came.task, came.is.Machine, members[lacks].task)
			return
		}
	}
}

// checkGoneTogether: when one is preempted all go.
func (w *World) checkGoneTogether(jobs []schema.JobName, members []member) {
	s := w.master.state
	of := func(job schema.JobName) schema.Priority { return s.Data[s.Jobs[job].Admitted].Priority }
	if slices.ContainsFunc(jobs, func(j schema.JobName) bool { return of(j) != of(jobs[0]) }) {
		return // it is no gang yet
	}
	gone := slices.IndexFunc(members, func(m member) bool {
		return m.is != nil && m.is.Stop != nil && m.is.Stop.Kind == schema.CausePreempted && m.was != nil && m.was.Generation == m.is.Generation && has(m.was)
	})
	stays := slices.IndexFunc(members, func(m member) bool { return has(m.is) && !m.came() })
	if gone >= 0 && stays >= 0 {
		w.violate("task %s is preempted, and %s, which goes together with it, stays on %s", members[gone].task, members[stays].task, members[stays].is.Machine)
	}
}

// torn is a gang of which some have got places, and a crash came before others had theirs
// stored.
type torn struct {
	since time.Time
	came  map[schema.TaskName]uint64 // generations
	tasks map[schema.JobName]int     // as many as their jobs wanted
}

// findParts takes down what a master that died in the middle of a step has left in part; before
// is what was stored when the step began.
func (w *World) findParts(before snap) {
	if !w.cfg.Gangs || before == nil {
		return
	}
	for c, jobs := range w.companies() {
		p, lacks := torn{w.now, map[schema.TaskName]uint64{}, w.tasksOf(jobs)}, false
		for _, m := range w.members(jobs, before) {
			if lacks = lacks || !has(m.is); m.came() {
				p.came[m.task] = m.is.Generation
			}
		}
		if lacks && len(p.came) > 0 {
			w.oracle.parts[c] = p
		}
	}
}

// partTime is how long a gang may be in part while a master is there, which waits for machines
// to report first.
const partTime = 15 * time.Second

// checkPart: what a crash has left in part goes back, unless the others that it needs get places.
func (w *World) checkPart(c company, jobs []schema.JobName, members []member) {
	p, is := w.oracle.parts[c]
	if !is {
		return
	}
	r := w.oracle.ran[c]
	var stays, lacking, refused []schema.TaskName
	for i := range members {
		m := &members[i]
		why, pending := w.master.last.Why[m.task]
		switch {
		case m.claims:
		case !has(m.is):
			lacking = append(lacking, m.task)
			if pending && why.Waits == "" {
				refused = append(refused, m.task)
			}
		case p.came[m.task] == m.is.Generation:
			stays = append(stays, m.task)
		}
	}
	needs := func(list []schema.TaskName) (task, other schema.TaskName, some bool) {
		for _, task = range stays {
			if i := slices.IndexFunc(list, func(other schema.TaskName) bool { return r.needs(task, other) }); i >= 0 {
				return task, list[i], true
			}
		}
		return task, other, false
	}
	if _, _, some := needs(lacking); !some || p.joined(w.tasksOf(jobs)) {
		delete(w.oracle.parts, c)
		return
	}
	if task, other, some := needs(refused); some && w.now.Sub(later(p.since, w.master.since)) > partTime {
		w.violate("task %s has a place since %s, when a master died, and %s, which goes together with it, gets none", task, p.since.Format(time.TimeOnly), other)
	}
}

// tasksOf returns how many tasks jobs want.
func (w *World) tasksOf(jobs []schema.JobName) map[schema.JobName]int {
	out := map[schema.JobName]int{}
	for _, j := range jobs {
		out[j] = w.master.state.Data[w.master.state.Jobs[j].Admitted].Tasks
	}
	return out
}

// joined reports whether more tasks are to have places now: these may wait while others run.
func (p *torn) joined(now map[schema.JobName]int) bool {
	for j, n := range now {
		if before, was := p.tasks[j]; !was || n > before {
			return true
		}
	}
	return false
}
