package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// word is what a kind of input is called.
type word string

const (
	commits    word = "commits"
	joins      word = "machines that joined"
	losses     word = "machines that fell silent"
	returns    word = "machines that spoke again"
	conditions word = "conditions of machines"
	ends       word = "tasks that ended by themselves"
	starts     word = "starts of tasks"
	checks     word = "health checks that failed"
	requests   word = "requests of operators"
)

// input is something that came from outside.
type input struct {
	at   time.Time
	word word
	of   string // the machine or the job; "" of the cell
	// do has it happen; nil of what is in the life of a task. skip says why it cannot.
	do func(*player) (skip string, err error)
}

// inputs returns what of a log came from outside, in order.
func inputs(records []schema.EventRecord, applied string) []input {
	var out []input
	old := !slices.ContainsFunc(records, func(r schema.EventRecord) bool { return r.Input != nil })
	for i := range records {
		r := &records[i]
		in := input{at: r.At, of: r.Job}
		switch {
		case r.Kind == schema.EventApply && r.Commit != "" && r.Commit != applied:
			applied = r.Commit
			if r.Input != nil && r.Input.Delayed != nil {
				in.at = r.At.Add(-time.Duration(r.Input.Delayed.Seconds * float64(time.Second)))
			}
			in.word, in.do = commits, func(p *player) (string, error) { return p.commit(r.Commit) }
		case r.Kind == schema.EventMaster:
			in.word, in.do = requests, func(*player) (string, error) { return "another master does not begin to lead in a replay", nil }
		case r.Kind == schema.EventMachine && r.Machine != "" && !r.Declared:
			if in = ofMachine(r, old); in.do == nil {
				continue
			}
		case r.Input != nil || r.Kind == schema.EventSuspend:
			in.word, in.do = requests, func(p *player) (string, error) { return p.request(r) }
		default:
			continue
		}
		out = append(out, in)
	}
	slices.SortStableFunc(out, func(a, b input) int { return a.at.Compare(b.at) })
	return out
}

// ofMachine returns what came from outside by an event of a machine; old says that the log is of a
// release that did not keep that.
func ofMachine(r *schema.EventRecord, old bool) input {
	in := input{at: r.At, of: r.Machine}
	switch is := r.Input; {
	case is == nil && old:
		in.word, in.do = joins, func(*player) (string, error) {
			return "the log is of an earlier release, and has it in words alone: " + r.Message, nil
		}
	case is == nil:
	case is.Forget != nil:
		in.word, in.do = requests, func(p *player) (string, error) { return p.request(r) }
	case is.Join != nil:
		in.word, in.do = joins, func(p *player) (string, error) { return p.join(r) }
	case is.Lost != nil && is.Lost.SilentSeconds > 0:
		in.at, in.word = r.At.Add(-time.Duration(is.Lost.SilentSeconds*float64(time.Second))), losses
		in.do = func(p *player) (string, error) {
			_, err := p.cell.Lose([]string{r.Machine})
			return "", err
		}
	case is.Returned:
		in.word, in.do = returns, func(p *player) (string, error) { return "", p.cell.Resume(r.Machine) }
	case is.Condition != nil:
		in.word, in.do = conditions, func(p *player) (string, error) { return p.condition(r.Machine, is.Condition) }
	}
	return in
}

// commit has a commit be applied.
func (p *player) commit(name string) (string, error) {
	c, err := p.cfg.Commit(name)
	if err != nil {
		return "", err
	}
	return "", p.cell.Commit(c)
}

// join has a machine join.
func (p *player) join(r *schema.EventRecord) (string, error) {
	var info schema.MachineInfo
	switch record := p.cell.State().Machines[r.Machine]; {
	case r.Input.Join.Offers != nil:
		info = *r.Input.Join.Offers
	case record != nil:
		info = record.MachineInfo
	default:
		return "the log does not say what it offers, and the cell never had it", nil
	}
	if r.Input.Join.Reboot {
		info.Boot = "replay-" + r.At.Format(time.RFC3339Nano)
	}
	return "", p.cell.Rejoin(info)
}

// condition has a condition of a machine begin, or be over.
func (p *player) condition(machine string, c *schema.EventCondition) (string, error) {
	known := p.cell.Report(machine, func(r *schema.Report) {
		r.Conditions = slices.DeleteFunc(slices.Clone(r.Conditions), func(had schema.Condition) bool {
			return had.Kind == c.Kind && (c.Over || had == c.Condition)
		})
		if !c.Over {
			r.Conditions = append(r.Conditions, c.Condition)
		}
	})
	if !known {
		return "the replay has no such machine", nil
	}
	return "", nil
}

// request has an operator ask for something. What the master refuses is a difference, and not an
// error: the job may not be there.
func (p *player) request(r *schema.EventRecord) (skip string, err error) {
	if r.Input == nil {
		return "the log does not say what was asked for: it is of an earlier release", nil
	}
	return skip, p.cell.Ask(func(m *reconciler.Master, now time.Time) error {
		if err := ask(m, r, now); err != nil {
			skip = err.Error()
		}
		return nil
	})
}

