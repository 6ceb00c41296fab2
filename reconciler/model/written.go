package model

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// jobLog is the jobs whose documents Apply has replaced, in order, as far back as is kept.
type jobLog struct {
	first int // how many came before those of names
	names []schema.JobName
}

// keptWrites is how many names a jobLog keeps at least, beside two for each job.
const keptWrites = 1024

func (l *jobLog) add(name schema.JobName, jobs int) {
	if most := keptWrites + 2*jobs; len(l.names) >= 2*most {
		l.first += len(l.names) - most
		l.names = slices.Clone(l.names[len(l.names)-most:])
	}
	l.names = append(l.names, name)
}

// since returns the names after the first last of all, and how many there are by now; it
// is not ok if some of them are not kept any more.
func (l *jobLog) since(last int) (names []schema.JobName, next int, ok bool) {
	next = l.first + len(l.names)
	if last < l.first {
		return nil, next, false
	}
	return l.names[last-l.first:], next, true
}
