package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// The names of interfaces: outer is the one that is stood for, in the first namespace, and inner the one that does, in
// the second; between is the other end of the pair, in the first.
const (
	outer   = "eth0"
	inner   = outer
	between = "kernel0"
)

// Relay is one, for as long as it is not closed and its process lives.
type Relay struct {
	rules, first, second socket   // the first two are of the first namespace
	watch                *os.File // likewise
	done                 chan struct{}

	// Of the goroutine that follows what changes.
	is      link   // the interface that is stood for, as it was seen last; zero: it is gone
	pair    link   // its end in the first namespace
	inner   int32  // the number of the other end
	started uint32 // the MTU that the second namespace was made with
}

// Open makes a relay between two network namespaces, which are files that hold them. The second has only lo, which it
// brings up; the first has an interface eth0, which may be made anew, and have another MTU, later. A pair that an
// earlier one has left is replaced. report is called, by another goroutine, with what cannot be followed.
func Open(first, second *os.File, report func(error)) (*Relay, error) {
	none := socket{-1}
	r := &Relay{rules: none, first: none, second: none, done: make(chan struct{})}
	err := In(first, func() (err error) {
		var errs [3]error
		r.first, errs[0] = open(unix.NETLINK_ROUTE)
		r.rules, errs[1] = open(unix.NETLINK_NETFILTER)
		r.watch, errs[2] = watchLinks()
		return errors.Join(errs[:]...)
	})
	err = errors.Join(err, In(second, func() (err error) {
		r.second, err = open(unix.NETLINK_ROUTE)
		return err
	}))
	if err == nil {
		err = r.join(second)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("relay of a task's network: %w", err), r.release())
	}
	go r.follow(report)
	return r, nil
}

// Close ends it. The pair stays for as long as the second namespace.
func (r *Relay) Close() error {
	err := r.watch.Close()
	<-r.done
	r.watch = nil
	return errors.Join(err, r.release())
}

// release closes what it has.
func (r *Relay) release() error {
	err := errors.Join(r.rules.close(), r.first.close(), r.second.close())
	if r.watch != nil {
		err = errors.Join(err, r.watch.Close())
	}
	return err
}

// In calls do in a network namespace, in which the children of do are.
func In(namespace *os.File, do func() error) error {
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	err = do()
	back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET)
	runtime.KeepAlive(here)
	return errors.Join(err, back)
}

// link is an interface.
type link struct {
	index int32
	mac   []byte
	mtu   uint32
}

// linkHead is the kernel's struct ifinfomsg.
func linkHead(index int32, flags uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], flags)
	return b
}

// errNoInterface is the error of link for one that is not there.
var errNoInterface = errors.New("there is no such interface")

// link finds an interface.
func (s socket) link(name string) (l link, err error) {
	err = s.dump(request{name: "list interfaces", kind: unix.RTM_GETLINK, head: linkHead(0, 0)}, func(body []byte) {
		if len(body) < unix.SizeofIfInfomsg {
			return
		}
		if a := attributesOf(body[unix.SizeofIfInfomsg:]); string(bytes.TrimRight(a[unix.IFLA_IFNAME], "\x00")) == name && len(a[unix.IFLA_MTU]) == 4 {
			l = link{int32(binary.NativeEndian.Uint32(body[4:])), bytes.Clone(a[unix.IFLA_ADDRESS]), binary.NativeEndian.Uint32(a[unix.IFLA_MTU])}
		}
	})
	if err == nil && l.index == 0 {
		err = fmt.Errorf("%s: %w", name, errNoInterface)
	}
	return l, err
}

// vethPeer is the attribute of a pair with what its other end is.
const vethPeer = 1

// noAddress has an interface make itself no address of IPv6, which a kernel may do without.
func noAddress(index int32) request {
	return request{
		name: "no address of its own", kind: unix.RTM_SETLINK, head: linkHead(index, 0), optional: true,
		attributes: []attribute{nest(unix.IFLA_AF_SPEC, nil, nest(unix.AF_INET6, nil, attribute{unix.IFLA_INET6_ADDR_GEN_MODE, []byte{1}}))},
	}
}

// up brings an interface up.
func up(name string, index int32) request {
	return request{name: "bring up " + name, kind: unix.RTM_SETLINK, head: linkHead(index, unix.IFF_UP)}
}

// loIndex is the one that lo has in each namespace.
const loIndex = 1

