package runtime

// Guard is a part of a task's isolation that a test can take away.
type Guard int

// The guards.
const (
	Namespaces Guard = iota
	Users
	Seccomp
	Ports
	Scope
)

// Without takes guards away, so that it is seen what they are good for.
func (r *Runtime) Without(guards ...Guard) {
	for _, g := range guards {
		switch g {
		case Namespaces:
			r.sees.isolation.namespaces = false
		case Users:
			r.users = false
		case Seccomp:
			r.sees.isolation.filter = nil
		case Ports:
			r.ports = false
		case Scope:
			r.sees.isolation.scoped = false
		}
	}
}

// Filter is the filter of tasks, for the architecture of the test.
var Filter = seccompFilter

// Cgroups returns the cgroups of p.
func (p *Process) Cgroups() []string { return p.handle.Spec.Cgroups }

// LogLimits is how much of a task's output is kept.
var LogLimits = logLimits

// Denied are the system calls that no task may make, whatever the arguments.
var Denied = denied

// VolumePath returns the directory of a shared volume.
func (r *Runtime) VolumePath(name string) string { return r.stock.volumes[name].Path }
