package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// Action is one thing that happens to a cell, as data, and the time that passes
// after it. A list of actions is a history that can be played again. An action
// means something whatever came before it: it refers to machines and jobs by
// number, modulo how many there are, and to nothing that it remembers; so any
// part of a list is a list, too.
type Action struct {
	Do      Deed `json:"do"`
	Machine int  `json:"machine,omitempty"` // of those that there are, from 0
	Job     int  `json:"job,omitempty"`     // of all users' catalogues, from 0
	N       int  `json:"n,omitempty"`       // how many, which, or for how long: see the deeds
	Turns   int  `json:"turns,omitempty"`   // that pass after it
}

// Deed is what an Action does.
type Deed string

// deed is what the player knows of a Deed.
type deed struct {
	// fault says that it is something that should not happen, and not a
	// change that somebody wanted.
	fault bool
	// do reports whether it had an effect: a master that is dead cannot be
	// killed.
	do func(w *World, a Action) bool
}

// Wait is the deed that does nothing.
const Wait Deed = "wait"

// deeds are all there are. What N is, where it is used, stands beside each.
func deeds() map[Deed]deed {
	return map[Deed]deed{
		Wait: {},

		"scale":    {do: (*World).scale},    // Job has N tasks
		"version":  {do: (*World).version},  // Job has the N-th of the versions
		"priority": {do: (*World).priority}, // Job has the N-th of the priorities of its band
		"remove":   {do: (*World).remove},   // Job is gone
		"break":    {do: (*World).breaks},   // the package of Job does not compile
		"mend":     {do: (*World).mend},     // the package of Job compiles, and is there
		"delete":   {do: (*World).deletes},  // the directory of Job is gone
		"cordon":   {do: (*World).cordon},   // Machine is cordoned, or not any more

		"kill-master":   {true, (*World).doKillMaster},
		"freeze-master": {true, (*World).doFreezeMaster},
		"kill-agent":    {true, func(w *World, a Action) bool { return w.KillAgent(w.machine(a).name) }},
		"crash-agent":   {true, (*World).doCrashAgent}, // after N more actions of it
		"reboot":        {true, func(w *World, a Action) bool { return w.Reboot(w.machine(a).name) }},
		"silence":       {true, func(w *World, a Action) bool { return w.Silence(w.machine(a).name, true) }},
		"speak":         {false, func(w *World, a Action) bool { return w.Silence(w.machine(a).name, false) }},
		"kill-task":     {true, (*World).doKillTask},  // the N-th that runs on Machine
		"take-port":     {true, (*World).doTakePort},  // the N-th of the range, or gives it back
		"fail-store":    {true, (*World).doFailStore}, // the transaction after N/2 more, which takes effect when N is odd
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
	d, known := w.deeds[a.Do]
	switch {
	case !known:
		return fmt.Errorf("action %q: unknown", a.Do)
	case d.do != nil && d.do(w, a) && d.fault:
		w.faults++
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
	return w.change(user, func() { d.there, d.version = true, modulo(a.N, len(versions)) })
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

func (w *World) mend(a Action) bool {
	user, _, _ := w.repo.job(a.Job)
	return w.change(user, func() { w.repo.broken[user], w.repo.gone[user] = false, false })
}

func (w *World) cordon(a Action) bool {
	name := w.machine(a).name
	if w.repo.cordoned[name] {
		delete(w.repo.cordoned, name)
	} else {
		w.repo.cordoned[name] = true
	}
	w.repo.writeCordons()
	w.Commit(maps.Clone(w.repo.packages))
	return true
}

func (w *World) doKillMaster(Action) bool   { return w.KillMaster() }
func (w *World) doFreezeMaster(Action) bool { return w.FreezeMaster() }

func (w *World) doCrashAgent(a Action) bool {
	m := w.machine(a)
	if m.agentDown {
		return false
	}
	m.crashIn = 1 + modulo(a.N, 5)
	return true
}

func (w *World) doKillTask(a Action) bool {
	m := w.machine(a)
	var names []schema.TaskName
	for _, h := range m.held {
		if m.live(h) != nil && h.Assignment.Job.Kind != schema.Allocs { // that has no process
			names = append(names, h.Assignment.Task)
		}
	}
	return len(names) > 0 && w.KillTask(names[modulo(a.N, len(names))])
}

func (w *World) doTakePort(a Action) bool {
	m, port := w.machine(a), 20000+modulo(a.N, 100)
	if m.foreign[port] = !m.foreign[port]; !m.foreign[port] {
		delete(m.foreign, port)
	}
	return m.foreign[port]
}

func (w *World) doFailStore(a Action) bool {
	n, fate := w.memory.Transactions()+1+modulo(a.N/2, 8), store.Refused
	if modulo(a.N, 2) == 1 {
		fate = store.Forgotten
	}
	w.memory.Hook(func(i int) store.Fate {
		if i == n {
			return fate
		}
		return store.Taken
	})
	return true
}

// Calm ends the faults, commits what the repository held at first, and errs
// unless the cell converges to that and then writes nothing more.
func (w *World) Calm() error {
	w.memory.Hook(nil)
	for _, m := range w.machines {
		w.Silence(m.name, false)
		m.crashIn = 0
		clear(m.foreign)
	}
	w.repo = newRepository()
	w.Commit(maps.Clone(w.repo.packages))
	why := ""
	for range calmTurns {
		if err := w.Turn(); err != nil {
			return err
		}
		if s := w.Status(); s != nil {
			if why = converged(s); why == "" {
				return w.settledDown()
			}
		}
	}
	return fmt.Errorf("left alone, the cell does not converge: %s", why)
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
				want += len(w.machines)
			}
		}
	}
	if n := len(w.processes()); n != want {
		return fmt.Errorf("%d tasks run, want %d", n, want)
	}
	return w.quiet()
}

func converged(s *reconciler.Status) string {
	if s.Converged {
		return ""
	}
	return strings.Join(append(s.Waiting, "not converged"), "; ")
}

// quiet errs when a converged cell goes on writing.
func (w *World) quiet() error {
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
