package network

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBeyondRanges(t *testing.T) {
	t.Parallel()
	var routes []route
	for _, p := range prefixes(t, "10.64.1.0/24", "10.64.2.0/24", "10.96.1.0/24", "10.96.2.0/24", "10.96.4.0/24", "255.255.255.0/24", "fd00::1:0/112", "fd01::1:0/112") {
		routes = append(routes, route{to: p})
	}
	beyond := beyondRanges(routes, prefixes(t, "10.64.0.0/12", "fd00::/96"))
	if diff := cmp.Diff("[10.96.1.0/24 10.96.2.0/24 10.96.4.0/24 255.255.255.0/24 fd01::1:0/112]", fmt.Sprint(beyond)); diff != "" {
		t.Error(diff)
	}
	addr := netip.MustParseAddr
	for v4, want := range map[bool][]span{
		true:  {{addr("10.96.1.0"), addr("10.96.3.0")}, {addr("10.96.4.0"), addr("10.96.5.0")}, {addr("255.255.255.0"), netip.Addr{}}},
		false: {{addr("fd01::1:0"), addr("fd01::2:0")}},
	} {
		if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(spans(beyond, v4))); diff != "" {
			t.Error(diff)
		}
	}
	overlapping := prefixes(t, "10.96.0.0/20", "10.96.1.0/24", "10.96.15.0/24", "10.97.0.0/24", "255.0.0.0/8", "255.255.255.0/24")
	want := []span{{addr("10.96.0.0"), addr("10.96.16.0")}, {addr("10.97.0.0"), addr("10.97.1.0")}, {addr("255.0.0.0"), netip.Addr{}}}
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(spans(overlapping, true))); diff != "" {
		t.Error(diff)
	}
}
