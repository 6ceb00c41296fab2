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
	Index     int
	Addresses []netip.Addr
	// Shared says that other tasks may be in its network; Ports are what it has there.
	Shared bool
	Ports  schema.Ports
	// Policy is that with which it was started, and counts until the directory knows the task, unless
	// the job has one there already: before, the directory may be older than the policy.
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
	// Ports come before Guards, for addresses that tasks share, which may have Admit, too, and for ports that policies name.
	Ports map[Port]string
	// Selves are addresses that may connect to themselves: all of Guards.
	Selves map[netip.Addr]struct{}
	Groups map[string]Group

	policies map[naming.Name]*schema.Policy // of the jobs that have Groups
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

// GroupOf returns the name of the group of those who may connect to a job, at a port of that name; "" is at all ports
// that its policy does not name.
func GroupOf(job naming.Name, port string) string {
	text := job.User + "/" + job.Name
	if port != "" {
		text += "/" + port
	}
	sum := sha256.Sum256([]byte(text))
	return groupPrefix + hex.EncodeToString(sum[:8])
}

// Guarded reports whether not everyone may connect to one of some addresses.
func Guarded(now *naming.Snapshot, claims []Claim, at []netip.Addr) bool {
	return slices.ContainsFunc(claims, func(c Claim) bool {
		return slices.ContainsFunc(c.Addresses, func(a netip.Addr) bool { return slices.Contains(at, a) }) && c.policy(now) != nil
	})
}

// Of returns what is to be in the kernel for the tasks of a machine. It takes time in proportion to all tasks of the
// cell if there is a job among theirs that has a policy; a Follower does not.
func Of(now *naming.Snapshot, claims []Claim) State {
	var f Follower
	s, _ := f.Next(now, claims)
	return s
}

// guarding returns what is to be in the kernel but for groups, with the policies that these follow from.
func guarding(now *naming.Snapshot, claims []Claim) State {
	policies := map[naming.Name]*schema.Policy{}
	guarded := make([]bool, len(claims))
	for i := range claims {
		if p := claims[i].policy(now); p != nil {
			policies[claims[i].Job], guarded[i] = p, true
		}
	}
	s := State{Guards: map[netip.Addr]string{}, Ports: map[Port]string{}, Selves: map[netip.Addr]struct{}{}, Groups: map[string]Group{}, policies: policies}
	for i := range claims {
		if guarded[i] {
			s.guard(&claims[i])
		}
	}
	for i := range claims {
		switch c := &claims[i]; {
		case !guarded[i] && c.Shared:
			s.ports(c, func(string) string { return Admit })
		case guarded[i]:
			named := policies[c.Job].Ports()
			s.ports(c, func(port string) string {
				switch {
				case slices.Contains(named, port):
					return GroupOf(c.Job, port)
				case c.Shared:
					return GroupOf(c.Job, "")
				}
				return "" // as all others
			})
		}
	}
	return s
}

// groupsOf returns the ports for which a policy has groups, with "" for all others.
func groupsOf(p *schema.Policy) []string { return append([]string{""}, p.Ports()...) }

// policy returns the policy in force for a task; nil if everyone may connect.
func (c *Claim) policy(now *naming.Snapshot) *schema.Policy {
	var network *schema.CellNetwork
	if cell := now.Cell(); cell != nil {
		network = &cell.Network
	}
	if job, ok := now.Job(c.Job.User, c.Job.Name); ok && (job.Policy != nil || c.listed(now)) {
		return network.PolicyOf(job.Policy)
	}
	return network.PolicyOf(c.Policy)
}

// listed reports whether the directory knows the task where it is.
func (c *Claim) listed(now *naming.Snapshot) bool {
	t, ok := now.Task(c.Job.User, c.Job.Name, c.Index)
	return ok && slices.ContainsFunc(c.Addresses, t.At)
}

// guard guards the addresses of a task.
func (s *State) guard(c *Claim) {
	for _, a := range c.Addresses {
		s.Guards[a], s.Selves[a] = GroupOf(c.Job, ""), struct{}{}
		if c.Shared {
			s.Guards[a] = Refuse // what is nobody's port
		}
	}
}

// ports guards the ports of a task whose network is guarded, each as to says of its name; "" is as the address.
func (s *State) ports(c *Claim, to func(port string) string) {
	for _, a := range c.Addresses {
		if _, ok := s.Guards[a]; !ok {
			continue
		}
		for _, p := range c.Ports {
			if to := to(p.Name); to != "" && p.Port > 0 && p.Port < 1<<16 {
				s.Ports[Port{a, tcp, uint16(p.Port)}], s.Ports[Port{a, udp, uint16(p.Port)}] = to, to
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
