package services

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Planner has the services that are wanted, and what the kernel has.
type Planner struct {
	services map[string]*Service
	claims   map[netip.Addr][]string // keys of the services that have an address, in order
	dirty    map[netip.Addr]struct{}

	have  State
	ports map[netip.Addr][]Front // of have.Pools
	// picks counts the pools of have, and hairpins the wanted virtual addresses, which need one.
	picks    map[Pick]int
	hairpins map[netip.Addr]int
	local    map[netip.Addr][]netip.Addr // the hairpins that a virtual address needs
	touched  map[netip.Addr]struct{}     // hairpins that may have to change
}

// New returns a planner without services, for an empty table.
func New() *Planner {
	p := &Planner{
		services: map[string]*Service{}, claims: map[netip.Addr][]string{}, dirty: map[netip.Addr]struct{}{},
		hairpins: map[netip.Addr]int{}, local: map[netip.Addr][]netip.Addr{},
		touched: map[netip.Addr]struct{}{},
	}
	p.Found(State{})
	return p
}

// Set adds a service, or replaces the one with its key. The planner keeps it: it must not be
// changed any more.
func (p *Planner) Set(s *Service) {
	p.Remove(s.Key)
	p.services[s.Key] = s
	for _, a := range addressesOf(s) {
		keys := p.claims[a]
		at, _ := slices.BinarySearch(keys, s.Key)
		p.claims[a] = slices.Insert(slices.Clone(keys), at, s.Key)
		p.dirty[a] = struct{}{}
	}
}

// Remove removes a service.
func (p *Planner) Remove(key string) {
	s := p.services[key]
	if s == nil {
		return
	}
	delete(p.services, key)
	for _, a := range addressesOf(s) {
		p.claims[a] = slices.DeleteFunc(p.claims[a], func(k string) bool { return k == key })
		if len(p.claims[a]) == 0 {
			delete(p.claims, a)
		}
		p.dirty[a] = struct{}{}
	}
}

// Keys returns the keys of the services, in order.
func (p *Planner) Keys() []string { return sorted(p.services, cmp.Compare[string]) }

// Virtual reports whether an address is that of a service.
func (p *Planner) Virtual(a netip.Addr) bool { return len(p.claims[a]) > 0 }

// Found says what the kernel has, when that is not what Next returned: at the start, and
// after a failure. The planner keeps it.
func (p *Planner) Found(have State) {
	if have.Addresses == nil {
		have.Addresses = map[netip.Addr]struct{}{}
	}
	if have.Pools == nil {
		have.Pools = map[Front]Pool{}
	}
	if have.Picks == nil {
		have.Picks = map[Pick]struct{}{}
	}
	if have.Hairpins == nil {
		have.Hairpins = map[netip.Addr]struct{}{}
	}
	p.have, p.ports, p.picks = have, map[netip.Addr][]Front{}, map[Pick]int{}
	for a := range have.Addresses {
		p.dirty[a] = struct{}{}
	}
	for f, pool := range have.Pools {
		p.ports[f.Address] = append(p.ports[f.Address], f)
		p.picks[pool.pick(f)]++
		p.dirty[f.Address] = struct{}{}
	}
	for a := range have.Hairpins {
		p.touched[a] = struct{}{}
	}
	for a := range p.claims {
		p.dirty[a] = struct{}{}
	}
}

// Have returns what the kernel has if it has taken all that Next returned. The caller must not
// change it.
func (p *Planner) Have() State { return p.have }

// Next returns what is to be changed in the kernel, which is taken as done. It takes time in
// proportion to the services that were set and removed.
func (p *Planner) Next() Change {
	var c Change
	for _, a := range sorted(p.dirty, netip.Addr.Compare) {
		p.address(&c, a)
	}
	for _, a := range sorted(p.touched, netip.Addr.Compare) {
		_, has := p.have.Hairpins[a]
		switch {
		case p.hairpins[a] > 0 && !has:
			c.AddHairpins = append(c.AddHairpins, a)
			p.have.Hairpins[a] = struct{}{}
		case p.hairpins[a] == 0 && has:
			c.RemoveHairpins = append(c.RemoveHairpins, a)
			delete(p.have.Hairpins, a)
		}
	}
	p.changePicks(&c)
	clear(p.dirty)
	clear(p.touched)
	return c
}

