package plan

import (
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Life is what is known to become of a generation of a task on its machine, in order. What is
// not in it does not happen; a health check passes as soon after a start as its timings allow.
type Life struct {
	Turns []Turn
}

// Turn is what happens to a generation at a time: then, or as soon as it can.
type Turn struct {
	At   time.Time
	What TurnKind
	// End is why it ends, of TurnEnds and TurnStops.
	End     schema.CauseKind
	Message string
}

// TurnKind is a word for what happens to a generation.
type TurnKind int

// The turns of a life.
const (
	TurnRuns      TurnKind = iota // its first incarnation runs
	TurnRestarts                  // the agent has started the next one
	TurnUnhealthy                 // its health check fails
	TurnEnds                      // it ends by itself
	TurnStops                     // it has ended, once it was to stop
)

// live has the tasks that a machine has go on as is known of them; it returns whether anything is
// known of one.
func (m *machine) live(life func(schema.TaskName, uint64) *Life, now time.Time) (known bool) {
	for i := range m.report.Tasks {
		s := &m.report.Tasks[i]
		x := life(s.Task, s.Generation)
		if x == nil {
			continue
		}
		t := m.tasks()[s.Generation]
		if t.life = x; t.State != schema.Dead {
			t.live(now)
			m.counted, known = false, true
		}
	}
	return known
}

// stopped is how the generation ends when it is to stop; nil if that is not known.
func (l *Life) stopped() *Turn {
	if l == nil || len(l.Turns) == 0 || l.Turns[len(l.Turns)-1].What != TurnStops {
		return nil
	}
	return &l.Turns[len(l.Turns)-1]
}

// live has the next turn of its life happen to t, at its time.
func (t *task) live(now time.Time) {
	t.then(time.Time{}, nil)
	if t.turns == len(t.life.Turns) {
		return
	}
	turn := t.life.Turns[t.turns]
	if turn.What == TurnStops {
		return
	}
	t.then(slices.MaxFunc([]time.Time{turn.At, now}, time.Time.Compare), func(s *schema.TaskStatus) {
		at := t.next
		t.turns++
		t.turn(s, &turn, at)
	})
}

// turn has one turn happen, and the next one be waited for.
func (t *task) turn(s *schema.TaskStatus, turn *Turn, at time.Time) {
	switch turn.What {
	case TurnRuns, TurnRestarts:
		s.State, s.Incarnation, s.StartedAt, s.PID, s.Health, s.HealthMessage = schema.Running, s.Incarnation+1, at, 1, "", ""
		if turn.What == TurnRestarts {
			s.Exits = []schema.Exit{{Incarnation: s.Incarnation - 1, Code: 1, At: at, Message: turn.Message}}
		}
	case TurnUnhealthy:
		s.Health, s.HealthMessage = schema.Unhealthy, turn.Message
	case TurnEnds:
		exit := &schema.Exit{Incarnation: s.Incarnation, At: at, Message: turn.Message}
		if turn.End != schema.CauseFinished {
			exit.Code = 1
		}
		t.die(s, schema.Cause{Kind: turn.End, Message: turn.Message, Exit: exit, At: at})
		return
	case TurnStops:
	}
	t.live(at)
	if t.health() == nil || turn.What == TurnUnhealthy {
		return
	}
	s.Health = schema.HealthUnknown
	t.check(at, at)
}
