package kernel

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/services"
)

// entry is what connection tracking knows of a flow.
type entry struct {
	Flow
	answers netip.AddrPort // where the backend sends its answers: the client, or what stands for it
	zone    uint16
	state   uint8 // of TCP
}

// States of TCP in connection tracking (enum tcp_conntrack). From established to closeWait a client has a connection.
const (
	synSent     = 1
	established = 3
	closeWait   = 5
	timeWait    = 7
)

// What the library does not name: an attribute of a request for a list, those in it, and the bit in these for the source
// (enum ctattr_type, enum ctattr_filter, CTA_FILTER_F_CTA_IP_SRC).
const (
	ctaFilter           = 25
	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2
	filterSource        = 1
)

// mostLists is for how many backends lists of their own are asked for. For each the kernel goes through all flows, which
// takes a sixth of the time of passing all on.
const mostLists = 4

// list calls each with the flows of a family to backends, and perhaps with others; with all if backends is nil. What a caller
// wants to keep it copies. Of IPv6 all are passed on if one backend is of it: kernels up to Linux 6.18 at least take the
// filter for its opposite there (ctnetlink_filter_match_tuple).
func list(f netlink.InetFamily, backends []netip.Addr, each func(*entry)) error {
	if backends == nil {
		return dump(f, netip.Addr{}, each)
	}
	is6 := f == unix.AF_INET6
	backends = slices.DeleteFunc(slices.Clone(backends), func(a netip.Addr) bool { return a.Is6() != is6 })
	if len(backends) > mostLists || is6 && len(backends) > 0 {
		return dump(f, netip.Addr{}, each)
	}
	var errs error
	for _, b := range backends {
		errs = errors.Join(errs, dump(f, b, each))
	}
	return errs
}

// dump asks for the flows of a family, if backend is valid for those of IPv4 that it answers. A kernel before Linux 5.8
// does not know of that and lists all. Flows that come or go meanwhile may be missed, or be listed twice.
func dump(f netlink.InetFamily, backend netip.Addr, each func(*entry)) error {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(f), Version: nl.NFNETLINK_V0})
	if backend.IsValid() {
		reply := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_REPLY, nil)
		reply.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil).AddRtAttr(nl.CTA_IP_V4_SRC, backend.AsSlice())
		filter := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
		filter.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(0))
		filter.AddRtAttr(ctaFilterReplyFlags, nl.Uint32Attr(filterSource))
		r.AddData(reply)
		r.AddData(filter)
	}
	var unread error
	err := r.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		var e entry
		if unread = e.read(m); unread == nil {
			each(&e)
		}
		return unread == nil
	})
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		err = nil
	}
	return errors.Join(err, unread)
}

// sizeOfHeader is that of struct nfgenmsg, before the attributes of a message.
const sizeOfHeader = 4

func (e *entry) read(message []byte) error {
	if len(message) < sizeOfHeader {
		return errors.New("a message is cut off")
	}
	d, err := mdlayher.NewAttributeDecoder(message[sizeOfHeader:])
	if err != nil {
		return err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case nl.CTA_TUPLE_ORIG:
			d.Nested(tuple{&e.Client, &e.Virtual, &e.Protocol}.read)
		case nl.CTA_TUPLE_REPLY:
			d.Nested(tuple{&e.Backend, &e.answers, &e.Protocol}.read)
		case nl.CTA_ZONE:
			e.zone = d.Uint16()
		case nl.CTA_PROTOINFO:
			d.Nested(e.readState)
		}
	}
	e.Opening = e.state == synSent
	return d.Err()
}

func (e *entry) readState(d *mdlayher.AttributeDecoder) error {
	for d.Next() {
		if d.Type() == nl.CTA_PROTOINFO_TCP {
			d.Nested(func(d *mdlayher.AttributeDecoder) error {
				for d.Next() {
					if d.Type() == nl.CTA_PROTOINFO_TCP_STATE {
						e.state = d.Uint8()
					}
				}
				return nil
			})
		}
	}
	return nil
}

// tuple is where one direction of a flow is read into.
type tuple struct {
	from, to *netip.AddrPort
	protocol *services.Protocol
}

func (t tuple) read(d *mdlayher.AttributeDecoder) error {
	var from, to netip.Addr
	var fromPort, toPort uint16
	for d.Next() {
		switch d.Type() {
		case nl.CTA_TUPLE_IP:
			d.Nested(func(d *mdlayher.AttributeDecoder) error {
				for d.Next() {
					switch d.Type() {
					case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
						from, _ = netip.AddrFromSlice(d.Bytes())
					case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
						to, _ = netip.AddrFromSlice(d.Bytes())
					}
				}
				return nil
			})
		case nl.CTA_TUPLE_PROTO:
			d.Nested(func(d *mdlayher.AttributeDecoder) error {
				for d.Next() {
					switch d.Type() {
					case nl.CTA_PROTO_NUM:
						*t.protocol = services.Protocol(d.Uint8())
					case nl.CTA_PROTO_SRC_PORT:
						fromPort = d.Uint16()
					case nl.CTA_PROTO_DST_PORT:
						toPort = d.Uint16()
					}
				}
				return nil
			})
		}
	}
	*t.from, *t.to = netip.AddrPortFrom(from.Unmap(), fromPort), netip.AddrPortFrom(to.Unmap(), toPort)
	return nil
}
