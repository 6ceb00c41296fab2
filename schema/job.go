package schema

import (
	"maps"
	"time"
)

// JobKind says how long a job's tasks live.
type JobKind string

// The kinds of job.
const (
	Service JobKind = "service" // runs until it is removed
	Batch   JobKind = "batch"   // each index runs until it exits 0
	System  JobKind = "system"  // one task on each eligible machine
	// Allocs is the kind of an AllocSet as a job. No job is declared with it.
	Allocs JobKind = "allocset"
)

// AppClass says how a machine treats a task when its processors are short. It is
// not the priority: that decides who gets a place.
type AppClass string

// The classes.
const (
	ClassLatencySensitive AppClass = "latency-sensitive" // someone waits for its answers
	ClassBatch            AppClass = "batch"             // slower is no harm
)

// MaxTasks is the most tasks one job may have.
const MaxTasks = 100_000

// Job is what its owner declared: a named set of identical tasks.
type Job struct {
	Name string  `json:"name"`
	User string  `json:"user"`
	Cell string  `json:"cell"`
	Kind JobKind `json:"kind"`
	// AllocSet is the alloc set, of the same user and cell, inside whose allocs
	// the tasks run; "" for none. The job then has the set's priority, and
	// takes no quota: the set has.
	AllocSet string            `json:"allocset,omitempty"`
	Priority Priority          `json:"priority"`
	AppClass AppClass          `json:"appclass,omitempty"` // "" is by Kind: see Class
	Tasks    int               `json:"tasks"`              // 0 to MaxTasks; 0 for System, whose number is that of machines
	Labels   map[string]string `json:"labels,omitempty"`
	// Annotations are free text for tools; muster shows them and acts on none.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Constraints must all hold of a machine for it to get a task.
	Constraints []Constraint `json:"constraints,omitempty"`
	// AnyOf are alternatives of which one at least must hold as well, if there are any.
	AnyOf []Alternative `json:"anyOf,omitempty"`
	// Tolerations are taints of machines that do not keep its tasks away.
	Tolerations []Toleration `json:"tolerations,omitempty"`
	Preferences []Preference `json:"preferences,omitempty"`
	// Affinity and AntiAffinity say near which tasks those of the job are placed, and near
	// which not.
	Affinity     []Affinity `json:"affinity,omitempty"`
	AntiAffinity []Affinity `json:"antiAffinity,omitempty"`
	Spread       *Spread    `json:"spread,omitempty"` // nil: over racks
	// Together says that all tasks get places, or none, and that when one is preempted
	// all are.
	Together bool `json:"together,omitempty"`
	// Gang says the same of all tasks of all jobs of the user in the cell that name the same
	// gang; "" for none. Together is then false.
	Gang string `json:"gang,omitempty"`
	Staying
	Task   TaskSpec     `json:"task"`
	Update UpdatePolicy `json:"update"`
	// Silence says what becomes of tasks on machines that say nothing; nil: they
	// are rescheduled when the cell gives the machine up.
	Silence    *Silence    `json:"silence,omitempty"`
	Disruption *Disruption `json:"disruption,omitempty"` // nil: Update.MaxParallel alone
	// Prune false keeps the job when it is removed from the repository, or scaled
	// to 0; nil is true.
	Prune *bool `json:"prune,omitempty"`
	// Policy says who may connect to the tasks; nil: see CellNetwork.PolicyOf.
	Policy *Policy `json:"policy,omitempty"`
}

// Staying says what running tasks of a job are not stopped for, where the cell or others would be
// better off without.
type Staying struct {
	// Rebalance false keeps running tasks from being moved to make the cell better; nil is
	// true.
	Rebalance *bool `json:"rebalance,omitempty"`
	// Preemptible false keeps running tasks from being evicted for tasks of higher priority;
	// nil is true. See Tenant.NonPreemptibleTasks.
	Preemptible *bool `json:"preemptible,omitempty"`
}

// Moved reports whether running tasks of the job may be moved to make the cell better.
func (s *Staying) Moved() bool { return s.Rebalance == nil || *s.Rebalance }

// NeverPreempted reports whether no running task of the job is evicted for one of higher priority.
func (s *Staying) NeverPreempted() bool { return s.Preemptible != nil && !*s.Preemptible }

// ID returns the job's full name.
func (j *Job) ID() JobName { return JobName{Cell: j.Cell, User: j.User, Job: j.Name} }

// AllLabels returns the labels by which selectors pick the job: its own, and those that
// begin with OwnLabels. The band is missing if the priority's name is not known yet.
func (j *Job) AllLabels() map[string]string {
	out := make(map[string]string, len(j.Labels)+4)
	maps.Copy(out, j.Labels)
	out[LabelUser], out[LabelJob], out[LabelKind] = j.User, j.Name, string(j.Kind)
	if j.Priority != PriorityNamed {
		out[LabelBand] = string(j.Priority.Band())
	}
	return out
}

