package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/placement/layout"
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
			s.layouts = map[string]*layout.Layout{}
			for _, a := range attributes {
				if grown[a] == nil && len(grown) > 0 {
					t.Fatalf("the layout for %q was not kept", a)
				}
				if was := grown[a]; was != nil {
					if d := cmp.Diff(s.layoutFor(a), was, cmp.AllowUnexported(layout.Layout{}), cmp.Comparer(func(x, y *layout.Column) bool { return x == y })); d != "" {
						t.Fatalf("machine %d, layout for %q (-of all +with one more):\n%s", i, a, d)
					}
				}
				s.layoutFor(a)
			}
		}
	}
}