// address appends what changes of one virtual address.
func (p *Planner) address(c *Change, a netip.Addr) {
	var s *Service
	_, has := p.have.Addresses[a]
	if keys := p.claims[a]; len(keys) > 0 {
		s = p.services[keys[0]]
		if !has {
			c.AddAddresses = append(c.AddAddresses, a)
			p.have.Addresses[a] = struct{}{}
		}
	} else if has {
		c.RemoveAddresses = append(c.RemoveAddresses, a)
		delete(p.have.Addresses, a)
	}
	pools, local := p.pools(s, a)
	for _, f := range p.ports[a] {
		if _, ok := pools[f]; !ok {
			p.set(c, f, Pool{})
		}
	}
	for _, f := range sorted(pools, Front.Compare) {
		p.set(c, f, pools[f])
	}
	p.ports[a] = sorted(pools, Front.Compare)
	if len(pools) == 0 {
		delete(p.ports, a)
	}
	for _, l := range p.local[a] {
		if p.hairpins[l]--; p.hairpins[l] == 0 {
			delete(p.hairpins, l)
		}
		p.touched[l] = struct{}{}
	}
	delete(p.local, a)
	if len(local) > 0 {
		p.local[a] = local
	}
	for _, l := range local {
		p.hairpins[l]++
		p.touched[l] = struct{}{}
	}
}

// pools returns what is wanted of an address of a service, and which hairpins it needs.
func (p *Planner) pools(s *Service, a netip.Addr) (pools map[Front]Pool, local []netip.Addr) {
	if s == nil {
		return nil, nil
	}
	pools = map[Front]Pool{}
	for _, port := range s.Ports {
		f := Front{a, port.Protocol, port.Port}
		backends := eligible(port.Backends, a.Is6(), s.PreferLocal)
		shares := sharesOf(backends)
		if len(shares) == 0 {
			continue
		}
		pool := Pool{Sticky: s.Sticky}
		if s.Sticky {
			pool.Slots = spread(shares)
		} else {
			var old []netip.AddrPort
			if had := p.have.Pools[f]; !had.Sticky {
				old = had.Slots
			}
			pool.Slots = fill(old, shares)
		}
		pools[f] = pool
		for _, b := range backends {
			if b.Local {
				local = append(local, b.At.Addr())
			}
		}
	}
	slices.SortFunc(local, netip.Addr.Compare)
	return pools, slices.Compact(local)
}

// set makes a pool what it is to be: without slots, nothing.
func (p *Planner) set(c *Change, f Front, now Pool) {
	old := p.have.Pools[f]
	c.pool(f, old, now)
	if len(old.Slots) > 0 {
		p.picks[old.pick(f)]--
	}
	if len(now.Slots) == 0 {
		delete(p.have.Pools, f)
		return
	}
	p.picks[now.pick(f)]++
	p.have.Pools[f] = now
}

// keptPicks is up to which number of slots the way to pick one stays when it is not needed any
// more: it often is soon again, and a transaction that removes a chain takes the kernel some
// ten times as long.
const keptPicks = 64

// changePicks appends which ways to pick are needed, and which no longer.
func (p *Planner) changePicks(c *Change) {
	for pick := range maps.Keys(p.have.Picks) {
		if p.picks[pick] <= 0 && pick.Slots > keptPicks {
			c.RemovePicks = append(c.RemovePicks, pick)
			delete(p.have.Picks, pick)
		}
	}
	for pick, n := range p.picks {
		if n <= 0 {
			delete(p.picks, pick)
		} else if _, has := p.have.Picks[pick]; !has {
			c.AddPicks = append(c.AddPicks, pick)
			p.have.Picks[pick] = struct{}{}
		}
	}
	slices.SortFunc(c.RemovePicks, Pick.compare)
	slices.SortFunc(c.AddPicks, Pick.compare)
}

func (p Pick) compare(q Pick) int {
	return cmp.Or(schema.CompareBool(p.V6, q.V6), schema.CompareBool(p.Sticky, q.Sticky), cmp.Compare(p.Slots, q.Slots))
}

// addressesOf returns the addresses of a service that may be one, each once.
func addressesOf(s *Service) []netip.Addr {
	var out []netip.Addr
	for _, a := range s.Addresses {
		if usable(a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// usable reports whether an address may be that of a service or a backend. Addresses that mean
// something else on each machine, as its own loopback, may not: a service would lead there.
func usable(a netip.Addr) bool { return a.IsGlobalUnicast() && !a.Is4In6() && a.Zone() == "" }