// Class returns how machines treat the job's tasks: what it says, and else batch
// for a job of kind Batch and latency-sensitive for all others.
func (j *Job) Class() AppClass {
	switch {
	case j.AppClass != "":
		return j.AppClass
	case j.Kind == Batch:
		return ClassBatch
	}
	return ClassLatencySensitive
}

// Runnable reports whether there is something to run: a command, an image (which may
// have a command of its own), or an alloc to make.
func (j *Job) Runnable() bool {
	return j.Kind == Allocs || j.Task.Container != nil || len(j.Task.Process.Command) > 0
}

// Gathers reports whether its tasks get places together or not at all.
func (j *Job) Gathers() bool { return j.Together || j.Gang != "" }

// Kept reports whether the job says prune: false.
func (j *Job) Kept() bool { return j.Prune != nil && !*j.Prune }

// TaskSpec says what one task runs and what it may use.
type TaskSpec struct { //nolint:recvcheck // a value is written as a pointer to it is
	Process Process `json:"process"` // of no use beside Container
	// Container is what the task runs in place of a Process; nil for none.
	Container *Container        `json:"container,omitempty"`
	Resources TaskResources     `json:"resources"`
	Env       map[string]string `json:"env,omitempty"`
	// Before run to completion before the task, in order, at each of its starts.
	Before []Before `json:"before,omitempty"`
	// GraceSeconds is the time from SIGTERM to SIGKILL, 0 to 3600.
	GraceSeconds int        `json:"graceSeconds"`
	Stop         *Stop      `json:"stop,omitempty"` // nil: by the signal alone
	Health       *Health    `json:"health,omitempty"`
	Restart      *Restart   `json:"restart,omitempty"`   // nil: the defaults of its fields
	Exceed       *Exceed    `json:"exceed,omitempty"`    // nil: CPU only
	Logs         *Logs      `json:"logs,omitempty"`      // nil: their defaults
	Limits       *Limits    `json:"limits,omitempty"`    // nil: their defaults
	Isolation    *Isolation `json:"isolation,omitempty"` // nil: what the machine gives, with its network
	// Capabilities are those of Linux; nil: those of its way of running.
	Capabilities *Capabilities `json:"capabilities,omitempty"`
	// Files are put into the task's work directory before each of its starts,
	// by their path in it.
	Files map[string]TaskFile `json:"files,omitempty"`
	// Secrets are what the task may know, by the names of Secrets of the job's user
	// and cell.
	Secrets map[string]TaskSecret `json:"secrets,omitempty"`
	// Sticky gives the task a directory that outlives its generations on the
	// same machine; it finds it in StickyVariable.
	Sticky Sticky `json:"sticky,omitempty"`
	// Packages are archives, unpacked, and Volumes directories, by their names.
	Packages []TaskPackage         `json:"packages,omitempty"`
	Volumes  map[string]TaskVolume `json:"volumes,omitempty"`
}

// MarshalJSON leaves out the Process of a container. Any other is written, though it
// may be empty: data of alloc sets is stored under the digest of that form.
func (s TaskSpec) MarshalJSON() ([]byte, error) {
	type spec TaskSpec // without this method
	if s.Container == nil {
		return encode(spec(s)), nil
	}
	return encode(struct {
		spec
		Process *Process `json:"process,omitempty"`
	}{spec: spec(s)}), nil
}

// Logs bound what is kept of each output of each run of a task.
type Logs struct {
	// MaxBytes is the size of one file, 64 KiB to 1 GiB.
	MaxBytes int64 `json:"maxBytes"`
	// Files is how many of them are kept, 2 to 100.
	Files int `json:"files"`
}

// The defaults of Logs: 32 MiB a run, stdout and stderr together.
const (
	DefaultLogBytes = 4 << 20
	DefaultLogFiles = 4
)

// Process is a command run on the machine itself. Command[0] is an absolute
// path or is looked up in the task's PATH; $(NAME) is expanded (see Expand).
type Process struct {
	Command []string `json:"command"`
	// Root is the directory of the machine that is the task's root directory,
	// read-only; "" is the machine's own.
	Root string `json:"root,omitempty"`
}

