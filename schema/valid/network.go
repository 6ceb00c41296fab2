package valid

import (
	"fmt"
	"net/netip"

	"github.com/musterhq/muster/schema"
)

// The largest ranges. Linux has no use for more, and a machine lists what it routes to.
const (
	minRangeBits  = 8
	minRangeBits6 = 16
)

const prefixGrammar = `a range of addresses that are not used elsewhere, as ADDRESS/BITS, such as "10.64.0.0/12"`

// matchPrefix takes ranges of addresses as they are written back.
func matchPrefix(s string) string {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil, p.Addr().Is4In6():
		return prefixGrammar
	case p != p.Masked():
		return fmt.Sprintf("%q: the first address of the range, since the bits after the first %d are the tasks' own", p.Masked(), p.Bits())
	case p.String() != s:
		return fmt.Sprintf("%q", p)
	case !p.Addr().IsGlobalUnicast():
		return prefixGrammar
	}
	return ""
}

// networkProblems returns what is wrong between the fields of a cell's network.
func networkProblems(cell map[string]any) problems {
	network, ok := cell["network"].(map[string]any)
	if !ok {
		return nil
	}
	var found problems
	v4 := found.ranged(network, "range", "subnetBits", schema.MaxSubnetBits, true)
	if v6 := found.ranged(network, "range6", "subnetBits6", schema.MaxSubnetBits6, false); !v4 && !v6 {
		found.add(Problem{
			Rule: schema.RuleMissingField, Path: []string{"network"}, Message: "the network has no addresses", Expected: "range, range6 or both",
			Hint: `add range: "10.64.0.0/12"`,
		})
	}
	return found
}

// ranged checks one range of a network, and reports whether it is there.
func (p *problems) ranged(network map[string]any, name, bitsName string, most int, is4 bool) bool {
	path := []string{"network", name}
	bits, cut := wholeNumber(network[bitsName])
	s, ok := network[name].(string)
	if !ok {
		if cut {
			p.add(Problem{
				Rule: schema.RuleNoEffect, Path: []string{"network", bitsName}, Key: true, Message: fmt.Sprintf("%s has no effect without %s", bitsName, name),
				Hint: fmt.Sprintf("add %s, or remove %s", name, bitsName),
			})
		}
		return false
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return true // which is reported
	}
	least, kind, other := minRangeBits, "IPv4", "range6"
	if !is4 {
		least, kind, other = minRangeBits6, "IPv6", "range"
	}
	switch {
	case prefix.Addr().Is4() != is4:
		p.add(Problem{Rule: schema.RuleInvalidValue, Path: path, Message: fmt.Sprintf("%q is no range of %s", s, kind), Expected: "a range of " + kind, Hint: "write it as " + other})
	case prefix.Bits() < least || prefix.Bits() > most:
		p.add(Problem{Rule: schema.RuleOutOfRange, Path: path, Message: fmt.Sprintf("%q has %d bits", s, prefix.Bits()), Expected: fmt.Sprintf("%d to %d bits after the /", least, most)})
	case cut && bits < int64(prefix.Bits()):
		p.add(Problem{
			Rule: schema.RuleOutOfRange, Path: []string{"network", bitsName}, Message: fmt.Sprintf("%d is out of range: %s has %d bits already", bits, name, prefix.Bits()),
			Expected: fmt.Sprintf("%d to %d", prefix.Bits(), most),
		})
	}
	return true
}
