package network

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// names are those of what an agent has in the kernel. Links have names of at most 15 bytes.
type names struct {
	tag    string // in each of them: two agents of a machine have different ones
	metric int    // of its routes, which no other agent's have
	vni    int    // of the cell's VXLAN, 1 to 2^24-1
}

// namesOf derives them from the cell, and from what is the agent's alone.
func namesOf(cell, agent string) names {
	sum := sha256.Sum256([]byte(cell + "\x00" + agent))
	ofCell := sha256.Sum256([]byte(cell))
	return names{
		tag: lower(sum[:], 5), metric: 1<<30 | int(binary.BigEndian.Uint32(sum[8:])>>4),
		vni: 1 + int(binary.BigEndian.Uint32(ofCell[:])>>8)%(1<<24-1),
	}
}

var letters = base32.StdEncoding.WithPadding(base32.NoPadding)

func lower(b []byte, n int) string { return strings.ToLower(letters.EncodeToString(b))[:n] }

func (n *names) bridge() string { return "mub-" + n.tag }
func (n *names) vxlan() string  { return "mux-" + n.tag }
func (n *names) table() string  { return "muster-" + n.tag + "-tasks" }
func (n *names) policy() string { return "muster-" + n.tag + "-policy" }
func (n *names) prefix() string { return "m" + n.tag }

// link is the name of the machine's end of a task's link, and of its namespace.
func (n *names) link(key string) string {
	sum := sha256.Sum256([]byte(key))
	return n.prefix() + lower(sum[:], 9)
}

// machineMAC is the address of a machine in the cell's VXLAN: whoever knows its name knows it.
func machineMAC(cell, machine string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("vxlan\x00" + cell + "\x00" + machine))
	return append(net.HardwareAddr{0x02}, sum[:5]...) // of nobody's, for one station
}

// linkMAC is the address of one end of a task's link.
func linkMAC(name, end string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(end + "\x00" + name))
	return append(net.HardwareAddr{0x02}, sum[:5]...)
}

// aliasOf says on a link whose it is: the task, for people, and its addresses.
func aliasOf(task string, addresses []netip.Addr) string {
	words := []string{"muster"}
	for _, a := range addresses {
		words = append(words, a.String())
	}
	return strings.Join(append(words, cut(task, maxAliasTask)), " ")
}

// maxAliasTask is how much an alias, of 255 bytes at most, says of its task.
const maxAliasTask = 150

func cut(s string, n int) string { return s[:min(n, len(s))] }

// parseAlias returns the addresses that an alias says; false if it is none of ours.
func parseAlias(alias string) ([]netip.Addr, bool) {
	words := strings.Fields(alias)
	if len(words) < 2 || words[0] != "muster" {
		return nil, false
	}
	var out []netip.Addr
	for _, w := range words[1:] {
		a, err := netip.ParseAddr(w)
		if err != nil {
			break
		}
		out = append(out, a)
	}
	return out, len(out) > 0
}

// Gateway returns the machine's own address in a subnet.
func Gateway(subnet netip.Prefix) netip.Addr { return subnet.Addr().Next() }

// firstHost is the number of the first address of a subnet that a task may have: the
// subnet's own, and the machine's, come before.
const firstHost = 2

// maxHosts bounds how many addresses of a subnet are used: no machine has more tasks.
const maxHosts = 1 << 20

// hosts returns how many addresses a subnet has for tasks, from firstHost on. IPv4 does without
// the last, which is that of all.
func hosts(subnet netip.Prefix) int {
	bits := subnet.Addr().BitLen() - subnet.Bits()
	if bits >= 20 {
		return maxHosts
	}
	n := 1<<bits - firstHost
	if subnet.Addr().Is4() {
		n--
	}
	return max(n, 0)
}

// host returns the address with a number in a subnet.
func host(subnet netip.Prefix, number int) netip.Addr {
	b := subnet.Addr().As16()
	low := binary.BigEndian.Uint64(b[8:]) + uint64(number)
	binary.BigEndian.PutUint64(b[8:], low)
	a := netip.AddrFrom16(b)
	if subnet.Addr().Is4() {
		return a.Unmap()
	}
	return a
}

