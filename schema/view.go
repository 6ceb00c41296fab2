package schema

import (
	"iter"
	"slices"
)

// MaxJobData is how large the data of a job may be to be sent, in bytes of its canonical
// form: the link carries it in one message. No agent can have data that is larger.
const MaxJobData = 16<<20 - 128

// View is what a master sends a machine, whole: it replaces the one before. Master, link,
// relay and agent pass it on as it is. It is not written to once it has been handed on.
type View struct {
	// Epoch is that of the session in which it is sent, and Version counts within that: it
	// is set anew by each who counts. Both are 0 while it has not been sent.
	Epoch   uint64 `json:"epoch"`
	Version uint64 `json:"version"`
	// Assignments are all that the machine has, sorted by task and generation.
	Assignments []Assignment `json:"assignments"`
	// Secrets are those that the jobs of Assignments name and those of Registries, by their
	// versions, as the machine was sent them: nobody else can open them. Only an agent's view
	// has any.
	Secrets map[string]MachineSecret `json:"secrets,omitempty"`
	// Registries are those that what Assignments need may come from, sorted by name, as far
	// as the cell says something of them.
	Registries []Registry `json:"registries,omitempty"`
}

// Needs returns those of secrets that the jobs of v name, or its registries; nil if that is none.
func (v *View) Needs(secrets map[string]MachineSecret) map[string]MachineSecret {
	var need map[string]MachineSecret
	add := func(s *SealedSecret) {
		if has, ok := secrets[s.Version]; ok {
			if need == nil {
				need = map[string]MachineSecret{}
			}
			need[s.Version] = has
		}
	}
	for _, job := range v.Jobs() {
		for _, s := range job.Task.Secrets {
			if s.Sealed != nil {
				add(s.Sealed)
			}
		}
	}
	for _, s := range v.Logins {
		add(s)
	}
	return need
}

// MachineSecret is a secret as it is sent to a machine.
type MachineSecret struct {
	// Sealed is an armored age file for the machine alone.
	Sealed string `json:"sealed,omitempty"`
	// Refused says why the master could not seal it; "" if it has.
	Refused string `json:"refused,omitempty"`
}

// Newer reports whether v replaces o, which may be nil.
func (v *View) Newer(o *View) bool {
	return o == nil || v.Epoch > o.Epoch || v.Epoch == o.Epoch && v.Version > o.Version
}

// Find returns the assignment of a generation of a task; nil if v, which may be nil,
// has none. What is there is found by a search, if v is sorted.
func (v *View) Find(task TaskName, generation uint64) *Assignment {
	if v == nil {
		return nil
	}
	of := TaskRef{Task: task, Generation: generation}
	if i, ok := slices.BinarySearchFunc(v.Assignments, of, func(a Assignment, of TaskRef) int {
		return TaskRef{Task: a.Task, Generation: a.Generation}.Compare(of)
	}); ok {
		return &v.Assignments[i]
	}
	for i := range v.Assignments {
		if a := &v.Assignments[i]; a.Task == task && a.Generation == generation {
			return a
		}
	}
	return nil
}

// Jobs yields the data that v refers to, each once: it is sent and kept beside the view,
// since many tasks share it.
func (v *View) Jobs() iter.Seq2[Digest, *Job] {
	return func(yield func(Digest, *Job) bool) {
		seen := make(map[Digest]bool, len(v.Assignments))
		for i := range v.Assignments {
			a := &v.Assignments[i]
			if seen[a.Data] {
				continue
			}
			seen[a.Data] = true
			if !yield(a.Data, a.Job) {
				return
			}
		}
	}
}
