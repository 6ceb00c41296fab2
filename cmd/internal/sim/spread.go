package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// restTime is for how long nothing must have moved before the spread is repaired,
	// and moveTime how long each move may take after that.
	restTime = 5 * time.Minute
	moveTime = 2 * time.Minute
	// boundedTime is for how long a cell is followed after that whose moves are bounded.
	boundedTime = 10 * time.Minute
)

// DrainHalf drains half of the racks for a while, so that all tasks are on the others, and
// errs unless those of each service are spread again as evenly as there is room: at
// once when the job is updated, else when nothing has moved for a while, unless moves are
// bounded to fewer than that takes.
func (w *World) DrainHalf() error {
	empty := modulo(int(w.cfg.Seed), racks) //nolint:gosec // seeds are small
	w.repo.machines = map[string]schema.Machine{}
	for _, m := range w.machines {
		if modulo(m.index-empty, racks) < racks/2 {
			w.repo.machines[m.name] = schema.Machine{Drain: &schema.Drain{AtOnce: 1, Deadline: serialized(w.now.Truncate(time.Second)), AtDeadline: schema.DeadlineStop}}
		}
	}
	for _, machines := range []map[string]schema.Machine{w.repo.machines, {}} {
		w.repo.machines = machines
		w.repo.packages["cells"] = Declared(machines)
		w.Commit(maps.Clone(w.repo.packages))
		if err := w.converges(); err != nil {
			return err
		}
	}
	updated := w.updateSome()
	if err := w.converges(); err != nil {
		return err
	}
	for _, name := range updated {
		if err := w.unevenly(name); err != nil {
			return fmt.Errorf("%w: it was updated", err)
		}
	}
	tasks := 0
	for _, c := range w.master.state.Chunks {
		tasks += len(c.Tasks)
	}
	if w.cfg.MovesPerHour > 0 { // the spread is better in some hours
		if err := w.pass(restTime + boundedTime); err != nil {
			return err
		}
		return w.quiet()
	}
	for until := w.now.Add(restTime + time.Duration(tasks)*moveTime); ; {
		err := w.spread()
		if err == nil {
			return w.quiet()
		}
		if !w.now.Before(until) {
			return fmt.Errorf("%w, after %s", err, restTime)
		}
		if err := w.pass(settleTime); err != nil {
			return err
		}
	}
}

// pass lets time pass.
func (w *World) pass(d time.Duration) error {
	for until := w.now.Add(d); w.now.Before(until); {
		if err := w.Turn(); err != nil {
			return err
		}
	}
	return nil
}

// converges lets time pass until the cell says that it has converged.
func (w *World) converges() error {
	why := ""
	for range calmTurns / 8 {
		for range 8 {
			if err := w.Turn(); err != nil {
				return err
			}
		}
		if s := w.Status(); s != nil {
			if why = converged(s); why == "" {
				return nil
			}
		}
	}
	return fmt.Errorf("left alone, the cell does not converge: %s", why)
}

// updateSome commits a new version of half of the services whose tasks are updated one
// after the other, and returns which. Tasks that make way for each other at once may
// leave a job uneven, which repair puts right.
func (w *World) updateSome() []schema.JobName {
	var out []schema.JobName
	for i, user := range users {
		for j, t := range w.repo.catalogue {
			d := &w.repo.jobs[user][j]
			if !d.there || t.name != "api" || modulo(i+int(w.cfg.Seed), 2) == 0 { //nolint:gosec // seeds are small
				continue
			}
			d.version++
			w.repo.write(user)
			out = append(out, schema.JobName{Cell: cellName, User: user, Job: t.name})
		}
	}
	w.Commit(maps.Clone(w.repo.packages))
	return out
}

// spread errs when a job is spread worse than it could be by one move.
func (w *World) spread() error {
	for _, name := range slices.SortedFunc(maps.Keys(w.master.state.Jobs), schema.JobName.Compare) {
		if err := w.unevenly(name); err != nil {
			return err
		}
	}
	return nil
}

