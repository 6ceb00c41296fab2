package nodeagent

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Keep says how much is kept of what has ended. A zero field is its default.
type Keep struct {
	Bytes int64 // of all remains together; DefaultKeepBytes
	// Age is how long remains are kept, FailedAge those of failures.
	Age, FailedAge time.Duration
}

// The defaults of Keep, and how many are kept at most whatever Keep says.
const (
	DefaultKeepBytes = 2 << 30
	KeepFor          = 24 * time.Hour
	KeepFailedFor    = 7 * 24 * time.Hour
	// KeepGenerations is of each task: as many that failed as others.
	KeepGenerations = 3
	// KeepIncarnations is of each generation, beside those by which failures are
	// counted.
	KeepIncarnations = 4
)

func (k Keep) orDefault() Keep {
	return Keep{
		Bytes: cmp.Or(k.Bytes, DefaultKeepBytes), Age: cmp.Or(k.Age, KeepFor), FailedAge: cmp.Or(k.FailedAge, KeepFailedFor),
	}
}

// Remains are what is left on disk of a generation that has ended, or of an
// incarnation before the last.
type Remains struct {
	schema.TaskRef
	Incarnation int // 0: the generation
	Ended       time.Time
	Failed      bool
	Bytes       int64 // 0: not measured yet
}

// Reason is why remains are removed.
type Reason string

// The reasons.
const (
	TooOld    Reason = "age"
	TooMany   Reason = "count"
	TooLarge  Reason = "bytes"    // all together are more than Keep.Bytes
	ShortDisk Reason = "pressure" // the machine needs the room
)

// Removal is what is to be removed, and why.
type Removal struct {
	Remains
	Reason Reason
}

// Collect returns which remains are to be removed, and when the next get too old
// (zero if never). short is what the machine lacks of free disk: then the oldest
// go until it is covered, or up to the first that is not measured. Those that did
// not fail go before those that did, and the older before the newer.
func Collect(remains []Remains, keep Keep, short int64, now time.Time) (gone []Removal, next time.Time) {
	keep = keep.orDefault()
	list := slices.Clone(remains)
	slices.SortFunc(list, func(a, b Remains) int {
		return cmp.Or(schema.CompareBool(a.Failed, b.Failed), a.Ended.Compare(b.Ended), a.TaskRef.Compare(b.TaskRef), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	total := int64(0)
	for _, r := range list {
		total += r.Bytes
	}
	many := tooMany(list)
	for i, r := range list {
		age := keep.Age
		if r.Failed {
			age = keep.FailedAge
		}
		until := r.Ended.Add(age)
		if r.Ended.After(now) { // the clock was set back since: it has its time anew
			until = now.Add(age)
		}
		reason := Reason("")
		switch {
		case short > 0:
			reason = ShortDisk
		case !until.After(now):
			reason = TooOld
		case many[i]:
			reason = TooMany
		case total > keep.Bytes:
			reason = TooLarge
		}
		if reason == "" {
			if next.IsZero() || until.Before(next) {
				next = until
			}
			continue
		}
		gone = append(gone, Removal{r, reason})
		total -= r.Bytes
		if short -= r.Bytes; reason == ShortDisk && r.Bytes == 0 {
			short = 0 // what it gives is seen at the next look
		}
	}
	return gone, next
}

// tooMany returns the indices of those that are too many of their task or
// generation; list is sorted so that the newest of a kind are last.
func tooMany(list []Remains) map[int]bool {
	type kind struct {
		schema.TaskRef // of incarnations; else without the generation
		failed         bool
	}
	count, out := map[kind]int{}, map[int]bool{}
	for i, r := range slices.Backward(list) {
		k, most := kind{schema.TaskRef{Task: r.Task}, r.Failed}, KeepGenerations
		if r.Incarnation != 0 {
			k, most = kind{r.TaskRef, false}, KeepIncarnations
		}
		count[k]++
		out[i] = count[k] > most
	}
	return out
}

// collect finds which remains go. What is in the view, or runs, is none.
func (d *decider) collect(items []item) {
	if d.in.View == nil {
		return
	}
	var all []Remains
	for _, it := range items {
		h := it.held
		if h == nil {
			continue
		}
		if h.End == nil {
			all = append(all, spent(h, it.job().Task.RestartPolicy())...)
		} else if it.assigned == nil {
			all = append(all, Remains{TaskRef: h.ref(), Ended: h.End.At, Failed: h.failed(d.in.Boot), Bytes: h.Bytes})
		}
	}
	short := int64(0)
	if room := &d.in.Pressure.Room; !room.At.IsZero() {
		short = d.in.Limits.DiskBytes - room.DiskFree
		if d.in.Limits.shortOfInodes(room) {
			short = max(short, 1) // one at a time: what it gives is seen at the next look
		}
	}
	if short > 0 && d.in.Removing {
		short, d.collecting = 0, true
	}
	gone, next := Collect(all, d.in.Limits.Keep, short, d.in.Now)
	for _, r := range gone {
		d.collecting = d.collecting || r.Reason == ShortDisk
		a := Action{Kind: Remove, Task: r.Task, Generation: r.Generation, Reason: r.Reason, Bytes: r.Bytes}
		if r.Incarnation != 0 {
			a.Kind, a.Incarnation = Prune, r.Incarnation
		}
		d.plan.Actions = append(d.plan.Actions, a)
	}
	if !next.IsZero() {
		d.wake(next)
	}
	// One at a time: what it gives is seen at the next look.
	if short > 0 && !d.collecting && d.idlest != nil {
		d.collecting = true
		d.plan.Sticky = append(d.plan.Sticky, StickyAction{Drop, d.idlest.Task})
	}
}

// spent returns the remains of incarnations of a generation that goes on: all
// but the newest, by which failures are counted, and the last of which may run.
func spent(h *Held, policy schema.Restart) []Remains {
	var out []Remains
	for i := range h.Incarnations[:max(0, len(h.Incarnations)-counted(policy))] {
		c := &h.Incarnations[i]
		if c.Exit != nil {
			out = append(out, Remains{
				TaskRef: h.ref(), Incarnation: c.Number, Ended: c.Exit.At, Failed: c.Exit.Code != 0, Bytes: c.Bytes,
			})
		}
	}
	return out
}
