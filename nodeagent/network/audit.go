package network

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/namespace"
	"github.com/musterhq/muster/schema"
)

// Audit puts back what others have removed of the networks of the machine and of its tasks: links,
// addresses, routes and rules. It returns in words what that was. What cannot be put back is
// in the error.
func (m *Manager) Audit() (restored []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	note := func(what string, args ...any) { restored = append(restored, fmt.Sprintf(what, args...)) }
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(m.tasks)) {
		if what, err := m.auditTask(name); err != nil {
			errs = append(errs, fmt.Errorf("network of a task, %s: %w", name, err))
		} else if what != "" {
			note("%s of a task, %s", what, name)
		}
	}
	if m.made == nil {
		return restored, errors.Join(errs...)
	}
	for _, name := range m.links() {
		if _, err := m.link.LinkByName(name); errors.As(err, &netlink.LinkNotFoundError{}) {
			note("link %s", name)
		}
	}
	had, err := m.routes()
	errs = append(errs, err, forward(m.made), m.setBridge(m.made), m.setVXLAN(m.made), m.setRoutes(m.made))
	has, err := m.routes()
	errs = append(errs, err)
	for _, r := range has {
		if !slices.Contains(had, r) {
			note("route to %s", r.to)
		}
	}
	if whole, err := m.firewallWhole(); err == nil && !whole {
		note("rules of nftables, table %s", m.names.table())
		errs = append(errs, m.setFirewall(m.made))
	} else {
		errs = append(errs, err)
	}
	return restored, errors.Join(errs...)
}

// links are those of the machine itself.
func (m *Manager) links() []string {
	names := []string{m.names.bridge()}
	if m.made.Mode == schema.ModeVXLAN {
		names = append(names, m.names.vxlan())
	}
	return names
}

// auditTask puts back what is missing of a task's network, and returns what that was.
func (m *Manager) auditTask(name string) (what string, err error) {
	t := m.tasks[name]
	if !namespace.Held(t.Namespace) {
		return "", errors.New("its namespace is not held any more: the task has no network until it starts again")
	}
	l, err := m.link.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return "link", m.relink(name, t)
	}
	if err != nil {
		return "", err
	}
	routes, err := m.link.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{LinkIndex: l.Attrs().Index, Protocol: routeProtocol}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return "", err
	}
	missing := slices.ContainsFunc(t.Addresses, func(a netip.Addr) bool {
		return !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Dst != nil && r.Dst.IP.Equal(a.AsSlice()) })
	})
	if !missing && l.Attrs().Flags&unix.IFF_UP != 0 {
		return "", nil
	}
	outer := m.veth(name, 0)
	return "route", m.reach(outer, t.Addresses)
}

// relink makes the link to a namespace anew, which has lost it.
func (m *Manager) relink(name string, t Task) error {
	ns, err := netns.GetFromPath(t.Namespace)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }() // it is only read
	outer := m.veth(name, m.taskMTU())
	outer.PeerNamespace = netlink.NsFd(ns)
	if err := m.link.LinkAdd(outer); err != nil {
		return err
	}
	if err := furnish(int(ns), outer, t.Addresses); err != nil {
		return err
	}
	if err := m.reach(outer, t.Addresses); err != nil {
		return err
	}
	return m.link.LinkSetAlias(outer, aliasOf("restored", t.Addresses))
}

// firewallWhole reports whether there are as many rules as there are to be.
func (m *Manager) firewallWhole() (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("nftables: %w", err)
	}
	t := &nftables.Table{Name: m.names.table(), Family: nftables.TableFamilyINet}
	want := map[string]int{sourceChain: 1}
	for _, s := range m.made.All() {
		for _, r := range translated(m.made) {
			if s.Addr().Is4() == r.Addr().Is4() {
				want[natChain]++
			}
		}
	}
	for name, n := range want {
		rules, err := c.GetRules(t, &nftables.Chain{Name: name, Table: t})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("nftables: %w", err)
		}
		if len(rules) != n {
			return false, nil
		}
	}
	return true, nil
}
