package shard

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Sessions are the sessions of one link shard.
type Sessions struct {
	all    map[string]*session   // by machine: the newest
	closed []model.SessionUpdate // of sessions that the leader knows
	queue  []*session            // of which there is an update to send, in this order
	urgent bool                  // the leader should get it at once
}

// session is one machine's.
type session struct {
	machine string
	epoch   uint64
	link    schema.Connection

	known       bool // to the present leader
	reportKnown bool // the leader has the last report
	reported    bool // there was a report since the last update
	queued      bool

	report *schema.Report // the last; nil before the first
	usage  *schema.MachineUsage
	// content is what the machine holds, and contentKnown what the leader knows of that;
	// contentSent says that it knows, which a new one does not.
	content, contentKnown []schema.Digest
	contentSent           bool

	view schema.View // the newest, with the version that it has in this session; 0 before the first
}

// New returns no sessions.
func New() *Sessions { return &Sessions{all: map[string]*session{}} }

// Len returns how many sessions there are.
func (s *Sessions) Len() int { return len(s.all) }

// ID names a session.
type ID struct {
	Machine string
	Epoch   uint64
}

// All returns which sessions there are, by machine.
func (s *Sessions) All() []ID {
	out := make([]ID, 0, len(s.all))
	for _, machine := range slices.Sorted(maps.Keys(s.all)) {
		out = append(out, ID{machine, s.all[machine].epoch})
	}
	return out
}

// Attach says that there is another leader, or the same one with a new connection: it
// knows none of the sessions.
func (s *Sessions) Attach() {
	s.closed = nil
	for _, machine := range slices.Sorted(maps.Keys(s.all)) {
		x := s.all[machine]
		x.known, x.reportKnown, x.contentSent = false, false, false
		s.enqueue(x, true)
	}
}

// Open adds a session that a leader has welcomed; known says that this is the present
// one. One of the same machine before it is over.
func (s *Sessions) Open(machine string, epoch uint64, link schema.Connection, known bool) {
	if old := s.all[machine]; old != nil && old.epoch >= epoch {
		return
	}
	x := &session{machine: machine, epoch: epoch, link: link, known: known}
	s.all[machine] = x
	if !known {
		s.enqueue(x, true)
	}
}

// Close says that a session has ended.
func (s *Sessions) Close(machine string, epoch uint64) {
	x := s.find(machine, epoch)
	if x == nil {
		return // a newer one has its place
	}
	delete(s.all, machine)
	if x.known {
		s.closed = append(s.closed, model.SessionUpdate{Machine: machine, Epoch: epoch, Left: true})
		s.urgent = true
	}
}

// Report takes a report. It returns false when there is no such session any more.
func (s *Sessions) Report(machine string, epoch uint64, r schema.Report) bool {
	x := s.find(machine, epoch)
	if x == nil {
		return false
	}
	again := x.report != nil && model.SameReport(x.report, &r)
	if !again {
		x.report, x.reportKnown = &r, false
	}
	x.reported = true
	s.enqueue(x, !again)
	return true
}

// Used takes what a machine uses.
func (s *Sessions) Used(epoch uint64, u *schema.MachineUsage) {
	if x := s.find(u.Machine, epoch); x != nil {
		x.usage = u
		s.enqueue(x, false)
	}
}

// Holds takes what a machine holds of images and packages, sorted, which is not written to.
func (s *Sessions) Holds(machine string, epoch uint64, content []schema.Digest) {
	if x := s.find(machine, epoch); x != nil {
		x.content = content
		s.enqueue(x, false)
	}
}

// View takes the view that the leader has for a machine, and returns it with the version
// that it has in its session; false if the session has that view already, or there is none.
// Leaders count versions of their own, and a machine compares them within its session.
func (s *Sessions) View(machine string, view schema.View) (own schema.View, news bool) {
	x := s.find(machine, view.Epoch)
	if x == nil || x.view.Version > 0 && model.SameView(x.view, view) {
		return schema.View{}, false
	}
	view.Version = x.view.Version + 1
	x.view = view
	return view, true
}

// Urgent reports whether the leader should get the updates at once: there is more than
// repeated reports.
func (s *Sessions) Urgent() bool { return s.urgent }

// Next returns the updates of at most so many sessions. The leader counts as having them
// then, until the next Attach.
func (s *Sessions) Next(most int) []model.SessionUpdate {
	n := min(most, len(s.closed))
	updates := slices.Clone(s.closed[:n])
	s.closed = slices.Delete(s.closed, 0, n)
	taken := 0
	for _, x := range s.queue {
		if len(updates) == most {
			break
		}
		taken++
		x.queued = false
		if s.all[x.machine] == x {
			updates = append(updates, x.update())
		}
	}
	s.queue = slices.Delete(s.queue, 0, taken)
	if len(s.queue)+len(s.closed) == 0 {
		s.urgent = false
	}
	return updates
}

// update returns what the leader does not know of a session.
func (x *session) update() model.SessionUpdate {
	w := model.SessionUpdate{Machine: x.machine, Epoch: x.epoch, Reported: x.reported, Usage: x.usage}
	if !x.known {
		w.Resume = &x.link
	}
	if !x.reportKnown {
		w.Report = x.report
	}
	w.Content = x.changed()
	x.known, x.reportKnown, x.reported, x.usage = true, x.report != nil, false, nil
	return w
}

// changed returns what the leader does not know of what the machine holds, nil if it knows.
func (x *session) changed() *schema.ContentChange {
	var c schema.ContentChange
	switch {
	case !x.contentSent && len(x.content) == 0:
		return nil // of an agent that does not say, or has nothing yet
	case !x.contentSent:
		c = schema.ContentChange{Whole: true, Added: x.content}
	case slices.Equal(x.content, x.contentKnown):
		return nil
	default:
		c = schema.ChangeOfContent(x.contentKnown, x.content)
	}
	x.contentSent, x.contentKnown = true, x.content
	return &c
}

func (s *Sessions) enqueue(x *session, urgent bool) {
	if !x.queued {
		x.queued = true
		s.queue = append(s.queue, x)
	}
	s.urgent = s.urgent || urgent
}

// find returns the session with an epoch, nil if it is not the machine's newest.
func (s *Sessions) find(machine string, epoch uint64) *session {
	if x := s.all[machine]; x != nil && x.epoch == epoch {
		return x
	}
	return nil
}
