package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema"
)

// The chains: natChain has the rules of what tasks send beyond the cell, and sourceChain the one that
// drops what they send with addresses that are not theirs.
const (
	natChain    = "out"
	sourceChain = "sources"
)

// setFirewall has what tasks send beyond the cell's ranges come from the machine: nobody else
// knows the way back. It is one transaction: the rules are whole, or as before.
func (m *Manager) setFirewall(n *schema.MachineNetwork) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	t := &nftables.Table{Name: m.names.table(), Family: nftables.TableFamilyINet}
	c.AddTable(t) // else there is nothing to delete
	c.DelTable(t)
	c.AddTable(t)
	out := c.AddChain(&nftables.Chain{Name: natChain, Table: t, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	for _, r := range translated(n) {
		unless, err := unlessBeyond(c, t, m.beyond, r.Addr().Is4())
		if err != nil {
			return fmt.Errorf("nftables: table %s: %w", t.Name, err)
		}
		for _, s := range n.All() {
			if s.Addr().Is4() == r.Addr().Is4() {
				exprs := append(family(s.Addr()), matches(source, s, expr.CmpOpEq)...)
				exprs = append(append(append(exprs, matches(destination, r, expr.CmpOpNeq)...), unless...), &expr.Masq{})
				c.AddRule(&nftables.Rule{Table: t, Chain: out, Exprs: exprs})
			}
		}
	}
	m.addSources(c, t)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: table %s: %w", t.Name, err)
	}
	m.spared = m.beyond
	return nil
}

// translated returns the ranges beyond which packets of tasks come from the machine.
func translated(n *schema.MachineNetwork) []netip.Prefix {
	if n.Mode == schema.ModeNone {
		return nil // all know the way back
	}
	return n.Ranges
}

// addSources has packets of a task that come from an address to which the machine has no route by the
// task's own link be dropped, before anything is decided about them. The machine's rp_filter does that
// for IPv4 only, and not where all interfaces have a loose one.
func (m *Manager) addSources(c *nftables.Conn, t *nftables.Table) {
	chain := c.AddChain(&nftables.Chain{Name: sourceChain, Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(m.names.prefix())}, // how the name begins
		&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
}

// deleteFirewall deletes the rules, if there are any.
func (m *Manager) deleteFirewall() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	c.DelTable(&nftables.Table{Name: m.names.table(), Family: nftables.TableFamilyINet})
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

// tryFirewall finds out whether the kernel takes such rules.
func (m *Manager) tryFirewall() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	t := &nftables.Table{Name: m.names.table() + "-try", Family: nftables.TableFamilyINet}
	c.AddTable(t)
	out := c.AddChain(&nftables.Chain{Name: natChain, Table: t, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	c.AddRule(&nftables.Rule{Table: t, Chain: out, Exprs: append(family(netip.IPv4Unspecified()), &expr.Masq{})})
	m.addSources(c, t)
	c.DelTable(t)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

// family matches packets of the kind of an address.
func family(a netip.Addr) []expr.Any {
	proto := byte(unix.NFPROTO_IPV4)
	if a.Is6() {
		proto = unix.NFPROTO_IPV6
	}
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}}}
}

// end is an address in a header.
type end int

const (
	source end = iota
	destination
)

// matches compares one end of a packet with a prefix.
func matches(of end, p netip.Prefix, op expr.CmpOp) []expr.Any {
	size := uint32(p.Addr().BitLen() / 8)
	offset := uint32(12) // in the header of IPv4
	if p.Addr().Is6() {
		offset = 8
	}
	if of == destination {
		offset += size
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: netOf(p).Mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

// followBeyond makes the rules anew if other subnets are beyond the ranges than they say.
func (m *Manager) followBeyond(n *schema.MachineNetwork) error {
	if slices.Equal(m.beyond, m.spared) {
		return nil
	}
	return m.setFirewall(n)
}
