package placement

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	diff "github.com/google/go-cmp/cmp"
)

// A layout to which machines were added one by one is the one that is made of all of them.
func TestLayoutWithOneMore(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	machine := func(i int) Machine {
		m := Machine{Name: fmt.Sprint("m", random.IntN(1_000_000), "-", i), Up: true, Attributes: map[string]string{}}
		if domain := random.IntN(6); domain > 0 {
			m.Attributes["rack"] = fmt.Sprint("r", domain*domain%7)
		}
		return m
	}
	for range 20 {
		var first []Machine
		for i := range random.IntN(300) {
			first = append(first, machine(i))
		}
		s := NewSnapshot(first, nil)
		attributes := []string{"rack", NoSpread, MachineAttribute}
		for _, a := range attributes {
			s.layoutFor(a)
		}
		for i := range 40 {
			if fork := random.IntN(4); fork == 0 {
				defer s.Fork().Release() // columns are shared now
			}
			if len(first) > 0 && random.IntN(4) == 0 {
				s.RemoveMachine(first[0].Name)
				first = first[1:]
			}
			s.SetMachine(machine(1000 + i))
			grown := s.layouts
			s.layouts = map[string]*layout{}
			for _, a := range attributes {
				if grown[a] == nil && len(grown) > 0 {
					t.Fatalf("the layout for %q was not kept", a)
				}
				if was := grown[a]; was != nil {
					if d := diff.Diff(s.layoutFor(a), was, diff.AllowUnexported(layout{}, block{}), diff.Comparer(func(x, y *column) bool { return x == y })); d != "" {
						t.Fatalf("machine %d, layout for %q (-of all +with one more):\n%s", i, a, d)
					}
				}
				s.layoutFor(a)
			}
		}
	}
}

// Machines stand by domain and name, and in the ring any stretch has about the same of each
// domain: one of each before the second of any.
func TestLayoutOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	var machines []Machine
	for i := range 500 {
		m := Machine{Name: fmt.Sprint("m", random.IntN(1_000_000), "-", i), Up: true, Attributes: map[string]string{}}
		if domain := random.IntN(6); domain > 0 {
			m.Attributes["rack"] = fmt.Sprint("r", domain)
		}
		machines = append(machines, m)
	}
	s := NewSnapshot(machines, nil)
	for _, attribute := range []string{"rack", NoSpread, MachineAttribute} {
		l := s.layoutFor(attribute)
		text := func(slot int32) string { return l.column.values[l.column.at[slot]] + " " + s.nodes.at(slot).Name }
		if !slices.IsSortedFunc(l.slots, func(a, b int32) int { return cmp.Compare(text(a), text(b)) }) {
			t.Errorf("%q: machines do not stand by domain and name", attribute)
		}
		rounds, seen := map[int32]int32{}, map[int32]bool{}
		last := card{}
		for i, slot := range l.ring {
			domain := l.column.at[slot]
			if seen[slot] || l.rounds[i] != rounds[domain] {
				t.Fatalf("%q: %s is in round %d, as %d of its domain are before", attribute, text(slot), l.rounds[i], rounds[domain])
			}
			if seen[slot] = true; domain > 0 {
				rounds[domain]++
			}
			next := cardOf(slot, l.rounds[i], s.nodes.at(slot).hash)
			if compareCards(last, next) > 0 {
				t.Fatalf("%q: %s stands too late in its round", attribute, text(slot))
			}
			last = next
		}
		if len(seen) != len(machines) {
			t.Errorf("%q: %d machines in the ring, of %d", attribute, len(seen), len(machines))
		}
	}
}
