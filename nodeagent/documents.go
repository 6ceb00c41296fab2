package nodeagent

import (
	"errors"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// DocumentKind is what a Document says.
type DocumentKind string

// The kinds of document.
const (
	ViewDocument       DocumentKind = "view"       // a Memory
	IdentityDocument   DocumentKind = "identity"   // a bool: see Life.Refused
	AssignmentDocument DocumentKind = "assignment" // of a generation: a *schema.Assignment
	EndDocument        DocumentKind = "end"        // of a generation: a *schema.Cause
	StopDocument       DocumentKind = "stop"       // of an incarnation: a *schema.Cause
	HealthDocument     DocumentKind = "health"     // of an incarnation: a Probe
	GivenDocument      DocumentKind = "given"      // of an incarnation: a Given
	IdleDocument       DocumentKind = "idle"       // of a sticky directory: a time.Time
)

// Document names a file of the state directory. Content says what is in it.
type Document struct {
	Kind DocumentKind
	schema.TaskRef
	Incarnation int
}

// Write is a document that is to be made durable.
type Write struct {
	Document
	// Again says that the disk has refused it before.
	Again bool
}

// Trouble is what an error says of the disk that it is from.
type Trouble int

// The kinds of trouble.
const (
	DiskFull     Trouble = iota // there is no room for it, in bytes or files
	DiskReadOnly                // nothing can be written
	Vanished                    // the directory is gone
)

// DiskError is an error that says something of the disk. All others say something
// of what was to be written.
type DiskError struct {
	Err     error
	Trouble Trouble
}

func (e *DiskError) Error() string { return e.Err.Error() }

func (e *DiskError) Unwrap() error { return e.Err }

// isTrouble reports whether err is of the disk, and of such a kind.
func isTrouble(err error, kinds ...Trouble) bool {
	d := (*DiskError)(nil)
	return errors.As(err, &d) && slices.Contains(kinds, d.Trouble)
}

// unsaved is what the disk has refused to keep. It holds for this agent all the
// same: a task is stopped, its end is reported, and the view is acted on, whatever
// the disk does; else a task could keep itself from being stopped by filling it. Only
// an agent that takes over before the disk has it knows what was there before, and
// that is true as far as it goes: how each process ended its keeper has written down,
// in room that was kept for that, and what of the view is newer the master says again.
// Nothing is started by a view that is not on disk, see Act.Unkept.
type unsaved struct {
	list  []unsavedDocument // in the order in which they are to be written
	retry time.Time
	view  *schema.View // what the disk has; nil: none
	// insisted says that the view was handed out again in this turn, for a start.
	insisted bool
}

type unsavedDocument struct {
	Document
	err error // the last; nil: it was not tried yet
}

func (u *unsaved) any() bool { return len(u.list) > 0 }

// of says what of a generation is not on disk; nil: all is.
func (u *unsaved) of(r schema.TaskRef) error {
	for _, x := range u.list {
		if x.TaskRef == r && x.err != nil {
			return x.err
		}
	}
	return nil
}

// why says why a document is not on disk; nil: it is, or was not tried yet.
func (u *unsaved) why(d Document) error {
	if i := u.index(d); i >= 0 {
		return u.list[i].err
	}
	return nil
}

func (u *unsaved) index(d Document) int {
	return slices.IndexFunc(u.list, func(x unsavedDocument) bool { return x.Document == d })
}

func (u *unsaved) remove(d Document) {
	u.list = slices.DeleteFunc(u.list, func(x unsavedDocument) bool { return x.Document == d })
}

// forget gives up what is to be kept of a generation, or of one incarnation of it,
// which was removed.
func (u *unsaved) forget(r schema.TaskRef, incarnation int) {
	u.list = slices.DeleteFunc(u.list, func(x unsavedDocument) bool {
		return x.TaskRef == r && (incarnation == 0 || x.Incarnation == incarnation)
	})
}

// write hands documents out to be made durable. Until Stored says so they are not.
func (a *Agent) write(documents ...Document) {
	for _, d := range documents {
		a.pending.Writes = append(a.pending.Writes, Write{Document: d})
		if d.Kind != IdentityDocument && d.Kind != HealthDocument && a.unsaved.index(d) < 0 {
			a.unsaved.list = append(a.unsaved.list, unsavedDocument{Document: d})
		}
	}
}

// writeAgain tries again what was refused, when that is due.
func (a *Agent) writeAgain(now time.Time) {
	if !a.unsaved.any() || now.Before(a.unsaved.retry) {
		return
	}
	a.unsaved.retry = now.Add(retryAfter)
	for _, x := range a.unsaved.list {
		a.pending.Writes = append(a.pending.Writes, Write{x.Document, true})
	}
}

// unkept says why the view on disk does not ask for what x starts; nil: it does, or it
// was not tried yet to write one that does. What an older view asks for starts again by
// that, whatever has become of the newer ones.
func (a *Agent) unkept(x Action) error {
	if a.unsaved.view.Find(x.Task, x.Generation) != nil {
		return nil
	}
	return a.unsaved.why(Document{Kind: ViewDocument})
}

// insist hands out a view that is not on disk, once a turn, before x is started if the
// view that is there does not ask for it. It reports whether it has.
func (a *Agent) insist(x Action) bool {
	view := Document{Kind: ViewDocument}
	if a.unsaved.insisted || a.unsaved.index(view) < 0 || a.unsaved.view.Find(x.Task, x.Generation) != nil {
		return false
	}
	a.unsaved.insisted = true
	a.pending.Writes = append(a.pending.Writes, Write{view, true})
	return true
}

// Stored says how a write went: a *DiskError if the disk is to blame. It reports
// whether those that were handed out after it are to be tried now. What was refused
// is handed out again, except what an agent that comes after finds out without it:
// the health of a task, and whose the machine's name is, which is written with the
// next Welcome.
func (a *Agent) Stored(w Write, err error, now time.Time) (others bool) {
	g := a.find(w.TaskRef)
	switch {
	case w.Kind == IdentityDocument || w.Kind == HealthDocument:
		return true
	case err == nil:
		a.unsaved.remove(w.Document)
		switch {
		case w.Kind == ViewDocument:
			a.unsaved.view = a.view
		case w.Kind == AssignmentDocument && g != nil:
			g.Written = true
		}
		return true
	case w.Again && g != nil && isTrouble(err, Vanished):
		a.unsaved.remove(w.Document)
		return true
	}
	if !slices.ContainsFunc(a.unsaved.list, func(x unsavedDocument) bool { return x.err != nil }) {
		a.unsaved.retry = now.Add(retryAfter)
	}
	if i := a.unsaved.index(w.Document); i >= 0 {
		a.unsaved.list[i].err = err
	}
	a.refused(err, now)
	// Where one is refused for lack of room, so are all others: a look is enough.
	return !isTrouble(err, DiskFull, DiskReadOnly) && w.Kind != AssignmentDocument
}

// Unsaved reports whether a document is not on disk, as the agent knows it.
func (a *Agent) Unsaved(d Document) bool { return a.unsaved.index(d) >= 0 }

// refused takes what the disk has refused for what it says of the machine.
func (a *Agent) refused(err error, now time.Time) {
	switch {
	case isTrouble(err, DiskFull):
		a.Condition(schema.DiskPressure, Bad, "the state directory has no room: "+err.Error(), now)
	case isTrouble(err, DiskReadOnly):
		a.Condition(schema.ReadOnlyFS, Bad, err.Error(), now)
	}
}

// Documents lists what must be on disk, but for the machine's identity.
func (a *Agent) Documents() []Document {
	var list []Document
	if a.view != nil || a.epoch > 0 {
		list = append(list, Document{Kind: ViewDocument})
	}
	for task, idle := range a.sticky {
		if !idle.IsZero() {
			list = append(list, Document{Kind: IdleDocument, TaskRef: schema.TaskRef{Task: task}})
		}
	}
	for _, g := range a.tasks {
		if g.Unreadable != "" {
			continue
		}
		if g.Written {
			list = append(list, Document{Kind: AssignmentDocument, TaskRef: g.ref()})
		}
		if g.End != nil {
			list = append(list, Document{Kind: EndDocument, TaskRef: g.ref()})
		}
		for i := range g.Incarnations {
			c := &g.Incarnations[i]
			if c.Stop != nil {
				list = append(list, Document{StopDocument, g.ref(), c.Number})
			}
			if c.Exit == nil && c.Renewed {
				list = append(list, Document{GivenDocument, g.ref(), c.Number})
			}
			if c.Exit == nil && c.Probe.State != "" {
				list = append(list, Document{HealthDocument, g.ref(), c.Number})
			}
		}
	}
	return list
}

// Content returns what a document is to hold now, as its kind says; nil if it need
// not be there.
func (a *Agent) Content(d Document) any {
	switch d.Kind {
	case ViewDocument:
		return a.Memory()
	case IdentityDocument:
		return a.life.Refused
	case IdleDocument:
		if idle, ok := a.sticky[d.Task]; ok && !idle.IsZero() {
			return idle
		}
		return nil
	}
	g := a.find(d.TaskRef)
	if g == nil || g.Unreadable != "" {
		return nil
	}
	switch d.Kind {
	case AssignmentDocument:
		return &g.Assignment
	case EndDocument:
		if g.End != nil {
			return g.End
		}
		return nil
	}
	c := g.incarnation(d.Incarnation)
	switch {
	case c == nil:
	case d.Kind == StopDocument && c.Stop != nil:
		return c.Stop
	case d.Kind == GivenDocument && c.Exit == nil:
		return c.Given
	case d.Kind == HealthDocument && c.Exit == nil:
		return c.Probe
	}
	return nil
}
