package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/services"
)

// Registers are of 4 bytes each. The key of a slot is the virtual address, the protocol, the port and the
// number of the slot, one after the other from regKey on.
const (
	regKey     = unix.NFT_REG32_00
	regScratch = unix.NFT_REG32_08 // behind the longest key
	regVerdict = unix.NFT_REG_VERDICT
)

// Flags of TCP, in byte 13 of the header.
const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagACK = 16
)

// hashSeed is of no meaning, and the same on every machine: a client of a sticky service finds
// its backend from any of them.
const hashSeed = 0x6d757374

// family is one of IPv4 and IPv6, as rules see it.
type family struct {
	name     string // as part of names of sets
	proto    byte   // NFPROTO
	size     uint32 // of an address, in bytes
	src, dst uint32 // offsets of the addresses in the header
}

var (
	ip4 = family{"4", unix.NFPROTO_IPV4, 4, 12, 16}
	ip6 = family{"6", unix.NFPROTO_IPV6, 16, 8, 24}
	// families are those of the table.
	families = []family{ip4, ip6}
)

func familyOf(v6 bool) family {
	if v6 {
		return ip6
	}
	return ip4
}

// behind returns the register that is so many behind an address in regKey.
func (f family) behind(words uint32) uint32 { return regKey + f.size/4 + words }

func (f family) is() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: regScratch},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regScratch, Data: []byte{f.proto}},
	}
}

func (f family) load(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size}
}

// front loads the key of a front: address, protocol and port.
func (f family) front() []expr.Any {
	return []expr.Any{
		f.load(f.dst, regKey),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.behind(0)},
		&expr.Payload{DestRegister: f.behind(1), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// virtual lets packets through whose address at the offset is a virtual one.
func (f family) virtual(offset uint32) []expr.Any {
	return []expr.Any{f.load(offset, regKey), &expr.Lookup{SourceRegister: regKey, SetName: "addresses" + f.name}}
}

func isTCP() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regScratch},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regScratch, Data: []byte{unix.IPPROTO_TCP}},
	}
}

// tcp lets packets of TCP through, of whose flags in mask exactly those in want are set, or not.
func tcp(mask, want byte, op expr.CmpOp) []expr.Any {
	return append(isTCP(),
		&expr.Payload{DestRegister: regScratch, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: regScratch, DestRegister: regScratch, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: op, Register: regScratch, Data: []byte{want}})
}

// status lets packets through that have one of some bits, of what connection tracking knows.
func status(key expr.CtKey, bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: regScratch},
		&expr.Bitwise{SourceRegister: regScratch, DestRegister: regScratch, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: regScratch, Data: make([]byte, 4)},
	}
}