// pick returns addresses that nobody has, one of each subnet, and where to look next: who has
// just left has its own for as long as there are others. The first one is given last: it is the gateway of plugins of
// CNI, of which the cell may come to have some while tasks run. It errs when there are none.
func pick(subnets []netip.Prefix, used func(netip.Addr) bool, from int) (addresses []netip.Addr, next int, err error) {
	count := maxHosts
	for _, s := range subnets {
		count = min(count, hosts(s))
	}
	for i := range count {
		number, after := firstHost, from
		if others := count - 1; i < others {
			at := (from + i) % others
			number, after = firstHost+1+at, at+1
		}
		addresses = addresses[:0]
		for _, s := range subnets {
			if a := host(s, number); !used(a) {
				addresses = append(addresses, a)
			}
		}
		if len(addresses) == len(subnets) && len(subnets) > 0 {
			return addresses, after, nil
		}
	}
	return nil, from, fmt.Errorf("all %d addresses of this machine's subnet (%s) are in use", count, join(subnets))
}

func join(prefixes []netip.Prefix) string {
	var words []string
	for _, p := range prefixes {
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
}

// route is one to a subnet. Without via there is nothing there: packets are refused.
type route struct {
	to  netip.Prefix
	via netip.Addr
	// With mode VXLAN, via is in it, at a machine with this hardware address, to which
	// packets are wrapped to outer.
	mac   string
	outer netip.Addr
}

// planRoutes returns the routes of a machine to its own subnets and those of others, sorted, each
// subnet once, and what is wrong with machines. A subnet beyond the cell's ranges, or that is
// part of this machine's, is not believed; one that is leaving is of ranges that the cell had. local says of an address that it is this machine's.
func planRoutes(cell, self string, n *schema.MachineNetwork, machines []schema.DirectoryMachine, local func(netip.Addr) bool) (routes []route, problems []string) {
	taken := map[netip.Prefix]bool{}
	for _, s := range n.All() {
		taken[s] = true
		routes = append(routes, route{to: s})
	}
	machines = slices.Clone(machines)
	slices.SortFunc(machines, func(a, b schema.DirectoryMachine) int { return cmp.Compare(a.Name, b.Name) })
	for i := range machines {
		m := &machines[i]
		if m.Name == self || !m.Address.IsValid() || len(m.Subnets)+len(m.Leaving) == 0 || local(m.Address) {
			continue
		}
		for i, s := range slices.Concat(m.Subnets, m.Leaving) {
			r := route{to: s, via: m.Address.Unmap()}
			within := i >= len(m.Subnets) || slices.ContainsFunc(n.Ranges, func(r netip.Prefix) bool { return r.Bits() <= s.Bits() && r.Overlaps(s) })
			switch overlaps := slices.ContainsFunc(n.All(), s.Overlaps); {
			case !within || overlaps || taken[s] || s != s.Masked():
				problems = append(problems, fmt.Sprintf("machine %s: its subnet %s is not one that it can have", m.Name, s))
				continue
			case n.Mode == schema.ModeNone:
				continue // the network of the machines knows the way
			case n.Mode == schema.ModeVXLAN:
				r.via, r.mac, r.outer = Gateway(s), machineMAC(cell, m.Name).String(), r.via
			case s.Addr().Is6() && r.via.Is4():
				problems = append(problems, fmt.Sprintf("machine %s: no route to its subnet %s, since its address %s is of IPv4: give its agent an --address of IPv6, or use network.mode %q", m.Name, s, m.Address, schema.ModeVXLAN))
				continue
			}
			taken[s] = true
			routes = append(routes, r)
		}
	}
	slices.SortFunc(routes, compareRoutes)
	return routes, problems
}

func compareRoutes(a, b route) int {
	return cmp.Or(a.to.Addr().Compare(b.to.Addr()), cmp.Compare(a.to.Bits(), b.to.Bits()), a.via.Compare(b.via), cmp.Compare(a.mac, b.mac), a.outer.Compare(b.outer))
}

// difference returns what leads from some routes to others; both are sorted.
func difference(have, want []route) (remove, add []route) {
	for len(have) > 0 || len(want) > 0 {
		order := -1
		switch {
		case len(have) == 0:
			order = 1
		case len(want) > 0:
			order = compareRoutes(have[0], want[0])
		}
		switch {
		case order < 0:
			remove, have = append(remove, have[0]), have[1:]
		case order > 0:
			add, want = append(add, want[0]), want[1:]
		default:
			have, want = have[1:], want[1:]
		}
	}
	return remove, add
}
