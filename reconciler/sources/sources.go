package sources

import (
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// Most is how many machines are fetching the same from its registry at once, of those that
	// others can get it from or that others were to give it.
	Most = 2
	// forget is how long after its last question a machine counts as bringing something: many questions.
	forget = time.Minute
	// turn is how long a fetch counts to which nothing comes: long after the machine gives it up by itself, if it works.
	turn = 2 * time.Minute
	// soon is how long after its last question a machine that waits is waited for by those who had their turn.
	soon = 5 * time.Second
	// longest is how long a machine waits to which nothing comes while others are given something.
	longest = 2 * time.Minute
	// mostBlobs is how many blobs of a content are known, of which machines name far fewer.
	mostBlobs = 4 * schema.MaxFetches
	// mostPulls is how many pulls of one machine are known, of which it makes far fewer in the time that they are
	// remembered: more have no answer until some are forgotten.
	mostPulls = 256
)

// Cell is what is known of machines.
type Cell interface {
	// Holders returns machines that hold something, in no order.
	Holders(d schema.Digest) []string
	// Address returns where a machine gives others what it holds; "" if it does not, or
	// is not up.
	Address(machine string) string
}

// Desk answers questions. The zero value has had none.
type Desk struct {
	wanted map[schema.Digest]*content
	pulls  map[string]int // by machine: how many of all contents
	swept  time.Time
}

// content is an image or a package that machines are to bring.
type content struct {
	pulls map[pull]*asker
	all   []string // the machines of those that go on
	whole []string // machines that have said that they have all of it; at most looked
	blobs map[schema.Digest]*blob
	given flow // from machines to machines
}

// pull is one attempt of a machine to bring something; its id is 0 from the release before.
type pull struct {
	machine string
	id      uint64
}

// asker is what a pull has said last.
type asker struct {
	at        time.Time
	turn      uint64
	over      bool
	received  int64
	complains time.Time // since when it says that those who have something do not give it; zero: it does not
	fetches   []schema.Digest
}

// all is, of machines of the release before, what they would fetch: whatever they lack.
const all schema.Digest = ""

// Answer answers a question. It costs the same however many machines want the same.
func (d *Desk) Answer(q *schema.SourceQuestion, cell Cell, now time.Time) schema.SourceAnswer {
	d.sweep(now)
	a := schema.SourceAnswer{ByBlob: q.Pull != 0}
	k := d.take(q, cell, now)
	if k == nil || k.over {
		return a
	}
	out := peers{q: q, cell: cell}
	holders := cell.Holders(q.Content)
	out.add(holders, true)
	out.add(k.whole, true)
	k.holders = holders
	complains, waits := false, false
	for _, f := range k.wants {
		may, complaint := k.may(f)
		complains, waits = complains || complaint, waits || !may && !complaint
		switch {
		case !may || f.Begun:
		case f.Blob == all:
			a.Registry = true
		default:
			a.Fetch = append(a.Fetch, f.Blob)
		}
		b := k.blob(f.Blob)
		out.some(b.have)
		for i := range b.fetches {
			out.take(b.fetches[i].by.machine, false)
		}
	}
	switch {
	case complains && k.complains.IsZero():
		k.complains = now
	case !complains && waits: // while it fetches nothing has changed
		k.complains = time.Time{}
	}
	out.add(k.content.all, false)
	a.Peers = out.all
	return a
}

// ask is a question that is answered.
type ask struct {
	*content
	*asker

	q       *schema.SourceQuestion
	by      pull
	wants   []schema.SourceFetch
	cell    Cell
	now     time.Time
	holders []string
}

