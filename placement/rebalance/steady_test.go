package rebalance_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/schema"
)

// rounds are those in which steady cells, taken together, must move nothing.
const rounds = 1000

// steady is a cell of which some tasks have gone, and others wait.
type steady struct {
	snapshot *placement.Snapshot
	machines []string
	waiting  []placement.Ask
	empties  bool                                // machines of which less than 40% is used are emptied
	been     map[schema.TaskName]map[string]bool // where tasks have been before
}

func newSteady(seed uint64) *steady {
	return makeup{machines: 12, jobs: 16, gone: 1}.of(seed, 1)
}

// makeup is what a cell is made of.
type makeup struct {
	machines, jobs int
	gone           int // of four tasks
}

func (m makeup) of(seed, stream uint64) *steady {
	r := rand.New(rand.NewPCG(seed, stream))
	s := &steady{been: map[schema.TaskName]map[string]bool{}}
	var machines []placement.Machine
	for i := range m.machines {
		s.machines = append(s.machines, fmt.Sprintf("m%02d", i))
		machines = append(machines, placement.Machine{
			Name: s.machines[i], Up: true, Capacity: schema.Resources{CPUMilli: 8000, RAMBytes: 1 << 40}, Attributes: map[string]string{"rack": fmt.Sprintf("r%d", i%3)},
		})
	}
	s.snapshot = placement.NewSnapshot(machines, nil)
	var asks []placement.Ask
	ask := func(job, tasks int, cpu int64) {
		for i := range tasks {
			asks = append(asks, placement.Ask{
				Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%02d", job)}.Task(i), Priority: 200, Limit: schema.Resources{CPUMilli: cpu},
			})
		}
	}
	for job := range m.jobs {
		ask(job, 1+r.IntN(4), 1000+500*r.Int64N(5))
	}
	for _, d := range placement.Place(s.snapshot, asks, seed) {
		if d.Machine != "" && r.IntN(4) < m.gone {
			s.snapshot.RemoveTask(d.Name, d.Machine, 0)
		}
	}
	asks = nil
	for job := range 4 {
		ask(50+job, 1, 4000+1000*r.Int64N(4))
	}
	s.waiting = asks
	return s
}

// round does what there is to do, and returns how many tasks have moved for it.
func (s *steady) round(t *testing.T) (moved int) {
	t.Helper()
	var left []placement.Ask
	for _, a := range s.waiting {
		search := rebalance.Search{Snapshot: s.snapshot, Moves: 3, Machines: 4, Checks: 1500, May: func(task *placement.Task, _ []rebalance.Move) (placement.Ask, bool) { return *task.Ask, true }}
		h, ok := search.Hole(a)
		if !ok {
			left = append(left, a)
			continue
		}
		for _, m := range h.Moves {
			s.move(t, m)
			moved++
		}
		a.On = h.Machine
		if d := placement.Place(s.snapshot, []placement.Ask{a}, 1)[0]; d.Machine != h.Machine {
			t.Fatalf("%s does not fit into its hole on %s: %s", a.Name.Short(), h.Machine, d.Why)
		}
	}
	s.waiting = left
	for _, machine := range s.machines {
		for _, task := range placement.TasksOn(s.snapshot, machine) {
			without := s.snapshot.Fork()
			without.RemoveTask(task.Name, machine, task.Generation)
			u, uneven := without.Uneven(*task.Ask, machine)
			without.Release()
			if uneven {
				s.move(t, rebalance.Move{Task: task.Name, From: machine, To: u.Machine})
				moved++
			}
		}
	}
	if s.empties {
		moved += s.empty(t)
	}
	return moved
}

// empty moves what is on machines of which little is used, but for jobs of which each sixth never
// moves.
func (s *steady) empty(t *testing.T) (moved int) {
	t.Helper()
	search := rebalance.Search{Snapshot: s.snapshot, Moves: 3, May: func(task *placement.Task, _ []rebalance.Move) (placement.Ask, bool) {
		return *task.Ask, !strings.HasSuffix(task.Name.Job, "5")
	}}
	list, _, _ := search.Empty(rebalance.Emptying{Below: 0.4, Counts: func(schema.JobName) bool { return true }}, 0)
	for _, e := range list {
		for _, m := range e.Moves {
			s.move(t, m)
			moved++
		}
		if n := len(placement.TasksOn(s.snapshot, e.Machine)); n > 0 {
			t.Errorf("%s has %d tasks yet", e.Machine, n)
		}
	}
	return moved
}

// inUse returns how many machines have a task.
func (s *steady) inUse() (n int) {
	for _, machine := range s.machines {
		if len(placement.TasksOn(s.snapshot, machine)) > 0 {
			n++
		}
	}
	return n
}

// settle does what there is to do until that is nothing, and wants it to be nothing from then on.
func (s *steady) settle(t *testing.T, seed uint64) (moved int) {
	t.Helper()
	for n := 0; ; n++ {
		m := s.round(t)
		if m == 0 {
			break
		}
		if moved += m; n == 20 {
			t.Fatalf("seed %d: tasks still move after %d rounds", seed, n)
		}
	}
	for range rounds / 20 {
		if m := s.round(t); m > 0 {
			t.Fatalf("seed %d: %d tasks move in a cell in which nothing happens", seed, m)
		}
	}
	return moved
}

// move moves a task, and errs if it has been where it goes.
func (s *steady) move(t *testing.T, m rebalance.Move) {
	t.Helper()
	for _, task := range placement.TasksOn(s.snapshot, m.From) {
		if task.Name != m.Task {
			continue
		}
		a := *task.Ask
		a.On = ""
		if s.been[m.Task] == nil {
			s.been[m.Task] = map[string]bool{}
		}
		s.been[m.Task][m.From] = true
		if s.been[m.Task][m.To] {
			t.Errorf("%s goes back to %s", m.Task.Short(), m.To)
		}
		if !placement.Move(s.snapshot, a, m.From, m.To) {
			t.Fatalf("%s has no room on %s", m.Task.Short(), m.To)
		}
		return
	}
	t.Fatalf("%s is not on %s", m.Task.Short(), m.From)
}

// TestSteady wants a cell in which nothing comes and goes any more to come to rest, and no
// task to move back and forth until then, or in 1,000 rounds after that, of 20 cells together.
func TestSteady(t *testing.T) {
	t.Parallel()
	moved := 0
	for seed := range uint64(20) {
		moved += newSteady(seed).settle(t, seed)
	}
	if moved < 20 {
		t.Errorf("%d tasks were moved before that: this tests too little", moved)
	}
}
