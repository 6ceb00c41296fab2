package runtime

import "github.com/musterhq/muster/nodeagent"

// GroupsName lets tests find what a Runtime may leave behind.
var GroupsName = groupsName

// Guard is a part of a task's isolation that a test can take away.
type Guard int

// The guards.
const (
	Namespaces Guard = iota
	Users
	Seccomp
	Ports
)

// Without takes guards away, so that it is seen what they are good for.
func (r *Runtime) Without(guards ...Guard) {
	for _, g := range guards {
		switch g {
		case Namespaces:
			r.isolation.namespaces = false
		case Users:
			r.users = nil
		case Seccomp:
			r.isolation.filter = nil
		case Ports:
			r.can.has[portRules] = false
		}
	}
}

// Filter is the filter of tasks, for the architecture of the test.
var Filter = seccompFilter

// Cgroups returns the cgroups of p.
func (p *Process) Cgroups() []string { return p.handle.Spec.Cgroups }

// ParseCores lets tests read the kernel's lists of cores.
var ParseCores = parseCores

// ShareUnified has cgroups v2 in dir give a task its share of a disk.
func ShareUnified(dir, disk string, l nodeagent.TaskLimits) error {
	g := &unified{mount: dir, has: map[string]bool{ioController: true}}
	return g.share("task", disk, l)
}
