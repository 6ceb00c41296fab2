package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// Action is one thing that happens to a cell, as data, and the time that passes
// after it. A list of actions is a history that can be played again. An action
// means something whatever came before it: it refers to machines and jobs by
// number, modulo how many there are, and to nothing that it remembers; so any
// part of a list is a list, too.
type Action struct {
	Do      ActionKind `json:"do"`
	Machine int        `json:"machine,omitempty"` // of those that there are, from 0
	Job     int        `json:"job,omitempty"`     // of all users' catalogues, from 0
	N       int        `json:"n,omitempty"`       // how many, which, or for how long: see the actions
	Turns   int        `json:"turns,omitempty"`   // that pass after it
}

// ActionKind is what an Action does, such as "kill-master".
type ActionKind string

// Wait is the action that does nothing.
const Wait ActionKind = "wait"

// changes are the actions that somebody wants, nearly all of them commits. What N is
// stands beside each.
func changes() map[ActionKind]func(*World, Action) bool {
	return map[ActionKind]func(*World, Action) bool{
		Wait:          func(*World, Action) bool { return false },
		"scale":       (*World).scale,       // Job has N tasks
		"version":     (*World).version,     // Job has the N-th of the versions
		"revert":      (*World).reverts,     // Job has the version that it had before
		"priority":    (*World).priority,    // Job has the N-th of the priorities of its band
		"remove":      (*World).remove,      // Job is gone
		"break":       (*World).breaks,      // the package of Job does not compile
		"fix":         (*World).fix,         // the package of Job compiles, and is there
		"delete":      (*World).deletes,     // the directory of Job is gone
		"cordon":      (*World).cordon,      // Machine is cordoned, or not any more
		"drain":       (*World).drain,       // Machine, or its rack, is drained, or not any more
		"gone":        (*World).givesUp,     // Machine, or one that is silent, is declared gone, or not any more
		"back":        (*World).takesBack,   // the first machine that is declared gone and speaks is so no longer
		"promote":     (*World).promote,     // the rollout of Job, or of all with a canary, goes on
		"suspend":     (*World).suspend,     // a job that runs, or all, for a while or without an end
		"resume":      (*World).resume,      // the N-th that is suspended
		"restart":     (*World).restarts,    // a job that runs, or a task of it; or the end of one
		"steal":       (*World).steals,      // the package of Job declares what it may not
		"delete-rest": (*World).deletesRest, // all is gone but the directory of Job, or in a mixed world with it when N is odd, and that is not meant
		"quota":       (*World).quota,       // the owner of Job has the N-th of the quotas
		"transfer":    (*World).transfer,    // one of the owner of Job's jobs makes room for another
		"relabel":     (*World).relabel,     // Machine has the N-th of the labels
		"remove-set":  (*World).removesSet,  // the alloc set of the owner of Job is gone, or what runs in it
		"forget":      (*World).forgets,     // Machine, or one that is silent, is forgotten
		"storm":       (*World).storm,       // N commits at once
		"rewind":      (*World).rewind,      // the head is the N-th of the last commits (a forced push)
	}
}

// Play does all of actions, one after the other. The error is the first
// invariant that does not hold.
func (w *World) Play(actions []Action) error {
	for _, a := range actions {
		if err := w.Do(a); err != nil {
			return err
		}
	}
	return nil
}

// Do does one action and lets its turns pass.
func (w *World) Do(a Action) error {
	w.chapter(a)
	do, fault := w.changes[a.Do], false
	if do == nil {
		do, fault = w.doFault[a.Do], true
	}
	if do == nil {
		return fmt.Errorf("action %q: unknown", a.Do)
	}
	if do(w, a) {
		w.effects[a.Do]++
		if fault {
			w.faults++
		}
	}
	for range a.Turns {
		if err := w.Turn(); err != nil {
			return err
		}
	}
	return w.broken
}

// Faults returns how many actions so far were faults that had an effect.
func (w *World) Faults() int { return w.faults }

func (w *World) machine(a Action) *machine { return w.machines[modulo(a.Machine, len(w.machines))] }

// change commits what f changes in the repository.
func (w *World) change(user string, f func()) bool {
	f()
	w.repo.write(user)
	w.Commit(maps.Clone(w.repo.packages))
	return true
}

func (w *World) scale(a Action) bool {
	user, d, t := w.repo.job(a.Job)
	return w.change(user, func() { d.there, d.tasks = true, modulo(a.N, t.most+1) })
}

func (w *World) version(a Action) bool {
	user, d, _ := w.repo.job(a.Job)
	return w.change(user, func() { d.there, d.version, d.earlier = true, modulo(a.N, len(versions)), d.version })
}

// reverts commits the version that a job had before the last one.
func (w *World) reverts(a Action) bool {
	user, d, _ := w.repo.job(a.Job)
	return w.change(user, func() { d.there, d.version, d.earlier = true, d.earlier, d.version })
}

func (w *World) priority(a Action) bool {
	user, d, _ := w.repo.job(a.Job)
	return w.change(user, func() { d.there, d.shift = true, modulo(a.N, 12) })
}

func (w *World) remove(a Action) bool {
	user, d, _ := w.repo.job(a.Job)
	return w.change(user, func() { d.there = false })
}

func (w *World) breaks(a Action) bool {
	user, _, _ := w.repo.job(a.Job)
	return w.change(user, func() { w.repo.broken[user] = true })
}

func (w *World) deletes(a Action) bool {
	user, _, _ := w.repo.job(a.Job)
	return w.change(user, func() { w.repo.gone[user] = true })
}

