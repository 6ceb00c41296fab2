package status

import (
	"net/netip"
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	r := &schema.MachineRecord{
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.64.1.0/24"), netip.MustParsePrefix("fd00:1::/64")},
		Leaving: []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")},
	}
	own := func(list ...string) *schema.TaskNetwork {
		n := &schema.TaskNetwork{}
		for _, a := range list {
			n.Addresses = append(n.Addresses, netip.MustParseAddr(a))
		}
		return n
	}
	for name, tt := range map[string]struct {
		of            *schema.TaskNetwork
		first, second string
	}{
		"not started":         {nil, "", ""},
		"both":                {own("10.64.1.2", "fd00:1::2"), "10.64.1.2", "fd00:1::2"},
		"of IPv4":             {own("10.64.1.2"), "10.64.1.2", ""},
		"of IPv6":             {own("fd00:1::2"), "fd00:1::2", ""},
		"of a subnet before":  {own("10.99.0.2", "fd00:1::2"), "10.99.0.2", "fd00:1::2"},
		"another's IPv4":      {own("10.64.2.2", "fd00:1::2"), "fd00:1::2", ""},
		"another's IPv6":      {own("10.64.1.2", "fd00:2::2"), "10.64.1.2", ""},
		"claims two of IPv4":  {own("10.64.1.2", "10.64.1.3"), "10.64.1.2", ""},
		"claims two of IPv6":  {own("fd00:1::2", "fd00:1::3"), "fd00:1::2", ""},
		"of no machine known": {own("192.0.2.1"), "", ""},
	} {
		if first, second := ownAddresses(tt.of, r); first != tt.first || second != tt.second {
			t.Errorf("%s: %q and %q, want %q and %q", name, first, second, tt.first, tt.second)
		}
	}
	if first, second := ownAddresses(own("10.64.1.2"), nil); first != "" || second != "" {
		t.Errorf("on a machine that is not known: %q and %q", first, second)
	}
}
