package events

import "github.com/musterhq/muster/schema"

// termShift leaves the ids of one term of an election room below those of the next.
const termShift = 20

// Begin says that the events that are appended from now on are of a term of an election,
// whose number is higher than that of each before it. Their ids are above those of all
// earlier terms, whichever master led them and whatever of theirs came here: so the logs
// of several masters, of which one appends at a time, never give one id twice, and what
// one of them has not seen of another's is all that comes after its newest.
func (l *Log) Begin(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = max(l.next, term<<termShift)
}

// Above says that another master's log has an id: what is appended from now on is above it.
func (l *Log) Above(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = max(l.next, id+1)
}

// Last returns the id of the newest record, 0 if there is none.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Keep adds records of another master's log, in order, as Append does events. One whose
// id is not above the newest here is left out: it is here, or came too late.
func (l *Log) Keep(records []schema.EventRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := false
	for _, r := range records {
		if r.ID >= l.next {
			r.Event, kept = cut(r.Event), true
			l.add(r)
		}
	}
	if kept {
		l.added()
	}
}
