package layout

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// machines returns a column, by which so many machines are in six racks or in none, and
// their names.
func machines(random *rand.Rand, n int) (*Column, []string) {
	c, names := NewColumn(0), make([]string, n)
	for slot := range names {
		names[slot] = fmt.Sprint("m", random.IntN(1_000_000), "-", slot)
		value := ""
		if rack := random.IntN(6); rack > 0 {
			value = fmt.Sprint("r", rack)
		}
		c.Set(int32(slot), value)
	}
	return c, names
}

func slotsOf(names []string) (slots []int32, in func(slot int32) (string, uint64)) {
	for slot := range names {
		slots = append(slots, int32(slot))
	}
	return slots, func(slot int32) (string, uint64) { return names[slot], Hash(names[slot]) }
}

// Machines stand by domain and name, and in the ring any stretch has about the same of each
// domain: one of each before the second of any.
func TestOrder(t *testing.T) {
	t.Parallel()
	c, names := machines(rand.New(rand.NewPCG(3, 4)), 500)
	slots, in := slotsOf(names)
	l := New(c, slots, int32(len(names)), in)
	text := func(slot int32) string { return c.Values[c.At[slot]] + " " + names[slot] }
	if !slices.IsSortedFunc(l.Slots, func(a, b int32) int { return cmp.Compare(text(a), text(b)) }) {
		t.Error("machines do not stand by domain and name")
	}
	rounds, seen := map[int32]int32{}, map[int32]bool{}
	last := card{}
	for i, slot := range l.Ring {
		domain := c.At[slot]
		if seen[slot] || l.rounds[i] != rounds[domain] {
			t.Fatalf("%s is in round %d, as %d of its domain are before", text(slot), l.rounds[i], rounds[domain])
		}
		if seen[slot] = true; domain > 0 {
			rounds[domain]++
		}
		next := cardOf(slot, l.rounds[i], Hash(names[slot]))
		if compareCards(last, next) > 0 {
			t.Fatalf("%s stands too late in its round", text(slot))
		}
		last = next
	}
	if len(seen) != len(names) {
		t.Errorf("%d machines in the ring, of %d", len(seen), len(names))
	}
	checkBlocks(t, l)
}

// checkBlocks checks that the blocks cover the machines, each those of one domain.
func checkBlocks(t *testing.T, l *Layout) {
	t.Helper()
	at := int32(0)
	for _, b := range l.Blocks {
		if b.From != at || b.To-b.From > blockSize || b.To <= b.From {
			t.Fatalf("a block from %d to %d, where one from %d on is due", b.From, b.To, at)
		}
		for _, slot := range l.Slots[b.From:b.To] {
			if l.Column.At[slot] != b.Domain {
				t.Fatalf("slot %d is in domain %d, its block in %d", slot, l.Column.At[slot], b.Domain)
			}
		}
		at = b.To
	}
	if int(at) != len(l.Slots) {
		t.Fatalf("the blocks end at %d, of %d machines", at, len(l.Slots))
	}
}

// A stretch of the ring is skipped only when no machine in it has room, and is known to be
// full once all of it was seen.
func TestPeaks(t *testing.T) {
	t.Parallel()
	c, names := machines(rand.New(rand.NewPCG(5, 6)), 3*stretch-10)
	slots, in := slotsOf(names)
	l := New(c, slots, int32(len(names)), in)
	p := NewPeaks(l)
	free := make([][3]int64, len(names))
	free[l.Ring[stretch+3]] = [3]int64{5, 50, 500}
	of := func(slot int32) [3]int64 { return free[slot] }
	limit := [3]int64{4, 40, 400}
	look := func() (seen int) {
		for at := 0; at < len(l.Ring); at++ {
			if n := p.Full(at, limit); n > 0 {
				at += n - 1
				continue
			}
			seen++
			if room := free[l.Ring[at]][0] >= limit[0]; p.Saw(at, room, !room) {
				p.Lower(at, of)
			}
		}
		return seen
	}
	for i, want := range []int{len(names), stretch, stretch} {
		if seen := look(); seen != want {
			t.Errorf("search %d looked at %d machines, want %d", i, seen, want)
		}
	}
	last := l.Ring[len(l.Ring)-1]
	free[last] = [3]int64{4, 40, 400}
	p.Raise(last, free[last])
	if seen, want := look(), stretch+len(names)%stretch; seen != want {
		t.Errorf("a search after a machine got room looked at %d machines, want %d", seen, want)
	}
	free[last] = [3]int64{}
	if seen, want := look()+look(), stretch+len(names)%stretch+stretch; seen != want {
		t.Errorf("two searches after it was full again looked at %d machines, want %d", seen, want)
	}
	var none *Peaks
	if none.Full(0, limit) != 0 || none.Saw(0, false, true) {
		t.Error("no bounds are known, and machines are skipped")
	}
}

// What is written to a copy of a column is not seen in what was shared.
func TestCopiedColumn(t *testing.T) {
	t.Parallel()
	c := NewColumn(2)
	c.Set(1, "a")
	c.Share()
	if !c.IsShared() {
		t.Fatal("a column that was shared is not")
	}
	d := c.Copied()
	d.Set(1, "b")
	d.Set(2, "a")
	if d.IsShared() || c.Values[c.At[1]] != "a" || len(c.At) != 2 || len(c.Values) != 2 {
		t.Errorf("the column became %v of %q", c.At, c.Values)
	}
	if d.Values[d.At[1]] != "b" || d.Values[d.At[2]] != "a" || d.Values[d.At[0]] != "" {
		t.Errorf("the copy is %v of %q", d.At, d.Values)
	}
	if c.Set(1, "c"); d.Values[d.At[1]] != "b" {
		t.Error("the copy changed with the column")
	}
}