func (w *World) fix(a Action) bool {
	user, _, _ := w.repo.job(a.Job)
	return w.change(user, func() { w.repo.broken[user], w.repo.gone[user] = false, false })
}

func (w *World) storm(a Action) bool {
	for i := range 2 + modulo(a.N, 30) {
		w.scale(Action{Job: a.Job + i, N: a.N + i})
	}
	return true
}

func (w *World) rewind(a Action) bool {
	if len(w.past) == 0 {
		return false
	}
	w.head = w.past[len(w.past)-1-modulo(a.N, min(len(w.past), 10))]
	w.note("the head is set back to commit %s", strings.TrimLeft(w.head.Commit, "0"))
	return true
}

// Calm ends the faults and suspensions, commits what the repository held at first,
// that a machine is drained, and that rollouts which paused go on, cancels restarts
// which failed, and errs unless
// the cell converges to that and then writes nothing more.
func (w *World) Calm() error {
	w.heal()
	w.repo = newRepository(&w.cfg)
	if m := w.spared(); m != nil {
		w.repo.machines[m.name] = schema.Machine{Drain: &schema.Drain{AtOnce: 1, AtDeadline: schema.DeadlineBudget}}
	}
	w.repo.packages["cells"] = Declared(w.repo.machines)
	w.Commit(maps.Clone(w.repo.packages))
	for _, name := range slices.Sorted(maps.Keys(w.repo.packages)) {
		for _, j := range w.repo.packages[name].Objects.Jobs {
			w.head.Promote = append(w.head.Promote, j.User+"/"+j.Name)
		}
	}
	why := ""
	for turn := range calmTurns {
		if err := w.Turn(); err != nil {
			return err
		}
		w.resume(Action{})
		if turn%8 != 0 {
			continue
		}
		w.cancelFailedRestarts()
		w.forgetReplaced()
		if s := w.Status(); s != nil {
			if why = converged(s); why == "" {
				why = w.unsettled()
			}
			if why == "" {
				return w.settledDown()
			}
		}
	}
	return fmt.Errorf("left alone, the cell does not converge: %s", why)
}

// unsettled names the machines that run batch tasks, or have not had the time yet to stop
// what was superseded, and since when they are reached; "" if there are none.
func (w *World) unsettled() string {
	var late []string
	for _, m := range w.machines {
		if i := slices.IndexFunc(m.alive, func(r *run) bool { return r.of.assignment.Job.Kind == schema.Batch }); i >= 0 {
			late = append(late, fmt.Sprintf("%s runs on %s", m.alive[i].of.assignment.Task, m.name))
		}
		if !w.settled(m) {
			late = append(late, fmt.Sprintf("%s is reached only since %s", m.name, m.reached.Format("15:04:05.000")))
		}
	}
	return strings.Join(late, "; ")
}

// spared returns a machine that the others have room for in any case, nil if there
// is none: the first two racks alone have what production must have.
func (w *World) spared() *machine {
	others := slices.DeleteFunc(slices.Clone(w.machines), func(m *machine) bool { return m.index%racks < 2 })
	if len(others) == 0 {
		return nil
	}
	return others[modulo(int(w.cfg.Seed), len(others))] //nolint:gosec // seeds are small
}

// calmTurns is how long a cell may take to converge that is left alone: the
// back-off of what failed, and machines that are avoided, take minutes.
const calmTurns = 15 * 60 * 4

// settledDown errs unless just what the repository asks for runs, and nothing is
// written any more.
func (w *World) settledDown() error {
	want := 0
	for _, name := range slices.Sorted(maps.Keys(w.repo.packages)) {
		for _, s := range w.repo.packages[name].Objects.AllocSets {
			want += s.Allocs
		}
		for _, j := range w.repo.packages[name].Objects.Jobs {
			switch j.Kind {
			case schema.Service:
				want += j.Tasks
			case schema.System:
				want += len(w.machines) - len(w.drains())
			}
		}
	}
	if n := len(w.processes()); n != want {
		return fmt.Errorf("%d tasks run, want %d", n, want)
	}
	if err := w.emptied(); err != nil {
		return err
	}
	if err := w.beside(); err != nil {
		return err
	}
	if err := w.current(); err != nil {
		return err
	}
	return w.quiet()
}

func converged(s *status.Status) string {
	if s.Converged {
		return ""
	}
	return strings.Join(append(s.Waiting, "not converged"), "; ")
}

// mostRepairs is how many times a cell that has converged may begin to move a task for
// its spread before it is quiet.
const mostRepairs = 100

// quiet errs when a converged cell goes on writing, but to put the spread of a job
// right: that has to converge again.
func (w *World) quiet() error {
	for range mostRepairs {
		moved := w.rebalanced
		err := w.quietNow()
		if err == nil || w.rebalanced == moved {
			return err
		}
		if err := w.again(); err != nil {
			return err
		}
	}
	return fmt.Errorf("a converged cell moves tasks for ever: %d times", mostRepairs)
}

// again errs unless the cell converges again.
func (w *World) again() error {
	for range calmTurns {
		if err := w.Turn(); err != nil {
			return err
		}
		if s := w.Status(); s != nil && converged(s) == "" {
			return nil
		}
	}
	return errors.New("left alone after a move, the cell does not converge")
}

// quietNow errs when the cell writes within the next seconds.
func (w *World) quietNow() error {
	before := 0
	for turn := range 40 {
		if turn == 20 { // a master that has just started is joined by its machines first
			before = w.memory.Transactions()
		}
		if err := w.Turn(); err != nil {
			return err
		}
	}
	if n := w.memory.Transactions() - before; n != 0 {
		return fmt.Errorf("a converged cell wrote %d times", n)
	}
	return nil
}
