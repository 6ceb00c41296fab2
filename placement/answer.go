package placement

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
	isTainted
	isConstrained
	hasNoneOf
	hasNoDevice
	hasNoAlloc
	hasShare
	isFullDomain
	isSkewed
	lacksKin
	isApart
	isShunned
	isHeld
	lacksCPU
	lacksRAM
	lacksDisk
	lacksNumber
	lacksPorts
	lacksDevices
	answers
)

// lacksRoom reports whether an answer is about what is free.
func (a answer) lacksRoom() bool { return a == lacksCPU || a == lacksRAM || a == lacksDisk }

var reasons = [answers]Reason{
	"", ReasonDown, ReasonDraining, ReasonCordoned,
	ReasonReadOnlyFS, ReasonRuntime, ReasonDiskFull, ReasonMemoryFull, ReasonClock, ReasonCondition,
	ReasonOther, ReasonAvoided, ReasonTaint, ReasonConstraint, ReasonAnyOf, ReasonNoDevice, ReasonNoAlloc, ReasonShare,
	ReasonDomain, ReasonSkew, ReasonAffinity, ReasonAntiAffinity, ReasonRepelled, ReasonHeld, ReasonCPU, ReasonRAM, ReasonDisk, ReasonPortTaken, ReasonPorts, ReasonDevices,
}
