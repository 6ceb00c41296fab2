package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/services"
)

// Flow is a connection to a virtual address, or packets of UDP between the same two.
type Flow struct {
	Protocol services.Protocol
	Client   netip.AddrPort
	Virtual  netip.AddrPort // where the client sends
	Backend  netip.AddrPort // where that goes; Virtual if it was not translated
	Opening  bool           // the backend has not answered the client's first packet of TCP yet
}

// Reset ends the flows that gone picks, of those whose destination was translated, and of those that go
// to the virtual addresses of services now: at once, also those of clients that only listen. Packets of UDP
// go to another backend from then on. It returns how many there were. Only flows to backends are looked at,
// or all if that is nil; the kernel goes through all it knows in either case, but passes on those of few backends
// only (Linux 5.8). gone must not take long.
//
// The kernel forgets the flow, so that the client's next packet is answered with a reset. A client
// that is waiting for its backend would not send one: it gets a SYN that does not belong to its connection, which
// it has to answer (RFC 5961, section 4.2), and that answer is its next packet.
func (p *Programmer) Reset(backends []netip.Addr, gone func(Flow) bool) (int, error) {
	total := 0
	var errs error
	for _, f := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		var found []entry
		err := list(f, backends, func(e *entry) {
			if p.ends(e) && gone(e.Flow) {
				found = append(found, *e)
			}
		})
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("connection tracking: %w", err))
		}
		if len(found) == 0 {
			continue
		}
		n, err := end(f, found)
		total, errs = total+n, errors.Join(errs, err)
	}
	return total, errs
}

// ends is whether a flow goes to a service and may be ended. One whose connection both ends have closed is left
// alone: the kernel forgets it with the next connection between the two.
func (p *Programmer) ends(e *entry) bool {
	return (e.Protocol == services.TCP || e.Protocol == services.UDP) && e.state != timeWait &&
		(e.Virtual != e.Backend || p.plan.Virtual(e.Virtual.Addr()))
}

// end has the kernel forget entries, and clients that may be waiting speak. It returns how many there were.
func end(f netlink.InetFamily, entries []entry) (n int, errs error) {
	s, err := unix.Socket(int(f), unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		return 0, fmt.Errorf("reset connections: raw socket: %w", err)
	}
	defer func() { _ = unix.Close(s) }() // nothing was buffered
	for i := range entries {
		e := &entries[i]
		err := forget(f, e)
		if errors.Is(err, unix.ENOENT) {
			continue // the client has closed it, and may have another connection from there by now
		}
		if err == nil {
			n++
			if e.state >= established && e.state <= closeWait {
				err = unix.Sendto(s, synOf(e.Flow), 0, sockaddr(e.Client.Addr()))
			}
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("reset connection of %s to %s: %w", e.Client, e.Virtual, err))
		}
	}
	return n, errs
}

// forget deletes an entry, by what comes back: a client that has closed its connection may have opened
// another one from the same port since the entry was read. To where that goes is the same, and the number of
// an entry may be as well, since the kernel makes it of where that is in memory; but it comes back from another backend.
func forget(f netlink.InetFamily, e *entry) error {
	source, destination := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if f == unix.AF_INET6 {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	back := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_REPLY, nil)
	ip := back.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(source, e.Backend.Addr().AsSlice())
	ip.AddRtAttr(destination, e.answers.Addr().AsSlice())
	ports := back.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	ports.AddRtAttr(nl.CTA_PROTO_NUM, []byte{byte(e.Protocol)})
	ports.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(e.Backend.Port()))
	ports.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(e.answers.Port()))
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(f), Version: nl.NFNETLINK_V0})
	r.AddData(back)
	if e.zone != 0 {
		r.AddData(nl.NewRtAttr(nl.CTA_ZONE, nl.BEUint16Attr(e.zone)))
	}
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}

// synOf returns an IP packet from a flow's virtual address to its client.
func synOf(f Flow) []byte {
	const size, hops = 20, 64
	tcp := make([]byte, size)
	binary.BigEndian.PutUint16(tcp[0:], f.Virtual.Port())
	binary.BigEndian.PutUint16(tcp[2:], f.Client.Port())
	tcp[12] = size / 4 << 4
	tcp[13] = flagSYN
	binary.BigEndian.PutUint16(tcp[16:], checksum(f.Virtual.Addr(), f.Client.Addr(), tcp))
	var ip []byte
	if f.Client.Addr().Is4() {
		ip = []byte{0x45, 0, 0, 20 + size, 0, 0, 0, 0, hops, unix.IPPROTO_TCP, 0, 0} // the kernel fills in the checksum
	} else {
		ip = []byte{0x60, 0, 0, 0, 0, size, unix.IPPROTO_TCP, hops}
	}
	ip = append(ip, f.Virtual.Addr().AsSlice()...)
	ip = append(ip, f.Client.Addr().AsSlice()...)
	return append(ip, tcp...)
}

// checksum is that of TCP over the pseudo header and a segment of even length (RFC 9293, 3.1).
func checksum(from, to netip.Addr, segment []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(segment))
	for _, part := range [][]byte{from.AsSlice(), to.AsSlice(), segment} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
