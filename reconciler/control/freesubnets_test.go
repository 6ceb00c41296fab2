package control

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestFreeSubnets: what is given out overlaps with nothing that another has, and all is given out.
func TestFreeSubnets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		of := subnetRange{netip.MustParsePrefix("10.64.0.0/20"), rapid.IntRange(20, 26).Draw(t, "bits")}
		had := map[netip.Prefix]bool{}
		for range rapid.IntRange(0, 8).Draw(t, "had") {
			at := netip.AddrFrom4([4]byte{10, 64, byte(rapid.IntRange(0, 20).Draw(t, "third")), byte(rapid.IntRange(0, 255).Draw(t, "last"))})
			had[netip.PrefixFrom(at, rapid.IntRange(18, 28).Draw(t, "of")).Masked()] = true
		}
		want := 0
		for i := range of.count() {
			free := true
			for s := range had {
				free = free && !s.Overlaps(of.subnet(i))
			}
			if free {
				want++
			}
		}
		f, got := newFreeSubnets(of, had), map[netip.Prefix]bool{}
		for i := range want + 3 {
			s, ok := f.take(fmt.Sprint("m", i))
			if !ok {
				continue
			}
			for other := range had {
				if s.Overlaps(other) {
					t.Fatalf("%s is given out, and another has %s", s, other)
				}
			}
			if got[s] || !of.has(s) {
				t.Fatalf("%s is given out twice, or is not of %s", s, of.of)
			}
			got[s] = true
		}
		if len(got) != want {
			t.Errorf("%d are given out, %d are free", len(got), want)
		}
	})
}

// TestFreeSubnetsNone: where there is none, one machine finds that out for all: to look through 2^20
// for each of these would take hours.
func TestFreeSubnetsNone(t *testing.T) {
	t.Parallel()
	f := newFreeSubnets(subnetRange{netip.MustParsePrefix("10.0.0.0/8"), 28}, map[netip.Prefix]bool{netip.MustParsePrefix("10.0.0.0/7"): true})
	for i := range 100_000 {
		if s, ok := f.take(fmt.Sprint("m", i)); ok {
			t.Fatalf("%s is given out", s)
		}
	}
}

// BenchmarkFreeSubnets gives 10000 machines a subnet each, where as many have one of another size.
func BenchmarkFreeSubnets(b *testing.B) {
	had := map[netip.Prefix]bool{}
	old := subnetRange{netip.MustParsePrefix("10.0.0.0/9"), 24}
	for i := range uint64(10_000) {
		had[old.subnet(i)] = true
	}
	for b.Loop() {
		f := newFreeSubnets(subnetRange{netip.MustParsePrefix("10.0.0.0/8"), 26}, had)
		for i := range 10_000 {
			if _, ok := f.take(fmt.Sprint("m", i)); !ok {
				b.Fatal("none is left")
			}
		}
	}
}
