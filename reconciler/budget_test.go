package reconciler_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// chosen is what the stored records have shown of stops by muster's choice: a
// slow second way to hold disruption budgets, which knows nothing of how they are
// counted.
type chosen struct {
	seen map[uint64]bool // generations whose stop was looked at
	at   map[schema.JobName][]time.Time
}

func newChosen() chosen { return chosen{map[uint64]bool{}, map[schema.JobName][]time.Time{}} }

// relieve makes a machine ask for tasks to be moved away, or ask no more.
func (a *anything) relieve(t *rapid.T, m *agent) {
	if m.relief = nil; rapid.Bool().Draw(t, "over") {
		return
	}
	for _, s := range m.tasks {
		if s.State == schema.Running {
			m.relief = append(m.relief, s.Task.Short())
		}
	}
	slices.Sort(m.relief)
}

// serving reports of each task whether it works, as far as the reports say that
// the master has had.
func (a *anything) serving() map[schema.TaskName]bool {
	out := map[schema.TaskName]bool{}
	for name, c := range a.state.Chunks {
		for i := range c.Tasks {
			r := &c.Tasks[i]
			said := a.reported[r.Machine]
			out[name.Job.Task(r.Index)] = r.Stop == nil && r.Machine != "" && slices.ContainsFunc(said, func(s schema.TaskStatus) bool {
				return s.Generation == r.Generation && s.State == schema.Running && s.Health != schema.Unhealthy
			})
		}
	}
	return out
}

// disrupted: no stop of muster's choice leaves more of a job's tasks down than
// its budget says, whatever they are down for, and no 60 minutes have more such
// stops of tasks that served than it says. served is how it was before.
func (a *anything) disrupted(t *rapid.T, served map[schema.TaskName]bool) {
	now := a.serving()
	for job := range a.chosen.at {
		if a.state.Jobs[job] == nil {
			delete(a.chosen.at, job) // it is another one that has its name later
		}
	}
	for name, c := range a.state.Chunks {
		for i := range c.Tasks {
			r := &c.Tasks[i]
			if r.Stop == nil || a.chosen.seen[r.Generation] {
				continue
			}
			a.chosen.seen[r.Generation] = true
			task := name.Job.Task(r.Index)
			if r.Stop.Kind != schema.CauseUpdate && r.Stop.Resource != schema.MachineCPU || !served[task] {
				continue
			}
			job := a.state.Jobs[name.Job]
			want := a.state.Data[job.Admitted]
			if want == nil || want.Disruption == nil {
				continue
			}
			a.atOnce(t, task, want, now)
			if n := want.Disruption.PerHour; n > 0 {
				a.chosen.at[name.Job] = append(a.chosen.at[name.Job], a.now)
				recent := slices.DeleteFunc(slices.Clone(a.chosen.at[name.Job]), func(at time.Time) bool { return a.now.Sub(at) >= time.Hour })
				if len(recent) > n {
					t.Fatalf("%s was stopped (%s), and so %d tasks of the job were within an hour: at most %d may be", task, r.Stop, len(recent), n)
				}
			}
		}
	}
}

// atOnce holds a budget's MaxDown after task was stopped.
func (a *anything) atOnce(t *rapid.T, task schema.TaskName, want *schema.Job, now map[schema.TaskName]bool) {
	most := want.Disruption.MaxDown
	if most == 0 {
		most = want.Update.MaxParallel
	}
	down := 0
	if want.Kind == schema.System {
		for other := range now {
			if other.JobName == task.JobName && a.wants(want, other) && !now[other] {
				down++
			}
		}
	} else {
		for i := range want.Tasks {
			if other := task.JobName.Task(i); !now[other] && !a.isDone(other) {
				down++
			}
		}
	}
	if down > most {
		t.Fatalf("%s was stopped by choice, and so %d tasks of the job are down: at most %d may be", task, down, most)
	}
}

// isDone reports whether the state has the end of a batch task.
func (a *anything) isDone(task schema.TaskName) bool {
	c := a.state.Chunks[model.ChunkName{Job: task.JobName, Number: task.Index / schema.ChunkSize}]
	return c != nil && slices.ContainsFunc(c.Tasks, func(r schema.TaskRecord) bool { return r.Index == task.Index && r.Done != nil })
}

// TestRefusal: what is down for any reason takes its part of a budget.
func TestRefusal(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m1", 4, 8)
	c.join("m2", 4, 8)
	j := service("u", "web", 2, "v1")
	j.Priority, j.Disruption = 0, &schema.Disruption{MaxDown: 1}
	c.commit(compiled("1", good(pkg(".", j))))
	may := func(want bool, when string) {
		t.Helper()
		f := facts.New(facts.Stored(c.state), c.input().Desired, c.observed, c.now, nil)
		why, _ := f.Refusal(facts.Disruption{Job: j.ID(), Serve: []int{-1}})
		if got := !f.Frozen(j.ID()) && why == ""; got != want {
			t.Errorf("%s: one more task may be stopped: %t, want %t", when, got, want)
		}
	}
	turn := func(n int) {
		for range n {
			c.now = c.now.Add(time.Second)
			c.exchange()
			c.step()
		}
	}
	turn(1)
	may(false, "nothing runs yet")
	turn(2)
	may(true, "all serve")
	c.restart()
	may(false, "a new master has no reports")
	turn(1)
	may(true, "a new master has all reports")
	c.agent("m2").silent = true
	turn(15)
	may(false, "a machine is silent")
}
