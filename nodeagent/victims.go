package nodeagent

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Candidate is a task that could stop for the machine to have more of one
// resource.
type Candidate struct {
	schema.TaskRef
	Priority schema.Priority
	// Use is what of the resource would be free without the task, and Limit what
	// it may use; 0: no limit.
	Use, Limit int64
	// Leaving says that the task is ending already.
	Leaving bool
}

// over returns by how much the task is over its limit.
func (c *Candidate) over() int64 {
	if c.Limit <= 0 {
		return 0
	}
	return max(0, c.Use-c.Limit)
}

// Victims returns the tasks that have to stop for short more of a resource to be
// free, in the order in which they are to go, as few as that order allows. A prod
// task never goes before one that is not; among equals in that, those that are
// over their own limit go first, by how much they are; then those of the lowest
// priority, and among these the one that uses most. What is leaving counts as
// free. A task that uses less than least stays: stopping it would help nobody.
// The list may not suffice: then all has gone that helps.
func Victims(short, least int64, tasks []Candidate) []Candidate {
	var may []Candidate
	for _, c := range tasks {
		switch {
		case c.Leaving:
			short -= c.Use
		case c.Use >= max(least, 1):
			may = append(may, c)
		}
	}
	slices.SortFunc(may, func(a, b Candidate) int {
		return cmp.Or(
			schema.CompareBool(a.Priority.Prod(), b.Priority.Prod()),
			schema.CompareBool(a.over() == 0, b.over() == 0),
			cmp.Compare(b.over(), a.over()),
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(b.Use, a.Use),
			a.TaskRef.Compare(b.TaskRef),
		)
	})
	n := 0
	for n < len(may) && short > 0 {
		short -= may[n].Use
		n++
	}
	return may[:n]
}
