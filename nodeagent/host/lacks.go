package host

import (
	"slices"
	"strings"
)

// Lacks are what a machine has not, in words. The zero value is nothing.
type Lacks struct {
	notes []string
	tasks []string // what each task is without
}

// Machine notes what is lacking for some tasks, or for what is beside them.
func (l *Lacks) Machine(note string) {
	l.notes = append(l.notes, strings.ReplaceAll(note, "\n", "; "))
}

// Task notes that each task is without what.
func (l *Lacks) Task(what, note string) {
	l.Machine(note)
	l.tasks = append(l.tasks, what)
}

// And returns what l lacks, and then what more does.
func (l *Lacks) And(more *Lacks) *Lacks {
	return &Lacks{notes: slices.Concat(l.notes, more.notes), tasks: slices.Concat(l.tasks, more.tasks)}
}

// Notes returns a line about each thing that the machine lacks.
func (l *Lacks) Notes() []string { return slices.Clone(l.notes) }

// OfTask returns in a few words what each task is without, "" for nothing.
func (l *Lacks) OfTask() string {
	if len(l.tasks) == 0 {
		return ""
	}
	return "without " + strings.Join(l.tasks, ", ")
}
