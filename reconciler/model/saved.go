package model

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/schema"
)

// DocumentsOf yields what the store holds of s, of the kinds that this release knows: Load
// makes the same State of it. What a later release wrote into a document is in it.
func DocumentsOf(s *State) iter.Seq[Write] {
	return func(yield func(Write) bool) {
		for key, v := range documentsOf(s) {
			if !yield(s.Document(key, v)) {
				return
			}
		}
	}
}

// documentsOf yields keys and what is stored there.
func documentsOf(s *State) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		_ = singlesOf(s, yield) &&
			each(s.Packages, func(d schema.Digest) string { return KeyPackage + string(d) }, yield) &&
			each(s.Data, func(d schema.Digest) string { return KeyData + string(d) }, yield) &&
			each(s.Machines, func(name string) string { return KeyMachine + name }, yield) &&
			each(s.Jobs, func(name schema.JobName) string { return KeyJob + name.Short() }, yield) &&
			each(s.Chunks, func(c ChunkName) string { return KeyChunk + c.Job.Short() + "/" + strconv.Itoa(c.Number) }, yield) &&
			each(s.Suspensions, func(name string) string { return KeySuspend + name }, yield) &&
			each(s.Restarts, func(name string) string { return KeyRestart + name }, yield) &&
			each(s.Services, func(name string) string { return KeyService + name }, yield)
	}
}

// singlesOf yields the documents of which there is one at most.
func singlesOf(s *State, yield func(string, any) bool) bool {
	return yield(KeyCounter, s.Counter) && yield(KeyHead, s.Head) && yield(KeyGone, s.Gone) &&
		(s.Loss.Empty() || yield(KeyLoss, s.Loss)) &&
		(s.Moves.Empty() || yield(KeyMoves, s.Moves)) &&
		(s.Secrets == schema.SecretsRecord{} || yield(KeySecrets, s.Secrets)) &&
		(s.Restored == nil || yield(KeyRestored, s.Restored))
}

func each[K comparable, V any](m map[K]*V, key func(K) string, yield func(string, any) bool) bool {
	for k, v := range m {
		if !yield(key(k), v) {
			return false
		}
	}
	return true
}

// SavedMachine is what is observed of a machine, as it is kept in a checkpoint.
type SavedMachine struct {
	Name string `json:"name"`
	// Report is what the machine said last, and At when; nil if it has said nothing to the
	// master.
	Report *schema.Report `json:"report,omitempty"`
	At     time.Time      `json:"at,omitzero"`
	// Since is ReportedTask.Since of the tasks of Report, in their order.
	Since []time.Time `json:"since,omitempty"`
	// Usage is what it said last of what it uses, and UsedAt when.
	Usage  *schema.MachineUsage `json:"usage,omitempty"`
	UsedAt time.Time            `json:"usedAt,omitzero"`
	// Content are the images and packages that it holds, sorted.
	Content []schema.Digest `json:"content,omitempty"`
	// Refused says why it may not join, "" if it may.
	Refused string `json:"refused,omitempty"`
}

// SavedOf yields what is observed of each machine, by name. Nothing of it may be written to.
func SavedOf(o *Observed) iter.Seq[SavedMachine] {
	names := map[string]bool{}
	for name := range o.machines {
		names[name] = true
	}
	for name := range o.usage {
		names[name] = true
	}
	for name := range o.refused {
		names[name] = true
	}
	return func(yield func(SavedMachine) bool) {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if !yield(savedOf(o, name)) {
				return
			}
		}
	}
}

func savedOf(o *Observed, name string) SavedMachine {
	m := SavedMachine{Name: name, Content: o.contents[name].digests, Refused: o.refused[name]}
	if h := o.machines[name]; h != nil {
		m.Report, m.At = &h.Report, h.at
		for i := range h.Report.Tasks {
			m.Since = append(m.Since, h.Task(h.Report.Tasks[i].Generation).Since)
		}
	}
	if u, ok := o.usage[name]; ok {
		m.Usage, m.UsedAt = u.Usage, u.At
	}
	return m
}

// ObservedOf returns what a master knew that has listened since a time, of what SavedOf had of
// it. It is what readers need; a master that goes on from it would take the time in between
// for silence.
func ObservedOf(machines []SavedMachine, since time.Time) *Observed {
	o := NewObserved(since)
	for i := range machines {
		m := &machines[i]
		if m.Report != nil {
			o.AddReport(*m.Report, m.At)
			h := o.machines[m.Report.Machine.Name]
			for i := range h.tasks {
				for j := range m.Report.Tasks {
					if j < len(m.Since) && m.Report.Tasks[j].Generation == h.tasks[i].generation {
						h.tasks[i].Since = m.Since[j]
					}
				}
			}
		}
		if len(m.Content) > 0 {
			o.ChangeContent(m.Name, &schema.ContentChange{Added: m.Content})
		}
		if m.Usage != nil {
			o.AddUsage(m.Usage, m.UsedAt)
		}
		if m.Refused != "" {
			o.refused[m.Name] = m.Refused
		}
	}
	return o
}
