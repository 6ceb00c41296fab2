package valid

import (
	"fmt"
	"net/netip"
	"strings"

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
	ranges := []networkRange{
		{"range", "subnetBits", minRangeBits, schema.MaxSubnetBits, "range6"},
		{"range6", "subnetBits6", minRangeBits6, schema.MaxSubnetBits6, "range"},
		{"services", "", minRangeBits, schema.MaxServiceBits, "services6"},
		{"services6", "", minRangeBits6, schema.MaxServiceBits6, "services"},
	}
	given := false
	for i := range ranges {
		given = found.ranged(network, &ranges[i]) || given
	}
	if !given {
		found.add(Problem{
			Rule: schema.RuleMissingField, Path: []string{"network"}, Message: "the network has no addresses", Expected: "range, range6, services or services6",
			Hint: `add range: "10.64.0.0/12"`,
		})
	}
	for i := range ranges {
		for j := range i {
			a, b := prefixOf(network, ranges[j].name), prefixOf(network, ranges[i].name)
			if a.IsValid() && b.IsValid() && a.Overlaps(b) {
				found.add(Problem{
					Rule: schema.RuleDuplicate, Path: []string{"network", ranges[i].name}, Message: fmt.Sprintf("%q has addresses of %s, %q", b, ranges[j].name, a),
					Expected: "ranges that do not overlap",
				})
			}
		}
	}
	for _, p := range cniProblems(network) {
		found.add(p)
	}
	return found
}

// networkRange is what one range of a network may be.
type networkRange struct {
	name, bits  string // fields: its own, and the size of its subnets, "" if it has none
	least, most int    // leading bits
	other       string // the field of the other kind of addresses
}

// prefixOf returns a range of a network; an invalid one if it is not there, or wrong.
func prefixOf(network map[string]any, name string) netip.Prefix {
	s, _ := network[name].(string)
	prefix, _ := netip.ParsePrefix(s)
	return prefix
}

// ranged checks one range of a network, and reports whether it is there.
func (p *problems) ranged(network map[string]any, r *networkRange) bool {
	name, bitsName, path, is4 := r.name, r.bits, []string{"network", r.name}, !strings.HasSuffix(r.name, "6")
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
	kind := "IPv4"
	if !is4 {
		kind = "IPv6"
	}
	switch {
	case prefix.Addr().Is4() != is4:
		p.add(Problem{Rule: schema.RuleInvalidValue, Path: path, Message: fmt.Sprintf("%q is no range of %s", s, kind), Expected: "a range of " + kind, Hint: "write it as " + r.other})
	case prefix.Bits() < r.least || prefix.Bits() > r.most:
		p.add(Problem{Rule: schema.RuleOutOfRange, Path: path, Message: fmt.Sprintf("%q has %d bits", s, prefix.Bits()), Expected: fmt.Sprintf("%d to %d bits after the /", r.least, r.most)})
	case cut && bits < int64(prefix.Bits()):
		p.add(Problem{
			Rule: schema.RuleOutOfRange, Path: []string{"network", bitsName}, Message: fmt.Sprintf("%d is out of range: %s has %d bits already", bits, name, prefix.Bits()),
			Expected: fmt.Sprintf("%d to %d", prefix.Bits(), r.most),
		})
	}
	return true
}
