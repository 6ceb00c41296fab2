package control

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// servedServices says for what services have their addresses already.
type servedServices struct {
	desired   *intent.Desired
	addressed uint64
}

// serve gives each declared service its virtual addresses, and takes those of services that
// are declared no more. A service keeps what it has for as long as that is of the cell's
// ranges; one for which there is no address left has none, which the status says.
func serve(p pass, done *servedServices) {
	if done.desired == p.Desired && done.addressed == p.Base.Addressed {
		return
	}
	*done = servedServices{p.Desired, p.Base.Addressed}
	network := p.Desired.Policy.Network
	if network == nil {
		network = &schema.CellNetwork{}
	}
	declared := make(map[string]bool, len(p.Desired.Services))
	for _, s := range p.Desired.Services {
		declared[s.Short()] = true
	}
	// What is taken from a service in this step is given to no other one before the next.
	taken, freed := map[netip.Addr]bool{}, false
	for name, r := range p.Base.Services {
		for _, a := range r.Addresses {
			taken[a] = true
		}
		if !declared[name] {
			p.Delete(model.KeyService + name)
			freed = true
		}
	}
	for _, s := range p.Desired.Services {
		var had []netip.Addr
		if r := p.Base.Services[s.Short()]; r != nil {
			had = r.Addresses
		}
		is, all := addresses(network, s.Short(), had, taken)
		if !all && freed {
			p.bookCell(p.In(time.Second))
		}
		switch {
		case len(is) > 0 && !slices.Equal(is, had):
			p.Put(model.KeyService+s.Short(), &schema.ServiceRecord{Addresses: is})
		case len(is) == 0 && len(had) > 0:
			p.Delete(model.KeyService + s.Short())
		}
	}
}

// addresses returns what a service that had some addresses gets, and takes it; false if there is
// not one of each range.
func addresses(n *schema.CellNetwork, name string, had []netip.Addr, taken map[netip.Addr]bool) (is []netip.Addr, all bool) {
	all = true
	for _, of := range []netip.Prefix{n.Services, n.Services6} {
		if !of.IsValid() {
			continue
		}
		a := kept(had, of)
		if !a.IsValid() {
			a = unused(of, name, taken)
		}
		if !a.IsValid() {
			all = false
			continue
		}
		taken[a] = true
		is = append(is, a)
	}
	return is, all
}

// kept returns which of a service's addresses is of a range; an invalid one if none is.
func kept(had []netip.Addr, of netip.Prefix) netip.Addr {
	if i := slices.IndexFunc(had, of.Contains); i >= 0 {
		return had[i]
	}
	return netip.Addr{}
}

// unused returns an address of a range that is not taken; an invalid one if all are. Where it
// looks first follows from the name, so that a service that is removed and comes back most
// often has the same one, and a new one seldom has that of one that has just gone. The first
// of a range, and the last of one of IPv4, are left out: they have a meaning in networks.
func unused(of netip.Prefix, name string, taken map[netip.Addr]bool) netip.Addr {
	first := of.Addr().AsSlice()
	usable := uint64(1)<<min(of.Addr().BitLen()-of.Bits(), 32) - 1
	if of.Addr().Is4() {
		usable--
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	for i := range min(usable, uint64(len(taken))+1) { // of so many, one is not taken
		n := 1 + (h.Sum64()+i)%usable
		raw := slices.Clone(first)
		for b := len(raw) - 1; n > 0; b-- {
			raw[b] |= byte(n)
			n >>= 8
		}
		if a, _ := netip.AddrFromSlice(raw); !taken[a] {
			return a
		}
	}
	return netip.Addr{}
}
