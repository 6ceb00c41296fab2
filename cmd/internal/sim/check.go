package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// process is what a live process is.
type process struct {
	machine    *machine
	generation uint64
	pid        int
}

// processes returns the live processes of each task.
func (w *World) processes() map[schema.TaskName][]process {
	out := map[schema.TaskName][]process{}
	for _, m := range w.machines {
		for _, r := range m.alive {
			a := &r.of.assignment
			out[a.Task] = append(out[a.Task], process{m, a.Generation, r.pid})
		}
	}
	return out
}

// lookEveryTurns: there is a full look at what only time makes wrong. What a
// process or a write can make wrong is looked at when there was one.
const lookEveryTurns = 4

// convergedEveryTurns: what holds of a cell that has converged is looked at so often.
const convergedEveryTurns = 40

// check holds the invariants against the world.
func (w *World) check() {
	w.reach()
	if w.turns%lookEveryTurns == 0 {
		for task, ps := range w.processes() {
			w.checkTask(task, ps)
		}
	}
	if w.turns%convergedEveryTurns == 0 {
		w.checkBeside()
	}
	w.checkWaiting()
	for _, m := range w.machines {
		if m.moved {
			m.moved = false
			w.checkPorts(m)
			w.checkDevices(m)
			w.checkAllocs(m)
		}
	}
	if w.moved && w.master != nil {
		w.moved = false
		w.checkState()
		w.checkSubnets()
		w.checkDone()
		w.checkOwners()
		w.checkPackages()
		w.checkCordons()
		w.checkGone()
		w.checkSystemIndices()
	}
}

// checkTwice: a generation has one process at most, at any time.
func (w *World) checkTwice(m *machine, r *run) {
	if by, ok := w.oracle.closed[r.of.assignment.Generation]; ok && (by == nil && !w.forgotEnd(m) || by == m.agent) {
		w.violate("task %s generation %d runs again, and its machine has said that it has ended", r.of.assignment.Task, r.of.assignment.Generation)
	}
	for _, m := range w.machines {
		for _, x := range m.alive {
			if x != r && x.of.assignment.Generation == r.of.assignment.Generation {
				w.violate("task %s generation %d runs twice", r.of.assignment.Task, r.of.assignment.Generation)
			}
		}
	}
}

// reach takes down since when each machine has been fit, and since when it and a
// master receive each other's messages.
func (w *World) reach() {
	for _, m := range w.machines {
		fit := !w.contested(m) && m.agent != nil && !w.now.Before(m.stopped) && m.open(w.now) && !m.link.lost && !w.now.Before(m.disk.full)
		if !fit {
			m.fit = w.now
		}
		master := w.master
		if !fit || master == nil || master.state.Recovering() || w.now.Before(master.busy) || m.agent.session == 0 || master.epochs[m.name] != m.agent.session {
			m.reached = w.now
		}
	}
}

// settleTime is how long a machine that a master reaches may hold what it
// should not.
const settleTime = 10 * time.Second

// checkTask: a generation has one process at most, and a task has one on the
// machines that are reached; a superseded generation stops within settleTime of
// its machine's return.
func (w *World) checkTask(task schema.TaskName, ps []process) {
	generations := map[uint64]bool{}
	reached := 0
	for _, p := range ps {
		if generations[p.generation] {
			w.violate("task %s generation %d runs twice", task, p.generation)
		}
		generations[p.generation] = true
		if !w.settled(p.machine) {
			continue
		}
		reached++
		if r := w.oracle.record(task); r == nil || r.Generation != p.generation || r.Machine != p.machine.name {
			w.violate("task %s generation %d runs on %s, which has been reached for %s, and is not assigned to it", task, p.generation, p.machine.name, w.now.Sub(p.machine.reached))
		}
	}
	if reached > 1 {
		w.violate("task %s has %d processes on machines that are reached", task, reached)
	}
}

// settled reports whether the machine has had the time to receive, and to apply,
// what the master has to say.
func (w *World) settled(m *machine) bool {
	return w.now.Sub(m.reached) > settleTime
}

// checkPorts: no two processes of a machine listen on the same port.
func (w *World) checkPorts(m *machine) {
	taken := map[int]schema.TaskName{}
	for _, r := range m.alive {
		for _, p := range r.of.assignment.Ports {
			if other, ok := taken[p.Port]; ok {
				w.violate("port %d of %s has %s and %s", p.Port, m.name, other, r.of.assignment.Task)
			}
			taken[p.Port] = r.of.assignment.Task
		}
	}
}

