package reconciler_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/musterhq/muster/schema"
)

// serves commits a cell with ranges and services of these names, and takes steps until nothing is
// written any more. It returns the services as users see them.
func (c *cell) serves(commit string, network *schema.CellNetwork, names ...string) []string {
	p := &schema.Package{Dir: "a", Objects: schema.Objects{Cells: []schema.Cell{{Name: "c", Quota: "off", Network: network}}}, Origins: map[schema.ObjectKey]schema.Position{}}
	for _, name := range names {
		p.Objects.Services = append(p.Objects.Services, schema.ServiceSpec{Name: name, User: "u", Cell: "c", Selector: "x", Ports: map[string]schema.ServicePort{"http": {Port: 80}}})
	}
	c.commit(schema.Compiled{Commit: commit, Packages: []schema.CompiledPackage{{Dir: "a", Package: p, Digest: schema.DigestOf(p)}}})
	for range 4 {
		c.now = c.now.Add(2e9)
		c.step()
	}
	var out []string
	for _, s := range c.snapshot().Services() {
		out = append(out, fmt.Sprint(s.Name, " ", s.Addresses, s.Reason))
	}
	return out
}

// TestServices: a service has addresses of the cell's ranges for as long as it is declared; none
// is given to two.
func TestServices(t *testing.T) {
	t.Parallel()
	small := &schema.CellNetwork{Services: netip.MustParsePrefix("10.80.0.0/30")}
	both := &schema.CellNetwork{Services: netip.MustParsePrefix("10.80.0.0/16"), Services6: netip.MustParsePrefix("fd00:80::/112")}
	c := newCell()
	is := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	is("without a network", c.serves("1", nil, "a"), `a []the cell has no addresses for services: add network: services: "10.80.0.0/16" to it`)
	two := c.serves("2", small, "a", "b")
	slices.Sort(two)
	if len(two) != 2 || two[0][3:] == two[1][3:] {
		t.Errorf("two services: %q", two)
	}
	is("a third", c.serves("3", small, "a", "b", "c"), two[0], two[1], "c []no address of 10.80.0.0/30 is left")
	left := c.serves("4", small, "b", "c")
	is("the first goes", left, two[1], "c"+two[0][1:])
	c.restart()
	is("another master", c.serves("5", small, "b", "c"), left...)
	c.serves("6", small)
	wide := c.serves("7", both, "b")
	if len(wide) != 1 || len(c.state.Services["u/b"].Addresses) != 2 || !both.Services6.Contains(c.state.Services["u/b"].Addresses[1]) {
		t.Errorf("of two ranges: %q", wide)
	}
	had := c.state.Services["u/b"].Addresses
	c.serves("8", &schema.CellNetwork{Services6: both.Services6}, "b")
	if is := c.state.Services["u/b"].Addresses; len(is) != 1 || is[0] != had[1] {
		t.Errorf("of the second range alone: %v, and before %v", is, had)
	}
	if is := c.serves("9", nil); len(is) > 0 || len(c.state.Services) > 0 {
		t.Errorf("none is declared: %q, %v", is, c.state.Services)
	}
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	c.serves("10", &schema.CellNetwork{Services: netip.MustParsePrefix("10.80.0.0/21")}, names...)
	given := map[netip.Addr]string{}
	for name, r := range c.state.Services {
		if other, twice := given[r.Addresses[0]]; twice {
			t.Errorf("%s and %s have %s", name, other, r.Addresses[0])
		}
		given[r.Addresses[0]] = name
	}
	if len(given) != len(names) {
		t.Errorf("%d of %d services have an address", len(given), len(names))
	}
}
