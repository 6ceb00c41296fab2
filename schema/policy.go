package schema

import (
	"net/netip"
	"slices"
	"strings"
)

// Policy says who may connect to the tasks of a job, which have networks of their own.
type Policy struct {
	// From are those who may. Without any, nobody may but the task itself, what else is in its
	// network, and its machine's agent.
	From []PolicyPeer `json:"from"`
}

// PolicyPeer is some of those who may connect to a task: tasks with networks of their own by
// Users and Selector, or all that is at addresses of Ranges.
type PolicyPeer struct {
	// Users own the jobs; AnyUser stands for all. None is the user of the job with the policy.
	Users []string `json:"users,omitempty"`
	// Selector picks among their jobs by labels, as that of a service does; "" is all.
	Selector string         `json:"selector,omitempty"`
	Ranges   []netip.Prefix `json:"ranges,omitempty"`
	// Ports are names of the job's ports, at which alone they may; none is all that the task listens at.
	Ports []string `json:"ports,omitempty"`
}

// AnyUser in PolicyPeer.Users is each user of the cell.
const AnyUser = "*"

// The bounds of a Policy: its peers, and the users and the ranges of each.
const (
	MaxPolicyPeers = 32
	MaxPolicyNames = 100
)

// PolicyDefault is who may connect to the tasks of a job without a policy.
type PolicyDefault string

// The defaults: everyone, which is also that of "", or nobody.
const (
	PolicyOpen   PolicyDefault = "open"
	PolicyClosed PolicyDefault = "closed"
)

// HasPolicies is the attribute that is "true" of a machine that lets only those connect to a task who
// may, by its policy.
const HasPolicies = "network.policy"

// HasPolicyPorts is the attribute that is "true" of a machine that knows Ports of a PolicyPeer: others admit at
// all ports.
const HasPolicyPorts = "network.policyPorts"

// Ports returns the names of the ports at which others are admitted than elsewhere, sorted, each once. p may be nil.
func (p *Policy) Ports() []string {
	var out []string
	if p != nil {
		for i := range p.From {
			out = append(out, p.From[i].Ports...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// At returns the part of p that is in force at a port of that name, or, with "", at all that are none of Ports.
func (p *Policy) At(port string) *Policy {
	out := &Policy{}
	for i := range p.From {
		if f := p.From[i]; len(f.Ports) == 0 || slices.Contains(f.Ports, port) {
			f.Ports = nil
			out.From = append(out.From, f)
		}
	}
	return out
}

// PolicyOf returns the policy in force of a job that declares of, which may be nil; nil if everyone
// may connect. n may be nil.
func (n *CellNetwork) PolicyOf(of *Policy) *Policy {
	if of == nil && n != nil && n.Policy == PolicyClosed {
		return &Policy{}
	}
	return of
}

// Admits reports whether p lets tasks of a user's job with labels connect to those of a job of owner, at some port
// at least.
// p may be nil, which admits all. Labels are those of the job with the cell's own.
func (p *Policy) Admits(owner, user string, labels map[string]string) bool {
	return p == nil || slices.ContainsFunc(p.From, func(f PolicyPeer) bool { return f.admits(owner, user, labels) })
}

func (f *PolicyPeer) admits(owner, user string, labels map[string]string) bool {
	switch {
	case len(f.Users) == 0 && f.Selector == "":
		return false // it has ranges alone
	case len(f.Users) == 0 && user != owner:
		return false
	case len(f.Users) > 0 && !slices.Contains(f.Users, user) && !slices.Contains(f.Users, AnyUser):
		return false
	case f.Selector == "":
		return true
	}
	s, err := ParseSelector(f.Selector)
	return err == nil && s.Matches(labels) // it was checked when it was declared
}

// Ranges returns the addresses that p admits beside those of tasks, sorted, each once.
func (p *Policy) Ranges() []netip.Prefix {
	var out []netip.Prefix
	for i := range p.From {
		out = append(out, p.From[i].Ranges...)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// String says in words who may connect.
func (p *Policy) String() string {
	if p == nil {
		return "everyone"
	}
	var all []string
	for i := range p.From {
		all = append(all, p.From[i].String())
	}
	if len(all) == 0 {
		return "nobody"
	}
	return strings.Join(all, "; ")
}

// String says in words who they are.
func (f *PolicyPeer) String() string {
	var out []string
	switch {
	case slices.Contains(f.Users, AnyUser):
		out = append(out, "tasks of all users")
	case len(f.Users) > 0:
		out = append(out, "tasks of "+strings.Join(f.Users, ", "))
	case f.Selector != "":
		out = append(out, "tasks of the same user")
	}
	if f.Selector != "" {
		out = append(out, "of jobs with "+f.Selector)
	}
	if len(f.Ranges) > 0 {
		var ranges []string
		for _, r := range f.Ranges {
			ranges = append(ranges, r.String())
		}
		out = append(out, "addresses in "+strings.Join(ranges, ", "))
	}
	if len(f.Ports) > 0 {
		out = append(out, "at port "+strings.Join(f.Ports, ", "))
	}
	return strings.Join(out, " ")
}
