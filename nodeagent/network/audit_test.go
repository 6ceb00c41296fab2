package network_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/musterhq/muster/schema"
)

// TestAudit: what somebody removes of a machine's network, or of a task's, is put back, and the task
// is reached again.
func TestAudit(t *testing.T) {
	t.Parallel()
	for _, mode := range []schema.NetworkMode{schema.ModeRoutes, schema.ModeVXLAN} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			m := newMachine(t, p, 1, mode)
			task := m.join("a")
			serve(t, task, 80)
			audit := func() (restored []string) {
				m.in(func() {
					var err error
					restored, err = m.m.Audit()
					must(t, err)
				})
				return restored
			}
			if found := audit(); len(found) > 0 {
				t.Errorf("of what is whole: %q", found)
			}
			before := p.remains(t)
			for i, remove := range map[string]func(l netlink.Link){
				"link": func(l netlink.Link) { must(t, netlink.LinkDel(l)) },
				"route": func(l netlink.Link) {
					routes, err := netlink.RouteList(l, netlink.FAMILY_V4)
					must(t, err)
					must(t, netlink.RouteDel(&routes[0]))
				},
				"table": func(netlink.Link) {
					c, err := nftables.New()
					must(t, err)
					tables, err := c.ListTables()
					must(t, err)
					for _, of := range tables {
						c.DelTable(of)
					}
					must(t, c.Flush())
				},
				"link mub-": func(netlink.Link) {
					links, err := netlink.LinkList()
					must(t, err)
					for _, l := range links {
						if strings.HasPrefix(l.Attrs().Name, "mub-") {
							must(t, netlink.LinkDel(l))
						}
					}
				},
			} {
				m.in(func() {
					l, err := netlink.LinkByName(task.Namespace[strings.LastIndexByte(task.Namespace, '/')+1:])
					must(t, err)
					remove(l)
				})
				if found := strings.Join(audit(), "; "); !strings.Contains(found, i) {
					t.Errorf("of a %s that was removed: %q", i, found)
				}
				if found := audit(); len(found) > 0 {
					t.Errorf("again, after a %s: %q", i, found)
				}
				is := p.remains(t)
				for _, was := range before {
					// What the kernel adds to links of IPv6 by itself, it adds in its own time.
					if local := strings.Contains(was, "fe80") || strings.HasPrefix(was, "route fd00::1:1/128"); !local && !slices.Contains(is, was) {
						t.Errorf("after a %s %q is not there: %q", i, was, is)
					}
				}
				m.in(func() {
					for _, at := range task.Addresses {
						if got := from(t, at, 80); got == "" {
							t.Errorf("after a %s nobody answers at %s", i, at)
						}
					}
				})
			}
		})
	}
}
