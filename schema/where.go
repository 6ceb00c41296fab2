package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Operator compares an attribute of a machine with values.
type Operator string

// The operators. Versions are compared number by number (1.10 is above 1.9). A
// machine without the attribute fails all but NotEqual, NotIn and Absent.
const (
	Equal    Operator = "="
	NotEqual Operator = "!="
	In       Operator = "in"
	NotIn    Operator = "not-in"
	Exists   Operator = "exists"
	Absent   Operator = "absent"
	AtLeast  Operator = ">="
	Below    Operator = "<"
)

// Operators lists the operators in the order in which they are documented.
func Operators() []Operator {
	return []Operator{Equal, NotEqual, In, NotIn, Exists, Absent, AtLeast, Below}
}

// Constraint is a condition on one attribute of a machine.
type Constraint struct {
	Attribute string   `json:"attribute"`
	Operator  Operator `json:"operator"`
	// Value is the operand of Equal, NotEqual, AtLeast and Below.
	Value string `json:"value,omitempty"`
	// Values are the operands of In and NotIn.
	Values []string `json:"values,omitempty"`
}

// Alternative is one of several lists of constraints of which one has to hold.
type Alternative struct {
	Constraints []Constraint `json:"constraints"` // all of them; at least one
}

// Preference is a condition that may be broken, at a cost.
type Preference struct {
	Constraint
	// Weight is 1 to 100 for what is wished and -1 to -100 for what is not.
	Weight int `json:"weight"`
}

// Toleration is a taint of machines that does not keep a task away.
type Toleration struct {
	Key   string `json:"key,omitempty"`   // "" is any
	Value string `json:"value,omitempty"` // of the taint; "" is any
}

// Affinity is about the tasks of the jobs that a selector picks by their labels.
type Affinity struct {
	// Selector is in the grammar of ParseSelector. It picks among jobs of the same user,
	// unless it has a requirement on LabelUser.
	Selector string `json:"selector"`
	// By is the attribute of machines that says how near: the same value of it.
	By string `json:"by"`
	// Weight is 1 to 100 for what is preferred, and 0 for what must hold.
	Weight int `json:"weight,omitempty"`
}

// Spread says how a job's tasks are spread over machines.
type Spread struct {
	// By is the attribute over whose values the tasks are spread as evenly as
	// what is free allows; NoSpread for not at all.
	By string `json:"by"`
	// Targets are the percent of the tasks that are wanted, by value of By, with a sum of 100;
	// nil for as many in each.
	Targets map[string]int `json:"targets,omitempty"`
	// Then is the attribute over whose values the tasks of each value of By are spread among
	// each other; "" for none.
	Then string `json:"then,omitempty"`
	// Max is the most tasks of the job, by attribute, on machines that have
	// the same value of it. The attribute "machine" is the machine's name.
	Max map[string]int `json:"max,omitempty"`
	// MaxSkew is, by attribute, by how many tasks of the job machines with one value of it
	// may be ahead of those with the value that have the fewest.
	MaxSkew map[string]int `json:"maxSkew,omitempty"`
	// MinDomains is, by attribute of MaxSkew, how many values there have to be; a missing
	// one is taken to have no tasks.
	MinDomains map[string]int `json:"minDomains,omitempty"`
	// Repair moves running tasks, within the disruption budget, where the job has
	// come to be spread worse than it could be; nil is true.
	Repair *bool `json:"repair,omitempty"`
}

// Share is how many tasks are wanted where machines have a value.
type Share struct {
	Value string
	Tasks int
}

