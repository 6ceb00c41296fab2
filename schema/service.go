package schema

import (
	"cmp"
	"net/netip"
	"strings"
)

// ServiceSpec is a virtual address for tasks of one user: connections to it go to those that are
// ready, of the jobs that Selector picks.
type ServiceSpec struct {
	Name string `json:"name"`
	User string `json:"user"`
	Cell string `json:"cell"`
	// Selector picks jobs of User by their labels. See ParseSelector.
	Selector string `json:"selector"`
	// Ports are what is served, by name.
	Ports map[string]ServicePort `json:"ports"`
	// Sticky keeps a client's connections on one task: StickyClient, or "" for any.
	Sticky string `json:"sticky,omitempty"`
	// Prefer sends connections to tasks on the client's own machine while there are any:
	// PreferMachine, or "" for all alike.
	Prefer string `json:"prefer,omitempty"`
	// WhenNoneReady is what happens while tasks are there and none is ready: SendAnyway, which
	// "" means too, or Refuse. Without any task connections are refused.
	WhenNoneReady string `json:"whenNoneReady,omitempty"`
	// Weights are how much tasks get of what is sent, beside DefaultWeight. Of the entries
	// that pick a job's labels the first counts.
	Weights []ServiceWeight `json:"weights,omitempty"`
}

// ID returns the service's full name, cell/user/name.
func (s *ServiceSpec) ID() string { return s.Cell + "/" + s.User + "/" + s.Name }

// Short returns user/name, the form used where the cell is known.
func (s *ServiceSpec) Short() string { return s.User + "/" + s.Name }

// Compare orders services by cell, user and name.
func (s *ServiceSpec) Compare(o *ServiceSpec) int {
	return cmp.Or(strings.Compare(s.Cell, o.Cell), strings.Compare(s.User, o.User), strings.Compare(s.Name, o.Name))
}

// ServiceRecord is what the store keeps of a service beside what is declared.
type ServiceRecord struct {
	// Addresses are its virtual addresses, for as long as it is declared and they are of the
	// cell's ranges: at most one of IPv4 and then one of IPv6.
	Addresses []netip.Addr `json:"addresses"`
}

// ServicePort is a port of a service.
type ServicePort struct {
	Port     int    `json:"port"`               // 1 to 65535
	Target   string `json:"target,omitempty"`   // name of a port of the tasks; "" is its own name
	Protocol string `json:"protocol,omitempty"` // TCP, which "" means too, or UDP
}

// ServiceWeight is how much each task of some jobs gets.
type ServiceWeight struct {
	Selector string `json:"selector"`
	Weight   int    `json:"weight"` // 0 to MaxWeight; with 0 nothing is sent to them
}

// The values of a service's fields.
const (
	StickyClient  = "client"
	PreferMachine = "machine"
	SendAnyway    = "send"
	Refuse        = "refuse"
	TCP           = "tcp"
	UDP           = "udp"

	// DefaultWeight is a task's weight where no ServiceWeight picks it, and MaxWeight the
	// greatest.
	DefaultWeight = 100
	MaxWeight     = 1000
	// MaxServicePorts is the most ports of a service.
	MaxServicePorts = 32
)
