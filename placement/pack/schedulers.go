package pack

import (
	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// planAtOnce is how many asks a scheduler plans before it commits.
const planAtOnce = 64

// placed is what became of asks.
type placed struct {
	on        map[schema.TaskName]string // machines of those that got one
	conflicts int                        // decisions that did not hold when they were committed
}

// place has schedulers decide asks on a snapshot. One decides and commits in one step.
// Several have each their share of the asks, and in each round each of them plans on
// the snapshot as all see it at the round's start; then they commit one after the
// other. What conflicts with a commit before is planned again in the next round, as in
// Omega (Schwarzkopf et al., EuroSys 2013).
func place(s *placement.Snapshot, work []placement.Ask, schedulers int, seed uint64) placed {
	out := placed{on: make(map[schema.TaskName]string, len(work))}
	if schedulers <= 1 {
		for _, d := range placement.Place(s, work, seed) {
			if d.Machine != "" {
				out.on[d.Name] = d.Machine
			}
		}
		return out
	}
	queues := make([][]placement.Ask, schedulers)
	for i := range work {
		queues[i%schedulers] = append(queues[i%schedulers], work[i])
	}
	for left := len(work); left > 0; {
		plans := make([]placement.Plan, schedulers)
		for i, q := range queues {
			plans[i] = placement.NewPlan(s, q[:min(len(q), planAtOnce)], nil, seed)
		}
		left = 0
		for i, p := range plans {
			again := out.commit(s, p)
			queues[i] = append(again, queues[i][min(len(queues[i]), planAtOnce):]...)
			left += len(queues[i])
		}
	}
	return out
}

// commit commits a plan, and returns the asks whose decisions did not hold.
func (o *placed) commit(s *placement.Snapshot, p placement.Plan) (again []placement.Ask) {
	done, conflicts := placement.Commit(s, p)
	for i := range done.Steps {
		o.on[done.Steps[i].Ask.Name] = done.Steps[i].Decision.Machine
	}
	o.conflicts += len(conflicts)
	for _, c := range conflicts {
		for i := range p.Steps {
			if p.Steps[i].Ask.Name == c.Name {
				again = append(again, p.Steps[i].Ask)
			}
		}
	}
	return again
}
