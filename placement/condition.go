package placement

import "github.com/musterhq/muster/schema"

// minPriority returns the lowest priority that a machine with these conditions takes.
func minPriority(conditions []schema.ConditionKind) int16 {
	lowest := schema.Priority(0)
	for _, k := range conditions {
		lowest = max(lowest, k.MinPriority())
	}
	return int16(lowest)
}

// conditionOf returns which of a machine's conditions keeps asks of a priority
// away, if one does.
func conditionOf(conditions []schema.ConditionKind, priority int16) answer {
	for _, k := range conditions {
		if schema.Priority(priority) >= k.MinPriority() {
			continue
		}
		switch k {
		case schema.ReadOnlyFS:
			return hasReadOnlyFS
		case schema.BrokenRuntime:
			return hasBrokenRuntime
		case schema.DiskPressure:
			return hasDiskPressure
		case schema.MemoryPressure:
			return hasMemoryPressure
		case schema.ClockSkew:
			return hasClockSkew
		}
		return hasCondition
	}
	return fine
}
