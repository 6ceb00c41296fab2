package intent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// What the history says of a commit's work on a job.

// shownFields is how many of the fields that a commit changes an event names.
const shownFields = 4

// ChangesOf says which fields of a job differ, by what that does to its tasks, most
// first: "changes task.env (restart), labels, tasks (in place)"; "" if none does, or
// the job is new.
func ChangesOf(was, next *schema.Job) string {
	if was == nil || next == nil {
		return ""
	}
	_, fields := Diff(was, next)
	if len(fields) == 0 {
		return ""
	}
	slices.SortStableFunc(fields, func(a, b FieldChange) int { return order[b.Change] - order[a.Change] })
	more := ""
	if n := len(fields) - shownFields; n > 1 {
		more, fields = fmt.Sprintf(", and %d more", n), fields[:shownFields]
	}
	var b strings.Builder
	for i, f := range fields {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(f.Field)
		if i == len(fields)-1 || fields[i+1].Change != f.Change {
			fmt.Fprintf(&b, " (%s)", f.Change)
		}
	}
	return "changes " + b.String() + more
}

// EarlierVersion begins what is said of a job that gets again what it once ran.
const EarlierVersion = "returns to a version that was rolled out before"

// GoesBack reports whether the step from one version of a job to the next is one to
// what was rolled out to completion before.
func GoesBack(r *schema.JobRecord, was, next *schema.Job) bool {
	if len(r.Proven) == 0 {
		return false
	}
	run := next.Task.RunDigest()
	return was != nil && was.Task.RunDigest() != run && slices.Contains(r.Proven, run)
}

// Sentence joins what an event says with what changes, and whose commit that is; what
// is "" is left out.
func Sentence(message string, more ...string) string {
	for _, s := range more {
		if s != "" {
			message += "; " + s
		}
	}
	return message
}
