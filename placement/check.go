package placement

import "slices"

// answer is what a machine says to an ask: fine, or the index of a reason.
type answer uint8

// fine is the answer of a machine that has room.
const fine answer = 0

// The answers, in the order in which they are looked for.
const (
	isDown answer = iota + 1
	isDraining
	isCordoned
	hasReadOnlyFS
	hasBrokenRuntime
	hasDiskPressure
	hasMemoryPressure
	hasClockSkew
	hasCondition
	isOther
	isAvoided
	isConstrained
	hasNoDevice
	hasNoAlloc
	hasShare
	isFullDomain
	isHeld
	lacksCPU
	lacksRAM
	lacksDisk
	lacksNumber
	lacksPorts
	lacksDevices
	answers
)

var reasons = [answers]Reason{
	"", ReasonDown, ReasonDraining, ReasonCordoned,
	ReasonReadOnlyFS, ReasonRuntime, ReasonDiskFull, ReasonMemoryFull, ReasonClock, ReasonCondition,
	ReasonOther, ReasonAvoided, ReasonConstraint, ReasonNoDevice, ReasonNoAlloc, ReasonShare,
	ReasonDomain, ReasonHeld, ReasonCPU, ReasonRAM, ReasonDisk, ReasonPortTaken, ReasonPorts, ReasonDevices,
}

// free returns what the ask may count on: for prod what the limits of all
// tasks leave, for others what their reservations do (Borg §5.5).
func (s *Snapshot) free(c *class) *[dims][]int64 {
	if c.prod {
		return &s.byLimit
	}
	return &s.byReserv
}

// check returns why a machine cannot take the asks of a class.
func (s *Snapshot) check(c *class, slot int32) answer {
	if a := s.admits(c, slot); a != fine {
		return a
	}
	free := s.free(c)
	switch {
	case s.heldAt[slot] >= c.priority:
		return isHeld
	case c.limit[0] > free[0][slot]:
		return lacksCPU
	case c.limit[1] > free[1][slot]:
		return lacksRAM
	case c.limit[2] > free[2][slot]:
		return lacksDisk
	case c.numbers != nil && !s.hasNumbers(c, slot):
		return lacksNumber
	case s.portsOf(c, slot) > s.ports[slot]:
		return lacksPorts
	case c.needs != nil && !s.hasDevices(c, slot):
		return lacksDevices
	}
	return fine
}

// admits returns what speaks against a machine that no room on it would mend.
func (s *Snapshot) admits(c *class, slot int32) answer {
	switch s.state[slot] {
	case stateDown, stateGone:
		return isDown
	case stateDraining:
		return isDraining
	case stateCordoned:
		return isCordoned
	}
	if a := s.condition(slot, c.priority); a != fine {
		return a
	}
	if c.ask.On != "" && c.ask.On != s.nodes[slot].Name {
		return isOther
	}
	if c.avoid != nil && slices.Contains(c.avoid, s.nodes[slot].Name) {
		return isAvoided
	}
	for i := range c.rules {
		if !c.rules[i].holds(slot) {
			return isConstrained
		}
	}
	if c.needs != nil && !s.nodes[slot].exist(c.needs) {
		return hasNoDevice
	}
	if c.bounds != nil && !s.withinBounds(c, slot) {
		return isFullDomain
	}
	return fine
}

func (s *Snapshot) withinBounds(c *class, slot int32) bool {
	for _, b := range c.bounds {
		domain := b.column.at[slot]
		if domain == 0 || b.most < 1 {
			return false
		}
		if c.job < 0 {
			continue
		}
		if b.perMachine {
			if s.onMachine(c.job, slot) >= b.most {
				return false
			}
		} else if s.tallyOf(c.job, b.column).n[domain] >= b.most {
			return false
		}
	}
	return true
}

func (s *Snapshot) hasDevices(c *class, slot int32) bool {
	var room [16]deviceUse
	_, ok := pick(s.nodes[slot].devices, c.needs, room[:0])
	return ok
}
