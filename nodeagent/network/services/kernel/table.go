package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"

	"github.com/musterhq/muster/nodeagent/network/netfilter"
	"github.com/musterhq/muster/nodeagent/network/services"
)

// table is a cell's table.
type table struct {
	cell  string
	table *nftables.Table
	sets  []sets
	// lasting is for small transactions, and questions that are asked around them: the kernel
	// waits for the end of all that a transaction removes when a socket is closed, for 10 to
	// 30 ms. It is nil while none is open.
	lasting *nftables.Conn
	asking  *netlink.Conn
}

func newTable(cell string) *table {
	t := &nftables.Table{Name: TableName(cell), Family: nftables.TableFamilyINet}
	return &table{cell: cell, table: t, sets: []sets{setsOf(t, ip4), setsOf(t, ip6)}}
}

// TableName is the name of a cell's table, of family inet.
func TableName(cell string) string { return "muster-services-" + cell }

// open returns a connection for a transaction: the lasting one if that is large enough.
func (t *table) open(elements int) (*nftables.Conn, error) {
	if !netfilter.Small(elements) {
		return netfilter.Open(elements)
	}
	if t.lasting == nil {
		c, err := netfilter.Open(elements, nftables.AsLasting())
		if err != nil {
			return nil, err
		}
		t.lasting = c
	}
	return t.lasting, nil
}

// close closes the lasting connections; they are opened again when they are needed.
func (t *table) close() {
	if t.lasting != nil {
		_ = t.lasting.CloseLasting() // what was sent was answered
	}
	if t.asking != nil {
		_ = t.asking.Close() // it only asked
	}
	t.lasting, t.asking = nil, nil
}

// apply makes a change, all of it or nothing. With anew, what the table has is thrown away first, in the
// same transaction.
func (t *table) apply(c *services.Change, anew bool) error {
	if c.Empty() && !anew {
		return nil
	}
	nft, err := t.open(c.Size())
	if err != nil {
		return err
	}
	b := batch{table: t, conn: nft}
	if anew {
		b.anew()
	}
	for _, s := range t.sets {
		b.remove(s, c)
	}
	for _, p := range c.AddPicks {
		b.chain(pickChain(p))
	}
	for _, s := range t.sets {
		b.add(s, c)
	}
	for _, p := range c.RemovePicks {
		nft.DelChain(&nftables.Chain{Table: t.table, Name: pickName(p)})
	}
	if b.err != nil {
		t.close() // with what it has collected
		return fmt.Errorf("nftables: table %s: %w", t.table.Name, b.err)
	}
	if err := nft.Flush(); err != nil {
		t.close() // answers may still be on their way
		return fmt.Errorf("nftables: table %s: change of %d elements: %w", t.table.Name, c.Size(), err)
	}
	return nil
}

// remove removes the whole table.
func (t *table) remove() error {
	nft, err := netfilter.Open(0)
	if err != nil {
		return err
	}
	nft.AddTable(t.table) // a table that is not there cannot be removed
	nft.DelTable(t.table)
	if err := nft.Flush(); err != nil {
		return fmt.Errorf("nftables: remove table %s: %w", t.table.Name, err)
	}
	return nil
}

// Present reports whether a cell has a table here, whoever made it.
func Present(cell string) (bool, error) {
	err := newTable(cell).check()
	if errors.Is(err, errForeign) {
		return !errors.Is(err, errMissing), nil
	}
	return err == nil, err
}

// Supported returns why this process cannot program services on this machine; nil if it can. It
// makes all that a table may have in one transaction, which ends with its removal.
func Supported() error {
	nft, err := netfilter.Open(0)
	if err != nil {
		return err
	}
	b := batch{table: newTable("-try"), conn: nft}
	b.anew()
	for _, v6 := range []bool{false, true} {
		for _, sticky := range []bool{false, true} {
			b.chain(pickChain(services.Pick{V6: v6, Sticky: sticky, Slots: 1}))
		}
	}
	nft.DelTable(b.table.table)
	if err := errors.Join(b.err, nft.Flush()); err != nil {
		return fmt.Errorf("nftables: rules for services: %w", err)
	}
	return nil
}

// batch collects a transaction.
type batch struct {
	*table
	conn *nftables.Conn
	err  error
}

func (b *batch) anew() {
	b.conn.AddTable(b.table.table)
	b.conn.DelTable(b.table.table)
	b.conn.AddTable(b.table.table)
	for _, s := range b.sets {
		for _, set := range s.all() {
			b.err = errors.Join(b.err, b.conn.AddSet(set, nil))
		}
	}
	for _, c := range base() {
		b.chain(c)
	}
}

func (b *batch) chain(c chain) {
	nc := &nftables.Chain{Table: b.table.table, Name: c.name}
	if c.hook != nil {
		nc.Hooknum, nc.Type, nc.Priority = c.hook, c.kind, nftables.ChainPriorityRef(c.priority)
	}
	b.conn.AddChain(nc)
	for i, r := range c.rules {
		b.conn.AddRule(&nftables.Rule{
			Table: b.table.table, Chain: nc, Exprs: r,
			UserData: userdata.AppendString(nil, userdata.TypeComment, fingerprint(c.name, i, r)),
		})
	}
}

// elements are the elements of a change that go to one set.
type elements struct {
	set  *nftables.Set
	list []nftables.SetElement
}

func (b *batch) send(do func(*nftables.Set, []nftables.SetElement) error, all ...elements) {
	for _, e := range all {
		for part := range slices.Chunk(e.list, netfilter.PerMessage) {
			b.err = errors.Join(b.err, do(e.set, part))
		}
	}
}

func (b *batch) remove(s sets, c *services.Change) {
	b.send(b.conn.SetDeleteElements,
		elements{s.fronts, of(s.family, c.RemoveFronts, frontOf, func(p services.Picked) nftables.SetElement {
			return nftables.SetElement{Key: frontKey(p.Front)}
		})},
		elements{s.slots, of(s.family, c.RemoveSlots, slotOf, func(x services.Slot) nftables.SetElement {
			return nftables.SetElement{Key: slotKey(x)}
		})},
		elements{s.addresses, of(s.family, c.RemoveAddresses, itself, addressElement)},
		elements{s.hairpins, of(s.family, c.RemoveHairpins, itself, hairpinElement)})
}

func (b *batch) add(s sets, c *services.Change) {
	b.send(b.conn.SetAddElements,
		elements{s.addresses, of(s.family, c.AddAddresses, itself, addressElement)},
		elements{s.hairpins, of(s.family, c.AddHairpins, itself, hairpinElement)},
		elements{s.slots, of(s.family, c.AddSlots, slotOf, slotElement)},
		elements{s.fronts, of(s.family, c.AddFronts, frontOf, frontElement)})
}

func frontOf(p services.Picked) netip.Addr { return p.Front.Address }
func slotOf(x services.Slot) netip.Addr    { return x.Front.Address }
func itself(a netip.Addr) netip.Addr       { return a }

// of returns the elements for items of a family.
func of[T any](f family, items []T, address func(T) netip.Addr, element func(T) nftables.SetElement) []nftables.SetElement {
	out := make([]nftables.SetElement, 0, len(items))
	for _, x := range items {
		if address(x).Is6() == (f == ip6) {
			out = append(out, element(x))
		}
	}
	return out
}
