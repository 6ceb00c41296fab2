package schema

import (
	"net/netip"
	"slices"
)

// CellNetwork is what tasks and services of a cell get addresses from, how machines reach
// those of each other, and what names end in.
type CellNetwork struct {
	// Range and Range6 are the addresses of tasks, of IPv4 and of IPv6; each is invalid if
	// there are none of that kind. One of them, or of Services and Services6, is valid. Each machine gets a subnet of
	// them, with so many leading bits as SubnetBits and SubnetBits6 say.
	Range       netip.Prefix `json:"range,omitzero"`
	Range6      netip.Prefix `json:"range6,omitzero"`
	SubnetBits  int          `json:"subnetBits,omitempty"`
	SubnetBits6 int          `json:"subnetBits6,omitempty"`
	Mode        NetworkMode  `json:"mode"`
	// MTU is the largest packet of tasks, in bytes; 0 is what the machine's own network has,
	// less what Mode needs.
	MTU int `json:"mtu,omitempty"`
	// Services and Services6 are the virtual addresses of services, of IPv4 and of IPv6; each
	// is invalid if there are none of that kind. No two ranges overlap.
	Services  netip.Prefix `json:"services,omitzero"`
	Services6 netip.Prefix `json:"services6,omitzero"`
	// Domain is what the names of tasks and services end in, after that of the cell; "" is
	// DefaultDomain.
	Domain string `json:"domain,omitempty"`
	// Policy is who may connect to tasks of jobs without a policy.
	Policy PolicyDefault `json:"policy,omitempty"`
	// CNI is how plugins make the networks of tasks; nil: the agents do.
	CNI *CNI `json:"cni,omitempty"`
}

// NetworkMode is how packets get from one machine's tasks to those of another.
type NetworkMode string

// DefaultDomain is a domain of networks that are not the Internet's: ICANN gives out no name
// below internal (resolution of its board of 2024-07-29).
const DefaultDomain = "muster.internal"

// The most leading bits of the ranges of services: for 2 services, and for 16.
const (
	MaxServiceBits  = 30
	MaxServiceBits6 = 124
)

// The modes.
const (
	// ModeRoutes has each machine route to the addresses of the others: they are in one
	// network of layer 2.
	ModeRoutes NetworkMode = "routes"
	// ModeVXLAN has machines wrap packets in UDP: routers between them know nothing of tasks.
	ModeVXLAN NetworkMode = "vxlan"
	// ModeNone has the network of the machines know the addresses of tasks: agents set no routes to
	// other machines, and what tasks send keeps its source everywhere.
	ModeNone NetworkMode = "none"
)

// How large subnets of machines are without SubnetBits, and how small they may be: for 253
// tasks, and for 5.
const (
	DefaultSubnetBits  = 24
	DefaultSubnetBits6 = 112
	MaxSubnetBits      = 29
	MaxSubnetBits6     = 120
)

// The bounds of CellNetwork.MTU, in bytes: the least that IPv6 allows, and what loopback has.
const (
	MinMTU = 1280
	MaxMTU = 65535
)

// Bits returns how many leading bits the subnets of machines have: of IPv4, and of IPv6. A
// range that is no larger than the usual subnet is that of one machine.
func (n *CellNetwork) Bits() (v4, v6 int) {
	v4, v6 = n.SubnetBits, n.SubnetBits6
	if v4 == 0 {
		v4 = max(DefaultSubnetBits, n.Range.Bits())
	}
	if v6 == 0 {
		v6 = max(DefaultSubnetBits6, n.Range6.Bits())
	}
	return v4, v6
}

// HasAddresses reports whether tasks get addresses; n may be nil.
func (n *CellNetwork) HasAddresses() bool {
	return n != nil && (n.Range.IsValid() || n.Range6.IsValid())
}

// Gives reports whether the subnets are all that a machine is to have in the cell; n may be nil.
func (n *CellNetwork) Gives(subnets []netip.Prefix) bool {
	if !n.HasAddresses() {
		return false
	}
	for _, r := range []netip.Prefix{n.Range, n.Range6} {
		if r.IsValid() && !slices.ContainsFunc(subnets, r.Overlaps) {
			return false
		}
	}
	return true
}

// HasSubnet is the attribute with which the cell says of a machine that can give a task a network
// of its own whether it has addresses for it: "true" or "false". No agent says it.
const HasSubnet = "network.subnet"

// HasOwnNetwork is the attribute that is "true" of a machine that can give a task a network
// of its own.
const HasOwnNetwork = "network.own"

// HasAllocNetwork is the attribute that is "true" of a machine that can give an alloc a network
// of its own, which its tasks share.
const HasAllocNetwork = "network.alloc"

// HasKernelNetwork is the attribute that is "true" of a machine that can give a container by runsc a
// network of its own.
const HasKernelNetwork = "network.runsc"

// HasServices is the attribute that is "true" of a machine that sends connections to the virtual addresses
// of services on.
const HasServices = "network.services"

// AddressVariable and AddressVariable6 are the environment variables that hold the addresses
// of a task with a network of its own: the first that of IPv4, or of IPv6 if it has no other.
const (
	AddressVariable  = "MUSTER_ADDRESS"
	AddressVariable6 = "MUSTER_ADDRESS6"
)

// MaxTaskAddresses is how many addresses a task has: one of IPv4 and one of IPv6.
const MaxTaskAddresses = 2

// TaskNetwork is the network of a task that has one of its own. It is not written to.
type TaskNetwork struct {
	// Addresses are at most MaxTaskAddresses, that of IPv4 first; none before the task has begun
	// to start.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Namespace is the path of a file of the machine that holds its network namespace, and
	// Nameservers are whom it asks for names. Only its machine knows them.
	Namespace   string       `json:"-"`
	Nameservers []netip.Addr `json:"-"`
}

// Equal reports whether two say the same; each may be nil.
func (n *TaskNetwork) Equal(o *TaskNetwork) bool {
	if n == nil || o == nil {
		return n == o
	}
	return slices.Equal(n.Addresses, o.Addresses) && n.Namespace == o.Namespace && slices.Equal(n.Nameservers, o.Nameservers)
}

// At returns the addresses; n may be nil.
func (n *TaskNetwork) At() []netip.Addr {
	if n == nil {
		return nil
	}
	return n.Addresses
}

// MachineNetwork is what a machine gives its tasks addresses from, and how it reaches those
// of others. It is not written to.
type MachineNetwork struct {
	// Ranges are those of the cell, and Subnets the machine's own parts of them: at most one
	// of IPv4 and one of IPv6 each, IPv4 first.
	Ranges  []netip.Prefix `json:"ranges"`
	Subnets []netip.Prefix `json:"subnets"`
	// Leaving are subnets that it had, of which tasks may still have addresses.
	Leaving []netip.Prefix `json:"leaving,omitempty"`
	Mode    NetworkMode    `json:"mode"`
	MTU     int            `json:"mtu,omitempty"` // see CellNetwork
	// Address is at which other machines reach this one; invalid if that is not known.
	Address netip.Addr `json:"address,omitzero"`
}

// All returns Subnets and Leaving.
func (n *MachineNetwork) All() []netip.Prefix { return slices.Concat(n.Subnets, n.Leaving) }

// Equal reports whether two say the same; each may be nil.
func (n *MachineNetwork) Equal(o *MachineNetwork) bool {
	if n == nil || o == nil {
		return n == o
	}
	return slices.Equal(n.Ranges, o.Ranges) && slices.Equal(n.Subnets, o.Subnets) && slices.Equal(n.Leaving, o.Leaving) && n.Mode == o.Mode && n.MTU == o.MTU && n.Address == o.Address
}