// Shares returns how many of so many tasks Targets want of each value, sorted by value: their
// percent rounded up or down, with the largest remainders up, so that the sum is all. It is nil
// without Targets.
func (s *Spread) Shares(tasks int) []Share {
	if s == nil || len(s.Targets) == 0 {
		return nil
	}
	var out []Share
	left := tasks
	for _, value := range slices.Sorted(maps.Keys(s.Targets)) {
		n := tasks * s.Targets[value] / 100
		out = append(out, Share{value, n})
		left -= n
	}
	order := make([]*Share, 0, len(out))
	for i := range out {
		order = append(order, &out[i])
	}
	slices.SortStableFunc(order, func(a, b *Share) int { return cmp.Compare(tasks*s.Targets[b.Value]%100, tasks*s.Targets[a.Value]%100) })
	for _, x := range order[:min(max(left, 0), len(order))] {
		x.Tasks++
	}
	return out
}

// AttributeMachine is the name of a machine, which every one has.
const AttributeMachine = "machine"

// AttributeCPUSet says of a machine, "true" or "false", whether it can give
// tasks cores of their own.
const AttributeCPUSet = "isolation.cpuset"

// NoSpread as Spread.By says that it does not matter how a job is spread.
const NoSpread = "none"

// DeviceMilli is one whole device.
const DeviceMilli = 1000

// MaxDevices is how many devices of one kind a machine may have.
const MaxDevices = 256

// DeviceAsk is a number of devices of one kind.
type DeviceAsk struct {
	Count int `json:"count"` // 1 to 64
	// Milli is the share of each device that is asked for in thousandths, 1 to DeviceMilli;
	// less than all of it may be asked of one device only.
	Milli  int      `json:"milli"`
	Models []string `json:"models,omitempty"` // any of these; none means any
	// Constraints must all hold of the attributes of each device.
	Constraints []Constraint `json:"constraints,omitempty"`
	// Same is an attribute of which all the devices must have the same value, or DeviceModel;
	// "" for none.
	Same string `json:"same,omitempty"`
}

// ResourceAlternative is one of several things that a task may get instead of each other.
type ResourceAlternative struct {
	// Devices are as in TaskResources, of other kinds than there; none is the last alternative only.
	Devices map[string]DeviceAsk `json:"devices,omitempty"`
}

// Each calls f with each ask for devices, by the number of its alternative, -1 for what is asked for
// whatever the alternative, and by kind.
func (r *TaskResources) Each(f func(alternative int, kind string, ask DeviceAsk)) {
	each := func(alternative int, devices map[string]DeviceAsk) {
		for _, kind := range slices.Sorted(maps.Keys(devices)) {
			f(alternative, kind, devices[kind])
		}
	}
	each(-1, r.Devices)
	for i := range r.FirstOf {
		each(i, r.FirstOf[i].Devices)
	}
}

// Choices returns what the task may get of devices: by each alternative, in order, if there are
// some.
func (r *TaskResources) Choices() []map[string]DeviceAsk {
	if len(r.FirstOf) == 0 {
		return []map[string]DeviceAsk{r.Devices}
	}
	out := make([]map[string]DeviceAsk, 0, len(r.FirstOf))
	for i := range r.FirstOf {
		all := map[string]DeviceAsk{}
		maps.Copy(all, r.Devices)
		maps.Copy(all, r.FirstOf[i].Devices)
		out = append(out, all)
	}
	return out
}

// DeviceLink and DeviceNUMA are attributes of devices. Those of a machine with the same value
// of the first are joined by links of their own, those with the same of the second belong to
// one part of the machine. Several devices of a task are near each other as far as it is
// possible.
const (
	DeviceLink = "link"
	DeviceNUMA = "numa"
)

// DeviceModel in DeviceAsk.Same is the model of devices, which is none of their attributes. Those
// without one do not have the same.
const DeviceModel = "model"

// DeviceMemory is the attribute of devices that says how much memory each has, as an amount.
const DeviceMemory = "memory"

