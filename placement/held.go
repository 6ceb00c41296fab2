package placement

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/placement/layers"
	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/placement/tournament"
	"github.com/musterhq/muster/schema"
)

// task is a Task as the snapshot holds it.
type task struct {
	taskKey
	priority  int16
	stopping  bool
	together  bool     // see Task.Together
	behind    string   // see Task.Behind
	gang      int32    // see gangs, 0 for none
	inAlloc   int32    // the task that is its alloc, or -1
	wants     allocKey // of the alloc that it runs in
	limit     vector
	reserv    vector
	ports     []uint16
	shared    []uint16 // ports in the network that the tasks of its alloc share
	devices   []device.Use
	ask       *Ask
	alloc     *alloc // of an alloc, what is left in it; else nil
	since     int64  // see sinceOf
	nextHere  int32  // of its machine
	prevHere  int32
	nextOfJob int32
	prevOfJob int32
	profile   int32 // its relations, see Snapshot.profileOf
	isAlloc   bool
	claim     bool // see Snapshot.Claim
	moves     bool // a claim, see Snapshot.ClaimMove
	back      bool // a claim, see Snapshot.ClaimBack
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

// job is the state of a job in the snapshot.
type job struct {
	name  schema.JobName
	first int32 // of its tasks, or -1
	held  int32 // number of tasks on machines
	// maybe has a bit for each machine that holds a task of the job, shared
	// with other machines: most machines are known to hold none by a look.
	maybe [4]uint64
	// recent is the class of recentAsk, the job's last in this pass.
	recent    *class
	recentAsk *Ask
	// changes counts the changes of the job's tasks. The last was that one came to the machine
	// in the slot came, if that is not -1.
	changes int
	came    int32
	domains *domains
	// coming are the machines that tasks of the job move to, see Snapshot.ClaimMove: one for each
	// such task. Forks share it.
	coming []int32
	// profile is that of relations, the last that were seen.
	profile   int32
	relations *Relations
}

// domains counts the tasks of a job by domain, for the attributes that a class of
// the job asked about. Only the snapshot that made it uses it, and writes to it: the
// others that share the job count again.
type domains struct {
	of       *Snapshot
	reshapes int // of the snapshot, for which it holds
	tallies  map[*layout.Column]*tournament.Tally
}

func (s *Snapshot) jobID(name schema.JobName) int32 {
	if id, ok := s.jobIDs.Get(name); ok {
		return id
	}
	id := s.jobs.Add(job{name: name, first: -1})
	s.jobIDs.Set(name, id)
	return id
}

// SetTask adds a task to the machine that holds it, or takes over what changed
// of it. It is left out when the machine is not known.
func (s *Snapshot) SetTask(t Task) {
	s.merge()
	slot, ok := s.slots.Get(t.Machine)
	if !ok {
		return
	}
	h := s.taskOf(t, slot)
	old := s.find(h.taskKey)
	if old >= 0 && s.tasks.At(old).claim { // the task has come to where it had a claim
		s.drop(old)
		old = -1
	}
	if old >= 0 {
		if h.ask == nil {
			h.ask, h.placed, h.profile = s.tasks.At(old).ask, s.tasks.At(old).placed, s.tasks.At(old).profile
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
		priority: int16(t.Priority), stopping: t.Stopping, together: t.Together, behind: t.Behind, isAlloc: t.IsAlloc,
		limit: vectorOf(t.Limit), reserv: vectorOf(t.Reservation), inAlloc: -1, ask: t.Ask,
		since: sinceOf(t.Since),
	}
	if t.Gang != "" {
		h.gang = s.gangs.join(t.Name.JobName, t.Gang, h.job)
	}
	if t.Ask != nil {
		h.profile = s.profileOf(h.job, t.Ask.Relations)
	}
	if h.reserv == (vector{}) {
		h.reserv = h.limit
	}
	h.take(t.Ports, t.Devices)
	for _, p := range t.AllocPorts {
		h.shared = append(h.shared, uint16(p.Port))
	}
	if t.Alloc != (schema.TaskName{}) {
		h.wants = s.allocKeyOf(t.Alloc)
		h.inAlloc = s.allocNamed(h.wants, slot)
	}
	return h
}

// sinceOf returns a time in milliseconds; that of what comes now is after all others, and so small
// that many can be added up.
func sinceOf(at time.Time) int64 {
	if at.IsZero() {
		return comesNow
	}
	return min(max(at.UnixMilli(), 0), comesNow)
}

const comesNow = 1 << 46

// take has the task hold ports and devices.
func (t *task) take(ports schema.Ports, devices []DeviceUse) {
	for _, p := range ports {
		t.ports = append(t.ports, uint16(p.Port))
	}
	if len(devices) > 0 {
		t.devices = devicesOf(devices)
	}
}

// RemoveTask forgets a task. Unknown ones are none of its business.
func (s *Snapshot) RemoveTask(name schema.TaskName, machine string, generation uint64) {
	s.merge()
	slot, ok := s.slots.Get(machine)
	id, known := s.jobIDs.Get(name.JobName)
	if !ok || !known {
		return
	}
	if t := s.find(taskKey{id, int32(name.Index), slot, generation}); t >= 0 {
		s.drop(t)
		s.touch(slot)
	}
}

// find returns a task that a machine holds, or -1. Machines and jobs mostly have dozens of tasks:
// looking through them costs less than a map of all.
func (s *Snapshot) find(key taskKey) int32 {
	// Either list has it, and one of them may be very long.
	here, ofJob := s.nodes.At(key.slot).first, s.jobs.At(key.job).first
	for here >= 0 && ofJob >= 0 {
		if s.tasks.At(here).taskKey == key {
			return here
		}
		if s.tasks.At(ofJob).taskKey == key {
			return ofJob
		}
		here, ofJob = s.tasks.At(here).nextHere, s.tasks.At(ofJob).nextOfJob
	}
	return -1
}

// exchange takes over what changed of a task in its place, so that an alloc
// keeps its tasks.
func (s *Snapshot) exchange(id int32, h task) {
	s.charge(id, -1)
	old := s.tasks.Edit(id)
	s.ofPriority[bounded(old.priority)]--
	s.ofPriority[bounded(h.priority)]++
	s.burden.count(old, -1)
	s.burden.count(&h, 1)
	h.nextHere, h.prevHere, h.nextOfJob, h.prevOfJob = old.nextHere, old.prevHere, old.nextOfJob, old.prevOfJob
	h.alloc = old.alloc
	if old.stopping != h.stopping {
		s.countStopping(h.job, h.slot, h.stopping)
	}
	if old.profile != h.profile {
		s.kindred.relate(old.profile, h.slot, -1)
		s.kindred.relate(h.profile, h.slot, 1)
	}
	*old = h
	s.typical.Changed()
	s.charge(id, 1)
	switch {
	case h.alloc != nil && h.isAlloc:
		s.refill(id)
	case h.alloc != nil:
		s.orphan(id)
	case h.isAlloc:
		s.open(id)
	}
}

// hold links a task to its machine and job and charges the machine.
func (s *Snapshot) hold(h task) {
	n, j := s.nodes.Edit(h.slot), s.jobs.Edit(h.job)
	h.nextHere, h.prevHere, h.nextOfJob, h.prevOfJob = n.first, -1, j.first, -1
	var id int32
	if k := len(s.unused); k > 0 {
		id = s.unused[k-1]
		s.unused = s.unused[:k-1]
		*s.tasks.Edit(id) = h
	} else {
		id = s.tasks.Add(h)
	}
	if n.first >= 0 {
		s.tasks.Edit(n.first).prevHere = id
	}
	if j.first >= 0 {
		s.tasks.Edit(j.first).prevOfJob = id
	}
	n.first, j.first = id, id
	if h.claim && !h.back {
		s.rows.Edit(h.slot).claims++
	}
	if h.moves {
		j.coming = append(slices.Clip(j.coming), h.slot)
	}
	s.typical.Changed()
	s.ofPriority[bounded(h.priority)]++
	s.burden.count(&h, 1)
	s.countDomain(h.job, h.slot, 1)
	s.kindred.relate(h.profile, h.slot, 1)
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
	t := s.tasks.Edit(id)
	if t.alloc != nil {
		s.orphan(id)
	}
	s.charge(id, -1)
	if t.claim {
		s.claims.Remove(together(t.job, t.index))
		if !t.back {
			s.rows.Edit(t.slot).claims--
		}
	}
	s.typical.Changed()
	s.ofPriority[bounded(t.priority)]--
	s.burden.count(t, -1)
	if t.stopping {
		s.countStopping(t.job, t.slot, false)
	}
	if t.moves {
		j := s.jobs.Edit(t.job)
		i := slices.Index(j.coming, t.slot)
		j.coming = slices.Concat(j.coming[:i], j.coming[i+1:])
	}
	s.countDomain(t.job, t.slot, -1)
	s.kindred.relate(t.profile, t.slot, -1)
	if t.prevHere >= 0 {
		s.tasks.Edit(t.prevHere).nextHere = t.nextHere
	} else {
		s.nodes.Edit(t.slot).first = t.nextHere
	}
	if t.nextHere >= 0 {
		s.tasks.Edit(t.nextHere).prevHere = t.prevHere
	}
	if t.prevOfJob >= 0 {
		s.tasks.Edit(t.prevOfJob).nextOfJob = t.nextOfJob
	} else {
		s.jobs.Edit(t.job).first = t.nextOfJob
	}
	if t.nextOfJob >= 0 {
		s.tasks.Edit(t.nextOfJob).prevOfJob = t.prevOfJob
	}
	*t = task{taskKey: taskKey{job: -1}}
	s.unused = append(s.unused, id)
}

// bounded returns a priority as an index, also for data that breaks the bounds.
func bounded(p int16) int { return min(max(int(p), 0), schema.MaxPriority) }

// charge takes what a task holds from its machine or alloc (sign 1), or gives
// it back (sign -1).
func (s *Snapshot) charge(id int32, sign int64) {
	t := s.tasks.At(id)
	if t.inAlloc >= 0 {
		host := s.tasks.Edit(t.inAlloc)
		left := *host.alloc
		for d := range dims {
			left.free[d] -= sign * t.limit[d]
		}
		host.alloc = &left
	} else {
		r := s.rows.Edit(t.slot)
		for d := range dims {
			r.byLimit[d] -= sign * t.limit[d]
			r.byReserv[d] -= sign * t.reserv[d]
		}
		if schema.Priority(t.priority).Prod() {
			r.prodCPU += sign * t.limit[0]
		}
	}
	if len(t.ports)+len(t.devices) == 0 {
		return
	}
	n := s.nodes.Edit(t.slot)
	for _, p := range t.ports {
		if sign > 0 {
			n.ports.Take(int(p))
		} else {
			n.ports.Give(int(p))
		}
	}
	for _, u := range t.devices {
		if int(u.Index) < len(n.devices) {
			n.devices[u.Index].Free -= int16(sign) * u.Milli
		}
	}
}

// countDomain keeps the counts of a job's tasks by domain.
func (s *Snapshot) countDomain(id, slot int32, by int32) {
	j := s.jobs.Edit(id)
	j.held += by
	j.changes++
	j.came = slot
	if by < 0 {
		j.came = -1
		s.removals++
	}
	if word, bit := maybeBit(slot); by > 0 {
		j.maybe[word] |= bit
	} else if j.held == 0 {
		j.maybe = [4]uint64{}
	}
	key := together(id, slot)
	layers.Count(&s.here, key, by)
	for c, counts := range s.tallies(j) {
		counts.Add(c.At[slot], by, by)
	}
}

// countStopping takes a task that a machine holds out of what counts for the
// spread of its job, since it is stopping, or back in.
func (s *Snapshot) countStopping(id, slot int32, stopping bool) {
	by := int32(1)
	if stopping {
		by = -1
		s.removals++
	}
	j := s.jobs.Edit(id)
	j.changes++
	j.came = -1
	key := together(id, slot)
	layers.Count(&s.stopping, key, -by)
	for c, counts := range s.tallies(s.jobs.At(id)) {
		counts.Add(c.At[slot], 0, by)
	}
}

// tallyOf returns how many tasks of the job are in each domain, which is kept
// up to date from then on.
func (s *Snapshot) tallyOf(id int32, c *layout.Column) *tournament.Tally {
	j := s.jobs.At(id)
	counts, ok := s.tallies(j)[c]
	if !ok {
		if s.tallies(j) == nil {
			j = s.jobs.Edit(id)
			j.domains = &domains{s, s.reshapes, map[*layout.Column]*tournament.Tally{}}
		}
		counts = &tournament.Tally{}
		for t := j.first; t >= 0; t = s.tasks.At(t).nextOfJob {
			stay := int32(1)
			if s.tasks.At(t).stopping {
				stay = 0
			}
			counts.Add(c.At[s.tasks.At(t).slot], 1, stay)
		}
		j.domains.tallies[c] = counts
	}
	counts.Grow(len(c.Values))
	return counts
}

// onMachine returns how many tasks of a job a machine holds.
func (s *Snapshot) onMachine(job, slot int32) int32 {
	if word, bit := maybeBit(slot); s.jobs.At(job).maybe[word]&bit == 0 {
		return 0
	}
	n, _ := s.here.Get(together(job, slot))
	return n
}

// staysOnMachine returns how many of them are not stopping.
func (s *Snapshot) staysOnMachine(job, slot int32) int32 {
	n := s.onMachine(job, slot)
	if n == 0 || s.stopping.Len() == 0 {
		return n
	}
	stopping, _ := s.stopping.Get(together(job, slot))
	return n - stopping
}

// maybeBit returns the bit of a machine in job.maybe.
func maybeBit(slot int32) (word int, bit uint64) {
	h := uint32(slot) * 0x9e3779b1 >> 24
	return int(h >> 6), 1 << (h & 63)
}

// tallies returns the counts of a job's tasks by domain that the snapshot keeps.
func (s *Snapshot) tallies(j *job) map[*layout.Column]*tournament.Tally {
	if d := j.domains; d != nil && d.of == s && d.reshapes == s.reshapes {
		return d.tallies
	}
	return nil
}

// profileOf returns the profile of tasks of a job, 0 for those without relations.
func (s *Snapshot) profileOf(id int32, r *Relations) int32 {
	if r == nil {
		return 0
	}
	j := s.jobs.At(id)
	if j.relations == r {
		return j.profile
	}
	k := &s.kindred
	key := r.append(binary.AppendVarint(s.scratch[:0], int64(id)))
	s.scratch = key
	p, known := k.profileIDs.Get(string(key))
	if !known {
		var fresh []int32
		p, fresh = k.newProfile(string(key), profile{job: id, user: j.name.User, relations: r})
		for _, t := range fresh {
			s.countFor(t)
		}
	}
	j = s.jobs.Edit(id)
	j.relations, j.profile = r, p
	return p
}

// countFor counts the tasks that machines hold for a term that is new.
func (s *Snapshot) countFor(term int32) {
	for p := range s.kindred.profiles.Len() {
		x := s.kindred.profiles.At(p)
		if !slices.Contains(x.matches, term) {
			continue
		}
		for t := s.jobs.At(x.job).first; t >= 0; t = s.tasks.At(t).nextOfJob {
			if h := s.tasks.At(t); h.profile == p {
				s.kindred.countPicked(term, h.slot, 1)
			}
		}
	}
}

// relateAll counts the tasks of a machine, which is about to have other attributes, or has.
func (s *Snapshot) relateAll(slot, by int32) {
	if s.kindred.terms.Len() == 0 {
		return
	}
	for t := s.nodes.At(slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		s.kindred.relate(s.tasks.At(t).profile, slot, by)
	}
}
