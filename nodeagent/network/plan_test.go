package network

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
	"pgregory.net/rapid"
)

func prefixes(t *testing.T, of ...string) []netip.Prefix {
	t.Helper()
	var out []netip.Prefix
	for _, s := range of {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestNames: no name is too long for a link, and no two agents share one.
func TestNames(t *testing.T) {
	t.Parallel()
	a, b, c := namesOf("local", "x"), namesOf("local", "y"), namesOf("other", "x")
	if a.tag == b.tag || a.tag == c.tag || a.metric == b.metric || a.vni != b.vni || a.vni == c.vni {
		t.Errorf("%+v, %+v, %+v", a, b, c)
	}
	for _, name := range []string{a.bridge(), a.vxlan(), a.link(strings.Repeat("x", 300))} {
		if len(name) > 15 {
			t.Errorf("%s has %d bytes", name, len(name))
		}
	}
	if alias := aliasOf(strings.Repeat("x", 300), []netip.Addr{netip.MustParseAddr("10.64.1.2"), netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666")}); len(alias) > 255 {
		t.Errorf("an alias has %d bytes", len(alias))
	} else if got, ok := parseAlias(alias); !ok || len(got) != 2 {
		t.Errorf("%q: %v", alias, got)
	}
}

// TestPick: no address is given twice, none is the subnet's or the machine's, and each is
// given before there is none, the one for plugins last.
func TestPick(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		subnets := []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("10.64.8.0"), rapid.IntRange(26, 29).Draw(t, "bits"))}
		if rapid.Bool().Draw(t, "both") {
			subnets = append(subnets, netip.MustParsePrefix("fd00:1::8:0/112"))
		}
		used, next := map[netip.Addr]bool{}, rapid.IntRange(0, 1000).Draw(t, "from")
		var held [][]netip.Addr
		for range 200 {
			if len(held) > 0 && rapid.IntRange(0, 2).Draw(t, "free") == 0 {
				for _, a := range held[0] {
					delete(used, a)
				}
				held = held[1:]
				continue
			}
			got, n, err := pick(subnets, func(a netip.Addr) bool { return used[a] }, next)
			if err != nil {
				if len(held) != hosts(subnets[0]) {
					t.Fatalf("%v with %d in use", err, len(held))
				}
				continue
			}
			next = n
			for i, a := range got {
				if used[a] || !subnets[i].Contains(a) || a == subnets[i].Addr() || a == Gateway(subnets[i]) || subnets[i].Addr().Is4() && !subnets[i].Contains(a.Next()) {
					t.Fatalf("%s of %s", a, subnets[i])
				}
				if plugins := Gateway(subnets[i]).Next(); a == plugins && len(held) != hosts(subnets[0])-1 {
					t.Fatalf("%s, which plugins may need as their gateway, with %d in use", a, len(held))
				}
				used[a] = true
			}
			held = append(held, slices.Clone(got))
		}
	})
}

// TestPlanRoutes: to whom a machine routes, and what it does not believe.
func TestPlanRoutes(t *testing.T) {
	t.Parallel()
	own := &schema.MachineNetwork{Ranges: prefixes(t, "10.64.0.0/12", "fd00::/96"), Subnets: prefixes(t, "10.64.1.0/24", "fd00::1:0/112"), Mode: schema.ModeRoutes}
	at := netip.MustParseAddr
	machines := []schema.DirectoryMachine{
		{Name: "m9", Address: at("192.0.2.9"), Subnets: prefixes(t, "10.64.9.0/24")},
		{Name: "m1", Address: at("192.0.2.1"), Subnets: prefixes(t, "10.64.1.0/24")}, // itself
		{Name: "m2", Address: at("192.0.2.2"), Subnets: prefixes(t, "10.64.2.0/24", "fd00::2:0/112")},
		{Name: "m3", Address: at("2001:db8::3"), Subnets: prefixes(t, "10.64.3.0/24", "fd00::3:0/112")},
		{Name: "liar", Address: at("192.0.2.6"), Subnets: prefixes(t, "10.64.2.0/24", "10.64.1.128/25", "0.0.0.0/0", "192.0.2.0/24", "10.64.0.0/8")},
		{Name: "unknown", Subnets: prefixes(t, "10.64.7.0/24")},
		{Name: "here", Address: at("192.0.2.1"), Subnets: prefixes(t, "10.64.8.0/24")},
	}
	local := func(a netip.Addr) bool { return a == at("192.0.2.1") }
	describe := func(routes []route) string {
		var out []string
		for _, r := range routes {
			s := r.to.String()
			if r.via.IsValid() {
				s += " " + r.via.String()
			}
			if r.outer.IsValid() {
				s += " " + r.outer.String()
			}
			out = append(out, s)
		}
		return strings.Join(out, "; ")
	}
	// The liar comes before m2 by its name: what it claims first it has, since the master gave
	// it; a subnet is never routed to two.
	routes, problems := planRoutes("c", "m1", own, machines[:4], local)
	want := "10.64.1.0/24; 10.64.2.0/24 192.0.2.2; 10.64.3.0/24 2001:db8::3; 10.64.9.0/24 192.0.2.9; fd00::1:0/112; fd00::3:0/112 2001:db8::3"
	if got := describe(routes); got != want || len(problems) != 1 {
		t.Errorf("routes %s\nwant   %s\nproblems %q", got, want, problems)
	}
	if routes, problems = planRoutes("c", "m1", own, machines[4:], local); describe(routes) != "10.64.1.0/24; 10.64.2.0/24 192.0.2.6; fd00::1:0/112" || len(problems) != 4 {
		t.Errorf("routes %s, problems %q", describe(routes), problems)
	}
	overlay := *own
	overlay.Mode = schema.ModeVXLAN
	routes, problems = planRoutes("c", "m1", &overlay, machines[:4], local)
	want = "10.64.1.0/24; 10.64.2.0/24 10.64.2.1 192.0.2.2; 10.64.3.0/24 10.64.3.1 2001:db8::3; 10.64.9.0/24 10.64.9.1 192.0.2.9; fd00::1:0/112; fd00::2:0/112 fd00::2:1 192.0.2.2; fd00::3:0/112 fd00::3:1 2001:db8::3"
	if got := describe(routes); got != want || len(problems) != 0 {
		t.Errorf("routes %s\nwant   %s\nproblems %q", got, want, problems)
	}
}

// TestDifference: what is removed and added leads from some routes to others.
func TestDifference(t *testing.T) {
	t.Parallel()
	gen := rapid.Custom(func(t *rapid.T) []route {
		var out []route
		for i := range 12 {
			if rapid.Bool().Draw(t, "in") {
				out = append(out, route{to: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64, byte(i), 0}), 24), via: netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, 2).Draw(t, "via"))})})
			}
		}
		return out
	})
	rapid.Check(t, func(t *rapid.T) {
		have, want := gen.Draw(t, "have"), gen.Draw(t, "want")
		remove, add := difference(have, want)
		got := slices.DeleteFunc(slices.Clone(have), func(r route) bool { return slices.Contains(remove, r) })
		got = append(got, add...)
		slices.SortFunc(got, compareRoutes)
		if !slices.Equal(got, want) || len(remove)+len(add) > len(have)+len(want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
