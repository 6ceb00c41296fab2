package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/netfilter"
	"github.com/musterhq/muster/nodeagent/network/services"
)

// sets are the sets and maps of one family.
type sets struct {
	family                             family
	addresses, hairpins, fronts, slots *nftables.Set
}

// setsOf returns the sets of a table. TypeMark is what nft calls a number of 4 bytes in
// the machine's order, as slots are.
// The IDs name them within a transaction; given here, the library takes none from a counter that it
// shares between goroutines.
func setsOf(t *nftables.Table, f family) sets {
	id := uint32(f.proto) << 8
	addr := nftables.TypeIPAddr
	if f.proto == unix.NFPROTO_IPV6 {
		addr = nftables.TypeIP6Addr
	}
	concat := nftables.MustConcatSetType
	return sets{
		family:    f,
		addresses: &nftables.Set{Table: t, ID: id + 1, Name: "addresses" + f.name, KeyType: addr},
		hairpins:  &nftables.Set{Table: t, ID: id + 2, Name: "hairpins" + f.name, KeyType: concat(addr, addr)},
		fronts: &nftables.Set{
			Table: t, ID: id + 3, Name: "fronts" + f.name, IsMap: true,
			KeyType: concat(addr, nftables.TypeInetProto, nftables.TypeInetService), DataType: nftables.TypeVerdict,
		},
		slots: &nftables.Set{
			Table: t, ID: id + 4, Name: "slots" + f.name, IsMap: true,
			KeyType:  concat(addr, nftables.TypeInetProto, nftables.TypeInetService, nftables.TypeMark),
			DataType: concat(addr, nftables.TypeInetService),
		},
	}
}

func (s sets) all() []*nftables.Set {
	return []*nftables.Set{s.addresses, s.hairpins, s.fronts, s.slots}
}

func frontKey(f services.Front) []byte {
	b := make([]byte, 0, 28)
	b = append(b, f.Address.AsSlice()...)
	b = append(b, byte(f.Protocol), 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, f.Port)
	return append(b, 0, 0)
}

func slotKey(s services.Slot) []byte {
	return append(frontKey(s.Front), binaryutil.NativeEndian.PutUint32(s.Index)...)
}

func addressElement(a netip.Addr) nftables.SetElement {
	return nftables.SetElement{Key: a.AsSlice()}
}

func hairpinElement(a netip.Addr) nftables.SetElement {
	return nftables.SetElement{Key: append(a.AsSlice(), a.AsSlice()...)}
}

func frontElement(p services.Picked) nftables.SetElement {
	return nftables.SetElement{Key: frontKey(p.Front), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: pickName(p.Pick)}}
}

func slotElement(s services.Slot) nftables.SetElement {
	at := append(s.At.Addr().AsSlice(), byte(s.At.Port()>>8), byte(s.At.Port()), 0, 0)
	return nftables.SetElement{Key: slotKey(s), Val: at}
}

// decoder reads what there is in a family's sets. An element that is none of ours is an error.
type decoder struct {
	family family
	state  *services.State
	picks  map[services.Front]services.Pick
	// slots are those that have been read, of each front.
	slots map[services.Front]map[uint32]netip.AddrPort
}

func (d *decoder) address(b []byte) (netip.Addr, []byte, error) {
	if len(b) < int(d.family.size) {
		return netip.Addr{}, nil, fmt.Errorf("element of %d bytes where an address is expected", len(b))
	}
	a, _ := netip.AddrFromSlice(b[:d.family.size])
	return a, b[d.family.size:], nil
}

func (d *decoder) front(b []byte) (services.Front, []byte, error) {
	a, b, err := d.address(b)
	if err != nil {
		return services.Front{}, nil, err
	}
	if len(b) < 8 {
		return services.Front{}, nil, fmt.Errorf("element with %d bytes behind the address, where protocol and port are expected", len(b))
	}
	return services.Front{Address: a, Protocol: services.Protocol(b[0]), Port: binary.BigEndian.Uint16(b[4:])}, b[8:], nil
}

func (d *decoder) addAddress(e nftables.SetElement) error {
	a, _, err := d.address(e.Key)
	if err == nil {
		d.state.Addresses[a] = struct{}{}
	}
	return err
}

func (d *decoder) addHairpin(e nftables.SetElement) error {
	a, _, err := d.address(e.Key)
	if err == nil {
		d.state.Hairpins[a] = struct{}{}
	}
	return err
}

func (d *decoder) addFront(e nftables.SetElement) error {
	f, _, err := d.front(e.Key)
	if err != nil {
		return err
	}
	name := netfilter.VerdictChain(e.Val)
	p, ok := parsePick(name)
	if !ok {
		return fmt.Errorf("port %d of %s leads to chain %q, which is none that picks a slot", f.Port, f.Address, name)
	}
	d.picks[f] = p
	return nil
}

func (d *decoder) addSlot(e nftables.SetElement) error {
	f, b, err := d.front(e.Key)
	if err != nil {
		return err
	}
	at, port, err := d.address(e.Val)
	if err != nil {
		return err
	}
	if len(b) < 4 || len(port) < 2 {
		return fmt.Errorf("slot of port %d of %s: %d bytes where its number is expected, and %d where the port is", f.Port, f.Address, len(b), len(port))
	}
	m := d.slots[f]
	if m == nil {
		m = map[uint32]netip.AddrPort{}
		d.slots[f] = m
	}
	m[binaryutil.NativeEndian.Uint32(b)] = netip.AddrPortFrom(at, binary.BigEndian.Uint16(port))
	return nil
}

// pools puts fronts and slots together.
func (d *decoder) pools() error {
	for f, p := range d.picks {
		slots := d.slots[f]
		if len(slots) != int(p.Slots) {
			return fmt.Errorf("port %d of %s has %d slots, and should have %d", f.Port, f.Address, len(slots), p.Slots)
		}
		pool := services.Pool{Sticky: p.Sticky, Slots: make([]netip.AddrPort, p.Slots)}
		for i, at := range slots {
			if i >= p.Slots {
				return fmt.Errorf("port %d of %s has slot %d of %d", f.Port, f.Address, i, p.Slots)
			}
			pool.Slots[i] = at
		}
		d.state.Pools[f] = pool
		delete(d.slots, f)
	}
	for f := range d.slots {
		return fmt.Errorf("port %d of %s has slots, and nothing leads there", f.Port, f.Address)
	}
	return nil
}
