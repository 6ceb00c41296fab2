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

var reasons = [answers]Reason{
	"", ReasonDown, ReasonDraining, ReasonCordoned,
	ReasonReadOnlyFS, ReasonRuntime, ReasonDiskFull, ReasonMemoryFull, ReasonClock, ReasonCondition,
	ReasonOther, ReasonAvoided, ReasonTaint, ReasonConstraint, ReasonNoDevice, ReasonNoAlloc, ReasonShare,
	ReasonDomain, ReasonSkew, ReasonAffinity, ReasonAntiAffinity, ReasonRepelled, ReasonHeld, ReasonCPU, ReasonRAM, ReasonDisk, ReasonPortTaken, ReasonPorts, ReasonDevices,
}
