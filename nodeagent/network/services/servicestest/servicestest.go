package servicestest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/musterhq/muster/nodeagent/network/services"
)

// Random returns a service with the key sN: with one to three ports, up to six backends each,
// and mostly addresses of its own.
func Random(r *rand.Rand, n int) *services.Service {
	s := &services.Service{Key: fmt.Sprint("s", n), Sticky: r.IntN(4) == 0, PreferLocal: r.IntN(4) == 0}
	at := n
	if r.IntN(10) == 0 {
		at = r.IntN(n + 1) // of another one, too
	}
	if r.IntN(8) > 0 {
		s.Addresses = append(s.Addresses, Virtual(at, false))
	}
	if r.IntN(2) == 0 {
		s.Addresses = append(s.Addresses, Virtual(at, true))
	}
	for i := range 1 + r.IntN(3) {
		p := services.Port{Protocol: services.TCP, Port: uint16(80 + i)}
		if r.IntN(3) == 0 {
			p.Protocol = services.UDP
		}
		for range r.IntN(7) {
			b := services.Backend{At: Backend(r.IntN(12), r.IntN(3) == 0), Weight: 100, Local: r.IntN(4) == 0}
			if r.IntN(5) == 0 {
				b.Weight = r.IntN(1001)
			}
			if !slices.ContainsFunc(p.Backends, func(o services.Backend) bool { return o.At == b.At }) {
				p.Backends = append(p.Backends, b)
			}
		}
		s.Ports = append(s.Ports, p)
	}
	return s
}

// Planner gets services and their keys.
type Planner interface {
	Set(s *services.Service)
	Remove(key string)
}

// Step sets or removes one of n services, in p and in wanted.
func Step(r *rand.Rand, n int, wanted map[string]*services.Service, p Planner) {
	s := Random(r, r.IntN(n))
	if r.IntN(4) == 0 {
		p.Remove(s.Key)
		delete(wanted, s.Key)
	} else {
		p.Set(s)
		wanted[s.Key] = s
	}
}

// Virtual returns a virtual address.
func Virtual(n int, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0xfd, 0x96, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{10, 96 + byte(n>>16), byte(n >> 8), byte(n)})
}

// Backend returns the address of a backend.
func Backend(n int, v6 bool) netip.AddrPort {
	a := netip.AddrFrom4([4]byte{10, 200 + byte(n>>16), byte(n >> 8), byte(n)})
	if v6 {
		a = netip.AddrFrom16([16]byte{0xfd, 0x0b, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrPortFrom(a, 8080)
}

// Many returns n services with a port and k backends each.
func Many(n, k int) []*services.Service {
	out := make([]*services.Service, n)
	for i := range out {
		p := services.Port{Protocol: services.TCP, Port: 80}
		for j := range k {
			p.Backends = append(p.Backends, services.Backend{At: Backend(i*k+j, false), Weight: 100})
		}
		out[i] = &services.Service{Key: fmt.Sprintf("s%05d", i), Addresses: []netip.Addr{Virtual(i, false)}, Ports: []services.Port{p}}
	}
	return out
}

// Equal compares two states.
func Equal(a, b services.State) bool {
	return maps.Equal(a.Addresses, b.Addresses) && maps.Equal(a.Hairpins, b.Hairpins) && maps.Equal(a.Picks, b.Picks) &&
		maps.EqualFunc(a.Pools, b.Pools, func(p, q services.Pool) bool { return p.Sticky == q.Sticky && slices.Equal(p.Slots, q.Slots) })
}

// Check compares what the kernel has with what the services say, by a reading of them of its own.
func Check(have services.State, wanted map[string]*services.Service) error {
	want := services.State{Addresses: map[netip.Addr]struct{}{}, Pools: map[services.Front]services.Pool{}, Hairpins: map[netip.Addr]struct{}{}}
	picks := map[services.Pick]struct{}{}
	for a, s := range owners(wanted) {
		want.Addresses[a] = struct{}{}
		for i, p := range s.Ports {
			if slices.ContainsFunc(s.Ports[i+1:], func(o services.Port) bool { return o.Port == p.Port && o.Protocol == p.Protocol }) {
				continue // the last counts
			}
			f := services.Front{Address: a, Protocol: p.Protocol, Port: p.Port}
			backends := sent(s, p, a.Is6())
			if len(backends) == 0 {
				continue
			}
			pool := have.Pools[f]
			if err := checkPool(pool, s, backends); err != nil {
				return fmt.Errorf("%v of %s: %w", f, s.Key, err)
			}
			want.Pools[f] = pool
			picks[services.Pick{V6: a.Is6(), Sticky: s.Sticky, Slots: uint32(len(pool.Slots))}] = struct{}{}
			for _, b := range backends {
				if b.Local {
					want.Hairpins[b.At.Addr()] = struct{}{}
				}
			}
		}
	}
	want.Picks = have.Picks
	if !Equal(have, want) {
		return fmt.Errorf("%+v; want %+v", have, want)
	}
	return checkPicks(have.Picks, picks)
}

// owners returns which service has an address.
func owners(wanted map[string]*services.Service) map[netip.Addr]*services.Service {
	out := map[netip.Addr]*services.Service{}
	for _, s := range wanted {
		for _, a := range s.Addresses {
			if o := out[a]; o == nil || s.Key < o.Key {
				out[a] = s
			}
		}
	}
	return out
}

func checkPicks(have, want map[services.Pick]struct{}) error {
	for p := range want {
		if _, ok := have[p]; !ok {
			return fmt.Errorf("%+v is missing", p)
		}
	}
	for p := range have {
		if _, ok := want[p]; !ok && p.Slots > 64 { // those with few slots stay
			return fmt.Errorf("%+v is of no use", p)
		}
	}
	return nil
}

func sent(s *services.Service, p services.Port, v6 bool) []services.Backend {
	var out, near []services.Backend
	for _, b := range p.Backends {
		if b.Weight == 0 || b.At.Addr().Is6() != v6 {
			continue
		}
		out = append(out, b)
		if b.Local {
			near = append(near, b)
		}
	}
	if s.PreferLocal && len(near) > 0 {
		return near
	}
	return out
}

// checkPool compares shares with weights: of sticky pools roughly, of others to half a percent.
func checkPool(p services.Pool, s *services.Service, backends []services.Backend) error {
	if p.Sticky != s.Sticky {
		return fmt.Errorf("sticky: %v", p.Sticky)
	}
	slots, total := map[netip.AddrPort]int{}, 0
	for _, at := range p.Slots {
		slots[at]++
	}
	for _, b := range backends {
		total += b.Weight
	}
	tolerance := 0.005
	if s.Sticky {
		tolerance = 0.04
	}
	if len(slots) > len(backends) {
		return fmt.Errorf("slots lead to %d backends, of %d", len(slots), len(backends))
	}
	for _, b := range backends {
		want, is := float64(b.Weight)/float64(total), float64(slots[b.At])/float64(len(p.Slots))
		if is < want-tolerance || is > want+tolerance || slots[b.At] == 0 && !s.Sticky {
			return fmt.Errorf("%s has %.4f of the slots; want %.4f", b.At, is, want)
		}
	}
	return nil
}
