package placement

import (
	"maps"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/schema"
)

// Machine describes a machine of the cell.
type Machine struct {
	Name      string
	Capacity  schema.Resources
	Ports     schema.PortRange
	BusyPorts []int // of Ports, in use by others than tasks
	// BusyDevices are held by what Place does not know as tasks.
	BusyDevices []DeviceUse
	// Attributes are facts about the machine, for constraints, preferences
	// and spreading. The attribute "machine" always is its name.
	Attributes map[string]string
	// Up is false while the machine is silent or lost: it keeps what it
	// holds and gets nothing new.
	Up bool
	// Draining is true while the machine is being emptied: it keeps what it
	// holds until that is moved, and gets nothing new.
	Draining bool
	// Cordoned is true while nothing new is wanted on the machine: it keeps
	// what it holds.
	Cordoned bool
	// Conditions are what is wrong with the machine: it keeps what it holds,
	// and gets nothing new that they do not let in.
	Conditions []schema.ConditionKind
	// Overloaded is true while tasks of the machine wait for its processors, as it was
	// measured there: what can be elsewhere is placed elsewhere.
	Overloaded bool
	// Taints keep tasks away that do not tolerate all of them.
	Taints []Taint
	// Devices are countable things of which a task gets some for itself, or
	// a share of one.
	Devices []Device
	// Packages are the packages and images that the machine holds already.
	Packages []string
}

// MachineAttribute is the attribute that every machine has: its name. As a
// domain it makes each machine a domain of its own.
const MachineAttribute = "machine"

// Device is a group of equal devices of a machine, such as its GPUs.
type Device struct {
	Kind  string // such as gpu
	Model string // such as T4; "" if it does not matter
	Count int
	// Attributes are facts about each of them, such as memory. Those with the same value of
	// link or of numa are near each other.
	Attributes map[string]string
}

func (d Device) equal(o Device) bool {
	return d.Kind == o.Kind && d.Model == o.Model && d.Count == o.Count && maps.Equal(d.Attributes, o.Attributes)
}

// DeviceMilli is one whole device.
const DeviceMilli = device.Whole

// DeviceAsk is a number of whole devices of one kind, or a share of one.
type DeviceAsk struct {
	Kind   string
	Models []string // any of these; none means any model
	// Count is the number of devices, at least 1.
	Count int
	// Milli is the share of each device that is asked for, in thousandths; 0 means all of
	// it. Less than DeviceMilli may be asked of one device only (Count 1).
	Milli int
	// Constraints must all hold of the attributes of each device.
	Constraints []Constraint
	// Same is an attribute of which all the devices must have the same value; "" for none.
	Same string
}

// DeviceUse is what a task holds of one device.
type DeviceUse struct {
	Kind string `json:"kind"`
	// Index counts the machine's devices from 0, in the order of
	// Machine.Devices, through all groups.
	Index int `json:"index"`
	Milli int `json:"milli"`
}