// Before is one of the commands that run to completion before a task, in order. It has
// all that the task has: limits, environment, files, directories.
type Before struct {
	// Process or Container is what is run.
	Process   *Process   `json:"process,omitempty"`
	Container *Container `json:"container,omitempty"`
	// TimeoutSeconds is how long it may run, 1 to 86400; 0 is no bound.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// MaxBefore is the most commands that a task can have before it.
const MaxBefore = 16

// Timeout is how long b may run; 0 is no bound.
func (b *Before) Timeout() time.Duration { return time.Duration(b.TimeoutSeconds) * time.Second }

// TaskResources is the limit of one task: what it may use at most.
type TaskResources struct {
	Resources
	// Ports are names; the cell chooses a number for each and the task finds
	// it in MUSTER_PORT_<NAME>.
	Ports []string `json:"ports,omitempty"`
	// PortNumbers asks for numbers, by the names of Ports: such a port has this
	// number on whatever machine, or the task is not placed there.
	PortNumbers map[string]int `json:"portNumbers,omitempty"`
	// Devices are countable things, by kind; the task finds the indices of
	// those that it got in MUSTER_DEVICE_<KIND>.
	Devices map[string]DeviceAsk `json:"devices,omitempty"`
	// FirstOf are alternatives, in the order in which they are preferred: beside Devices, the task
	// gets on a machine what the first of them asks for of which there is enough there. nil for none.
	FirstOf []ResourceAlternative `json:"firstOf,omitempty"`
	// WholeCores gives the task cores of its own, CPUMilli of them, which is
	// then a multiple of CoreMilli.
	WholeCores bool `json:"wholeCores,omitempty"`
}

// Grace is the time from the beginning of a stop to SIGKILL.
func (s *TaskSpec) Grace() time.Duration { return time.Duration(s.GraceSeconds) * time.Second }

// CoreMilli is one whole core in CPUMilli.
const CoreMilli = 1000

// RunDigest is the digest of the fields of s that only a restart of the task
// can change; two specs with the same RunDigest differ in place at most, where
// the machine has the room.
func (s *TaskSpec) RunDigest() Digest {
	resources := s.Resources
	resources.Resources = Resources{}
	return DigestOf(struct {
		Process   Process               `json:"process"`
		Container *Container            `json:"container,omitempty"`
		Resources TaskResources         `json:"resources"`
		Env       map[string]string     `json:"env,omitempty"`
		Limits    *runLimits            `json:"limits,omitempty"`
		Isolation *runIsolation         `json:"isolation,omitempty"`
		Files     map[string]TaskFile   `json:"files,omitempty"`
		Sticky    bool                  `json:"sticky,omitempty"`
		Packages  map[string]Digest     `json:"packages,omitempty"`
		Volumes   map[string]TaskVolume `json:"volumes,omitempty"`
		Secrets   map[string]runSecret  `json:"secrets,omitempty"`
		Signal    string                `json:"stopSignal,omitempty"`
		Before    []Before              `json:"before,omitempty"`
		Capable   *Capabilities         `json:"capabilities,omitempty"`
	}{s.Process, s.Container, resources, s.Env, s.Limits.run(), s.Isolation.run(s.Container != nil), s.RunFiles(), s.Sticky.Has(), s.PackagePaths(), s.Volumes, runSecrets(s.Secrets), s.Stop.SignalName(), s.Before, s.Capabilities})
}

// PackagePaths returns what the task finds at which path, whatever it is called and
// wherever it comes from; nil without packages.
func (s *TaskSpec) PackagePaths() map[string]Digest {
	if len(s.Packages) == 0 {
		return nil
	}
	paths := make(map[string]Digest, len(s.Packages))
	for i := range s.Packages {
		paths[s.Packages[i].Path] = s.Packages[i].Digest
	}
	return paths
}

// Mounts reports whether the task has anything at paths that it says.
func (s *TaskSpec) Mounts() bool { return len(s.Packages)+len(s.Volumes) > 0 }

// Exceed says of which resources a task may use more than its limit while the
// machine has some that nobody else was promised.
type Exceed struct {
	CPU bool `json:"cpu"`
	RAM bool `json:"ram"`
}

// Exceeds returns what the task may use above its limit.
func (s *TaskSpec) Exceeds() Exceed {
	if s.Exceed == nil {
		return Exceed{CPU: true}
	}
	return *s.Exceed
}

// OwnNetwork reports whether the next generation of a task of j has a network of its own, in a
// cell with that network, nil if it has none: one that says so has, and in a cell with addresses
// for tasks a container that says nothing, unless it is in an alloc, or has numbers of ports of its
// machine.
func (j *Job) OwnNetwork(of *CellNetwork) bool {
	var n Network
	if j.Task.Isolation != nil {
		n = j.Task.Isolation.Network
	}
	return n == OwnNetwork || n == "" && of.HasAddresses() && j.Task.Container != nil &&
		j.AllocSet == "" && len(j.Task.Resources.PortNumbers) == 0
}

// FirstOwnPort is the first port that is given to a name of a task with a network of its own.
const FirstOwnPort = 20000

// OwnPorts returns the ports of a task of j that has a network of its own: the numbers that it
// asks for, and for others those from FirstOwnPort on, in the order of their names in the job,
// as far as they are not among those that others have in that network.
func (j *Job) OwnPorts(others []int) Ports {
	r := &j.Task.Resources
	taken := map[int]bool{}
	for _, n := range others {
		taken[n] = true
	}
	for _, n := range r.PortNumbers {
		taken[n] = true
	}
	next := FirstOwnPort
	out := make([]Port, 0, len(r.Ports))
	for _, name := range r.Ports {
		number, ok := r.PortNumbers[name]
		if !ok {
			for taken[next] {
				next++
			}
			number, taken[next] = next, true
		}
		out = append(out, Port{Name: name, Port: number})
	}
	return NewPorts(out...)
}
