package schema

import (
	"maps"
	"slices"
)

// Isolation says how far a task is kept from its machine and from other tasks.
type Isolation struct {
	// Require keeps the task from machines that lack any of IsolationOf.
	Require bool `json:"require"`
	// Network is "" of a container that does not say: see TaskSpec.OwnNetwork.
	Network Network `json:"network,omitempty"`
	// User gives the task a user namespace, in which there is its own user and
	// no other.
	User bool `json:"user"`
}

// Network is the network that a task sees.
type Network string

// The networks.
const (
	HostNetwork Network = "host" // the machine's
	NoNetwork   Network = "none" // its own, with lo alone
	OwnNetwork  Network = "own"  // its own, with an address of the cell's range
)

// TaskFile is a small file that a task finds in its work directory.
type TaskFile struct {
	Content string `json:"content"`
	// Writable makes its mode 0644 instead of 0444, for the task's user.
	Writable bool `json:"writable"`
	// Expand replaces $(NAME) in Content as in an environment variable.
	Expand bool `json:"expand"`
	// OnChange says what another version of it does to a task that runs, and Signal which
	// signal that is where it is one; "" is DefaultChangeSignal.
	OnChange OnChange `json:"onChange,omitempty"`
	Signal   string   `json:"signal,omitempty"`
}

// RunFiles returns the files of which another version restarts the task; nil for none.
func (s *TaskSpec) RunFiles() map[string]TaskFile {
	var run map[string]TaskFile
	for name, f := range s.Files {
		if f.OnChange.InPlace() {
			continue
		}
		if run == nil {
			run = make(map[string]TaskFile, len(s.Files))
		}
		f.OnChange, f.Signal = "", ""
		run[name] = f
	}
	return run
}

// The attributes with which a machine says what isolation it has; each is "true"
// or "false".
const (
	HasUsers        = "isolation.users"        // a user for each owner
	HasNamespaces   = "isolation.namespaces"   // pid, mount, ipc, uts
	HasSeccomp      = "isolation.seccomp"      // a filter of system calls
	HasCapabilities = "isolation.capabilities" // tasks have none
	HasCPU          = "isolation.cpu"          // CPU shares
	HasMemory       = "isolation.memory"       // a memory limit
	HasPIDs         = "isolation.pids"         // a limit on processes
	HasPorts        = "isolation.ports"        // a task binds no port but its own
	HasNetwork      = "isolation.network"      // network namespaces
	HasUser         = "isolation.user"         // user namespaces
	HasContainers   = "container"              // images, and a runtime for them: see ContainerRuntime.Attribute
)

// IsolationOf returns the attributes that must be "true" of a machine for it to
// run s: all that every task gets where it can be had, if the task requires it,
// and what the task cannot be run without. A machine that runs containers has
// namespaces for them, that of users among them.
func IsolationOf(s *TaskSpec) []string {
	var need []string
	i, contained := s.Isolation, s.Container != nil
	if contained {
		need = append(need, s.Container.Runtime.Attribute())
	}
	for i := range s.Before {
		if c := s.Before[i].Container; c != nil && !slices.Contains(need, c.Runtime.Attribute()) {
			need = append(need, c.Runtime.Attribute())
		}
	}
	if i != nil && i.Require {
		need = append(need, HasUsers, HasNamespaces, HasSeccomp, HasCapabilities, HasCPU, HasMemory, HasPIDs, HasPorts)
	} else if !contained && (s.Process.Root != "" || i != nil && (i.Network == NoNetwork || i.Network == OwnNetwork || i.User)) {
		need = append(need, HasNamespaces)
	}
	if i != nil && i.Network == NoNetwork {
		need = append(need, HasNetwork)
	}
	if i != nil && i.User && !contained {
		need = append(need, HasUser)
	}
	if len(s.Secrets) > 0 {
		need = append(need, HasSecrets)
	}
	return slices.Concat(need, capabilitiesOf(s), mountsOf(s))
}

// mountsOf is IsolationOf for what a task has at paths that it says.
func mountsOf(s *TaskSpec) []string {
	var need []string
	if len(s.Packages) > 0 {
		need = append(need, HasPackages)
	}
	if len(s.Volumes) > 0 {
		need = append(need, HasVolumes)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Volumes)) {
		if v := s.Volumes[name]; v.Shared != "" {
			has, writable := VolumeAttribute(v.Shared)
			if !v.ReadOnly {
				has = writable
			}
			need = append(need, has)
		}
	}
	return need
}

// Runsc reports whether the task, or what runs before it, is a container by runsc.
func (s *TaskSpec) Runsc() bool {
	by := func(c *Container) bool { return c != nil && c.Runtime == Runsc }
	return by(s.Container) || slices.ContainsFunc(s.Before, func(b Before) bool { return by(b.Container) })
}

// runIsolation is what of an Isolation only a restart can change.
type runIsolation struct {
	Network Network `json:"network,omitempty"`
	User    bool    `json:"user,omitempty"`
}

// run returns nil for an Isolation that is no different from none.
func (i *Isolation) run(contained bool) *runIsolation {
	if i == nil {
		return nil
	}
	r := &runIsolation{User: i.User}
	if contained || i.Network != HostNetwork { // a process has the machine's without saying so
		r.Network = i.Network
	}
	if *r == (runIsolation{}) {
		return nil
	}
	return r
}

// StickyVariable is the environment variable that holds the path of a task's
// sticky directory.
const StickyVariable = "MUSTER_STICKY_DIR"
