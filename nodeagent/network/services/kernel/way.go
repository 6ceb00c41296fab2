package kernel

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// wayProtocol marks routes of muster's agents, in what `ip route` says as "proto 109".
const wayProtocol = 109

// way leads the machine's own packets to virtual addresses into the kernel's rules: these translate what has
// found a route, whichever. On a machine without a default route there is none, so it makes one to a
// bridge without ports, which no packet reaches. Routes of others are left alone, and do as well. It has one owner.
type way struct {
	name, alias string // of the bridge
	link        *netlink.Handle
}

// newWay returns that of a cell. Nothing is read or changed yet.
func newWay(cell string) *way {
	sum := sha256.Sum256([]byte("services\x00" + cell))
	name := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])[:11] // of 15 bytes
	return &way{name: "mus-" + strings.ToLower(name), alias: "muster services of cell " + cell}
}

// set has the given ranges of virtual addresses have a route, and removes its own to others: what there is
// is kept, also that of an agent before this one. Packets are to have the address from as their source, if
// the machine has it. It returns the ranges that have a route of its own now and had none before.
func (w *way) set(ranges []netip.Prefix, from netip.Addr) (made []netip.Prefix, err error) {
	if err := w.open(); err != nil {
		return nil, err
	}
	have, err := w.have()
	if err != nil {
		return nil, fmt.Errorf("routes of services: %w", err)
	}
	var errs []error
	for _, p := range have {
		if !slices.Contains(ranges, p) {
			errs = append(errs, w.change((*netlink.Handle).RouteDel, p, netip.Addr{}))
		}
	}
	needed := false
	for _, p := range ranges {
		own := slices.Contains(have, p)
		if needed = needed || own; own || w.reached(p) {
			continue
		}
		needed = true
		err := w.bridge()
		if err == nil {
			err = w.change((*netlink.Handle).RouteAdd, p, from)
		}
		if err == nil {
			made = append(made, p)
		}
		if !errors.Is(err, unix.EEXIST) { // else somebody wants it not to be reached
			errs = append(errs, err)
		}
	}
	if !needed {
		errs = append(errs, w.remove())
	}
	return made, errors.Join(errs...)
}

// open opens the connection to the kernel.
func (w *way) open() (err error) {
	if w.link == nil {
		if w.link, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("routes of services: %w", err)
		}
	}
	return nil
}

// have returns which ranges have a route to the bridge.
func (w *way) have() ([]netip.Prefix, error) {
	l, err := w.link.LinkByName(w.name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	if err != nil || l.Attrs().Flags&net.FlagUp == 0 {
		return nil, err
	}
	of := &netlink.Route{LinkIndex: l.Attrs().Index, Protocol: wayProtocol}
	routes, err := w.link.RouteListFiltered(unix.AF_UNSPEC, of, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		a, _ := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		out = append(out, netip.PrefixFrom(a.Unmap(), bits))
	}
	return out, nil
}

// reached reports whether packets to a range find a route, or what is to be one is not known.
func (w *way) reached(p netip.Prefix) bool {
	_, err := w.link.RouteGet(p.Addr().AsSlice())
	return !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH)
}

// bridge makes the bridge, unless it is there, and brings it up.
func (w *way) bridge() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = w.name
	if err := w.link.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", w.name, err)
	}
	l, err := w.link.LinkByName(w.name)
	if err == nil {
		err = w.link.LinkSetAlias(l, w.alias)
	}
	if err == nil {
		err = w.link.LinkSetUp(l)
	}
	if err != nil {
		return fmt.Errorf("bring up %s: %w", w.name, err)
	}
	return nil
}

// change changes the route of a range.
func (w *way) change(how func(*netlink.Handle, *netlink.Route) error, p netip.Prefix, from netip.Addr) error {
	l, err := w.link.LinkByName(w.name)
	if err != nil {
		return fmt.Errorf("route of services, %s: %w", p, err)
	}
	r := &netlink.Route{
		LinkIndex: l.Attrs().Index, Protocol: wayProtocol, Scope: unix.RT_SCOPE_LINK,
		Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
	}
	if from.IsValid() && from.Is4() == p.Addr().Is4() {
		r.Src = from.AsSlice()
	}
	err = how(w.link, r)
	if errors.Is(err, unix.EINVAL) && r.Src != nil { // the machine does not have that address
		r.Src = nil
		err = how(w.link, r)
	}
	if err != nil {
		return fmt.Errorf("route of services, %s: %w", p, err)
	}
	return nil
}

// remove removes all that set has made.
func (w *way) remove() error {
	if err := w.open(); err != nil {
		return err
	}
	l, err := w.link.LinkByName(w.name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = w.link.LinkDel(l)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete %s: %w", w.name, err)
	}
	return nil
}

// close closes the connection to the kernel. What is made stays.
func (w *way) close() {
	if w.link != nil {
		w.link.Close()
		w.link = nil
	}
}
