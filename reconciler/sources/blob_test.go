package sources

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// wants returns the question of a machine for one blob, of which it has got so many bytes from the registry; -1: it
// has not begun.
func wants(machine string, bytes int64, turn int) *schema.SourceQuestion {
	q := asks(machine)
	q.Pull, q.Turn = 1, uint64(turn)
	q.Fetches = []schema.SourceFetch{{Blob: "sha256:b", Begun: bytes >= 0, Bytes: max(bytes, 0)}}
	return q
}

// may reports whether a machine may fetch its blob.
func may(d *Desk, cell Cell, q *schema.SourceQuestion, now time.Time) bool {
	return len(d.Answer(q, cell, now).Fetch) > 0
}

// Machines that do not reach the registry do not keep one from it that does.
func TestEachHasATurn(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, of(6)
	pulls, fetches := map[string]uint64{}, map[string]bool{}
	for round := range 30 {
		for i := range 6 { // the last one asks last
			machine := fmt.Sprint("m", i)
			q := wants(machine, -1, round)
			if q.Pull += pulls[machine]; fetches[machine] {
				q.Ended, q.Fetches, fetches[machine] = true, nil, false
				pulls[machine]++
				d.Answer(q, cell, noon.Add(time.Duration(round)*2*time.Second))
				q = wants(machine, -1, round)
				q.Pull += pulls[machine]
			}
			fetches[machine] = may(d, cell, q, noon.Add(time.Duration(round)*2*time.Second))
		}
		if fetches["m5"] {
			return
		}
	}
	t.Error("the last one never had a turn")
}

// One to which nothing comes is replaced, and no other.
func TestStuck(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{false, true} {
		d, cell := &Desk{}, of(3)
		var bytes int64
		for i := range 100 {
			now := noon.Add(time.Duration(i) * 5 * time.Second)
			if moves {
				bytes++
			}
			// The desk did not allow these: another master did.
			d.Answer(wants("m0", bytes, i), cell, now)
			d.Answer(wants("m1", bytes, i), cell, now)
			late := now.Sub(noon) > turn
			if got := may(d, cell, wants("m2", -1, i), now); got != (late && !moves) {
				t.Fatalf("bytes come: %v, after %v the third one may fetch: %v", moves, now.Sub(noon), got)
			}
		}
	}
}

// Those that say nothing any more are replaced, before it is seen that nothing comes to them.
func TestSilent(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, of(3)
	d.Answer(wants("m0", 1, 0), cell, noon)
	d.Answer(wants("m1", 1, 0), cell, noon)
	for i := range 20 {
		after := time.Duration(i) * 5 * time.Second
		if got := may(d, cell, wants("m2", -1, i), noon.Add(after)); got != (after > forget) {
			t.Fatalf("after %v the third one may fetch: %v", after, got)
		}
	}
}

// Of many machines that bring the same, those are named that have what is wanted.
func TestNamed(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, of(1000)
	for i := range 1000 {
		d.Answer(wants(fmt.Sprint("m", i), -1, 0), cell, noon)
	}
	has := wants("m500", 0, 1)
	has.Fetches, has.Have = nil, []schema.Digest{"sha256:b"}
	d.Answer(has, cell, noon)
	for i := range 100 {
		if a := d.Answer(wants(fmt.Sprint("m", i), -1, 1), cell, noon); a.Peers[0] != (schema.SourcePeer{Machine: "m500", Address: "10.0.0.500:1"}) {
			t.Fatalf("m%d is sent to %v", i, a.Peers)
		}
	}
}

// One that gets nothing from those who have it waits while others are given something, and not for good.
func TestComplaint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		complain func(q *schema.SourceQuestion)
		flows    int64 // to others, in 5 s
		wait     time.Duration
	}{
		"nothing comes":              {func(q *schema.SourceQuestion) { q.Stalled = true }, 0, 0},
		"they do not answer":         {func(q *schema.SourceQuestion) { q.Without = []string{"m9"} }, 0, 0},
		"others are given something": {func(q *schema.SourceQuestion) { q.Stalled = true }, 1 << 20, longest},
		"it drips":                   {func(q *schema.SourceQuestion) { q.Stalled = true }, 1 << 10, 0},
		"they answer others":         {func(q *schema.SourceQuestion) { q.Without = []string{"m9"} }, 1 << 20, longest},
		"no complaint":               {func(*schema.SourceQuestion) {}, 0, time.Hour},
	} {
		d, cell := &Desk{}, of(10)
		cell.holders = []string{"m9"}
		var allowed time.Duration
		for i := 0; ; i++ {
			after := time.Duration(i) * 5 * time.Second
			other := wants("m1", -1, i)
			other.Received = int64(i+1) * c.flows
			d.Answer(other, cell, noon.Add(after))
			q := wants("m0", -1, i)
			c.complain(q)
			if allowed = after; may(d, cell, q, noon.Add(after)) || after >= time.Hour {
				break
			}
		}
		if allowed != c.wait {
			t.Errorf("%s: it may fetch after %v: want %v", name, allowed, c.wait)
		}
		// It has waited once, and not again for each further blob.
		fetches := wants("m0", 1, 1000)
		c.complain(fetches)
		d.Answer(fetches, cell, noon.Add(allowed))
		next := wants("m0", 1, 1001)
		next.Fetches = append(next.Fetches, schema.SourceFetch{Blob: "sha256:next"})
		c.complain(next)
		if got := may(d, cell, next, noon.Add(allowed)); got != (c.wait < time.Hour) {
			t.Errorf("%s: it may fetch the next one: %v", name, got)
		}
	}
}

// Agents of this release and of the one before share the places.
func TestFormerAgents(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, of(4)
	if !d.Answer(asks("m0"), cell, noon).Registry || !may(d, cell, wants("m1", -1, 0), noon) {
		t.Fatal("two may fetch")
	}
	if a := d.Answer(asks("m2"), cell, noon); a.Registry || a.ByBlob {
		t.Errorf("a third one, of the release before: %+v", a)
	}
	if a := d.Answer(wants("m3", -1, 0), cell, noon); len(a.Fetch) > 0 || !a.ByBlob || a.Registry {
		t.Errorf("a third one of this release: %+v", a)
	}
}
