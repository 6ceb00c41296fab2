package schema

import (
	"slices"
	"strings"
)

// Capabilities are what a task asks for of the capabilities of Linux. It has those that its way
// of running gives, but for Drop, and with Add. Names are without CAP_.
type Capabilities struct {
	Add  []string `json:"add,omitempty"`
	Drop []string `json:"drop,omitempty"` // AllCapabilities stands for all
}

// AllCapabilities is what Drop has for all that the task would have.
const AllCapabilities = "ALL"

// ContainerCapabilities are those of a process that is root in its container. They are over the
// container's own users, and count for nothing outside.
func ContainerCapabilities() []string {
	return []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE"}
}

// MachineCapabilities are those that count for the machine, which must offer them.
// Others are rights over the other users of the machine, with which a process is root there by
// one way or another; or the filter of system calls refuses what they are for.
func MachineCapabilities() []string {
	return []string{"NET_BIND_SERVICE", "NET_RAW", "NET_ADMIN", "IPC_LOCK", "SYS_NICE", "DAC_READ_SEARCH"}
}

// NetworkCapabilities are those that a container can have that asks for more than its root has:
// over a network of its own making.
func NetworkCapabilities() []string { return []string{"NET_RAW", "NET_ADMIN"} }

// HasCapabilityChoice is the attribute that is "true" of a machine whose agent can leave out
// capabilities, and give some.
const HasCapabilityChoice = "capabilities"

// HasKernelCapabilities is the attribute that is "true" of a machine whose agent has runsc give
// capabilities to a container's user 0.
const HasKernelCapabilities = "capabilities.runsc"

// CapabilityAttribute returns the attribute that is "true" of a machine that offers a
// capability.
func CapabilityAttribute(name string) string { return "capability." + name }

// GrantedCapabilities returns those that a task asks for beyond what every task of its kind may
// have, sorted: its tenant must allow them, and its machine offer them.
func GrantedCapabilities(s *TaskSpec) []string {
	if s.Capabilities == nil || len(s.Capabilities.Add) == 0 {
		return nil
	}
	contained := s.Container != nil && !slices.ContainsFunc(s.Before, func(b Before) bool { return b.Container == nil })
	var out []string
	for _, name := range s.Capabilities.Add {
		if !contained || !slices.Contains(ContainerCapabilities(), name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Left returns those of names that are not dropped; c may be nil.
func (c *Capabilities) Left(names []string) []string {
	if c == nil {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.Contains(c.Drop, name) || slices.Contains(c.Drop, AllCapabilities)
	})
}

// capabilitiesOf is IsolationOf for capabilities.
func capabilitiesOf(s *TaskSpec) []string {
	if s.Capabilities == nil {
		return nil
	}
	need := []string{HasCapabilityChoice}
	if s.Runsc() && len(s.Capabilities.Add) > 0 {
		need = append(need, HasKernelCapabilities)
	}
	for _, name := range GrantedCapabilities(s) {
		need = append(need, CapabilityAttribute(name))
	}
	return need
}

// CheckOffered errs unless name is a capability that a machine can offer. The error is a
// HintedError.
func CheckOffered(name string) error {
	if slices.Contains(MachineCapabilities(), name) {
		return nil
	}
	if short := strings.ToUpper(strings.TrimPrefix(strings.ToUpper(name), "CAP_")); slices.Contains(MachineCapabilities(), short) {
		return Hintf("write "+short, "%q is not how the capability is written", clip(name))
	}
	return Hintf("one of "+strings.Join(MachineCapabilities(), ", "), "%q is no capability that a machine can offer", clip(name))
}