func ask(m *reconciler.Master, r *schema.EventRecord, now time.Time) (err error) {
	switch in := r.Input; {
	case in.Suspend != nil:
		err = m.Suspend(*in.Suspend, 0, now)
	case in.Resume != nil:
		_, err = m.Resume(in.Resume.Name, in.Resume.By, now)
	case in.Restart != nil:
		_, err = m.Restart(*in.Restart, now)
	case in.Cancel != nil:
		_, err = m.CancelRestart(in.Cancel.Name, in.Cancel.By, now)
	case in.Forget != nil:
		_, err = m.Forget(r.Machine, *in.Forget, false, now)
	default:
		err = fmt.Errorf("a %s that this release does not know", r.Kind)
	}
	return err
}

// lives is what the log says of generations of tasks.
type lives struct {
	of map[uint64]*plan.Life
	// order are the generations of a task that the log has assigned: the first is what becomes of
	// the first that the replay assigns, whatever their numbers are.
	order map[string][]uint64
	// began are the generations that there were before.
	began map[uint64]bool
	found map[uint64]*plan.Life
}

// livesOf reads what becomes of tasks; the generations of which the state knows go on.
func livesOf(records []schema.EventRecord, s *model.State) (*lives, []input) {
	l := &lives{of: map[uint64]*plan.Life{}, order: map[string][]uint64{}, began: map[uint64]bool{}, found: map[uint64]*plan.Life{}}
	stopping := map[uint64]bool{}
	for _, c := range s.Chunks {
		for i := range c.Tasks {
			if t := &c.Tasks[i]; t.Machine != "" {
				l.began[t.Generation], l.of[t.Generation] = true, &plan.Life{}
				stopping[t.Generation] = t.Stop != nil
			}
		}
	}
	var outside []input
	turn := func(r *schema.EventRecord, w word, t plan.Turn) {
		life := l.of[r.Generation]
		if life == nil { // it had ended before
			return
		}
		t.At = r.At
		life.Turns = append(life.Turns, t)
		outside = append(outside, input{at: r.At, word: w, of: r.Task})
	}
	last := lastEnds(records)
	for i := range records {
		r := &records[i]
		if r.Task == "" || r.Generation == 0 {
			continue
		}
		switch r.Kind {
		case schema.EventSchedule:
			l.of[r.Generation] = &plan.Life{}
			l.order[r.Task] = append(l.order[r.Task], r.Generation)
		case schema.EventStart:
			turn(r, starts, plan.Turn{What: plan.TurnRuns})
		case schema.EventRestart:
			turn(r, starts, plan.Turn{What: plan.TurnRestarts, Message: r.Message})
		case schema.EventUnhealthy:
			turn(r, checks, plan.Turn{What: plan.TurnUnhealthy, Message: r.Message})
		case schema.EventFail, schema.EventFinish, schema.EventLost, schema.EventEvict, schema.EventKill:
			switch {
			case last[r.Generation] != i: // its end is yet to come
				stopping[r.Generation] = true
			case stopping[r.Generation]:
				turn(r, "", plan.Turn{What: plan.TurnStops, End: r.Cause, Message: r.Message})
			case byItself(r.Cause):
				turn(r, ends, plan.Turn{What: plan.TurnEnds, End: r.Cause, Message: r.Message})
			}
		}
	}
	return l, outside
}

// lastEnds returns the place of the last event that says that a generation ends, by generation.
func lastEnds(records []schema.EventRecord) map[uint64]int {
	out := map[uint64]int{}
	for i := range records {
		switch records[i].Kind {
		case schema.EventFail, schema.EventFinish, schema.EventLost, schema.EventEvict, schema.EventKill:
			out[records[i].Generation] = i
		}
	}
	return out
}

// byItself reports whether a generation that ends for a cause was not stopped by the master.
func byItself(k schema.CauseKind) bool {
	switch k {
	case schema.CauseFinished, schema.CauseFailed, schema.CauseStartFailed, schema.CausePortInUse, schema.CauseUnknown, schema.CauseShutdown, schema.CauseOutOfResources, schema.CauseUnhealthy:
		return true
	}
	return false
}

// assigned notes that the replay has assigned a generation of a task. A machine that is silent
// never has it, so that it cannot be counted where its life is asked for.
func (l *lives) assigned(task string, generation uint64) {
	if left := l.order[task]; len(left) > 0 {
		l.found[generation], l.order[task] = l.of[left[0]], left[1:]
	}
}

// life implements plan.Config.Life.
func (l *lives) life(_ schema.TaskName, generation uint64) *plan.Life {
	if l.began[generation] {
		return l.of[generation]
	}
	return l.found[generation]
}

// count adds up inputs by their words, in the order of the words.
func count(all []input) []Input {
	var out []Input
	for i := range all {
		if all[i].word == "" {
			continue
		}
		at := slices.IndexFunc(out, func(in Input) bool { return in.What == string(all[i].word) })
		if at < 0 {
			at = len(out)
			out = append(out, Input{What: string(all[i].word)})
		}
		out[at].Times++
	}
	slices.SortFunc(out, func(a, b Input) int { return cmp.Compare(a.What, b.What) })
	return out
}
