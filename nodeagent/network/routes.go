package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema"
)

// routeProtocol marks routes of muster's agents, in what `ip route` says as "proto 109".
const routeProtocol = 109

const (
	vxlanPort = 8472 // as Linux has it
	// vxlanRoom is what wrapping takes of a packet: headers of Ethernet, VXLAN, UDP and IPv6.
	vxlanRoom = 70
	plainMTU  = 1500
)

// mtu returns the largest packet of tasks: that of the link that other machines are
// reached by.
func (m *Manager) mtu() int {
	mtu := plainMTU
	if l, err := m.uplink(); err == nil {
		mtu = l.Attrs().MTU
	}
	if m.made != nil && m.made.Mode == schema.ModeVXLAN {
		mtu -= vxlanRoom
	}
	return min(max(mtu, schema.MinMTU), schema.MaxMTU)
}

// uplink returns the link that has the machine's address, or else the one of its default route.
func (m *Manager) uplink() (netlink.Link, error) {
	addresses, err := m.link.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	for i := range addresses {
		if a, ok := netip.AddrFromSlice(addresses[i].IP); ok && a.Unmap() == m.address {
			return m.link.LinkByIndex(addresses[i].LinkIndex)
		}
	}
	routes, err := m.link.RouteList(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	for i := range routes {
		if r := &routes[i]; r.LinkIndex > 0 && (r.Dst == nil || r.Dst.IP.IsUnspecified()) {
			return m.link.LinkByIndex(r.LinkIndex)
		}
	}
	return nil, errors.New("no link has the machine's address, and none is of a default route")
}

// setVXLAN makes the cell's VXLAN, in a mode that has it.
func (m *Manager) setVXLAN(n *schema.MachineNetwork) error {
	name := m.names.vxlan()
	if n.Mode != schema.ModeVXLAN {
		return m.deleteLink(name)
	}
	if !m.address.IsValid() {
		return fmt.Errorf("mode %q needs the machine's address: give the agent --address", schema.ModeVXLAN)
	}
	mac := machineMAC(m.cfg.Cell, m.cfg.Machine)
	if l, err := m.link.LinkByName(name); err == nil {
		if v, ok := l.(*netlink.Vxlan); !ok || v.VxlanId != m.names.vni || !v.SrcAddr.Equal(m.address.AsSlice()) || v.HardwareAddr.String() != mac.String() {
			if err := m.deleteLink(name); err != nil {
				return err
			}
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = name, mac, n.MTU
	if attrs.MTU == 0 {
		attrs.MTU = plainMTU - vxlanRoom
		if l, err := m.uplink(); err == nil {
			attrs.MTU = max(l.Attrs().MTU-vxlanRoom, schema.MinMTU)
		}
	}
	_, err := m.setLink(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: m.names.vni, SrcAddr: m.address.AsSlice(), Port: vxlanPort, UDP6ZeroCSumRx: true})
	if err != nil {
		return fmt.Errorf("%w (two agents of one cell on one machine cannot both have mode %q)", err, schema.ModeVXLAN)
	}
	return nil
}

// setRoutes makes this agent's routes to subnets what they are to be: first new ones, so that
// what goes on has one at each moment.
func (m *Manager) setRoutes(n *schema.MachineNetwork) error {
	addresses, err := m.link.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	local := func(a netip.Addr) bool {
		return slices.ContainsFunc(addresses, func(h netlink.Addr) bool { return h.IP.Equal(a.AsSlice()) })
	}
	want, problems := planRoutes(m.cfg.Cell, m.cfg.Machine, n, m.machines, local)
	m.beyond = beyondRanges(want, n.Ranges)
	have, err := m.routes()
	if err != nil {
		return err
	}
	remove, add := difference(have, want)
	for _, r := range add {
		if err := m.addRoute(r, n); err != nil {
			problems = append(problems, err.Error())
		}
	}
	// One that was replaced by another to the same subnet is gone with that.
	remove = slices.DeleteFunc(remove, func(r route) bool { return slices.ContainsFunc(add, func(a route) bool { return a.to == r.to }) })
	m.problems = problems
	return m.deleteRoutes(remove)
}

// addRoute adds a route, or replaces the one to its subnet.
func (m *Manager) addRoute(r route, n *schema.MachineNetwork) error {
	out := &netlink.Route{Dst: netOf(r.to), Protocol: routeProtocol, Priority: m.names.metric}
	switch {
	case !r.via.IsValid():
		out.Type = unix.RTN_UNREACHABLE
	case r.outer.IsValid():
		l, err := m.link.LinkByName(m.names.vxlan())
		if err == nil {
			err = m.addPeer(l.Attrs().Index, r)
		}
		if err != nil {
			return fmt.Errorf("route to %s: %w", r.to, err)
		}
		out.LinkIndex, out.Gw, out.Flags = l.Attrs().Index, r.via.AsSlice(), int(netlink.FLAG_ONLINK)
		for _, s := range n.Subnets { // what the machine itself sends must come back by the same way
			if s.Addr().Is4() == r.to.Addr().Is4() {
				out.Src = Gateway(s).AsSlice()
			}
		}
	case r.to.Addr().Is4() && r.via.Is6():
		out.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: r.via.AsSlice()}
		if l, err := m.uplink(); err == nil {
			out.LinkIndex = l.Attrs().Index
		}
	default:
		out.Gw = r.via.AsSlice()
	}
	if err := m.link.RouteReplace(out); err != nil {
		return fmt.Errorf("route to %s by %s: %w: machines with mode %q must be in one network of layer 2", r.to, r.via, err, schema.ModeRoutes)
	}
	return nil
}

// addPeer has packets to a machine be wrapped.
func (m *Manager) addPeer(vxlan int, r route) error {
	mac, err := net.ParseMAC(r.mac)
	if err != nil {
		return err
	}
	if err := m.link.NeighSet(neighbor(vxlan, r.via, mac)); err != nil {
		return err
	}
	return m.link.NeighSet(forwarding(vxlan, mac, r.outer))
}

// forwarding is where packets to a hardware address in a VXLAN are sent.
func forwarding(vxlan int, mac net.HardwareAddr, outer netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: vxlan, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, IP: outer.AsSlice(), HardwareAddr: mac}
}

