package sources

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// machines are a cell: where each gives others what it holds, and who holds the content.
type machines struct {
	address map[string]string
	holders []string
}

func (m *machines) Holders(schema.Digest) []string { return m.holders }
func (m *machines) Address(machine string) string  { return m.address[machine] }

// of returns a cell of so many machines that all share.
func of(n int) *machines {
	m := &machines{address: map[string]string{}}
	for i := range n {
		m.address[fmt.Sprint("m", i)] = fmt.Sprintf("10.0.0.%d:1", i)
	}
	return m
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func asks(machine string) *schema.SourceQuestion {
	return &schema.SourceQuestion{Machine: machine, Content: "sha256:c"}
}

// granted returns who of n machines may ask the registry.
func granted(d *Desk, cell Cell, n int, now time.Time) []string {
	var out []string
	for i := range n {
		if machine := fmt.Sprint("m", i); d.Answer(asks(machine), cell, now).Registry {
			out = append(out, machine)
		}
	}
	return out
}

// Two of many machines go to the registry, as long as they go on asking.
func TestFirst(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, of(1000)
	for i := range 3 {
		now := noon.Add(time.Duration(i) * 10 * time.Second)
		if got := granted(d, cell, 1000, now); !slices.Equal(got, []string{"m0", "m1"}) {
			t.Fatalf("the registry is asked by %v", got)
		}
	}
	a := d.Answer(asks("m7"), cell, noon.Add(20*time.Second))
	if len(a.Peers) != mostPeers || a.Peers[0].Machine != "m0" || a.Peers[1].Machine != "m1" || a.Peers[2].Holds {
		t.Errorf("m7 is sent to %v", a.Peers)
	}
	// One has given up, and one is gone: others take their places.
	gone := asks("m0")
	gone.Ended = true
	d.Answer(gone, cell, noon.Add(20*time.Second))
	later := noon.Add(20*time.Second + forget)
	for i := 2; i < 10; i++ {
		d.Answer(asks(fmt.Sprint("m", i)), cell, noon.Add(30*time.Second))
	}
	delete(cell.address, "m1")
	if a := d.Answer(asks("m5"), cell, later); !a.Registry {
		t.Errorf("nobody follows those that are gone: %v", a)
	}
	d.Answer(asks("x"), cell, later.Add(time.Hour))
	if len(d.wanted) != 1 || len(d.wanted["sha256:c"].all) != 1 {
		t.Errorf("an hour later %d machines are remembered", len(d.wanted["sha256:c"].all))
	}
}

// Who holds it is asked, and the registry only if nobody gives it.
func TestHolders(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, of(100)
	cell.holders = []string{"m3", "m4", "closed"}
	q := asks("m0")
	a := d.Answer(q, cell, noon)
	if a.Registry || len(a.Peers) != 2 || !a.Peers[0].Holds {
		t.Fatalf("there are two that hold it: %+v", a)
	}
	q.Without = []string{"m3", "m4"}
	if a = d.Answer(q, cell, noon); !a.Registry {
		t.Errorf("nobody gives it: %+v", a)
	}
	if a = d.Answer(asks("m9"), cell, noon); a.Registry || len(a.Peers) != 3 || a.Peers[2].Machine != "m0" {
		t.Errorf("another one has not asked them yet: %+v", a)
	}
	q = asks("m9")
	q.Stalled = true
	if a = d.Answer(q, cell, noon); !a.Registry || len(a.Peers) == 0 {
		t.Errorf("it has waited for long: %+v", a)
	}
}

// Machines that give others nothing do not wait for each other, but for one that does.
func TestNobodyShares(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, &machines{}
	if got := granted(d, cell, 5, noon); len(got) != 5 {
		t.Fatalf("the registry is asked by %v", got)
	}
	cell.address = map[string]string{"m7": "10.0.0.7:1"}
	if !d.Answer(asks("m7"), cell, noon).Registry {
		t.Error("the first that shares may not ask the registry")
	}
	if a := d.Answer(asks("m8"), cell, noon); a.Registry || len(a.Peers) != 1 {
		t.Errorf("one that shares is fetching it: %+v", a)
	}
}

// stalled asks as one to which nothing comes.
func stalled(d *Desk, cell Cell, machine string, now time.Time) bool {
	q := asks(machine)
	q.Stalled = true
	return d.Answer(q, cell, now).Registry
}

// Of machines to which nothing comes two at a time are sent to the registry, and the others after those, in order.
func TestStalled(t *testing.T) {
	t.Parallel()
	for name, cell := range map[string]*machines{"all share": of(50), "nobody shares": {address: map[string]string{"holder": "10.0.0.1:1"}}} {
		cell.holders, cell.address["holder"] = []string{"holder"}, "10.0.0.1:1"
		d := &Desk{}
		round := func(now time.Time) (out []string) {
			for i := range 50 {
				if machine := fmt.Sprint("m", i); stalled(d, cell, machine, now) {
					out = append(out, machine)
				}
			}
			return out
		}
		// Nothing comes to anybody from the registry, either.
		for i := range 100 {
			at := time.Duration(i) * 5 * time.Second
			if got := round(noon.Add(at)); len(got) > Most {
				t.Fatalf("%s: after %v the registry is asked by %v", name, at, got)
			}
		}
		// It comes to those whose turn it is, and they keep their places.
		now := noon.Add(500 * time.Second)
		first := round(now)
		for range 100 {
			now = now.Add(5 * time.Second)
			for _, machine := range first {
				d.Answer(asks(machine), cell, now)
			}
			for i := range 50 {
				machine := fmt.Sprint("m", i)
				if !slices.Contains(first, machine) && stalled(d, cell, machine, now) {
					t.Fatalf("%s: %s is sent to the registry while %v fetch", name, machine, first)
				}
			}
		}
		// They are dead: others follow.
		if now = now.Add(forget + time.Second); len(round(now)) != Most {
			t.Errorf("%s: nobody follows those that are dead", name)
		}
	}
}

// Of machines to which nothing comes, some of which die, at most two are at the registry at once, and whoever goes on
// asking gets it.
func TestTurns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		d, cell := &Desk{}, of(12)
		cell.holders, cell.address["holder"] = []string{"holder"}, "10.0.0.1:1"
		granted := map[string]time.Time{} // who may ask, and since when
		done, dead := map[string]bool{}, map[string]bool{}
		for step := 0; len(done)+len(dead) < 12; step++ {
			now := noon.Add(time.Duration(step) * time.Second)
			if step > 12*240 {
				t.Fatalf("seed %d: after %d s %v have it, and %v are dead", seed, step, done, dead)
			}
			for i := range 12 {
				machine := fmt.Sprint("m", i)
				if done[machine] || dead[machine] || r.IntN(3) == 0 { // some are late with a question
					continue
				}
				if !stalled(d, cell, machine, now) {
					delete(granted, machine)
					continue
				}
				if _, ok := granted[machine]; !ok {
					granted[machine] = now
				}
				// Who has got nothing for so long asks the registry no more, whether it knows that others may or not.
				maps.DeleteFunc(granted, func(_ string, since time.Time) bool { return now.Sub(since) > turn })
				if len(granted) > Most {
					t.Fatalf("seed %d: after %d s these ask the registry: %v", seed, step, granted)
				}
				switch r.IntN(40) { // else nothing comes
				case 0, 1:
					done[machine] = true
				case 2:
					dead[machine] = true
				}
				if done[machine] || dead[machine] {
					delete(granted, machine)
				}
			}
		}
	}
}

