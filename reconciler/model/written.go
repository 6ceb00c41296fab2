package model

import "slices"

// Log is names of what has changed, in order, as far back as is kept. Readers keep how
// many there were when they looked last. A copy of a Log stays as it is when names are
// added to the other. The zero value is empty.
type Log[K any] struct {
	first int // how many came before those of names
	names []K
}

// keptNames is how many names a Log keeps at least, beside two for each thing that there is.
const keptNames = 1024

// Add adds a name; things is how many there are that may have one.
func (l *Log[K]) Add(name K, things int) {
	if most := keptNames + 2*things; len(l.names) >= 2*most {
		l.first += len(l.names) - most
		l.names = slices.Clone(l.names[len(l.names)-most:])
	}
	l.names = append(l.names, name)
}

// Reset says that anything may have changed: nothing from before is known to any reader.
func (l *Log[K]) Reset() {
	l.first, l.names = l.first+len(l.names)+1, nil
}

// Since returns the names after the first last of all, and how many there are by now; it
// is not ok if some of them are not kept any more, or last is of a later Log.
func (l *Log[K]) Since(last int) (names []K, next int, ok bool) {
	next = l.first + len(l.names)
	if last < l.first || last > next {
		return nil, next, false
	}
	return l.names[last-l.first:], next, true
}