// unevenly errs when a rack has two tasks of a service more than another one in which
// a machine has room for one of them.
func (w *World) unevenly(name schema.JobName) error {
	if w.master == nil {
		return nil
	}
	s := w.master.state
	want := s.Data[s.Jobs[name].Admitted]
	if want == nil || !movable(want) {
		return nil
	}
	tasks := map[string]int{}
	for _, m := range w.machines {
		tasks[m.rack()] += 0
	}
	w.each(name, func(t *schema.TaskRecord) {
		if t.Machine != "" {
			tasks[w.named(t.Machine).rack()]++
		}
	})
	for _, m := range w.machines {
		for _, rack := range sortedKeys(tasks) {
			if tasks[rack]-tasks[m.rack()] > 1 && w.takes(m, want) {
				return fmt.Errorf("%s has converged, and rack %s has %d tasks of %s, and rack %s has %d: one would be better on %s, which has room",
					cellName, rack, tasks[rack], name.Short(), m.rack(), tasks[m.rack()], m.name)
			}
		}
	}
	return nil
}

// movable reports whether tasks of a job may be moved for its spread.
func movable(want *schema.Job) bool {
	if want.Kind != schema.Service || want.AllocSet != "" || want.Task.Sticky != schema.NotSticky || want.Silence != nil && want.Silence.NeverTwice {
		return false
	}
	x := want.Spread
	return x == nil || (x.By == "" || x.By == "rack") && (x.Repair == nil || *x.Repair)
}

// takes reports whether a machine is one on which a task may be placed, and has what
// it needs.
func (w *World) takes(m *machine, want *schema.Job) bool {
	said := w.master.reported[m.name]
	if _, cordoned := w.oracle.cordoned[m.name]; cordoned || !w.settled(m) || said == nil || len(said.Conditions) > 0 || len(said.BusyPorts) > 0 {
		return false
	}
	for _, c := range want.Constraints {
		if c.Attribute != "rack" || c.Operator != schema.Equal || c.Value != m.rack() {
			return false
		}
	}
	free, held := m.info().Capacity, map[string]int{}
	for name := range w.master.state.Jobs {
		w.each(name, func(t *schema.TaskRecord) {
			if t.Machine != m.name || t.Alloc != nil {
				return
			}
			free = free.Sub(w.master.state.Data[t.Data].Task.Resources.Resources)
			for _, u := range t.Devices {
				held[fmt.Sprint(u.Kind, u.Index)] += u.Milli
			}
		})
	}
	return want.Task.Resources.Resources.Fits(free) && m.devicesFor(want, held)
}

// devicesFor reports whether a machine, of whose devices so much is held, has those
// that a task needs.
func (m *machine) devicesFor(want *schema.Job, held map[string]int) bool {
	return slices.ContainsFunc(want.Task.Resources.Choices(), func(all map[string]schema.DeviceAsk) bool { return m.hasFree(all, held) })
}

func (m *machine) hasFree(all map[string]schema.DeviceAsk, held map[string]int) bool {
	for kind, a := range all {
		whole := 0
		for _, g := range m.info().Devices {
			for i := range g.Count {
				if g.Kind == kind && held[fmt.Sprint(kind, i)]+a.Milli <= schema.DeviceMilli {
					whole++
				}
			}
		}
		if whole < a.Count {
			return false
		}
	}
	return true
}

// HalfDrained returns the script of a seed in which racks are lost and return: services
// alone, in a cell that converges often.
func HalfDrained(seed uint64, steps int) Script {
	s := Seeded(seed, steps)
	s.World.Machines, s.World.DrainHalf, s.World.Picky, s.World.Jobs = 6+int(seed%5), true, false, strings.Join(spreadJobs, ",")
	s.World.MovesPerHour = int(seed % 3) // 1 or 2 of them, or any
	return s
}

// spreadJobs are the jobs of a world in which racks are lost.
var spreadJobs = []string{"a/web", "b/low", "a/api", "b/api", "c/api", "d/bulk", "e/once"}
