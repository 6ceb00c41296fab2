package plan

import (
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// RolloutStep is what happens to a job at one time while a new version reaches its tasks. Field
// names are stable.
type RolloutStep struct {
	Seconds float64 `json:"seconds"` // since the commit
	// Stops are the indices of the tasks that are stopped, Ends of those that end by themselves,
	// Starts of those that are started, and Changes of those that get the version in place, in order.
	Stops   []int `json:"stops,omitempty"`
	Ends    []int `json:"ends,omitempty"`
	Starts  []int `json:"starts,omitempty"`
	Changes []int `json:"changes,omitempty"`
	// Says is what the master says of the rollout then: that it has passed its canary or waits,
	// has failed, or is complete; "" if nothing.
	Says string `json:"says,omitempty"`
}

// note is what the master says of the rollout of a job.
type note struct {
	at   time.Time
	job  string // user/job
	says string
}

// event takes an event of the cell.
func (t *trace) event(e *schema.Event, now time.Time) {
	if e.Kind == schema.EventRollout && e.Job != "" {
		t.notes = append(t.notes, note{now, e.Job, e.Message})
	}
}

// rollouts returns the steps since a time by user/job, of the jobs of which running tasks get a new
// version.
func (t *trace) rollouts(since time.Time) map[string][]RolloutStep {
	updated := t.updated()
	out := map[string][]RolloutStep{}
	// at returns the step of a job at a time: times come in order.
	at := func(job string, when time.Time) *RolloutStep {
		seconds, all := when.Sub(since).Seconds(), out[job]
		if n := len(all); n == 0 || all[n-1].Seconds != seconds {
			out[job] = append(all, RolloutStep{Seconds: seconds})
		}
		return &out[job][len(out[job])-1]
	}
	notes := t.notes
	// say takes the notes of before a time, or all if it is zero.
	say := func(before time.Time) {
		for len(notes) > 0 && (before.IsZero() || notes[0].at.Before(before)) {
			if n := &notes[0]; updated[n.job] {
				s := at(n.job, n.at)
				if s.Says != "" {
					s.Says += "; "
				}
				s.Says += n.says
			}
			notes = notes[1:]
		}
	}
	for i := range t.steps {
		s := &t.steps[i]
		job := shortJob(s.Task)
		if !updated[job] {
			continue
		}
		say(t.at[i])
		at(job, t.at[i]).add(s.Do, t.tasks[i].Index)
	}
	say(time.Time{})
	for _, steps := range out {
		for i := range steps {
			steps[i].sort()
		}
	}
	return out
}

// updated are the jobs, user/job, of which running tasks get a new version.
func (t *trace) updated() map[string]bool {
	out := map[string]bool{}
	for i := range t.steps {
		if s := &t.steps[i]; s.Do == Change || s.Do == Stop && s.Cause == schema.CauseUpdate {
			out[shortJob(s.Task)] = true
		}
	}
	return out
}

// add adds what is done to a task.
func (s *RolloutStep) add(do Do, index int) {
	switch do {
	case Stop:
		s.Stops = append(s.Stops, index)
	case End:
		s.Ends = append(s.Ends, index)
	case Start:
		s.Starts = append(s.Starts, index)
	case Change:
		s.Changes = append(s.Changes, index)
	}
}

func (s *RolloutStep) sort() {
	for _, tasks := range [][]int{s.Stops, s.Ends, s.Starts, s.Changes} {
		slices.Sort(tasks)
	}
}