// What one machine asks for without end is forgotten, and is not known beyond a bound.
func TestManyPulls(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, of(2)
	ask := func(machine string, i int, now time.Time) schema.SourceAnswer {
		return d.Answer(&schema.SourceQuestion{
			Machine: machine, Content: schema.Digest(fmt.Sprint("sha256:", i%10, machine)), Pull: uint64(i + 1), Turn: 1, Fetches: []schema.SourceFetch{{Blob: schema.Digest(fmt.Sprint("sha256:", i))}},
		}, cell, now)
	}
	known := func() (n int) {
		for _, c := range d.wanted {
			n += len(c.pulls)
		}
		return n
	}
	for i := range 3 * mostPulls {
		if a := ask("m0", i, noon); (len(a.Fetch) == 1) != (i < mostPulls) {
			t.Fatalf("pull %d: %+v", i, a)
		}
	}
	if n := known(); n != mostPulls {
		t.Errorf("%d pulls are known", n)
	}
	if a := ask("m1", 0, noon); len(a.Fetch) != 1 {
		t.Errorf("another machine: %+v", a)
	}
	if a := ask("m0", 5*mostPulls, noon.Add(2*forget)); len(a.Fetch) != 1 || known() != 1 {
		t.Errorf("later: %+v, and %d pulls are known", a, known())
	}
}

// Of those who could give nothing to others nothing is remembered that all others would have to go through.
func TestFetchesKnown(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, of(3*looked)
	for _, begins := range []string{"m", "x"} { // x share nothing
		for i := range 3 * looked {
			d.Answer(&schema.SourceQuestion{
				Machine: fmt.Sprint(begins, i), Content: "sha256:c", Pull: 1, Turn: 1, Fetches: []schema.SourceFetch{{Blob: schema.Digest("sha256:" + begins), Begun: true}},
			}, cell, noon)
		}
	}
	blobs := d.wanted["sha256:c"].blobs
	if m, x := len(blobs["sha256:m"].fetches), len(blobs["sha256:x"].fetches); m != looked || x != 0 {
		t.Errorf("%d and %d fetches are known", m, x)
	}
}

// A machine that says that it fetches a blob, however often, leaves a place to another one.
func TestOneMachine(t *testing.T) {
	t.Parallel()
	d, cell := &Desk{}, of(3)
	ask := func(machine string, pull uint64) bool {
		a := d.Answer(&schema.SourceQuestion{Machine: machine, Content: "sha256:c", Pull: pull, Turn: 1, Fetches: []schema.SourceFetch{{Blob: "sha256:b", Begun: machine == "m0"}}}, cell, noon)
		return len(a.Fetch) == 1
	}
	for pull := range uint64(5) {
		ask("m0", pull+1)
	}
	if one, two := ask("m1", 1), ask("m2", 1); !one || two {
		t.Errorf("beside one machine: %v, beside two: %v", one, two)
	}
}
