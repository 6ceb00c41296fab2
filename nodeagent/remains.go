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
		if r.Ended.After(now) { // the clock was set back since: it has its time again
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

// remainsOf returns what is left of what has ended. What is assigned, or runs, is none.
func remainsOf(items []item, boot string) []Remains {
	var all []Remains
	for _, it := range items {
		h := it.held
		switch {
		case h == nil:
		case h.End == nil:
			all = append(all, spent(h, &it.job().Task)...)
		case it.assigned == nil:
			all = append(all, Remains{TaskRef: h.ref(), Ended: h.End.At, Failed: h.failed(boot), Bytes: h.Bytes})
		}
	}
	return all
}

// collecting is what it depends on what is removed from the disk.
type collecting struct {
	remains  []Remains
	idlest   *Sticky // as in stickyPlan
	keep     Keep
	short    int64 // the bytes of disk that the machine lacks
	removing bool  // see Input.Removing
	now      time.Time
}

// collection is what is to be removed from the disk now.
type collection struct {
	gone    []Removal
	sticky  []StickyAction
	forDisk bool      // something goes, or is still going, for lack of disk
	wake    time.Time // when the next remains get too old; zero: never
}

// collectNow decides which remains go, and for lack of disk the sticky directory whose
// task has been away for longest. What goes for that, goes one at a time where it is
// not measured: what it gives is seen at the next look.
func collectNow(in collecting) collection {
	var c collection
	short := in.short
	if short > 0 && in.removing {
		short, c.forDisk = 0, true
	}
	c.gone, c.wake = Collect(in.remains, in.keep, short, in.now)
	c.forDisk = c.forDisk || slices.ContainsFunc(c.gone, func(r Removal) bool { return r.Reason == ShortDisk })
	if short > 0 && !c.forDisk && in.idlest != nil {
		c.forDisk = true
		c.sticky = []StickyAction{{Drop, in.idlest.Task}}
	}
	return c
}

// spent returns the remains of incarnations of a generation that goes on: all
// but the newest, by which failures are counted, and the last of which may run.
func spent(h *Held, task *schema.TaskSpec) []Remains {
	var out []Remains
	for i := range h.Incarnations[:max(0, len(h.Incarnations)-counted(task))] {
		c := &h.Incarnations[i]
		if c.Exit != nil {
			out = append(out, Remains{
				TaskRef: h.ref(), Incarnation: c.Number, Ended: c.Exit.At, Failed: c.Exit.Code != 0, Bytes: c.Bytes,
			})
		}
	}
	return out
}