// take takes what a question says; nil if there is nothing to be said to it.
func (d *Desk) take(q *schema.SourceQuestion, cell Cell, now time.Time) *ask {
	by := pull{q.Machine, q.Pull}
	c, a := d.find(q, by)
	if a == nil || q.Turn < a.turn || by.id != 0 && a.over && !a.at.IsZero() {
		return nil // a later one was here before
	}
	a.at, a.turn = now, q.Turn
	is := func(other string) bool { return other == q.Machine }
	switch over := q.Ended || q.Whole; {
	case over && !a.over:
		c.all = slices.DeleteFunc(c.all, is)
	case !over && a.over && !slices.ContainsFunc(c.all, is):
		c.all = append(c.all, q.Machine)
		c.whole = slices.DeleteFunc(c.whole, is)
	}
	a.over = q.Ended || q.Whole
	if q.Whole && len(c.whole) < looked && !slices.ContainsFunc(c.whole, is) {
		c.whole = append(c.whole, q.Machine)
	}
	k := &ask{content: c, asker: a, q: q, by: by, cell: cell, now: now, wants: q.Fetches}
	if by.id == 0 && !a.over {
		k.wants = []schema.SourceFetch{{Blob: all}}
	}
	k.note()
	return k
}

// find returns a content and what one of its pulls has said last, which is nothing yet of a new one; nil if that is
// not to be known.
func (d *Desk) find(q *schema.SourceQuestion, by pull) (*content, *asker) {
	c := d.wanted[q.Content]
	if c != nil && c.pulls[by] != nil {
		return c, c.pulls[by]
	}
	if d.pulls[q.Machine] >= mostPulls || c == nil && (q.Ended || q.Whole) {
		return nil, nil
	}
	if d.wanted == nil {
		d.wanted, d.pulls = map[schema.Digest]*content{}, map[string]int{}
	}
	if c == nil {
		c = &content{pulls: map[pull]*asker{}, blobs: map[schema.Digest]*blob{}}
		d.wanted[q.Content] = c
	}
	a := &asker{over: true}
	c.pulls[by] = a
	d.pulls[q.Machine]++
	return c, a
}

// note takes what a question says of blobs.
func (k *ask) note() {
	if more := k.q.Received - k.received; more > 0 {
		k.given.add(more, k.now)
	}
	k.received = k.q.Received
	for _, sum := range k.q.Have {
		b := k.blob(sum)
		b.remove(k.by)
		b.has(k.q.Machine)
	}
	for _, sum := range k.fetches {
		if !slices.ContainsFunc(k.wants, func(f schema.SourceFetch) bool { return f.Blob == sum }) {
			k.blob(sum).fail(k.by)
		}
	}
	k.fetches = k.fetches[:0]
	for _, f := range k.wants {
		k.fetches = append(k.fetches, f.Blob)
		b := k.blob(f.Blob)
		i := b.place(k.by)
		switch {
		case f.Begun && i < 0 && k.shares() && len(b.fetches) < looked: // as another master has let it
			b.fetches = append(b.fetches, fetch{by: k.by, bytes: f.Bytes, moved: k.now, shares: true})
		case i >= 0 && (f.Bytes != b.fetches[i].bytes || f.Blob == all && !k.q.Stalled):
			b.fetches[i].bytes, b.fetches[i].moved = f.Bytes, k.now
		}
	}
}

// blob returns what is known of a blob; of more than mostBlobs nothing is.
func (c *content) blob(sum schema.Digest) *blob {
	b := c.blobs[sum]
	switch {
	case b != nil:
	case len(c.blobs) == mostBlobs:
		return &blob{}
	default:
		b = &blob{}
		c.blobs[sum] = b
	}
	return b
}

// sweep forgets who no longer asks.
func (d *Desk) sweep(now time.Time) {
	if now.Sub(d.swept) < forget {
		return
	}
	d.swept = now
	clear(d.pulls)
	for sum, c := range d.wanted {
		on := map[string]bool{}
		for by, a := range c.pulls {
			switch {
			case now.Sub(a.at) > forget:
				delete(c.pulls, by)
			case !a.over:
				on[by.machine] = true
			}
		}
		c.all = slices.DeleteFunc(c.all, func(machine string) bool { return !on[machine] })
		if len(c.all) == 0 {
			delete(d.wanted, sum)
			continue
		}
		for by := range c.pulls {
			d.pulls[by.machine]++
		}
	}
}
