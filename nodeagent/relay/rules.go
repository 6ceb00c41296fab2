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

// redirect has what comes in by one of two interfaces go out by the other.
func redirect(s socket, first, second int32) error {
	all := []request{
		{name: "nftables: begin", kind: unix.NFNL_MSG_BATCH_BEGIN, head: filterHead(0, unix.NFNL_SUBSYS_NFTABLES)},
		rule("table", unix.NFT_MSG_NEWTABLE, text(unix.NFTA_TABLE_NAME, tableName), bigNumber(unix.NFTA_TABLE_FLAGS, ownedTable)),
	}
	for _, of := range []struct {
		name string
		to   int32
	}{{outer, second}, {between, first}} {
		all = append(all, rule("chain", unix.NFT_MSG_NEWCHAIN,
			text(unix.NFTA_CHAIN_TABLE, tableName), text(unix.NFTA_CHAIN_NAME, of.name), text(unix.NFTA_CHAIN_TYPE, "filter"),
			nest(unix.NFTA_CHAIN_HOOK, nil, bigNumber(unix.NFTA_HOOK_HOOKNUM, unix.NF_NETDEV_INGRESS), bigNumber(unix.NFTA_HOOK_PRIORITY, 0), text(unix.NFTA_HOOK_DEV, of.name)),
		))
		value := nest(unix.NFTA_IMMEDIATE_DATA, nil, number(unix.NFTA_DATA_VALUE, uint32(of.to)))
		r := rule("rule", unix.NFT_MSG_NEWRULE,
			text(unix.NFTA_RULE_TABLE, tableName), text(unix.NFTA_RULE_CHAIN, of.name), nest(unix.NFTA_RULE_EXPRESSIONS, nil,
				expression("immediate", bigNumber(unix.NFTA_IMMEDIATE_DREG, register), value),
				expression("fwd", bigNumber(unix.NFTA_FWD_SREG_DEV, register)),
			))
		r.flags |= unix.NLM_F_APPEND
		all = append(all, r)
	}
	all = append(all, request{name: "nftables: end", kind: unix.NFNL_MSG_BATCH_END, head: filterHead(0, unix.NFNL_SUBSYS_NFTABLES)})
	var b []byte
	for i := range all {
		b = all[i].append(b, uint32(i))
	}
	return s.exchange(b, all)
}

// expression is a part of a rule.
func expression(name string, of ...attribute) attribute {
	return nest(unix.NFTA_LIST_ELEM, nil, text(unix.NFTA_EXPR_NAME, name), nest(unix.NFTA_EXPR_DATA, nil, of...))
}
