package placement

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// task is a Task as the snapshot holds it.
type task struct {
	taskKey
	priority  int16
	stopping  bool
	inAlloc   int32    // the task that is its alloc, or -1
	wants     allocKey // of the alloc that it runs in
	limit     vector
	reserv    vector
	ports     []uint16
	devices   []deviceUse
	ask       *Ask
	nextHere  int32 // of its machine
	prevHere  int32
	nextOfJob int32
	prevOfJob int32
	isAlloc   bool
	claim     bool // see Snapshot.Claim
	// placed is true of a task that a pass placed: ask then is shared by all
	// that ask alike but for name, priority and limit, which are the task's.
	placed bool
}

type taskKey struct {
	job, index, slot int32
	generation       uint64
}

// allocKey names an alloc on the machine of a task: the job that its set is, and
// its index; none if set is 0, which no key made by allocKeyOf has.
type allocKey struct{ set, index int32 }

func (s *Snapshot) allocKeyOf(name schema.TaskName) allocKey {
	return allocKey{s.jobID(name.JobName) + 1, int32(name.Index)}
}

type deviceUse struct{ index, milli int16 }

// job is what the snapshot knows of a job.
type job struct {
	name  schema.JobName
	first int32 // of its tasks, or -1
	held  int32 // number of tasks on machines
	// maybe has a bit for each machine that holds a task of the job, shared
	// with other machines: most machines are known to hold none by a look.
	maybe [4]uint64
	// recent is the class of recentAsk, the job's last.
	recent    *class
	recentAsk *Ask
	// changes counts the changes of the job's tasks.
	changes int
	// domains counts the job's tasks by domain, for the attributes that a
	// class of the job asked about.
	domains map[*column]*tally
}

// tally counts the tasks of a job by value of an attribute.
type tally struct {
	n    []int32
	stay []int32 // of them, that are not stopping
}

func (t *tally) add(value, n, stay int32) {
	t.grow(int(value) + 1)
	t.n[value] += n
	t.stay[value] += stay
}

func (t *tally) grow(to int) {
	if k := to - len(t.n); k > 0 {
		t.n, t.stay = append(t.n, make([]int32, k)...), append(t.stay, make([]int32, k)...)
	}
}

func (s *Snapshot) jobID(name schema.JobName) int32 {
	if id, ok := s.jobIDs[name]; ok {
		return id
	}
	id := int32(len(s.jobs))
	s.jobIDs[name] = id
	s.jobs = append(s.jobs, job{name: name, first: -1})
	return id
}

// SetTask adds a task to the machine that holds it, or takes over what changed
// of it. It is left out when the machine is not known.
func (s *Snapshot) SetTask(t Task) {
	slot, ok := s.slots[t.Machine]
	if !ok {
		return
	}
	h := s.taskOf(t, slot)
	if old := s.find(h.taskKey); old >= 0 {
		if h.ask == nil {
			h.ask, h.placed = s.tasks[old].ask, s.tasks[old].placed
		}
		s.exchange(old, h)
	} else {
		s.hold(h)
	}
	s.touch(slot)
}

func (s *Snapshot) taskOf(t Task, slot int32) task {
	h := task{
		taskKey:  taskKey{s.jobID(t.Name.JobName), int32(t.Name.Index), slot, t.Generation},
		priority: int16(t.Priority), stopping: t.Stopping, isAlloc: t.IsAlloc,
		limit: vectorOf(t.Limit), reserv: vectorOf(t.Reservation), inAlloc: -1, ask: t.Ask,
	}
	if h.reserv == (vector{}) {
		h.reserv = h.limit
	}
	for _, p := range t.Ports {
		h.ports = append(h.ports, uint16(p))
	}
	for _, d := range t.Devices {
		h.devices = append(h.devices, deviceUse{int16(d.Index), int16(d.Milli)})
	}
	if t.Alloc != (schema.TaskName{}) {
		h.wants = s.allocKeyOf(t.Alloc)
		h.inAlloc = s.allocNamed(h.wants, slot)
	}
	return h
}

// RemoveTask forgets a task. Unknown ones are none of its business.
func (s *Snapshot) RemoveTask(name schema.TaskName, machine string, generation uint64) {
	slot, ok := s.slots[machine]
	id, known := s.jobIDs[name.JobName]
	if !ok || !known {
		return
	}
	if t := s.find(taskKey{id, int32(name.Index), slot, generation}); t >= 0 {
		s.drop(t)
		s.touch(slot)
	}
}

