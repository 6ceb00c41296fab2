package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Tasks that get places together are decided at one time, and are stored one document after the
// other: a master that dies in between leaves some with a place and others without. So does a
// claim that comes to nothing, beside which others have got their places. If there is room for
// those that lack a place they get it as soon as they ask. Else those go back that got theirs
// while the others had none, once machines have had the time to report to a new master. What ran
// before goes on, unless another one was preempted, with which all were to go: a master may have
// died before it had stored that. What came back beside those that had places goes on, too, while
// others have none that never had one.

// afterStart is how long after it could first judge a master takes a task that never had a place
// for one whose place its predecessor had decided upon.
const afterStart = time.Minute

// lack is a task that has no place and wants one, since when.
type lack struct {
	task  schema.TaskName
	since time.Time
}

// lacks are the first tasks of a gang that have no place.
type lacks struct {
	any lack
	had lack // of those that had one before; none if its task is not set
}

func (l *lack) take(task schema.TaskName, since time.Time) {
	if l.task == (schema.TaskName{}) || since.Before(l.since) {
		*l = lack{task, since}
	}
}

// takeBack stops tasks that got a place together with others which have none, and for which
// there is none now; asks are what placement was asked for.
func (s *scheduler) takeBack(asks []placement.Ask) {
	first := map[schema.JobName]*lacks{} // by the first job of a gang, or the only one
	for i := range asks {
		a := &asks[i]
		if a.Together == 0 && a.Gang == nil {
			continue
		}
		if _, pending := s.why[a.Name]; !pending {
			continue
		}
		key := a.Name.JobName
		if a.Gang != nil {
			key = s.cell.Gang(key).Jobs[0].Name
		}
		if first[key] == nil {
			first[key] = &lacks{}
		}
		since := s.lacksSince(a.Name)
		if first[key].any.take(a.Name, since); facts.HadPlace(s.Task(a.Name)) {
			first[key].had.take(a.Name, since)
		}
	}
	if len(first) == 0 {
		return
	}
	recent, until := s.Waits(s.Observed.ListeningSince().Add(model.SilentAfter), model.SilentAfter)
	if s.bookCell(until); recent {
		return
	}
	for _, key := range slices.SortedFunc(maps.Keys(first), schema.JobName.Compare) {
		jobs, all := []schema.JobName{key}, first[key]
		if gang := s.cell.Gang(key); gang != nil {
			jobs = jobs[:0]
			for _, j := range gang.Jobs {
				jobs = append(jobs, j.Name)
			}
		}
		if slices.ContainsFunc(jobs, func(job schema.JobName) bool { return s.broken(job, &all.any) }) {
			all.had = all.any
		}
		for _, job := range jobs {
			s.takeBackJob(job, all)
		}
	}
}

// lacksSince returns since when a task has wanted a place, and has had none that stays; now if
// that is not known.
func (s *scheduler) lacksSince(task schema.TaskName) time.Time {
	r, since := s.Task(task), s.Job(task.JobName).WholeSince()
	switch stopped, stops := s.stops.together[task]; {
	case stops: // what is placed in the step that stops it was placed before
		return later(since, stopped.Add(1))
	case r != nil && len(r.Causes) > 0:
		last := &r.Causes[len(r.Causes)-1]
		if last.Kind == schema.CausePreempted {
			return since // all others were to go with it, and what runs has not
		}
		return later(since, last.At)
	case s.Now.Sub(s.Observed.ListeningSince()) > model.SilentAfter+afterStart:
		return s.Now
	}
	return since
}

// wholeSince returns since when a job wants as many tasks together as now, nil if that is when
// its data changed: other data of as many tasks does not hide that some of them lack a place.
// was is its record before, nil for none, and is the one that it gets with job.
func (s *admission) wholeSince(was, is *schema.JobRecord, job *schema.Job) *schema.Whole {
	if !job.Gathers() || was == nil || was.Admitted == "" {
		return nil
	}
	before, since := s.Data(was.Admitted), s.Now
	if before.Gathers() && before.Gang == job.Gang && before.With(was.Count).Tasks >= job.With(is.Count).Tasks {
		since = was.WholeSince()
	}
	if since.Equal(is.Since) {
		return nil
	}
	return &schema.Whole{Since: since, Of: is.Since}
}

// takeBackJob stops the tasks of a job that were placed while another one had no place.
func (s *scheduler) takeBackJob(job schema.JobName, all *lacks) {
	for _, t := range s.Tasks(job) {
		l := &all.any
		if facts.CameBack(&t) {
			l = &all.had // those that never had a place are no matter
		}
		if s.placedBeside(job, &t, l) {
			s.stop(job, t, schema.Cause{Kind: schema.CauseGang, At: s.Now, Message: fmt.Sprintf("goes together with %s, which has no place", l.task.Short())})
		}
	}
}

// broken reports whether a task of a job that was preempted has got a place while another one had none. It can have
// got that only with all others, so those that could come back for themselves got theirs with it.
func (s *scheduler) broken(job schema.JobName, l *lack) bool {
	return slices.ContainsFunc(s.Tasks(job), func(t schema.TaskRecord) bool {
		return facts.WentWithAll(&t) && s.placedBeside(job, &t, l)
	})
}

// placedBeside reports whether a task of a job has got the place that it has while another one had none.
func (s *scheduler) placedBeside(job schema.JobName, t *schema.TaskRecord, l *lack) bool {
	want := s.Admitted(job)
	if want == nil || s.Frozen(job) || l.task == (schema.TaskName{}) {
		return false
	}
	since := later(l.since, s.Job(job).WholeSince()) // what was placed before others joined it runs on
	return t.Machine != "" && t.Stop == nil && t.Done == nil && t.Index < want.Tasks && !t.At.Before(since) && !t.At.After(s.Now) && !s.adopted(t)
}

// adopted reports whether a generation may have been decided upon before the store was restored,
// when others had places that it does not know of.
func (s *scheduler) adopted(t *schema.TaskRecord) bool {
	return s.Base.Restored != nil && t.Generation <= s.Base.Restored.Floor
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
