package sources

import (
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// blob is a part of a content.
type blob struct {
	fetches []fetch  // from the registry, and who may
	have    []string // machines that have it, and can give it; at most mostPeers
	// failed are machines that have had their turn in vain: others come first that wait, of which one has asked at waits.
	failed map[string]bool
	waits  time.Time
}

// fetch is that of a machine from the registry.
type fetch struct {
	by     pull
	bytes  int64     // that have come
	moved  time.Time // when they were less, or it was allowed
	shares bool      // others get it from there
}

// place returns where in b.fetches that of a pull is; -1: there is none.
func (b *blob) place(by pull) int {
	return slices.IndexFunc(b.fetches, func(f fetch) bool { return f.by == by })
}

// remove removes the fetch of a pull, and reports whether there was one.
func (b *blob) remove(by pull) bool {
	i := b.place(by)
	if i >= 0 {
		b.fetches = slices.Delete(b.fetches, i, i+1)
	}
	return i >= 0
}

// fail is remove for one that has brought nothing to others.
func (b *blob) fail(by pull) {
	if !b.remove(by) {
		return
	}
	if b.failed == nil {
		b.failed = map[string]bool{}
	}
	b.failed[by.machine] = true
}

// has notes that a machine has the blob.
func (b *blob) has(machine string) {
	if len(b.have) < mostPeers && !slices.Contains(b.have, machine) {
		b.have = append(b.have, machine)
	}
}

// shares reports whether others get something from the machine that asks.
func (k *ask) shares() bool { return k.cell.Address(k.by.machine) != "" }

// may reports whether a machine may fetch a blob, or does already, and whether it complains of those that have it.
func (k *ask) may(f schema.SourceFetch) (may, complains bool) {
	b := k.blob(f.Blob)
	busy, sharing := k.busy(b)
	if f.Begun {
		return true, false
	}
	if i := b.place(k.by); i >= 0 {
		if !b.fetches[i].stuck(k.now) {
			return true, false
		}
		b.fail(k.by)
	}
	have, gives := k.served(b)
	complains = have && (!gives || k.q.Stalled)
	switch {
	case have && (!complains || k.given.recent(k.now) && (k.complains.IsZero() || k.now.Sub(k.complains) < longest)):
		return false, complains
	case !have && !k.shares() && !k.q.Stalled: // nobody gets it from there
		return !sharing, false
	case busy+k.beside(f.Blob) >= Most:
		k.wait(b)
		return false, complains
	case b.failed[k.by.machine] && k.now.Sub(b.waits) < soon:
		return false, complains
	}
	if b.failed[k.by.machine] { // all have had their turn
		b.failed = nil
	}
	b.fetches = append(b.fetches, fetch{by: k.by, moved: k.now, shares: k.shares()})
	return true, complains
}

// wait notes that a machine waits for its first turn.
func (k *ask) wait(b *blob) {
	if !b.failed[k.by.machine] {
		b.waits = k.now
	}
}

// stuck reports whether nothing comes to a fetch.
func (f *fetch) stuck(now time.Time) bool { return now.Sub(f.moved) > turn }

// busy returns how many machines are fetching a blob, and whether one of them shares it. It forgets who is gone.
func (k *ask) busy(b *blob) (n int, sharing bool) {
	b.fetches = slices.DeleteFunc(b.fetches, func(f fetch) bool {
		a := k.pulls[f.by]
		return a == nil || k.now.Sub(a.at) > forget || f.shares && k.cell.Address(f.by.machine) == ""
	})
	for i := range b.fetches {
		f := &b.fetches[i]
		if f.stuck(k.now) {
			continue
		}
		sharing = sharing || f.shares
		if !slices.ContainsFunc(b.fetches[:i], func(o fetch) bool { return o.by.machine == f.by.machine && !o.stuck(k.now) }) {
			n++ // one alone must not keep all others from it
		}
	}
	return n, sharing
}

// beside returns how many fetch the blob as one of all that they lack, or, of whoever would fetch all, the most that
// fetch one of them.
func (k *ask) beside(sum schema.Digest) (n int) {
	if sum != all {
		if b := k.blobs[all]; b != nil {
			n, _ = k.busy(b)
		}
		return n
	}
	for other, b := range k.blobs {
		if other != all {
			busy, _ := k.busy(b)
			n = max(n, busy)
		}
	}
	return n
}

// served reports whether others have a blob, and whether one of them may give it to the machine that asks.
func (k *ask) served(b *blob) (have, gives bool) {
	for _, machines := range [][]string{b.have, k.whole, k.holders[:min(len(k.holders), looked)]} {
		for _, m := range machines {
			if m == k.by.machine || k.cell.Address(m) == "" {
				continue
			}
			have = true
			if !slices.Contains(k.q.Without, m) {
				return true, true
			}
		}
	}
	return have, false
}

// What machines are given must be enough for it to count, in any so long: else it only seems to go on.
const (
	flowBytes  = 1 << 20
	flowTime   = 10 * time.Second
	flowRecent = 30 * time.Second
)

// flow is whether enough bytes come.
type flow struct {
	since time.Time
	bytes int64     // since then
	at    time.Time // when there were enough
}

func (f *flow) add(n int64, now time.Time) {
	if now.Sub(f.since) > flowTime {
		f.since, f.bytes = now, 0
	}
	if f.bytes += n; f.bytes >= flowBytes {
		f.since, f.bytes, f.at = now, 0, now
	}
}

func (f *flow) recent(now time.Time) bool { return now.Sub(f.at) < flowRecent }