// checkDevices: no more of a device is held by processes than there is.
func (w *World) checkDevices(m *machine) {
	used := map[string]int{}
	for _, r := range m.alive {
		for _, u := range r.of.assignment.Devices {
			d := fmt.Sprint(u.Kind, " ", u.Index)
			if used[d] += u.Milli; used[d] > schema.DeviceMilli {
				w.violate("%d thousandths of %s of %s are held, %s among the holders", used[d], d, m.name, r.of.assignment.Task)
			}
		}
	}
}

// checkAllocs: what runs in an alloc runs where that is, while that is there.
func (w *World) checkAllocs(m *machine) {
	live := map[uint64]bool{}
	for _, r := range m.alive {
		live[r.of.assignment.Generation] = true
	}
	for _, r := range m.alive {
		a := &r.of.assignment
		if a.Alloc != nil && !live[a.Alloc.Generation] {
			w.violate("task %s generation %d runs on %s, where its alloc %s generation %d is not", a.Task, a.Generation, m.name, a.Alloc, a.Alloc.Generation)
		}
	}
}

// checkState: what the store holds is whole. What is assigned to a machine fits
// it, but for what is known to be dead: a crash may come between that and the
// use of its room.
func (w *World) checkState() {
	s := w.master.state
	if s.Counter < w.oracle.counter {
		w.violate("the counter fell from %d to %d", w.oracle.counter, s.Counter)
	}
	w.oracle.counter = s.Counter
	maps.DeleteFunc(w.oracle.stops, func(j schema.JobName, _ []time.Time) bool { return s.Jobs[j] == nil })
	maps.DeleteFunc(w.oracle.finished, func(t schema.TaskName, _ uint64) bool { // a job that was removed begins anew
		j, r := s.Jobs[t.JobName], w.oracle.record(t)
		return j == nil || j.Admitted == "" && r == nil
	})
	room := rooms{map[string]schema.Resources{}, map[uint64]schema.Resources{}, map[uint64]schema.Resources{}}
	given := map[uint64]schema.TaskName{}
	for name, c := range s.Chunks {
		if s.Jobs[name.Job] == nil {
			w.violate("chunk %d of %s is left without its job", name.Number, name.Job)
		}
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if other, ok := given[t.Generation]; ok && t.Generation != 0 {
				w.violate("generation %d is of %s and of %s", t.Generation, other, c.Job.Task(t.Index))
			}
			if t.Generation > s.Counter {
				w.violate("generation %d is beyond the counter, %d: %s has it", t.Generation, s.Counter, c.Job.Task(t.Index))
			}
			given[t.Generation] = c.Job.Task(t.Index)
			if t.Machine != "" && !w.dead(t.Machine, t.Generation) {
				room.take(t, s.Data[t.Data].Task.Resources.Resources)
			}
		}
	}
	w.checkRooms(room, given)
}

// rooms is what is assigned of machines, and of generations of allocs.
type rooms struct {
	used   map[string]schema.Resources
	inside map[uint64]schema.Resources
	limits map[uint64]schema.Resources // of generations
}

func (r rooms) take(t *schema.TaskRecord, limit schema.Resources) {
	r.limits[t.Generation] = limit
	if t.Alloc != nil {
		r.inside[t.Alloc.Generation] = r.inside[t.Alloc.Generation].Add(limit)
		return
	}
	r.used[t.Machine] = r.used[t.Machine].Add(limit)
}

func (w *World) checkRooms(r rooms, given map[uint64]schema.TaskName) {
	for _, alloc := range slices.Sorted(maps.Keys(r.inside)) {
		if limit, ok := r.limits[alloc]; ok && !r.inside[alloc].Fits(limit) {
			w.violate("the tasks in alloc %s generation %d have %+v together, and it has %+v", given[alloc], alloc, r.inside[alloc], limit)
		}
	}
	for _, m := range w.machines {
		if !r.used[m.name].Fits(m.info().Capacity) {
			w.violate("machine %s is overcommitted: %+v", m.name, r.used[m.name])
		}
	}
}