// find returns a task that a machine holds, or -1. Machines hold dozens of tasks:
// looking through them costs less than a map of all.
func (s *Snapshot) find(key taskKey) int32 {
	for t := s.nodes[key.slot].first; t >= 0; t = s.tasks[t].nextHere {
		if s.tasks[t].taskKey == key {
			return t
		}
	}
	return -1
}

// exchange takes over what changed of a task in its place, so that an alloc
// keeps its tasks.
func (s *Snapshot) exchange(id int32, h task) {
	s.charge(id, -1)
	old := &s.tasks[id]
	s.ofPriority[bounded(old.priority)]--
	s.ofPriority[bounded(h.priority)]++
	h.nextHere, h.prevHere, h.nextOfJob, h.prevOfJob = old.nextHere, old.prevHere, old.nextOfJob, old.prevOfJob
	if old.stopping != h.stopping {
		s.countStopping(h.job, h.slot, h.stopping)
	}
	*old = h
	s.typical.stale++
	s.charge(id, 1)
	switch a := s.allocs[id]; {
	case a != nil && h.isAlloc:
		s.refill(id, a)
	case a != nil:
		s.orphan(id)
		delete(s.allocs, id)
	case h.isAlloc:
		s.open(id)
	}
}

// hold links a task to its machine and job and charges the machine.
func (s *Snapshot) hold(h task) {
	var id int32
	if k := len(s.unused); k > 0 {
		id = s.unused[k-1]
		s.unused = s.unused[:k-1]
	} else {
		id = int32(len(s.tasks))
		s.tasks = append(s.tasks, task{})
	}
	n, j := &s.nodes[h.slot], &s.jobs[h.job]
	h.nextHere, h.prevHere, h.nextOfJob, h.prevOfJob = n.first, -1, j.first, -1
	if n.first >= 0 {
		s.tasks[n.first].prevHere = id
	}
	if j.first >= 0 {
		s.tasks[j.first].prevOfJob = id
	}
	n.first, j.first = id, id
	s.tasks[id] = h
	s.typical.stale++
	s.ofPriority[bounded(h.priority)]++
	s.countDomain(h.job, h.slot, 1)
	if h.stopping {
		s.countStopping(h.job, h.slot, true)
	}
	s.charge(id, 1)
	if h.isAlloc {
		s.open(id)
	}
}

// drop forgets a task; the caller touches its machine.
func (s *Snapshot) drop(id int32) {
	if a := s.allocs[id]; a != nil {
		s.orphan(id)
		delete(s.allocs, id)
	}
	s.charge(id, -1)
	t := &s.tasks[id]
	if t.claim {
		delete(s.claims, together(t.job, t.index))
	}
	s.typical.stale++
	s.ofPriority[bounded(t.priority)]--
	if t.stopping {
		s.countStopping(t.job, t.slot, false)
	}
	s.countDomain(t.job, t.slot, -1)
	if t.prevHere >= 0 {
		s.tasks[t.prevHere].nextHere = t.nextHere
	} else {
		s.nodes[t.slot].first = t.nextHere
	}
	if t.nextHere >= 0 {
		s.tasks[t.nextHere].prevHere = t.prevHere
	}
	if t.prevOfJob >= 0 {
		s.tasks[t.prevOfJob].nextOfJob = t.nextOfJob
	} else {
		s.jobs[t.job].first = t.nextOfJob
	}
	if t.nextOfJob >= 0 {
		s.tasks[t.nextOfJob].prevOfJob = t.prevOfJob
	}
	*t = task{taskKey: taskKey{job: -1}}
	s.unused = append(s.unused, id)
}

// bounded returns a priority as an index, also for data that breaks the bounds.
func bounded(p int16) int { return min(max(int(p), 0), schema.MaxPriority) }

