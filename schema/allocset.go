package schema

import "strconv"

// AllocSet is what its owner declared: a named set of identical allocs. An
// alloc is an amount of resources that is reserved on one machine, whether it
// is used or not; the tasks of jobs that name the set run inside (Borg §2.4).
type AllocSet struct {
	Name     string   `json:"name"`
	User     string   `json:"user"`
	Cell     string   `json:"cell"`
	Priority Priority `json:"priority"` // also of the tasks inside
	Allocs   int      `json:"allocs"`   // 0 to MaxTasks
	// Labels and Annotations are as those of a Job.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Constraints, AnyOf, Tolerations, Preferences and Spread say where allocs are placed.
	Constraints []Constraint  `json:"constraints,omitempty"`
	AnyOf       []Alternative `json:"anyOf,omitempty"`
	Tolerations []Toleration  `json:"tolerations,omitempty"`
	Preferences []Preference  `json:"preferences,omitempty"`
	// Affinity and AntiAffinity are as those of a Job.
	Affinity     []Affinity `json:"affinity,omitempty"`
	AntiAffinity []Affinity `json:"antiAffinity,omitempty"`
	Spread       *Spread    `json:"spread,omitempty"`
	// Resources are what each alloc reserves: the tasks inside have no more
	// than that together.
	Resources Resources   `json:"resources"`
	Update    AllocUpdate `json:"update"`
	// Disruption is as that of a Job.
	Disruption *Disruption `json:"disruption,omitempty"`
	// Preemptible and Prune are as those of a Job. An alloc is evicted with all that runs inside.
	Preemptible *bool `json:"preemptible,omitempty"`
	Prune       *bool `json:"prune,omitempty"`
}

// AllocUpdate bounds what a change of an alloc set may do at once: its fields are
// as those of an UpdatePolicy.
type AllocUpdate struct {
	MaxParallel       int `json:"maxParallel"`
	MinHealthySeconds int `json:"minHealthySeconds"`
}

// ID returns the set's full name. Jobs and alloc sets share one
// namespace, since a task and an alloc are addressed alike.
func (s *AllocSet) ID() JobName { return JobName{Cell: s.Cell, User: s.User, Job: s.Name} }

// Job returns the set as a job of kind Allocs, whose tasks are the allocs. From
// admission to the machine an alloc is such a task: it is placed, moved,
// evicted and reported like any other, and only its machine treats it otherwise.
func (s *AllocSet) Job() *Job {
	return &Job{
		Name: s.Name, User: s.User, Cell: s.Cell, Kind: Allocs, Priority: s.Priority, Tasks: s.Allocs,
		Labels: s.Labels, Annotations: s.Annotations, Constraints: s.Constraints, AnyOf: s.AnyOf, Preferences: s.Preferences, Spread: s.Spread,
		Tolerations: s.Tolerations, Affinity: s.Affinity, AntiAffinity: s.AntiAffinity,
		Task: TaskSpec{Resources: TaskResources{Resources: s.Resources}}, Update: UpdatePolicy{MaxParallel: s.Update.MaxParallel, MinHealthySeconds: s.Update.MinHealthySeconds}, Disruption: s.Disruption, Prune: s.Prune,
		Staying: Staying{Preemptible: s.Preemptible},
	}
}

// AllocUse says in which alloc a generation of a task runs: that of a set of
// the same user and cell. Another generation of the alloc is another alloc.
type AllocUse struct {
	Set        string `json:"set"`
	Index      int    `json:"index"`
	Generation uint64 `json:"generation"`
}

// Of returns the alloc's name. task is the task that runs inside.
func (u *AllocUse) Of(task JobName) TaskName {
	return JobName{Cell: task.Cell, User: task.User, Job: u.Set}.Task(u.Index)
}

// HostSet returns the alloc set inside whose allocs the job's tasks run; false
// if they run on machines themselves.
func (j *Job) HostSet() (JobName, bool) {
	return JobName{Cell: j.Cell, User: j.User, Job: j.AllocSet}, j.AllocSet != ""
}

// The environment variables of a task that runs in an alloc.
const (
	// AllocVariable holds the alloc's set and index, as in pair/0.
	AllocVariable = "MUSTER_ALLOC"
	// AllocDirVariable holds the directory that the tasks of the alloc share.
	AllocDirVariable = "MUSTER_ALLOC_DIR"
)

// String returns set/index.
func (u *AllocUse) String() string { return u.Set + "/" + strconv.Itoa(u.Index) }