// jobMachine is a machine of a system job.
type jobMachine struct {
	job     schema.JobName
	machine string
}

// checkSystemIndices: a system job has one task on each machine, whose index stays what
// it is for as long as the job is there. After a restore it is the one that the machine
// holds, whatever the snapshot says: another that the snapshot has it on gets another one.
func (w *World) checkSystemIndices() {
	s := w.master.state
	adopted, others := map[jobMachine]int{}, map[jobMachine][]*schema.TaskRecord{}
	for name, c := range s.Chunks {
		data := s.Data[s.Jobs[name.Job].Admitted]
		for i := range c.Tasks {
			t := &c.Tasks[i]
			switch h := (jobMachine{name.Job, t.On}); {
			case data == nil || data.Kind != schema.System || t.On == "":
			case w.survived(t.Generation):
				adopted[h] = t.Index
			default:
				others[h] = append(others[h], t)
			}
		}
	}
	for h, index := range w.oracle.indexOn {
		for by, taken := range adopted {
			if by.job == h.job && by.machine != h.machine && taken == index {
				delete(w.oracle.indexOn, h)
			}
		}
	}
	now := map[jobMachine]int{}
	for h, tasks := range others {
		for _, t := range tasks {
			w.checkSystemIndex(h.job, t, now)
		}
	}
	maps.Copy(now, adopted)
	for h, index := range w.oracle.indexOn { // also while its record is on its way
		r := s.Jobs[h.job]
		if _, ok := now[h]; !ok && s.Machines[h.machine] != nil && r != nil && r.Admitted != "" && s.Data[r.Admitted].Kind == schema.System {
			now[h] = index
		}
	}
	if w.master.state.Restored == nil { // else nobody knows which index was free
		w.checkLowest(now)
	}
	w.oracle.indexOn = now
}

func (w *World) checkSystemIndex(job schema.JobName, t *schema.TaskRecord, now map[jobMachine]int) {
	h := jobMachine{job, t.On}
	if other, ok := now[h]; ok {
		w.violate("system job %s has the indices %d and %d on machine %s", job, other, t.Index, t.On)
	}
	if was, ok := w.oracle.indexOn[h]; ok && was != t.Index {
		w.violate("system job %s has index %d on machine %s, where it had %d", job, t.Index, t.On, was)
	}
	if now[h] = t.Index; t.Machine != "" && t.Machine != t.On {
		w.violate("index %d of system job %s belongs on machine %s and is on %s", t.Index, job, t.On, t.Machine)
	}
}

// checkCordons: a machine gets nothing new while a cordon, or a drain, is in force.
func (w *World) checkCordons() {
	s := w.master.state
	now := map[string]uint64{}
	for _, o := range w.inForce() {
		for _, m := range w.machines {
			if !speaksOf(&o, m) || !o.Cordon && o.Drain == nil {
				continue
			}
			now[m.name] = s.Counter
			if since, ok := w.oracle.cordoned[m.name]; ok {
				now[m.name] = since
			}
		}
	}
	w.oracle.cordoned = now
	for _, c := range s.Chunks {
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if since, ok := now[t.Machine]; ok && t.Generation > since {
				w.violate("task %s generation %d was given to %s, which is cordoned since generation %d", c.Job.Task(t.Index), t.Generation, t.Machine, since)
			}
		}
	}
}

// dead reports whether a machine has written down that a generation has ended, or
// knows so and its disk refuses that.
func (w *World) dead(machine string, generation uint64) bool {
	d := &w.named(machine).disk
	for _, g := range d.generations {
		if g.assignment.Generation == generation {
			return g.end != nil || d.refusesEnd(g)
		}
	}
	return false
}

// checkPackages: what the store has of packages and of jobs is whole, and as
// somebody has committed it.
func (w *World) checkPackages() {
	s := w.master.state
	for dir, digest := range s.Head.Packages {
		if s.Packages[digest] == nil || !w.oracle.packages[digest] {
			w.violate("package %s of the head is %s, which is not stored or was never committed", dir, digest)
		}
	}
	for name, j := range s.Jobs {
		if j.Admitted != "" && (s.Data[j.Admitted] == nil || w.oracle.data[j.Admitted] == nil) {
			w.violate("job %s is admitted with data %s, which is not stored or was never committed", name, j.Admitted)
		}
	}
}
