package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

// Claim is a task of this machine that has a network of its own.
type Claim struct {
	Job       naming.Name
	Addresses []netip.Addr
	// Shared says that other tasks may be in its network; Ports are what it has there.
	Shared bool
	Ports  schema.Ports
	// Policy is that with which it was started, and counts until the directory knows the job.
	Policy *schema.Policy
}

// Where packets to a guarded address are decided upon, beside groups.
const (
	Admit  = "admit"  // everyone may connect
	Refuse = "refuse" // nobody may
)

// State is what the kernel has. The zero State guards nothing.
type State struct {
	// Guards are addresses of tasks, each with the name of the group of those who may connect, or Refuse.
	Guards map[netip.Addr]string
	// Ports come before Guards, for addresses that tasks share; they may have Admit, too.
	Ports map[Port]string
	// Selves are addresses that may connect to themselves: all of Guards.
	Selves map[netip.Addr]struct{}
	Groups map[string]Group
}

// Port is a port of an address.
type Port struct {
	Address  netip.Addr
	Protocol uint8 // its number in IP headers
	Port     uint16
}

// Group is those who may connect to the tasks of a job.
type Group struct {
	Sources map[netip.Addr]struct{}
	Ranges  []netip.Prefix // sorted
}

// The protocols that have ports.
const (
	tcp = 6
	udp = 17
)

// groupPrefix begins the names of groups.
const groupPrefix = "job-"

// GroupOf returns the name of the group of those who may connect to a job.
func GroupOf(job naming.Name) string {
	sum := sha256.Sum256([]byte(job.User + "/" + job.Name))
	return groupPrefix + hex.EncodeToString(sum[:8])
}

// Of returns what is to be in the kernel for the tasks of a machine. It takes time in proportion to all
// tasks of the cell if one of the machine's is guarded.
func Of(now *naming.Snapshot, claims []Claim) State {
	s := State{Guards: map[netip.Addr]string{}, Ports: map[Port]string{}, Selves: map[netip.Addr]struct{}{}, Groups: map[string]Group{}}
	var network *schema.CellNetwork
	if c := now.Cell(); c != nil {
		network = &c.Network
	}
	policies := map[naming.Name]*schema.Policy{}
	for i := range claims {
		c := &claims[i]
		p := c.Policy
		if job, ok := now.Job(c.Job.User, c.Job.Name); ok {
			p = job.Policy
		}
		if p = network.PolicyOf(p); p != nil {
			policies[c.Job] = p
		}
	}
	if len(policies) == 0 {
		return s
	}
	for i := range claims {
		if c := &claims[i]; policies[c.Job] != nil {
			s.guard(c)
		}
	}
	for i := range claims {
		if c := &claims[i]; c.Shared {
			s.share(c, policies[c.Job] != nil)
		}
	}
	for job, p := range policies {
		s.Groups[GroupOf(job)] = Group{map[netip.Addr]struct{}{}, p.Ranges()}
	}
	s.admit(now, policies)
	return s
}

// guard guards the addresses of a task.
func (s *State) guard(c *Claim) {
	for _, a := range c.Addresses {
		s.Guards[a], s.Selves[a] = GroupOf(c.Job), struct{}{}
		if c.Shared {
			s.Guards[a] = Refuse // what is nobody's port
		}
	}
}

// share guards the ports of a task that shares its network, if that is guarded.
func (s *State) share(c *Claim, guarded bool) {
	to := Admit
	if guarded {
		to = GroupOf(c.Job)
	}
	for _, a := range c.Addresses {
		if _, ok := s.Guards[a]; !ok {
			continue
		}
		for _, p := range c.Ports {
			if p.Port > 0 && p.Port < 1<<16 {
				s.Ports[Port{a, tcp, uint16(p.Port)}], s.Ports[Port{a, udp, uint16(p.Port)}] = to, to
			}
		}
	}
}

// admit adds to each group the addresses of those who may connect by a policy.
func (s *State) admit(now *naming.Snapshot, policies map[naming.Name]*schema.Policy) {
	for from := range now.Jobs() {
		for to, p := range policies {
			if !p.Admits(to.User, from.User, from.Labels) {
				continue
			}
			sources := s.Groups[GroupOf(to)].Sources
			for t := range from.Tasks() {
				for a := range own(now, t) {
					sources[a] = struct{}{}
				}
			}
		}
	}
}

// own yields the addresses that are a task's alone: those of its machine's subnets. An agent that
// claims others is not believed.
func own(now *naming.Snapshot, t *schema.DirectoryTask) func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		m, ok := now.Machine(t.Machine)
		if !ok {
			return
		}
		for a := range t.Addresses() {
			if a = a.Unmap(); slices.ContainsFunc(slices.Concat(m.Subnets, m.Leaving), func(p netip.Prefix) bool { return p.Contains(a) }) && !yield(a) {
				return
			}
		}
	}
}
