package relay

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// tableName is the table's, which has a chain for each of both interfaces.
const tableName = "kernel"

// ownedTable has a table end with the socket that has made it, for which Linux 5.12 is needed.
const ownedTable = 2

// register is where a rule puts the number of an interface.
const register = unix.NFT_REG_1

// filterHead is the kernel's struct nfgenmsg.
func filterHead(family uint8, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}

// rule is a request of nftables.
func rule(name string, message uint16, of ...attribute) request {
	return request{
		name: "nftables: " + name, kind: unix.NFNL_SUBSYS_NFTABLES<<8 | message, flags: unix.NLM_F_CREATE | unix.NLM_F_ACK,
		head: filterHead(unix.NFPROTO_NETDEV, 0), attributes: of,
	}
}

// redirect has what comes in by one of two interfaces go out by the other, in place of earlier
// rules. New connections of TCP by them are to have no packets larger than most, in bytes; 0 is no limit.
func redirect(s socket, first, second int32, most uint32) error {
	table := rule("table", unix.NFT_MSG_NEWTABLE, text(unix.NFTA_TABLE_NAME, tableName), bigNumber(unix.NFTA_TABLE_FLAGS, ownedTable))
	all := []request{
		{name: "nftables: begin", kind: unix.NFNL_MSG_BATCH_BEGIN, head: filterHead(0, unix.NFNL_SUBSYS_NFTABLES)},
		table, rule("table", unix.NFT_MSG_DELTABLE, text(unix.NFTA_TABLE_NAME, tableName)), table,
	}
	for _, of := range []struct {
		name string
		to   int32
	}{{outer, second}, {between, first}} {
		all = append(all, rule("chain", unix.NFT_MSG_NEWCHAIN,
			text(unix.NFTA_CHAIN_TABLE, tableName), text(unix.NFTA_CHAIN_NAME, of.name), text(unix.NFTA_CHAIN_TYPE, "filter"),
			nest(unix.NFTA_CHAIN_HOOK, nil, bigNumber(unix.NFTA_HOOK_HOOKNUM, unix.NF_NETDEV_INGRESS), bigNumber(unix.NFTA_HOOK_PRIORITY, 0), text(unix.NFTA_HOOK_DEV, of.name)),
		))
		if most > 0 {
			all = append(all, inChain(of.name, smaller(unix.ETH_P_IP, most-ipv4Headers)), inChain(of.name, smaller(unix.ETH_P_IPV6, most-ipv6Headers)))
		}
		all = append(all, inChain(of.name, []attribute{
			constant(binary.NativeEndian.AppendUint32(nil, uint32(of.to))),
			expression("fwd", bigNumber(unix.NFTA_FWD_SREG_DEV, register)),
		}))
	}
	all = append(all, request{name: "nftables: end", kind: unix.NFNL_MSG_BATCH_END, head: filterHead(0, unix.NFNL_SUBSYS_NFTABLES)})
	var b []byte
	for i := range all {
		b = all[i].append(b, uint32(i))
	}
	return s.exchange(b, all)
}

// inChain is a rule at the end of a chain.
func inChain(chain string, of []attribute) request {
	r := rule("rule", unix.NFT_MSG_NEWRULE, text(unix.NFTA_RULE_TABLE, tableName), text(unix.NFTA_RULE_CHAIN, chain), nest(unix.NFTA_RULE_EXPRESSIONS, nil, of...))
	r.flags |= unix.NLM_F_APPEND
	return r
}

// Bytes of the headers before the data of a segment of TCP, without options.
const (
	ipv4Headers = 20 + 20
	ipv6Headers = 40 + 20
)

// Where a segment of TCP has its flags, the one of those that begin a connection, and the option that says how
// large segments may be: its kind, and where its value is.
const (
	tcpFlags   = 13
	tcpSYN     = 2
	tcpSegment = 2
	tcpValue   = 2
)

// smaller has connections of TCP by a protocol begin with segments of at most so many bytes: a larger
// number is replaced, and no smaller one.
func smaller(protocol uint16, most uint32) []attribute {
	value := func(kind uint16, b []byte) attribute { return nest(kind, nil, attribute{unix.NFTA_DATA_VALUE, b}) }
	is := func(op uint32, b ...byte) attribute {
		return expression("cmp", bigNumber(unix.NFTA_CMP_SREG, register), bigNumber(unix.NFTA_CMP_OP, op), value(unix.NFTA_CMP_DATA, b))
	}
	meta := func(key uint32) attribute {
		return expression("meta", bigNumber(unix.NFTA_META_DREG, register), bigNumber(unix.NFTA_META_KEY, key))
	}
	return []attribute{
		meta(unix.NFT_META_PROTOCOL), is(unix.NFT_CMP_EQ, binary.BigEndian.AppendUint16(nil, protocol)...),
		meta(unix.NFT_META_L4PROTO), is(unix.NFT_CMP_EQ, unix.IPPROTO_TCP),
		expression("payload", bigNumber(unix.NFTA_PAYLOAD_DREG, register), bigNumber(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_TRANSPORT_HEADER),
			bigNumber(unix.NFTA_PAYLOAD_OFFSET, tcpFlags), bigNumber(unix.NFTA_PAYLOAD_LEN, 1)),
		expression("bitwise", bigNumber(unix.NFTA_BITWISE_SREG, register), bigNumber(unix.NFTA_BITWISE_DREG, register), bigNumber(unix.NFTA_BITWISE_LEN, 1),
			value(unix.NFTA_BITWISE_MASK, []byte{tcpSYN}), value(unix.NFTA_BITWISE_XOR, []byte{0})),
		is(unix.NFT_CMP_NEQ, 0),
		constant(binary.BigEndian.AppendUint16(nil, uint16(most))),
		expression("exthdr", bigNumber(unix.NFTA_EXTHDR_SREG, register), attribute{unix.NFTA_EXTHDR_TYPE, []byte{tcpSegment}}, bigNumber(unix.NFTA_EXTHDR_OFFSET, tcpValue),
			bigNumber(unix.NFTA_EXTHDR_LEN, 2), bigNumber(unix.NFTA_EXTHDR_OP, unix.NFT_EXTHDR_OP_TCPOPT)),
	}
}

// constant is a value for an expression after it.
func constant(b []byte) attribute {
	return expression("immediate", bigNumber(unix.NFTA_IMMEDIATE_DREG, register), nest(unix.NFTA_IMMEDIATE_DATA, nil, attribute{unix.NFTA_DATA_VALUE, b}))
}

// expression is a part of a rule.
func expression(name string, of ...attribute) attribute {
	return nest(unix.NFTA_LIST_ELEM, nil, text(unix.NFTA_EXPR_NAME, name), nest(unix.NFTA_EXPR_DATA, nil, of...))
}
