package sim

import (
	"fmt"
	"maps"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// emptyAfter is how long a task has been where it is that is moved so that a machine is
	// empty, and emptyAgain how long after it was moved last.
	emptyAfter = time.Hour
	emptyAgain = 24 * time.Hour
	// emptyTime is for how long a cell is followed that empties machines: by a clock that was an
	// hour ahead tasks have just come for two hours.
	emptyTime = 2*emptyAfter + 30*time.Minute
	// emptyPercent is of how little of a machine.
	emptyPercent = 40
)

// EmptySome has the jobs of one user after the other grow, so that they fill machines, and then all
// be small. Then it has time pass until machines are emptied, and errs unless the cell comes to rest.
func (w *World) EmptySome() error {
	for _, user := range users {
		if err := w.resize(user, func(t *template) int { return min(t.most, 5) }); err != nil {
			return err
		}
	}
	for _, user := range users {
		if err := w.resize(user, func(*template) int { return 1 }); err != nil {
			return err
		}
	}
	if err := w.pass(emptyTime); err != nil {
		return err
	}
	return w.quiet()
}

// resize commits other numbers of tasks of a user's jobs, and waits until they run.
func (w *World) resize(user string, tasks func(*template) int) error {
	for i := range w.repo.catalogue {
		w.repo.jobs[user][i].tasks = tasks(&w.repo.catalogue[i])
	}
	w.repo.write(user)
	w.Commit(maps.Clone(w.repo.packages))
	return w.converges()
}

// Emptied returns the script of a seed in which machines are emptied: services alone, in a cell
// of which little is used, and that is left alone for long. Every other seed has a bound which a
// machine with one large task is above.
func Emptied(seed uint64, steps int) Script {
	s := Seeded(seed, steps)
	s.World.Machines, s.World.EmptyBelow, s.World.EmptySome, s.World.Picky, s.World.Jobs = 10+int(seed%5), emptyPercent-10*int(seed%2), true, false, "a/bulk,b/bulk,c/bulk,d/api,e/low"
	return s
}

// emptyBelow returns the share of machines below which the cell empties them, in percent.
func (w *World) emptyBelow() int {
	s := w.master.state
	for _, digest := range s.Head.Packages {
		for i := range s.Packages[digest].Objects.Cells {
			return s.Packages[digest].Objects.Cells[i].Moves().EmptyBelow
		}
	}
	return 0
}

// stay is what tasks have of a machine that keep it from being empty: what is held back for them,
// which is their limits, since a simulated cell reclaims nothing.
type stay struct {
	tasks int
	schema.Resources
	devices int    // thousandths
	bound   string // one of them that is not moved, "" for none
}

// stayOn returns what tasks have of a machine; coming are those that are about to be there.
func (w *World) stayOn(machine string, coming bool) (out stay) {
	s := w.master.state
	for _, c := range s.Chunks {
		for i := range c.Tasks {
			r, data := &c.Tasks[i], s.Data[c.Tasks[i].Data]
			is := r.Machine == machine
			if is = is || coming && (r.Stop != nil && r.Stop.To == machine || r.Machine == "" && len(r.Causes) > 0 && r.Causes[len(r.Causes)-1].To == machine); !is || r.Alloc != nil {
				continue
			}
			if data.Kind == schema.System {
				continue
			}
			out.tasks++
			out.Resources = out.Add(data.Task.Resources.Resources)
			for _, a := range data.Task.Resources.Choices()[0] {
				out.devices += a.Count * a.Milli
			}
			if r.Stop == nil && (data.Kind != schema.Service || data.NeverTwice() || !data.Moved() || data.Task.Sticky.Has()) {
				out.bound = c.Job.Task(r.Index).Short()
			}
		}
	}
	return out
}

// share is the largest that is used of a resource of a machine, in percent.
func (w *World) share(machine string, used *stay) (most float64) {
	info := w.named(machine).info()
	has, devices := info.Capacity, 0
	for _, g := range info.Devices {
		devices += g.Count
	}
	if devices > 0 {
		most = float64(used.devices) / float64(devices) * 100 / schema.DeviceMilli
	}
	for _, x := range [][2]int64{{used.CPUMilli, has.CPUMilli}, {used.RAMBytes, has.RAMBytes}, {used.DiskBytes, has.DiskBytes}} {
		if x[1] > 0 {
			most = max(most, 100*float64(x[0])/float64(x[1]))
		}
	}
	return most
}

// checkEmptied: a task moves so that its machine is empty only where the cell says so, of one that
// is used by less than it says, all tasks of which may move, to one that is in use, and used as
// much at least, and that has been there for long. now is what the master's clock said.
func (w *World) checkEmptied(m *move, now time.Time) {
	// What a move is for users read in its message, and nowhere else.
	if m.is.Stop.Message != fmt.Sprintf("moves to %s, so that %s is empty and can be switched off", m.is.Stop.To, m.is.Machine) {
		return
	}
	w.emptying++
	from, to := w.stayOn(m.is.Machine, false), w.stayOn(m.is.Stop.To, true)
	share, there := w.share(m.is.Machine, &from), w.share(m.is.Stop.To, &to)
	switch below := w.emptyBelow(); {
	case share >= float64(below):
		w.violate("task %s moves so that %s is empty, of which %.1f%% is used: the cell says %d%%", m.task, m.is.Machine, share, below)
	case from.bound != "":
		w.violate("task %s moves so that %s is empty, and %s is not moved", m.task, m.is.Machine, from.bound)
	case to.tasks < 2 || there < share:
		w.violate("task %s moves from %s, of which %.1f%% is used, to %s with %d tasks, of which that is %.1f%%", m.task, m.is.Machine, share, m.is.Stop.To, to.tasks, there)
	case !m.is.At.After(now) && now.Sub(m.is.At) < emptyAfter:
		w.violate("task %s moves so that %s is empty, and came %s ago", m.task, m.is.Machine, now.Sub(m.is.At))
	}
	for _, c := range m.is.Causes {
		if c.Kind == schema.CauseRebalance && !c.At.After(now) && now.Sub(c.At) < emptyAgain {
			w.violate("task %s moves so that %s is empty, and it was moved %s ago", m.task, m.is.Machine, now.Sub(c.At))
		}
	}
}
