package schema

import (
	"fmt"
	"time"
)

// ConditionKind names something that is wrong with a machine as a whole.
type ConditionKind string

// The conditions.
const (
	DiskPressure   ConditionKind = "disk-pressure"   // its disk is nearly full
	MemoryPressure ConditionKind = "memory-pressure" // its memory is nearly used up
	ClockSkew      ConditionKind = "clock-skew"      // its clock is not the master's
	ReadOnlyFS     ConditionKind = "read-only-fs"    // its state directory cannot be written to
	DamagedState   ConditionKind = "damaged-state"   // files of its state directory were damaged or lost
	BrokenRuntime  ConditionKind = "broken-runtime"  // tasks cannot be started on it, whichever they are
	// NameConflict is found by the master, not by an agent: another agent says that
	// it is this machine, and is refused.
	NameConflict ConditionKind = "name-conflict"
)

// ConditionKinds lists the conditions that agents find, in the order in which they are reported.
func ConditionKinds() []ConditionKind {
	return []ConditionKind{ReadOnlyFS, BrokenRuntime, DiskPressure, MemoryPressure, ClockSkew, DamagedState}
}

// MinPriority returns the lowest priority of tasks that may still be put on a
// machine in this condition; no task has more than MaxPriority, so one above it
// lets in none. What runs there runs on, whatever its priority. A kind that
// this version does not know lets in none.
func (k ConditionKind) MinPriority() Priority {
	switch k {
	case MemoryPressure:
		// A prod task has its whole limit kept for it, and the machine takes
		// the memory from others.
		return bandFloor(BandProduction)
	case ClockSkew:
		// Who finds out why the clock is wrong must get there.
		return bandFloor(BandMonitoring)
	case DamagedState, NameConflict:
		// The machine is well: what was damaged is put right, or costs its own task a
		// restart.
		return 0
	}
	return MaxPriority + 1
}

func bandFloor(b Band) Priority {
	p, _ := b.Floor()
	return p
}

// Condition is something that is wrong with a machine, as its agent found.
type Condition struct {
	Kind ConditionKind `json:"kind"`
	// Since is when it was first reported, by the machine's own clock.
	Since time.Time `json:"since"`
	// Message says what was measured then, in words.
	Message string `json:"message,omitempty"`
}

// String returns the kind and the message.
func (c Condition) String() string {
	if c.Message == "" {
		return string(c.Kind)
	}
	return fmt.Sprintf("%s: %s", c.Kind, c.Message)
}
