package placement

import (
	"github.com/musterhq/muster/schema"
)

// HasRoom reports whether a task could stay on the machine that holds it if its
// limit were to. What the machine, or the task's alloc, has free for the task is
// counted as for an ask of its priority.
func (s *Snapshot) HasRoom(task schema.TaskName, machine string, to schema.Resources) bool {
	slot, ok := s.slots.Get(machine)
	if !ok {
		return false
	}
	id := s.find(taskKey{s.jobID(task.JobName), int32(task.Index), slot, 0})
	if id < 0 {
		return false
	}
	t := s.tasks.At(id)
	want := vectorOf(to)
	for d := range dims {
		free := s.rows.At(slot).byReserv[d]
		switch {
		case t.inAlloc >= 0:
			free = s.tasks.At(t.inAlloc).alloc.free[d]
		case schema.Priority(t.priority).Prod():
			free = s.rows.At(slot).byLimit[d]
		}
		if more := want[d] - t.limit[d]; more > max(0, free) {
			return false
		}
	}
	return true
}

// Fits reports whether an ask would get a place now: where there is room and,
// with evict, where tasks of lower priority could make some. Nothing is placed.
func (s *Snapshot) Fits(a Ask, evict bool) bool {
	c := s.single(&a)
	if a.On == "" && !c.inSet && s.refuse(c) > 0 {
		return true
	}
	for i := range s.nodes.Len() {
		slot := i
		if s.rows.At(slot).state == stateGone || a.On != "" && s.nodes.At(slot).Name != a.On {
			continue
		}
		switch {
		case c.inSet:
			if s.checkSet(c, &a, slot) == fine {
				return true
			}
		case a.On != "" && s.check(c, slot) == fine:
			return true
		case evict && s.level(c, slot) != impossible:
			if _, ok := s.solve(c, slot, false); ok {
				return true
			}
		}
	}
	return false
}
