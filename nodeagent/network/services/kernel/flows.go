package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/services"
)

// Flow is a connection to a virtual address, or packets of UDP between the same two.
type Flow struct {
	Protocol services.Protocol
	Client   netip.AddrPort
	Virtual  netip.AddrPort // where the client sends
	Backend  netip.AddrPort // where that goes; Virtual if it was not translated
}

// Reset ends the flows that gone picks, of those whose destination was translated, and of those that go
// to the virtual addresses of services now: at once, also those of clients that only listen. Packets of UDP
// go to another backend from then on. It returns how many there were. It takes time in proportion to the
// flows that the kernel knows, and gone must not keep it long.
//
// The kernel forgets the flow, so that the client's next packet is answered with a reset. A client
// that is waiting for its backend would not send one: it gets a SYN that does not belong to its connection, which
// it has to answer (RFC 5961, section 4.2), and that answer is its next packet.
func (p *Programmer) Reset(gone func(Flow) bool) (int, error) {
	total := 0
	var errs error
	for _, f := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		m := matcher{gone: gone, virtual: p.plan.Virtual}
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, f, &m)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			errs = errors.Join(errs, fmt.Errorf("connection tracking: %w", err))
		}
		total += int(n)
		if len(m.provoke) > 0 {
			errs = errors.Join(errs, provoke(f, m.provoke))
		}
	}
	return total, errs
}

// matcher picks entries of connection tracking, and collects clients that may be waiting.
type matcher struct {
	gone    func(Flow) bool
	virtual func(netip.Addr) bool
	provoke []Flow
}

// States of TCP in connection tracking, in which a client has a connection (enum tcp_conntrack).
const (
	established = 3
	finWait     = 4
	closeWait   = 5
)

// MatchConntrackFlow is called by the library for each entry.
func (m *matcher) MatchConntrackFlow(e *netlink.ConntrackFlow) bool {
	f := Flow{
		Protocol: services.Protocol(e.Forward.Protocol),
		Client:   addrPort(e.Forward.SrcIP, e.Forward.SrcPort),
		Virtual:  addrPort(e.Forward.DstIP, e.Forward.DstPort),
		Backend:  addrPort(e.Reverse.SrcIP, e.Reverse.SrcPort),
	}
	if f.Protocol != services.TCP && f.Protocol != services.UDP ||
		f.Virtual == f.Backend && !m.virtual(f.Virtual.Addr()) || !m.gone(f) {
		return false
	}
	if tcp, ok := e.ProtoInfo.(*netlink.ProtoInfoTCP); ok && tcp.State >= established && tcp.State <= closeWait {
		m.provoke = append(m.provoke, f)
	}
	return true
}

func addrPort(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

// provoke sends the clients of flows a SYN each, as if from where they are connected.
func provoke(f netlink.InetFamily, flows []Flow) error {
	s, err := unix.Socket(int(f), unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("reset connections: raw socket: %w", err)
	}
	defer func() { _ = unix.Close(s) }() // nothing was buffered
	var errs error
	for _, x := range flows {
		if err := unix.Sendto(s, synOf(x), 0, sockaddr(x.Client.Addr())); err != nil {
			errs = errors.Join(errs, fmt.Errorf("reset connection of %s to %s: %w", x.Client, x.Virtual, err))
		}
	}
	return errs
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
