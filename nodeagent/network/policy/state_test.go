package policy_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/policy"
	"github.com/musterhq/muster/schema"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// tasks are those of a job on machine m1, or of m2 for those whose address begins so.
func tasks(user, job, labels string, p *schema.Policy, at ...string) schema.DirectoryEntry {
	e := &schema.DirectoryTasks{User: user, Job: job, Policy: p, Labels: map[string]string{schema.LabelUser: user, schema.LabelJob: job}}
	if labels != "" {
		k, v, _ := strings.Cut(labels, "=")
		e.Labels[k] = v
	}
	for i, a := range at {
		machine := "m1"
		if strings.HasPrefix(a, "10.64.2.") {
			machine = "m2"
		}
		t := schema.DirectoryTask{Index: i, Machine: machine, Address: addr(a)}
		if t.Address.Is4() && machine == "m2" {
			t.Address6 = addr("fd00::2:" + a[len("10.64.2."):])
		}
		e.Tasks = append(e.Tasks, t)
	}
	return schema.DirectoryEntry{Tasks: e}
}

func directory(cell schema.PolicyDefault, entries ...schema.DirectoryEntry) *naming.Snapshot {
	d := naming.New()
	for i := 1; i <= 2; i++ {
		entries = append(entries, schema.DirectoryEntry{Machine: &schema.DirectoryMachine{
			Name: fmt.Sprint("m", i), Address: addr(fmt.Sprint("192.0.2.", i)),
			Subnets: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.64.%d.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00::%d:0/112", i))},
		}})
	}
	entries = append(entries, schema.DirectoryEntry{Cell: &schema.DirectoryCell{Name: "c", Network: schema.CellNetwork{Policy: cell}}})
	d.Apply(schema.DirectoryChange{Whole: true, Set: entries})
	return d.Snapshot()
}

// claim is a task of this machine, in a network of its own or with ports in a shared one.
func claim(user, job string, p *schema.Policy, at string, ports ...int) policy.Claim {
	c := policy.Claim{Job: naming.Name{User: user, Name: job}, Addresses: []netip.Addr{addr(at)}, Policy: p, Shared: len(ports) > 0}
	for i, n := range ports {
		c.Ports = append(c.Ports, schema.Port{Name: fmt.Sprint("p", i), Port: n})
	}
	return c
}

