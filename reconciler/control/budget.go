package control

import (
	"cmp"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// disruption stops tasks by muster's choice, which their jobs' budgets bound: see
// facts.Facts.Blocked. Each such stop goes through disrupt, and nothing else does, but
// that a drain stops system jobs' tasks, and what is left at its deadline, with
// disruptAnyway.
type disruption struct{ pass }

// disrupt stops a task by muster's choice, or says why it may not be stopped now. The
// step comes back when that ends.
func (s disruption) disrupt(job schema.JobName, t schema.TaskRecord, cause schema.Cause) (kept string) {
	why, until := s.Blocked(job, &t)
	s.book(job, until)
	if why == "" {
		s.disruptAnyway(job, t, cause)
	}
	return why
}

// disruptAnyway stops a task whatever budgets say. It counts towards them.
func (s disruption) disruptAnyway(job schema.JobName, t schema.TaskRecord, cause schema.Cause) {
	for _, l := range s.LostWith(job, &t) {
		s.spend(l)
	}
	s.stop(job, t, cause)
}

// rebalance stops a task that serves so that it is placed where it belongs, or says why
// it may not be stopped now.
func (s disruption) rebalance(job schema.JobName, t schema.TaskRecord, message string) (kept string) {
	return s.disrupt(job, t, schema.Cause{Kind: schema.CauseRebalance, Message: message, At: s.Now})
}

// overspend takes the loss of a task that is preempted into the records of the
// jobs that have a budget, and says which of these it exceeds, "" if none.
func (s disruption) overspend(job schema.JobName, t *schema.TaskRecord) (over string) {
	for _, l := range s.LostWith(job, t) {
		if s.Bounded(l.Job) != nil {
			why, until := s.Refusal(l)
			s.bookCell(until)
			over = cmp.Or(over, why)
			s.spend(l)
		}
	}
	return over
}

// spend takes a loss into the record of its job, which is stored before the
// task's: a crash between the two counts a stop that was not, and never forgets
// one.
func (s disruption) spend(l facts.Disruption) {
	if want := s.Bounded(l.Job); want == nil || want.Disruption.PerHour == 0 {
		return
	}
	was := s.Job(l.Job)
	r := *was
	r.Disrupted = nil
	for _, d := range was.Disrupted {
		if s.Now.Before(d.Until()) {
			r.Disrupted = append(r.Disrupted, d)
		}
	}
	r.Disrupted = withSpent(r.Disrupted, schema.Disrupted{At: s.Now, Tasks: len(l.Serve)})
	s.SetJob(l.Job, &r)
}

// withSpent adds d to a list that is sorted by time, where d is the last: to that
// of the same minute, if there is one.
func withSpent(list []schema.Disrupted, d schema.Disrupted) []schema.Disrupted {
	if n := len(list); n > 0 && list[n-1].At.Truncate(time.Minute).Equal(d.At.Truncate(time.Minute)) {
		list[n-1] = schema.Disrupted{At: d.At, Tasks: list[n-1].Tasks + d.Tasks}
		return list
	}
	return append(list, d)
}