// join makes the pair, has its inner end be as the outer interface is, and has packets go over it.
func (r *Relay) join(namespace *os.File) error {
	first, second := r.first, r.second
	is, err := first.link(outer)
	if err != nil {
		return err
	}
	gone := request{name: "remove an earlier pair", kind: unix.RTM_DELLINK, head: linkHead(0, 0), attributes: []attribute{text(unix.IFLA_IFNAME, between)}, optional: true}
	peer := nest(vethPeer, linkHead(0, 0), text(unix.IFLA_IFNAME, inner), attribute{unix.IFLA_ADDRESS, is.mac}, number(unix.IFLA_MTU, is.mtu), number(unix.IFLA_NET_NS_FD, uint32(namespace.Fd())))
	pair := request{
		name: "make a pair of interfaces", kind: unix.RTM_NEWLINK, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, head: linkHead(0, 0),
		attributes: []attribute{text(unix.IFLA_IFNAME, between), number(unix.IFLA_MTU, is.mtu), nest(unix.IFLA_LINKINFO, nil, text(unix.IFLA_INFO_KIND, "veth"), nest(unix.IFLA_INFO_DATA, nil, peer))},
	}
	if err := first.do(gone, pair); err != nil {
		return err
	}
	middle, err := first.link(between)
	if err != nil {
		return err
	}
	its, err := second.link(inner)
	if err != nil {
		return err
	}
	all := []request{up("lo", loIndex), noAddress(its.index), up(inner, its.index)}
	for _, copied := range []func(socket, int32, int32) ([]request, error){addresses, neighbors, routes} { // a route needs what is before
		found, err := copied(first, is.index, its.index)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if err := second.do(all...); err != nil {
		return err
	}
	if err := first.do(noAddress(middle.index), up(between, middle.index)); err != nil {
		return err
	}
	r.is, r.pair, r.inner, r.started = is, middle, its.index, is.mtu
	return redirect(r.rules, is.index, middle.index, 0)
}

// pick returns those attributes that there are.
func pick(from map[uint16][]byte, kinds ...uint16) (out []attribute) {
	for _, k := range kinds {
		if v, ok := from[k]; ok {
			out = append(out, attribute{k, bytes.Clone(v)})
		}
	}
	return out
}

// addresses returns what gives an interface the addresses of another, but those of the link itself.
func addresses(s socket, from, to int32) (out []request, err error) {
	err = s.dump(request{name: "list addresses", kind: unix.RTM_GETADDR, head: make([]byte, unix.SizeofIfAddrmsg)}, func(body []byte) {
		if len(body) < unix.SizeofIfAddrmsg || int32(binary.NativeEndian.Uint32(body[4:])) != from || body[3] == unix.RT_SCOPE_LINK {
			return
		}
		head := []byte{body[0], body[1], unix.IFA_F_NODAD, body[3], 0, 0, 0, 0}
		binary.NativeEndian.PutUint32(head[4:], uint32(to))
		a := pick(attributesOf(body[unix.SizeofIfAddrmsg:]), unix.IFA_ADDRESS, unix.IFA_LOCAL)
		out = append(out, request{name: "address", kind: unix.RTM_NEWADDR, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, head: head, attributes: a})
	})
	return out, err
}

// The kernel's struct ndmsg: its size, and where its parts are.
const (
	neighborSize  = 12
	neighborIndex = 4
	neighborState = 8
)

// neighbors returns what gives an interface the permanent neighbors of another.
func neighbors(s socket, from, to int32) (out []request, err error) {
	err = s.dump(request{name: "list neighbors", kind: unix.RTM_GETNEIGH, head: make([]byte, neighborSize)}, func(body []byte) {
		if len(body) < neighborSize || int32(binary.NativeEndian.Uint32(body[neighborIndex:])) != from || binary.NativeEndian.Uint16(body[neighborState:])&unix.NUD_PERMANENT == 0 {
			return
		}
		head := bytes.Clone(body[:neighborSize])
		binary.NativeEndian.PutUint32(head[neighborIndex:], uint32(to))
		a := pick(attributesOf(body[neighborSize:]), unix.NDA_DST, unix.NDA_LLADDR)
		out = append(out, request{name: "neighbor", kind: unix.RTM_NEWNEIGH, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, head: head, attributes: a})
	})
	return out, err
}

// The kernel's struct rtmsg: where its parts are.
const (
	routeTable    = 4
	routeProtocol = 5
)

// routes returns what gives an interface the routes of another, but those that the kernel makes for its addresses.
func routes(s socket, from, to int32) (out []request, err error) {
	err = s.dump(request{name: "list routes", kind: unix.RTM_GETROUTE, head: make([]byte, unix.SizeofRtMsg)}, func(body []byte) {
		if len(body) < unix.SizeofRtMsg || body[routeTable] != unix.RT_TABLE_MAIN || body[routeProtocol] == unix.RTPROT_KERNEL {
			return
		}
		has := attributesOf(body[unix.SizeofRtMsg:])
		if oif := has[unix.RTA_OIF]; len(oif) != 4 || int32(binary.NativeEndian.Uint32(oif)) != from {
			return
		}
		a := append(pick(has, unix.RTA_DST, unix.RTA_GATEWAY, unix.RTA_PREFSRC, unix.RTA_PRIORITY), number(unix.RTA_OIF, uint32(to)))
		out = append(out, request{name: "route", kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, head: bytes.Clone(body[:unix.SizeofRtMsg]), attributes: a})
	})
	return out, err
}

// Try makes a relay between two namespaces of nobody's, and ends it: it says why none can be made. The calling
// thread is in the second one afterwards.
func Try() error {
	first, err := namespace()
	if err != nil {
		return err
	}
	defer first.Close()
	s, err := open(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	pair := request{
		name: "make a pair of interfaces", kind: unix.RTM_NEWLINK, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, head: linkHead(0, 0),
		attributes: []attribute{text(unix.IFLA_IFNAME, outer), nest(unix.IFLA_LINKINFO, nil, text(unix.IFLA_INFO_KIND, "veth"))},
	}
	if err := errors.Join(s.do(pair), s.close()); err != nil {
		return err
	}
	second, err := namespace()
	if err != nil {
		return err
	}
	defer second.Close()
	r, err := Open(first, second, func(error) {})
	if err != nil {
		return err
	}
	return r.Close()
}

// namespace has the calling thread be in a new network namespace, and opens it.
func namespace() (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return os.Open("/proc/thread-self/ns/net")
}