func rule(parts ...[]expr.Any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func one(e expr.Any) []expr.Any { return []expr.Any{e} }

var (
	reset       = one(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	unreachable = one(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH})
)

// chain is a chain of the table, and its rules.
type chain struct {
	name     string
	hook     *nftables.ChainHook // nil of one that rules go to
	kind     nftables.ChainType
	priority nftables.ChainPriority
	rules    [][]expr.Any
}

// base returns the chains that every table has, in an order in which they can be made.
func base() []chain {
	refuse := chain{name: "refuse", rules: [][]expr.Any{
		rule(isTCP(), reset),
		unreachable,
	}}
	out := []chain{refuse}
	for _, way := range []struct {
		name string
		hook *nftables.ChainHook
	}{{"forwarded", nftables.ChainHookPrerouting}, {"own", nftables.ChainHookOutput}} {
		out = append(out,
			chain{name: "translate-" + way.name, hook: way.hook, kind: nftables.ChainTypeNAT, priority: -100, rules: translate()},
			chain{name: "refuse-" + way.name, hook: way.hook, kind: nftables.ChainTypeFilter, priority: -90, rules: refusing()})
	}
	return append(out,
		chain{name: "hairpin", hook: nftables.ChainHookPostrouting, kind: nftables.ChainTypeNAT, priority: 100, rules: hairpin()},
		chain{name: "untracked", hook: nftables.ChainHookOutput, kind: nftables.ChainTypeFilter, priority: -300, rules: untracked()})
}

// translate is for the first packet of each connection. One of TCP that is not the first of its
// connection belonged to one that was reset.
func translate() (out [][]expr.Any) {
	for _, f := range families {
		out = append(out, rule(f.is(), tcp(flagFIN|flagSYN|flagRST|flagACK, flagSYN, expr.CmpOpNeq), f.virtual(f.dst), reset))
	}
	for _, f := range families {
		out = append(out, rule(f.is(), f.front(),
			one(&expr.Lookup{SourceRegister: regKey, SetName: "fronts" + f.name, DestRegister: regVerdict, IsDestRegSet: true})))
	}
	return out
}

// refusing is for what still has a virtual address behind translate. It sees all packets, so those
// of known connections leave at once.
func refusing() [][]expr.Any {
	out := [][]expr.Any{
		rule(status(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), one(&expr.Verdict{Kind: expr.VerdictAccept})),
	}
	for _, f := range families {
		out = append(out, rule(f.is(), f.virtual(f.dst), one(&expr.Verdict{Kind: expr.VerdictGoto, Chain: "refuse"})))
	}
	return out
}

// hairpin gives a connection of a backend to itself the address of the machine, or it would get
// packets from itself, and answer them past the machine. On the loopback device, which is
// number 1 of every network namespace, this is as it should be.
func hairpin() (out [][]expr.Any) {
	const dnat = 1 << 5 // IPS_DST_NAT
	for _, f := range families {
		out = append(out, rule(
			one(&expr.Meta{Key: expr.MetaKeyOIF, Register: regScratch}),
			one(&expr.Cmp{Op: expr.CmpOpNeq, Register: regScratch, Data: binaryutil.NativeEndian.PutUint32(1)}),
			status(expr.CtKeySTATUS, dnat), f.is(),
			one(f.load(f.src, regKey)), one(f.load(f.dst, f.behind(0))),
			one(&expr.Lookup{SourceRegister: regKey, SetName: "hairpins" + f.name}), one(&expr.Masq{})))
	}
	return out
}

// untracked keeps the packets with which Reset makes clients speak out of connection tracking.
func untracked() (out [][]expr.Any) {
	for _, f := range families {
		out = append(out, rule(f.is(), tcp(flagSYN|flagACK, flagSYN, expr.CmpOpEq), f.virtual(f.src), one(&expr.Notrack{})))
	}
	return out
}

// pickName is the name of the chain in which a slot is picked.
func pickName(p services.Pick) string {
	kind := "random"
	if p.Sticky {
		kind = "sticky"
	}
	return kind + familyOf(p.V6).name + "-" + strconv.FormatUint(uint64(p.Slots), 10)
}

// parsePick is the inverse of pickName.
func parsePick(name string) (services.Pick, bool) {
	head, tail, _ := strings.Cut(name, "-")
	n, err := strconv.ParseUint(tail, 10, 32)
	if err != nil || n == 0 {
		return services.Pick{}, false
	}
	p := services.Pick{V6: strings.HasSuffix(head, "6"), Sticky: strings.HasPrefix(head, "sticky"), Slots: uint32(n)}
	return p, pickName(p) == name
}

// pickChain picks a slot and sends the connection where it leads. While the table is changed, the number of
// slots may be the old one, and the slot gone: then slot 0 is taken, which is there if there
// is any.
func pickChain(p services.Pick) chain {
	f := familyOf(p.V6)
	slot := f.behind(2)
	pick := one(&expr.Numgen{Register: slot, Modulus: p.Slots, Type: unix.NFT_NG_RANDOM})
	if p.Sticky {
		pick = []expr.Any{
			f.load(f.src, regScratch),
			&expr.Hash{SourceRegister: regScratch, DestRegister: slot, Length: f.size, Modulus: p.Slots, Seed: hashSeed, Type: expr.HashTypeJenkins},
		}
	}
	send := []expr.Any{
		&expr.Lookup{SourceRegister: regKey, SetName: "slots" + f.name, DestRegister: regKey, IsDestRegSet: true},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: regKey, RegProtoMin: f.behind(0)},
	}
	first := one(&expr.Immediate{Register: slot, Data: make([]byte, 4)})
	return chain{name: pickName(p), rules: [][]expr.Any{
		rule(f.front(), pick, send),
		rule(f.front(), first, send),
	}}
}

// fingerprint is the comment of a rule: another version of this package, or another program, has
// rules with others.
func fingerprint(chain string, number int, parts []expr.Any) string {
	h := sha256.New()
	for _, e := range parts {
		_, _ = fmt.Fprintf(h, "%T%+v;", e, e) // a hash takes all that is written
	}
	return fmt.Sprintf("muster %s %d %s", chain, number, hex.EncodeToString(h.Sum(nil)[:8]))
}
