package services_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/musterhq/muster/nodeagent/network/services"
	"github.com/musterhq/muster/nodeagent/network/services/servicestest"
)

// model is a kernel: it refuses to add what is there, and to remove what is not.
type model struct {
	services.State
	fronts map[services.Front]services.Pick
	slots  map[services.Slot]netip.AddrPort
	errs   []string
}

func newModel() *model {
	return &model{
		State: services.State{
			Addresses: map[netip.Addr]struct{}{}, Pools: map[services.Front]services.Pool{},
			Picks: map[services.Pick]struct{}{}, Hairpins: map[netip.Addr]struct{}{},
		},
		fronts: map[services.Front]services.Pick{}, slots: map[services.Slot]netip.AddrPort{},
	}
}

func add[K comparable, V any](m *model, to map[K]V, k K, v V) {
	if _, ok := to[k]; ok {
		m.errs = append(m.errs, fmt.Sprintf("%v is there already", k))
	}
	to[k] = v
}

func remove[K comparable, V any](m *model, from map[K]V, k K) {
	if _, ok := from[k]; !ok {
		m.errs = append(m.errs, fmt.Sprintf("%v is not there", k))
	}
	delete(from, k)
}

func (m *model) apply(c services.Change) {
	for _, p := range c.RemoveFronts {
		remove(m, m.fronts, p.Front)
	}
	for _, s := range c.RemoveSlots {
		remove(m, m.slots, services.Slot{Front: s.Front, Index: s.Index})
	}
	for _, a := range c.RemoveAddresses {
		remove(m, m.Addresses, a)
	}
	for _, a := range c.RemoveHairpins {
		remove(m, m.Hairpins, a)
	}
	for _, p := range c.AddPicks {
		add(m, m.Picks, p, struct{}{})
	}
	for _, p := range c.AddFronts {
		add(m, m.fronts, p.Front, p.Pick)
	}
	for _, s := range c.AddSlots {
		add(m, m.slots, services.Slot{Front: s.Front, Index: s.Index}, s.At)
	}
	for _, a := range c.AddAddresses {
		add(m, m.Addresses, a, struct{}{})
	}
	for _, a := range c.AddHairpins {
		add(m, m.Hairpins, a, struct{}{})
	}
	for _, p := range c.RemovePicks {
		remove(m, m.Picks, p)
	}
	m.Pools = map[services.Front]services.Pool{}
	n := 0
	for f, p := range m.fronts {
		if _, ok := m.Picks[p]; !ok {
			m.errs = append(m.errs, fmt.Sprintf("%v leads to %v, which is not there", f, p))
		}
		pool := services.Pool{Sticky: p.Sticky}
		for i := range p.Slots {
			pool.Slots = append(pool.Slots, m.slots[services.Slot{Front: f, Index: i}])
		}
		n += len(pool.Slots)
		m.Pools[f] = pool
	}
	if n != len(m.slots) {
		m.errs = append(m.errs, fmt.Sprintf("%d slots; want %d", len(m.slots), n))
	}
}

func TestRandomChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 0))
		p, m, wanted := services.New(), newModel(), map[string]*services.Service{}
		for step := range 40 {
			for range 1 + r.IntN(4) {
				servicestest.Step(r, 12, wanted, p)
			}
			if r.IntN(10) == 0 { // another agent, which finds what this one has left
				p = services.New()
				for _, s := range wanted {
					p.Set(s)
				}
				p.Found(clone(m.State))
			}
			m.apply(p.Next())
			if !servicestest.Equal(m.State, p.Have()) || len(m.errs) > 0 {
				t.Fatalf("seed %d, step %d: %v\n%+v\n%+v", seed, step, m.errs, m.State, p.Have())
			}
			if err := servicestest.Check(m.State, wanted); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if c := p.Next(); !c.Empty() {
				t.Fatalf("seed %d, step %d: a change without a reason: %+v", seed, step, c)
			}
		}
	}
}

func clone(s services.State) services.State {
	return services.State{Addresses: maps.Clone(s.Addresses), Pools: maps.Clone(s.Pools), Picks: maps.Clone(s.Picks), Hairpins: maps.Clone(s.Hairpins)}
}

// one returns a service with n equal backends, without those in gone.
func one(n int, sticky bool, gone ...int) *services.Service {
	s := servicestest.Many(1, n)[0]
	s.Sticky = sticky
	p := &s.Ports[0]
	for _, g := range gone {
		p.Backends[g].Weight = 0
	}
	return s
}

func TestOneBackendIsFewElements(t *testing.T) {
	t.Parallel()
	p := services.New()
	p.Set(one(1000, false))
	p.Next()
	p.Set(one(1000, false, 17))
	// the front, the slot that is free, and the last one, which takes its place
	if c := p.Next(); c.Size() != 2+1+1+1+2 {
		t.Errorf("%d elements and chains: %+v", c.Size(), c)
	}
}

func TestStickyMovesFew(t *testing.T) {
	t.Parallel()
	f := services.Front{Address: servicestest.Virtual(0, false), Protocol: services.TCP, Port: 80}
	for gone := range 10 {
		p := services.New()
		p.Set(one(10, true))
		p.Next()
		before := p.Have().Pools[f].Slots
		p.Set(one(10, true, gone))
		p.Next()
		moved, lost := 0, 0
		after := p.Have().Pools[f].Slots
		for i, at := range before {
			switch {
			case at == servicestest.Backend(gone, false):
				lost++
			case len(after) != len(before) || after[i] != at:
				moved++
			}
		}
		if lost == 0 || moved > len(before)/10 {
			t.Errorf("without backend %d, which had %d of %d slots, %d others moved", gone, lost, len(before), moved)
		}
	}
}

func TestAddressesThatNoServiceMayHave(t *testing.T) {
	t.Parallel()
	p := services.New()
	s := one(1, false)
	s.Addresses = nil
	for _, a := range []string{"127.0.0.1", "::1", "0.0.0.0", "224.0.0.1", "169.254.1.1", "fe80::1", "::ffff:10.0.0.1"} {
		s.Addresses = append(s.Addresses, netip.MustParseAddr(a))
	}
	p.Set(s)
	if c := p.Next(); !c.Empty() {
		t.Errorf("%+v", c)
	}
	s = one(0, false)
	for _, a := range []string{"127.0.0.1:80", "0.0.0.0:80", "169.254.169.254:80", "10.0.0.1:0"} {
		s.Ports[0].Backends = append(s.Ports[0].Backends, services.Backend{At: netip.MustParseAddrPort(a), Weight: 100})
	}
	p.Set(s)
	if c := p.Next(); len(c.AddSlots) != 0 {
		t.Errorf("%+v", c)
	}
}
