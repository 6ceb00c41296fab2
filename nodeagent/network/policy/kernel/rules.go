package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/policy"
)

// Registers are of 4 bytes each. The longest key is two addresses of IPv6.
const (
	regKey     = unix.NFT_REG32_00
	regScratch = unix.NFT_REG32_08
	regVerdict = unix.NFT_REG_VERDICT
)

// check is the chain that decides about a packet, of whichever hook.
const check = "check"

// family is one of IPv4 and IPv6, as rules see it.
type family struct {
	name     string // as part of names of sets
	proto    byte   // NFPROTO
	size     uint32 // of an address, in bytes
	src, dst uint32 // offsets of the addresses in the header
	address  nftables.SetDatatype
}

var families = []family{
	{"4", unix.NFPROTO_IPV4, 4, 12, 16, nftables.TypeIPAddr},
	{"6", unix.NFPROTO_IPV6, 16, 8, 24, nftables.TypeIP6Addr},
}

// of reports whether an address is of the family.
func (f *family) of(a netip.Addr) bool { return a.Is6() == (f.size == 16) }

func (f *family) is() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: regScratch},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regScratch, Data: []byte{f.proto}},
	}
}

func (f *family) load(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size}
}

// behind returns the register that is so many behind an address in regKey.
func (f *family) behind(words uint32) uint32 { return regKey + f.size/4 + words }

func rule(parts ...[]expr.Any) (out []expr.Any) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func one(e ...expr.Any) []expr.Any { return e }

var accept = one(&expr.Verdict{Kind: expr.VerdictAccept})

// chain is a chain of the table, and its rules.
type chain struct {
	name   string
	hook   *nftables.ChainHook // nil of one that rules go to
	rules  [][]expr.Any
	ranges []netip.Prefix // of the last but one of rules, if it is that of a group
}

// base returns the chains that every table has, in an order in which they can be made. What the
// machine forwards to tasks is checked, and what is sent by processes on it that are not root.
func base() []chain {
	jump := one(&expr.Verdict{Kind: expr.VerdictJump, Chain: check})
	notRoot := one(
		&expr.Meta{Key: expr.MetaKeySKUID, Register: regScratch},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: regScratch, Data: make([]byte, 4)},
	)
	return []chain{
		{name: policy.Refuse, rules: refusal()},
		{name: policy.Admit, rules: [][]expr.Any{accept}},
		{name: check, rules: checks()},
		{name: "forwarded", hook: nftables.ChainHookForward, rules: [][]expr.Any{jump}},
		{name: "own", hook: nftables.ChainHookOutput, rules: [][]expr.Any{rule(notRoot, jump)}},
	}
}

// refusal answers at once, so that no client waits for a timeout.
func refusal() [][]expr.Any {
	return [][]expr.Any{
		one(
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regScratch},
			&expr.Cmp{Op: expr.CmpOpEq, Register: regScratch, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
		),
		one(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}),
	}
}

// checks lets answers through, and decides about all other packets, not only the first of a
// connection: one that is open is refused, too, once it is not admitted any more.
func checks() [][]expr.Any {
	related := binaryutil.NativeEndian.PutUint32(expr.CtStateBitRELATED)
	out := [][]expr.Any{
		rule(one(
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: regScratch},
			&expr.Cmp{Op: expr.CmpOpEq, Register: regScratch, Data: []byte{1}}, // IP_CT_DIR_REPLY
		), accept),
		rule(one(
			&expr.Ct{Key: expr.CtKeySTATE, Register: regScratch},
			&expr.Bitwise{SourceRegister: regScratch, DestRegister: regScratch, Len: 4, Mask: related, Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: regScratch, Data: make([]byte, 4)},
		), accept),
	}
	for i := range families {
		f := &families[i]
		out = append(out,
			rule(f.is(), one(f.load(f.src, regKey), f.load(f.dst, f.behind(0)), &expr.Lookup{SourceRegister: regKey, SetName: "selves" + f.name}), accept),
			rule(f.is(), one(
				f.load(f.dst, regKey), &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.behind(0)},
				&expr.Payload{DestRegister: f.behind(1), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
				&expr.Lookup{SourceRegister: regKey, SetName: "ports" + f.name, DestRegister: regVerdict, IsDestRegSet: true})),
			rule(f.is(), one(f.load(f.dst, regKey), &expr.Lookup{SourceRegister: regKey, SetName: "guards" + f.name, DestRegister: regVerdict, IsDestRegSet: true})))
	}
	return out
}

// groupChain admits those of a group.
func groupChain(name string, ranges []netip.Prefix) chain {
	c := chain{name: name, ranges: ranges}
	for i := range families {
		f := &families[i]
		c.rules = append(c.rules, rule(f.is(), one(f.load(f.src, regKey), &expr.Lookup{SourceRegister: regKey, SetName: sourcesOf(name, f)}), accept))
	}
	for _, r := range ranges {
		f := &families[0]
		if r.Addr().Is6() {
			f = &families[1]
		}
		c.rules = append(c.rules, rule(f.is(), one(
			f.load(f.src, regKey),
			&expr.Bitwise{SourceRegister: regKey, DestRegister: regKey, Len: f.size, Mask: net.CIDRMask(r.Bits(), r.Addr().BitLen()), Xor: make([]byte, f.size)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: regKey, Data: r.Masked().Addr().AsSlice()},
		), accept))
	}
	c.rules = append(c.rules, one(&expr.Verdict{Kind: expr.VerdictGoto, Chain: policy.Refuse}))
	return c
}

// sourcesOf is the name of the set with the addresses of a family that a group has.
func sourcesOf(group string, f *family) string {
	return strings.Replace(group, "job", "from"+f.name, 1)
}

// comment is that of the n-th rule of a chain: another version of this package, or another
// program, has rules with others. It ends in the range that the rule admits, if it does.
func (c *chain) comment(n int) string {
	h := sha256.New()
	for _, e := range c.rules[n] {
		_, _ = fmt.Fprintf(h, "%T%+v;", e, e) // a hash takes all that is written
	}
	text := fmt.Sprintf("muster %s %d %s", c.name, n, hex.EncodeToString(h.Sum(nil)[:8]))
	if i := n - len(families); c.ranges != nil && i >= 0 && i < len(c.ranges) {
		text += " " + c.ranges[i].String()
	}
	return text
}

// rangesOf returns the ranges that the rules of a group admit, by their comments.
func rangesOf(rules []*nftables.Rule) (out []netip.Prefix) {
	for _, r := range rules {
		if words := strings.Fields(commentOf(r)); len(words) == 5 {
			if p, err := netip.ParsePrefix(words[4]); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
}

func commentOf(r *nftables.Rule) string {
	text, _ := userdata.GetString(r.UserData, userdata.TypeComment)
	return text
}
