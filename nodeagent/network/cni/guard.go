package cni

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/namespace"
)

// up brings up lo in a namespace.
func up(ns int) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(ns), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	return err
}

// guard has all packets of a task pass its machine, with the task's own addresses.
func guard(path string, has []given) error {
	var peer int
	err := namespace.In(path, func(ns int) (err error) {
		if peer, err = inside(ns, has); err == nil {
			err = restrict(ns, has)
		}
		return err
	})
	if err != nil {
		return err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	if l, err := h.LinkByIndex(peer); err != nil || l.Type() != "veth" {
		return fmt.Errorf("the other end of %s is not on this machine's network: not supported", taskLink)
	}
	on, err := h.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	for _, g := range has {
		if !slices.ContainsFunc(on, func(a netlink.Addr) bool { return a.IP.Equal(g.gateway.AsSlice()) }) {
			return fmt.Errorf("%s is to be reached by %s, which is not an address of this machine: with bridge, set isGateway: true", g.address, g.gateway)
		}
	}
	return nil
}

// inside does what is to be done in a task's namespace of its link, and returns the index of the other end.
func inside(ns int, has []given) (peer int, err error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(ns), unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	l, err := h.LinkByName(taskLink)
	if err != nil {
		return 0, fmt.Errorf("there is no %s: %w", taskLink, err)
	}
	if l.Type() != "veth" {
		return 0, fmt.Errorf("%s is of type %s, whose packets do not pass this machine, so that neither policies nor virtual addresses would hold: not supported", taskLink, l.Type())
	}
	if err := errors.Join(alone(h), owned(h, l, has)); err != nil {
		return 0, err
	}
	for _, name := range []string{"ipv4/conf/all", "ipv4/conf/" + taskLink, "ipv6/conf/" + taskLink} {
		if err := namespace.Set("/proc/sys/net/"+name+"/accept_redirects", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	for _, g := range has {
		if err := byGateway(h, l.Attrs().Index, g); err != nil {
			return 0, err
		}
	}
	return l.Attrs().ParentIndex, nil
}

// alone errs if there is an interface by which a task could go around its machine.
func alone(h *netlink.Handle) error {
	links, err := h.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links { // kernels with tunnels have some in each namespace, which are down
		if a := l.Attrs(); a.Name != taskLink && a.Flags&net.FlagLoopback == 0 && a.Flags&net.FlagUp != 0 {
			return fmt.Errorf("they have made %s beside %s: more than one interface for a task is not supported", a.Name, taskLink)
		}
	}
	return nil
}

// owned errs unless a link has the addresses.
func owned(h *netlink.Handle, l netlink.Link, has []given) error {
	list, err := h.AddrList(l, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	there := map[netip.Addr]bool{}
	for i := range list {
		a, _ := netip.AddrFromSlice(list[i].IP)
		there[a.Unmap()] = true
	}
	for _, g := range has {
		if !there[g.address] {
			return fmt.Errorf("%s does not have the address %s that they say", taskLink, g.address)
		}
	}
	return nil
}

// byGateway has what is on the same link be reached by the gateway, so that it passes the machine's firewall.
func byGateway(h *netlink.Handle, index int, g given) error {
	family := unix.AF_INET
	if g.address.Is6() {
		family = unix.AF_INET6
	}
	routes, err := h.RouteListFiltered(family, &netlink.Route{LinkIndex: index}, netlink.RT_FILTER_OIF)
	if err != nil {
		return err
	}
	only := hostNet(g.gateway)
	for i := range routes {
		r := &routes[i]
		if r.Dst == nil || r.Gw != nil || r.Via != nil || r.Type != unix.RTN_UNICAST {
			continue
		}
		to, _ := netip.AddrFromSlice(r.Dst.IP)
		if ones, bits := r.Dst.Mask.Size(); ones == bits || to.IsLinkLocalUnicast() || to.IsMulticast() {
			continue
		}
		direct := &netlink.Route{LinkIndex: index, Dst: only, Scope: netlink.SCOPE_LINK, Src: g.address.AsSlice()}
		if err := h.RouteReplace(direct); err != nil {
			return fmt.Errorf("route to %s: %w", g.gateway, err)
		}
		if err := h.RouteDel(r); err != nil {
			return fmt.Errorf("remove the route to %s: %w", r.Dst, err)
		}
		if err := h.RouteReplace(&netlink.Route{LinkIndex: index, Dst: r.Dst, Gw: g.gateway.AsSlice(), Src: g.address.AsSlice()}); err != nil {
			return fmt.Errorf("route to %s by %s: %w", r.Dst, g.gateway, err)
		}
	}
	return nil
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// restrict drops what a task sends with addresses that are not its own, and what only neighbours on its link would
// see. ICMPv6 finds these neighbours, and so is free of the second, and may have addresses of the link.
func restrict(ns int, has []given) error {
	c, err := nftables.New(nftables.WithNetNSFd(ns))
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	t := c.AddTable(&nftables.Table{Name: "muster", Family: nftables.TableFamilyINet})
	chain := c.AddChain(&nftables.Chain{Name: "sent", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw})
	accept, drop := &expr.Verdict{Kind: expr.VerdictAccept}, &expr.Verdict{Kind: expr.VerdictDrop}
	icmp6 := func(op expr.CmpOp) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}}}
	}
	ipv6 := []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV6}}}
	add := func(parts ...[]expr.Any) {
		var all []expr.Any
		for _, p := range parts {
			all = append(all, p...)
		}
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: all})
	}
	add(ipv6, icmp6(expr.CmpOpEq), []expr.Any{ // whether an address is free is asked for without one
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 8, Len: 16},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 16)}, accept,
	})
	add([]expr.Any{
		&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: number(unix.RTN_LOCAL)}, drop,
	})
	for _, f := range families { // an address that plugins did not say, or a router gave, is local, too
		parts := [][]expr.Any{
			{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte("lo\x00")}},
			{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.number}}},
			icmp6(expr.CmpOpNeq),
		}
		if i := slices.IndexFunc(has, func(g given) bool { return g.address.BitLen() == 8*f.length }); i >= 0 {
			parts = append(parts, []expr.Any{
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: uint32(f.length)},
				&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: has[i].address.AsSlice()},
			})
		}
		add(append(parts, []expr.Any{drop})...)
	}
	for _, kind := range []uint32{unix.RTN_BROADCAST, unix.RTN_MULTICAST, unix.RTN_ANYCAST} {
		add(icmp6(expr.CmpOpNeq), []expr.Any{
			&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: number(kind)}, drop,
		})
	}
	add(ipv6, icmp6(expr.CmpOpNeq), []expr.Any{ // fe80::/10
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 24, Len: 2},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: []byte{0xff, 0xc0}, Xor: []byte{0, 0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0xfe, 0x80}}, drop,
	})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables in the task's network: %w", err)
	}
	return nil
}

// families are where packets of IPv4 and of IPv6 have their source, and its length, in bytes.
var families = []struct {
	number byte
	source uint32
	length int
}{{unix.NFPROTO_IPV4, 12, 4}, {unix.NFPROTO_IPV6, 8, 16}}

// number is what the kernel compares a number with.
func number(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