// DeviceGroup is a number of equal devices of a machine.
type DeviceGroup struct {
	Kind  string `json:"kind"`            // such as gpu; a name
	Model string `json:"model,omitempty"` // such as T4
	Count int    `json:"count"`           // 1 to MaxDevices
	// Attributes are facts about each of them, at most MaxDeviceAttributes.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// MaxDeviceAttributes is how many attributes a device may have.
const MaxDeviceAttributes = 16

// Equal reports whether two groups are of the same devices.
func (d DeviceGroup) Equal(o DeviceGroup) bool {
	return d.Kind == o.Kind && d.Model == o.Model && d.Count == o.Count && maps.Equal(d.Attributes, o.Attributes)
}

// MaxDeviceGroups is how many groups of devices a machine may have.
const MaxDeviceGroups = 32

// CheckDevices errs unless devices can be those of a machine: kinds are names,
// models are short, and there are at most MaxDevices of a kind.
func CheckDevices(devices []DeviceGroup) error {
	if len(devices) > MaxDeviceGroups {
		return fmt.Errorf("%d groups of devices: want at most %d", len(devices), MaxDeviceGroups)
	}
	count := map[string]int{}
	for _, d := range devices {
		if err := CheckName(d.Kind); err != nil {
			return fmt.Errorf("kind of device: %w", err)
		}
		if len(d.Model) > MaxLabelValue {
			return fmt.Errorf("model of a %s has %d bytes: want at most %d", d.Kind, len(d.Model), MaxLabelValue)
		}
		if err := d.checkAttributes(); err != nil {
			return err
		}
		if d.Count < 1 || d.Count > MaxDevices {
			return fmt.Errorf("%d devices of kind %s: want 1 to %d", d.Count, d.Kind, MaxDevices)
		}
		if count[d.Kind] += d.Count; count[d.Kind] > MaxDevices {
			return fmt.Errorf("%d devices of kind %s: want at most %d", count[d.Kind], d.Kind, MaxDevices)
		}
	}
	return nil
}

func (d DeviceGroup) checkAttributes() error {
	if len(d.Attributes) > MaxDeviceAttributes {
		return fmt.Errorf("a %s has %d attributes: want at most %d", d.Kind, len(d.Attributes), MaxDeviceAttributes)
	}
	for _, key := range slices.Sorted(maps.Keys(d.Attributes)) {
		value := d.Attributes[key]
		if err := CheckLabel(key, value); err != nil {
			return fmt.Errorf("attribute of a %s: %w", d.Kind, err)
		}
		if value == "" {
			return fmt.Errorf("the attribute %s of a %s has no value", key, d.Kind)
		}
		if _, _, ok := ParseAmount(value); key == DeviceMemory && !ok {
			return fmt.Errorf("memory %q of a %s: want bytes, such as 80Gi", value, d.Kind)
		}
	}
	return nil
}

// DeviceUse is what a task holds of one device.
type DeviceUse struct {
	Kind string `json:"kind"`
	// Index counts the machine's devices of the kind from 0, in the order of
	// MachineInfo.Devices.
	Index int `json:"index"`
	Milli int `json:"milli"` // of DeviceMilli
}

// DeviceVariable returns the environment variable that holds the indices of a
// task's devices of the given kind: MUSTER_DEVICE_<KIND>, upper case, with _
// for -.
func DeviceVariable(kind string) string {
	return "MUSTER_DEVICE_" + strings.ReplaceAll(strings.ToUpper(kind), "-", "_")
}

// deviceVariables returns the variables of a task that holds the given devices,
// such as MUSTER_DEVICE_GPU=0,1. Of a kind that only other alternatives ask for it is empty.
func deviceVariables(devices []DeviceUse, alternatives []ResourceAlternative) map[string]string {
	byKind := map[string][]int{}
	for i := range alternatives {
		for kind := range alternatives[i].Devices {
			byKind[kind] = nil
		}
	}
	for _, d := range devices {
		byKind[d.Kind] = append(byKind[d.Kind], d.Index)
	}
	out := map[string]string{}
	for kind, indices := range byKind {
		slices.Sort(indices)
		words := make([]string, 0, len(indices))
		for _, i := range slices.Compact(indices) {
			words = append(words, strconv.Itoa(i))
		}
		out[DeviceVariable(kind)] = strings.Join(words, ",")
	}
	return out
}