// charge takes what a task holds from its machine or alloc (sign 1), or gives
// it back (sign -1).
func (s *Snapshot) charge(id int32, sign int64) {
	t := &s.tasks[id]
	n := &s.nodes[t.slot]
	if t.inAlloc >= 0 {
		a := s.allocs[t.inAlloc]
		for d := range dims {
			a.free[d] -= sign * t.limit[d]
		}
	} else {
		for d := range dims {
			s.byLimit[d][t.slot] -= sign * t.limit[d]
			s.byReserv[d][t.slot] -= sign * t.reserv[d]
		}
		if schema.Priority(t.priority).Prod() {
			s.prodCPU[t.slot] += sign * t.limit[0]
		}
	}
	for _, p := range t.ports {
		if sign > 0 {
			n.takePort(int(p))
		} else if !s.portElsewhere(id, int(p)) {
			n.givePort(int(p))
		}
	}
	for _, u := range t.devices {
		if int(u.index) < len(n.devices) {
			n.devices[u.index].free -= int16(sign) * u.milli
		}
	}
}

// portElsewhere reports whether somebody else on the machine has the task's
// port too: another program, or a task that should not.
func (s *Snapshot) portElsewhere(id int32, port int) bool {
	n := &s.nodes[s.tasks[id].slot]
	if slices.Contains(n.BusyPorts, port) {
		return true
	}
	for t := n.first; t >= 0; t = s.tasks[t].nextHere {
		if t != id && slices.Contains(s.tasks[t].ports, uint16(port)) {
			return true
		}
	}
	return false
}

// countDomain keeps the counts of a job's tasks by domain.
func (s *Snapshot) countDomain(id, slot int32, by int32) {
	j := &s.jobs[id]
	j.held += by
	j.changes++
	if by < 0 {
		s.losses++
	}
	if word, bit := maybeBit(slot); by > 0 {
		j.maybe[word] |= bit
	} else if j.held == 0 {
		j.maybe = [4]uint64{}
	}
	key := together(id, slot)
	if n := s.here[key] + by; n > 0 {
		s.here[key] = n
	} else {
		delete(s.here, key)
	}
	for c, counts := range j.domains {
		counts.add(c.at[slot], by, by)
	}
}

// countStopping takes a task that a machine holds out of what counts for the
// spread of its job, since it is told to stop, or back in.
func (s *Snapshot) countStopping(id, slot int32, stopping bool) {
	by := int32(1)
	if stopping {
		by = -1
		s.losses++
	}
	key := together(id, slot)
	if n := s.stopping[key] - by; n > 0 {
		s.stopping[key] = n
	} else {
		delete(s.stopping, key)
	}
	for c, counts := range s.jobs[id].domains {
		counts.add(c.at[slot], 0, by)
	}
}

// tallyOf returns how many tasks of the job are in each domain, which is kept
// up to date from then on.
func (s *Snapshot) tallyOf(id int32, c *column) *tally {
	j := &s.jobs[id]
	counts, ok := j.domains[c]
	if !ok {
		if j.domains == nil {
			j.domains = map[*column]*tally{}
		}
		counts = &tally{}
		for t := j.first; t >= 0; t = s.tasks[t].nextOfJob {
			stay := int32(1)
			if s.tasks[t].stopping {
				stay = 0
			}
			counts.add(c.at[s.tasks[t].slot], 1, stay)
		}
		j.domains[c] = counts
	}
	counts.grow(len(c.values))
	return counts
}

// onMachine returns how many tasks of a job a machine holds.
func (s *Snapshot) onMachine(job, slot int32) int32 {
	if word, bit := maybeBit(slot); s.jobs[job].maybe[word]&bit == 0 {
		return 0
	}
	return s.here[together(job, slot)]
}

// staysOnMachine returns how many of them are not stopping.
func (s *Snapshot) staysOnMachine(job, slot int32) int32 {
	n := s.onMachine(job, slot)
	if n == 0 || len(s.stopping) == 0 {
		return n
	}
	return n - s.stopping[together(job, slot)]
}

// maybeBit returns the bit of a machine in job.maybe.
func maybeBit(slot int32) (word int, bit uint64) {
	h := uint32(slot) * 0x9e3779b1 >> 24
	return int(h >> 6), 1 << (h & 63)
}

func together(job, slot int32) uint64 { return uint64(job)<<32 | uint64(slot) }

// recountDomains forgets the counts by domain after attributes changed.
func (s *Snapshot) recountDomains() {
	for i := range s.jobs {
		s.jobs[i].domains = nil
		s.jobs[i].changes++
	}
}