// describe says what a state is, with the names of jobs in place of those of groups.
func describe(s policy.State, jobs ...string) string {
	names := map[string]string{}
	for _, j := range jobs {
		user, job, _ := strings.Cut(j, "/")
		names[policy.GroupOf(naming.Name{User: user, Name: job}, "")] = j
		for i := range 2 {
			port := fmt.Sprint("p", i)
			names[policy.GroupOf(naming.Name{User: user, Name: job}, port)] = j + "@" + port
		}
	}
	named := func(to string) string {
		if n, ok := names[to]; ok {
			return n
		}
		return to
	}
	var out []string
	for a, to := range s.Guards {
		out = append(out, fmt.Sprintf("%s: %s", a, named(to)))
	}
	for p, to := range s.Ports {
		if p.Protocol == 6 {
			out = append(out, fmt.Sprintf("%s:%d: %s", p.Address, p.Port, named(to)))
		}
	}
	for name, g := range s.Groups {
		out = append(out, fmt.Sprintf("%s < %v %v", named(name), slices.SortedFunc(maps.Keys(g.Sources), netip.Addr.Compare), g.Ranges))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func from(peers ...schema.PolicyPeer) *schema.Policy { return &schema.Policy{From: peers} }

func TestOf(t *testing.T) {
	t.Parallel()
	front := tasks("ana", "front", "tier=front", nil, "10.64.2.5", "192.0.2.2")
	ops := tasks("ops", "probe", "tier=front", nil, "10.64.2.7")
	lie := tasks("eve", "lie", "", nil, "10.64.1.9", "10.64.7.1") // the second is no address of its machine
	byTier := from(schema.PolicyPeer{Selector: "tier=front"})
	anyone := from(schema.PolicyPeer{Users: []string{schema.AnyUser}})
	ranges := from(schema.PolicyPeer{Ranges: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("192.0.2.0/24")}}, schema.PolicyPeer{Users: []string{"ops"}, Selector: "tier=back"})
	byPort := from(schema.PolicyPeer{Selector: "tier=front", Ports: []string{"p0", "p1"}}, schema.PolicyPeer{Users: []string{"ops"}, Ports: []string{"p1"}}, schema.PolicyPeer{Users: []string{"eve"}},
		schema.PolicyPeer{Ranges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Ports: []string{"p0"}})
	ported := claim("ana", "web", nil, "10.64.1.2", 80, 81, 82)
	ported.Shared = false
	web := func(p *schema.Policy) schema.DirectoryEntry { return tasks("ana", "web", "", p, "10.64.1.2") }
	for name, c := range map[string]struct {
		known  *naming.Snapshot
		claims []policy.Claim
		want   string
	}{
		"nobody is guarded":               {directory("", front, ops, web(nil)), []policy.Claim{claim("ana", "web", nil, "10.64.1.2")}, ""},
		"a job's own user is meant":       {directory("", front, ops, web(byTier)), []policy.Claim{claim("ana", "web", nil, "10.64.1.2")}, "10.64.1.2: ana/web\nana/web < [10.64.2.5 fd00::2:5] []"},
		"all users":                       {directory("", front, ops, lie, web(anyone)), []policy.Claim{claim("ana", "web", nil, "10.64.1.2")}, "10.64.1.2: ana/web\nana/web < [10.64.1.2 10.64.1.9 10.64.2.5 10.64.2.7 fd00::2:5 fd00::2:7] []"},
		"ranges":                          {directory("", front, ops, web(ranges)), []policy.Claim{claim("ana", "web", nil, "10.64.1.2")}, "10.64.1.2: ana/web\nana/web < [] [192.0.2.0/24 2001:db8::/32]"},
		"at ports":                        {directory("", front, ops, lie, web(byPort)), []policy.Claim{ported}, "10.64.1.2: ana/web\n10.64.1.2:80: ana/web@p0\n10.64.1.2:81: ana/web@p1\nana/web < [10.64.1.9] []\nana/web@p0 < [10.64.1.9 10.64.2.5 fd00::2:5] [192.0.2.0/24]\nana/web@p1 < [10.64.1.9 10.64.2.5 10.64.2.7 fd00::2:5 fd00::2:7] []"},
		"at ports in a shared network":    {directory("", front, web(byPort)), []policy.Claim{claim("ana", "web", nil, "10.64.1.2", 80, 81, 82), claim("ana", "log", nil, "10.64.1.2", 90)}, "10.64.1.2: refuse\n10.64.1.2:80: ana/web@p0\n10.64.1.2:81: ana/web@p1\n10.64.1.2:82: ana/web\n10.64.1.2:90: admit\nana/web < [] []\nana/web@p0 < [10.64.2.5 fd00::2:5] [192.0.2.0/24]\nana/web@p1 < [10.64.2.5 fd00::2:5] []"},
		"the cell is closed":              {directory(schema.PolicyClosed, front, web(nil)), []policy.Claim{claim("ana", "web", nil, "10.64.1.2")}, "10.64.1.2: ana/web\nana/web < [] []"},
		"before the directory has it":     {directory("", front), []policy.Claim{claim("ana", "web", byTier, "10.64.1.2")}, "10.64.1.2: ana/web\nana/web < [10.64.2.5 fd00::2:5] []"},
		"the directory knows better":      {directory("", front, web(nil)), []policy.Claim{claim("ana", "web", byTier, "10.64.1.2")}, ""},
		"the directory is older than it":  {directory("", front, web(nil)), []policy.Claim{claim("ana", "web", nil, "10.64.1.2"), claim("ana", "web", byTier, "10.64.1.3")}, "10.64.1.3: ana/web\nana/web < [10.64.2.5 fd00::2:5] []"},
		"not here":                        {directory("", front, web(byTier)), nil, ""},
		"beside one in a shared network":  {directory("", front, web(byTier), tasks("ana", "log", "", nil, "10.64.1.2")), []policy.Claim{claim("ana", "web", nil, "10.64.1.2", 80), claim("ana", "log", nil, "10.64.1.2", 90)}, "10.64.1.2: refuse\n10.64.1.2:80: ana/web\n10.64.1.2:90: admit\nana/web < [10.64.2.5 fd00::2:5] []"},
		"none of those that share it has": {directory("", front), []policy.Claim{claim("ana", "web", nil, "10.64.1.2", 80), claim("ana", "log", nil, "10.64.1.2", 90)}, ""},
	} {
		s := policy.Of(c.known, c.claims, policy.State{})
		if diff := cmp.Diff(c.want, describe(s, "ana/web", "ana/log")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(s.Selves) != len(s.Guards) {
			t.Errorf("%s: %d addresses reach themselves, of %d that are guarded", name, len(s.Selves), len(s.Guards))
		}
	}
}

// TestBefore: a further task of a job has the group that this has, and a job whose policy has changed
// another one, of what is known now.
func TestBefore(t *testing.T) {
	t.Parallel()
	byTier, ops := from(schema.PolicyPeer{Selector: "tier=front"}), from(schema.PolicyPeer{Users: []string{"ops"}})
	first := claim("ana", "web", nil, "10.64.1.2")
	probe := tasks("ops", "probe", "", nil, "10.64.2.7")
	known := directory("", tasks("ana", "front", "tier=front", nil, "10.64.2.5"), probe, tasks("ana", "web", "", byTier, "10.64.1.2"))
	s := policy.Of(known, []policy.Claim{first}, policy.State{})
	claims := []policy.Claim{first, claim("ana", "web", nil, "10.64.1.3"), claim("ana", "log", ops, "10.64.1.4")}
	known = directory("", tasks("ana", "front", "tier=front", nil, "10.64.2.6"), probe, tasks("ana", "web", "", byTier, "10.64.1.2"))
	s = policy.Of(known, claims, s)
	want := "10.64.1.2: ana/web\n10.64.1.3: ana/web\n10.64.1.4: ana/log\nana/log < [10.64.2.7 fd00::2:7] []\nana/web < [10.64.2.5 fd00::2:5] []"
	if diff := cmp.Diff(want, describe(s, "ana/web", "ana/log")); diff != "" {
		t.Errorf("with further tasks (-want +got):\n%s", diff)
	}
	known = directory("", probe, tasks("ana", "web", "", ops, "10.64.1.2"))
	want = "10.64.1.2: ana/web\nana/web < [10.64.2.7 fd00::2:7] []"
	if diff := cmp.Diff(want, describe(policy.Of(known, claims[:1], s), "ana/web")); diff != "" {
		t.Errorf("with another policy (-want +got):\n%s", diff)
	}
	if at := []netip.Addr{addr("10.64.1.2")}; !policy.Guarded(known, claims, at) || policy.Guarded(known, claims[2:], at) {
		t.Error("what is guarded is not what has a policy")
	}
}

func BenchmarkOf(b *testing.B) {
	var entries []schema.DirectoryEntry
	for j := range 1000 {
		for part := range 2 {
			e := tasks("ana", fmt.Sprint("job", j), "tier=front", nil)
			e.Tasks.Part = part
			for i := range 50 {
				e.Tasks.Tasks = append(e.Tasks.Tasks, schema.DirectoryTask{Index: part*64 + i, Machine: "m2", Address: netip.AddrFrom4([4]byte{10, 64, 2, byte(i)})})
			}
			entries = append(entries, e)
		}
	}
	known := directory("", entries...)
	var claims []policy.Claim
	for i := range 100 {
		claims = append(claims, claim("ana", fmt.Sprint("web", i/10), from(schema.PolicyPeer{Selector: "tier=front"}), fmt.Sprint("10.64.1.", 2+i)))
	}
	for name, before := range map[string]policy.State{"all": {}, "more claims": policy.Of(known, claims, policy.State{})} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				policy.Of(known, claims, before)
			}
		})
	}
}
