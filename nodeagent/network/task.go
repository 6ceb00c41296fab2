package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/namespace"
)

// taskLink is the name of a task's interface, as it sees it.
const taskLink = "eth0"

// Where a task sends what is not for itself. No machine has these addresses: they stand for
// the other end of its link.
var (
	next4 = netip.MustParseAddr("169.254.1.1")
	next6 = netip.MustParseAddr("fe80::1")
)

// make makes a namespace with a link and addresses. mtu 0 is that of the machine.
func (m *Manager) make(name, task string, addresses []netip.Addr, mtu int) error {
	if mtu == 0 {
		mtu = m.mtu()
	}
	outer := m.veth(name, mtu)
	err := namespace.New(m.path(name), func(ns int) error {
		outer.PeerNamespace = netlink.NsFd(ns)
		if err := m.link.LinkAdd(outer); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		return furnish(ns, outer, addresses)
	})
	if err != nil {
		return err
	}
	if err := m.reach(outer, addresses); err != nil {
		return err
	}
	if len(addresses) == 0 {
		return nil // which is none of a task
	}
	return m.link.LinkSetAlias(outer, aliasOf(task, addresses))
}

// veth describes the link of a task.
func (m *Manager) veth(name string, mtu int) *netlink.Veth {
	l := &netlink.Veth{
		LinkAttrs: netlink.NewLinkAttrs(), PeerName: taskLink, PeerHardwareAddr: linkMAC(name, "task"), PeerMTU: uint32(mtu),
	}
	l.Name, l.HardwareAddr, l.MTU = name, linkMAC(name, "machine"), mtu
	return l
}

// taskMTU is that of the tasks of a machine whose network is made.
func (m *Manager) taskMTU() int {
	if m.made != nil && m.made.MTU != 0 {
		return m.made.MTU
	}
	return m.mtu()
}

// furnish gives a task's end its addresses and routes. The other end is known, so that
// nobody is asked for it.
func furnish(ns int, outer *netlink.Veth, addresses []netip.Addr) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(ns), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	for _, name := range []string{"lo", taskLink} {
		l, err := h.LinkByName(name)
		if err == nil {
			err = h.LinkSetUp(l)
		}
		if err != nil {
			return fmt.Errorf("bring up %s: %w", name, err)
		}
		if name == "lo" {
			continue
		}
		index := l.Attrs().Index
		for _, a := range addresses {
			via, everything := next4, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if a.Is6() {
				via, everything = next6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
			if err := h.AddrReplace(l, ownAddress(a)); err != nil {
				return fmt.Errorf("address %s: %w", a, err)
			}
			if err := h.NeighSet(neighbor(index, via, outer.HardwareAddr)); err != nil {
				return fmt.Errorf("neighbor %s: %w", via, err)
			}
			if err := h.RouteReplace(&netlink.Route{LinkIndex: index, Dst: netOf(everything), Gw: via.AsSlice(), Src: a.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}); err != nil {
				return fmt.Errorf("default route of %s: %w", a, err)
			}
		}
	}
	return nil
}

func neighbor(index int, at netip.Addr, mac []byte) *netlink.Neigh {
	n := &netlink.Neigh{LinkIndex: index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT, IP: at.AsSlice(), HardwareAddr: mac}
	if at.Is6() {
		n.Family = unix.AF_INET6
	}
	return n
}

// reach has the machine route to a task. A packet of the task that comes from another address
// than its own is dropped.
func (m *Manager) reach(outer *netlink.Veth, addresses []netip.Addr) error {
	l, err := m.link.LinkByName(outer.Name)
	if err != nil {
		return err
	}
	if err := namespace.Set("/proc/sys/net/ipv4/conf/"+outer.Name+"/rp_filter", "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.link.LinkSetUp(l); err != nil {
		return fmt.Errorf("bring up %s: %w", outer.Name, err)
	}
	index := l.Attrs().Index
	for _, a := range addresses {
		if err := m.link.NeighSet(neighbor(index, a, outer.PeerHardwareAddr)); err != nil {
			return fmt.Errorf("neighbor %s: %w", a, err)
		}
		r := &netlink.Route{LinkIndex: index, Dst: netOf(netip.PrefixFrom(a, a.BitLen())), Scope: unix.RT_SCOPE_LINK, Protocol: routeProtocol, Priority: m.names.metric}
		if err := m.link.RouteReplace(r); err != nil {
			return fmt.Errorf("route to %s: %w", a, err)
		}
	}
	return nil
}

// remove removes what there is of a task's network. Its namespace lives on for as long as
// a process is in it.
func (m *Manager) remove(name string) error {
	return errors.Join(m.deleteLink(name), namespace.Release(m.path(name)))
}
