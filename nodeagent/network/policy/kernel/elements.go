package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/musterhq/muster/nodeagent/network/netfilter"
	"github.com/musterhq/muster/nodeagent/network/policy"
)

// sets are the sets and maps of a family that every table has.
type sets struct {
	guards, ports, selves *nftables.Set
}

// The IDs name sets within a transaction; given here, the library takes none from a counter that it
// shares between goroutines.
func setsOf(t *nftables.Table, f *family) sets {
	id := uint32(f.proto) << 4
	concat := nftables.MustConcatSetType
	return sets{
		guards: &nftables.Set{Table: t, ID: id + 1, Name: "guards" + f.name, IsMap: true, KeyType: f.address, DataType: nftables.TypeVerdict},
		ports: &nftables.Set{
			Table: t, ID: id + 2, Name: "ports" + f.name, IsMap: true,
			KeyType: concat(f.address, nftables.TypeInetProto, nftables.TypeInetService), DataType: nftables.TypeVerdict,
		},
		selves: &nftables.Set{Table: t, ID: id + 3, Name: "selves" + f.name, KeyType: concat(f.address, f.address)},
	}
}

// firstGroup is the ID of the first set of a group in a transaction.
const firstGroup = 1 << 12

func goTo(chain string) *expr.Verdict { return &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain} }

func guardElement(g policy.Guard) nftables.SetElement {
	return nftables.SetElement{Key: g.Address.AsSlice(), VerdictData: goTo(g.To)}
}

func portElement(p policy.PortGuard) nftables.SetElement {
	key := append(p.Address.AsSlice(), p.Protocol, 0, 0, 0)
	key = binary.BigEndian.AppendUint16(key, p.Port.Port)
	return nftables.SetElement{Key: append(key, 0, 0), VerdictData: goTo(p.To)}
}

func selfElement(a netip.Addr) nftables.SetElement {
	return nftables.SetElement{Key: append(a.AsSlice(), a.AsSlice()...)}
}

func sourceElement(s policy.Source) nftables.SetElement {
	return nftables.SetElement{Key: s.Address.AsSlice()}
}

// address reads the address at the begin of a key.
func (f *family) read(key []byte) (netip.Addr, []byte, error) {
	if len(key) < int(f.size) {
		return netip.Addr{}, nil, fmt.Errorf("element of %d bytes where an address is expected", len(key))
	}
	a, _ := netip.AddrFromSlice(key[:f.size])
	return a, key[f.size:], nil
}

// readGuard, readPort and readSelf take an element into a state.
func (f *family) readGuard(e nftables.SetElement, s *policy.State) error {
	a, _, err := f.read(e.Key)
	if err == nil {
		s.Guards[a] = netfilter.VerdictChain(e.Val)
	}
	return err
}

func (f *family) readPort(e nftables.SetElement, s *policy.State) error {
	a, rest, err := f.read(e.Key)
	if err == nil && len(rest) < 6 {
		err = fmt.Errorf("element with %d bytes behind the address, where protocol and port are expected", len(rest))
	}
	if err == nil {
		s.Ports[policy.Port{Address: a, Protocol: rest[0], Port: binary.BigEndian.Uint16(rest[4:])}] = netfilter.VerdictChain(e.Val)
	}
	return err
}

func (f *family) readSelf(e nftables.SetElement, s *policy.State) error {
	a, _, err := f.read(e.Key)
	if err == nil {
		s.Selves[a] = struct{}{}
	}
	return err
}