// routes returns this agent's routes to subnets, sorted.
func (m *Manager) routes() ([]route, error) {
	var all []netlink.Route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		found, err := m.link.RouteListFiltered(family, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	peers, outer, err := m.peers()
	if err != nil {
		return nil, err
	}
	var out []route
	for i := range all {
		r := &all[i]
		if r.Priority != m.names.metric || r.Dst == nil {
			continue
		}
		bits, _ := r.Dst.Mask.Size()
		a, _ := netip.AddrFromSlice(r.Dst.IP)
		is := route{to: netip.PrefixFrom(a.Unmap(), bits)}
		if is.to.IsSingleIP() {
			continue // to a task: it goes with its link
		}
		if via, ok := r.Via.(*netlink.Via); ok {
			is.via, _ = netip.AddrFromSlice(via.Addr)
		} else if gw, ok := netip.AddrFromSlice(r.Gw); ok {
			is.via = gw.Unmap()
		}
		if is.via.IsValid() {
			is.mac = peers[is.via]
			is.outer = outer[is.mac]
		}
		out = append(out, is)
	}
	slices.SortFunc(out, compareRoutes)
	return out, nil
}

// peers returns what the VXLAN has of machines: the hardware addresses of its neighbors, and
// where packets to these are sent.
func (m *Manager) peers() (macs map[netip.Addr]string, outer map[string]netip.Addr, err error) {
	macs, outer = map[netip.Addr]string{}, map[string]netip.Addr{}
	l, err := m.link.LinkByName(m.names.vxlan())
	if err != nil {
		return macs, outer, nil //nolint:nilerr // without one there are none
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_BRIDGE} {
		list, err := m.link.NeighList(l.Attrs().Index, family)
		if err != nil {
			return nil, nil, err
		}
		for i := range list {
			a, ok := netip.AddrFromSlice(list[i].IP)
			switch mac := list[i].HardwareAddr.String(); {
			case !ok:
			case family == unix.AF_BRIDGE:
				outer[mac] = a.Unmap()
			default:
				macs[a.Unmap()] = mac
			}
		}
	}
	return macs, outer, nil
}

// deleteRoutes deletes routes, with what the VXLAN has for them.
func (m *Manager) deleteRoutes(routes []route) error {
	var errs []error
	for _, r := range routes {
		out := &netlink.Route{Dst: netOf(r.to), Protocol: routeProtocol, Priority: m.names.metric}
		if !r.via.IsValid() {
			out.Type = unix.RTN_UNREACHABLE
		}
		if err := m.link.RouteDel(out); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("delete the route to %s: %w", r.to, err))
		}
		if r.mac == "" {
			continue
		}
		l, err := m.link.LinkByName(m.names.vxlan())
		mac, perr := net.ParseMAC(r.mac)
		if err != nil || perr != nil {
			continue // they went with it
		}
		_ = m.link.NeighDel(neighbor(l.Attrs().Index, r.via, mac)) // it may be replaced
		_ = m.link.NeighDel(forwarding(l.Attrs().Index, mac, r.outer))
	}
	return errors.Join(errs...)
}
