package control

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// provenAfter is how long a task must run for its failures to be forgotten.
const provenAfter = 5 * time.Minute

// stops are the tasks that were stopping when a step began, as far as others depend
// on that.
type stops struct {
	// preempted are by the short name of the task that they were preempted for.
	preempted   map[string][]snapshot.On
	moving      int // for a new version, or a restart
	rebalancing int // to be placed better
	unclaimed   int // of these, with room on another machine that is kept for them, but no claim on what they leave
	// moves are the machines to which tasks move that are stopping for that, or have stopped.
	moves []snapshot.On
	// together are the tasks that get places with others, and since when they were stopping.
	together map[schema.TaskName]time.Time
}

// leaves takes down what is to be known later of a task that was stopping; gathers says that it
// gets its place with others.
func (s *stops) leaves(task schema.TaskName, t *schema.TaskRecord, gathers bool) {
	if t.Stop == nil {
		return
	}
	if gathers {
		if s.together == nil {
			s.together = map[schema.TaskName]time.Time{}
		}
		s.together[task] = t.Stop.At
	}
	if t.Stop.By != "" {
		s.preempted[t.Stop.By] = append(s.preempted[t.Stop.By], snapshot.On{Task: task, Machine: t.Machine})
	}
}

// follower takes what is known of tasks into their records.
type follower struct {
	pass
	released map[schema.TaskName]string // from silent machines, and why
	losing   map[schema.JobName]bool    // the jobs of these
	stops    stops
}

// followJob takes what is known of the tasks of a job into the records.
func (s *follower) followJob(name schema.JobName) {
	if s.losing == nil {
		s.losing = map[schema.JobName]bool{}
		for task := range s.released {
			s.losing[task.JobName] = true
		}
	}
	s.setJobRight(name)
	loses := s.losing[name]
	want := s.Admitted(name)
	gathers := want != nil && want.Gathers()
	for _, t := range s.Tasks(name) {
		s.stops.leaves(name.Task(t.Index), &t, gathers)
		why, released := "", false
		if loses && t.Machine != "" {
			why, released = s.released[name.Task(t.Index)]
		}
		if released {
			s.end(name, t, schema.Cause{Kind: schema.CauseMachineLost, Message: why, At: s.Now})
		} else {
			s.follow(name, t)
		}
	}
	for _, t := range s.Tasks(name) {
		if to := movesTo(&t); to != "" {
			s.stops.moves = append(s.stops.moves, snapshot.On{Task: name.Task(t.Index), Machine: to})
		}
		switch {
		case t.Stop == nil:
		case facts.RunsAgain(t.Stop):
			s.stops.moving++
		case t.Stop.Kind == schema.CauseRebalance:
			if s.stops.rebalancing++; t.Stop.To != "" && t.Stop.By == "" {
				s.stops.unclaimed++
			}
		}
	}
}

// movesTo returns the machine to which a task moves, "" if it does not.
func movesTo(t *schema.TaskRecord) string {
	switch n := len(t.Causes); {
	case t.Stop != nil:
		return t.Stop.To
	case t.Machine == "" && n > 0:
		return t.Causes[n-1].To
	}
	return ""
}

// neverSent returns how a generation ends whose data of n bytes its machine cannot be sent,
// and will say nothing of.
func neverSent(t *schema.TaskRecord, n int) schema.Cause {
	if t.Stop != nil {
		return *t.Stop
	}
	return schema.Cause{
		Kind:    schema.CauseStartFailed,
		Message: fmt.Sprintf("machines cannot be sent the job: its data has %d bytes, and the link carries at most %d: make it smaller", n, schema.MaxJobData),
	}
}

// follow takes what is known of a task's generation into its record.
func (s *follower) follow(job schema.JobName, t schema.TaskRecord) {
	if t.Machine == "" {
		return
	}
	if n := s.Base.Heavy(t.Data); n > 0 {
		s.end(job, t, neverSent(&t, n))
		return
	}
	said := s.Said(job, &t)
	switch {
	case said.TaskStatus == nil:
	case said.State == schema.Dead && said.End != nil:
		s.end(job, t, *said.End)
	case said.State == schema.Running && t.Failures > 0:
		if proven := said.Since.Add(provenAfter); s.Now.Before(proven) {
			s.book(job, s.At(proven))
		} else {
			t.Failures = 0
			s.Set(job, t)
		}
	}
}
