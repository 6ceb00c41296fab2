package policy_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/policy"
	"github.com/musterhq/muster/schema"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// tasks are those of a job on machine m1, or of m2 for those whose address begins so.
func tasks(user, job, labels string, p *schema.Policy, at ...string) schema.DirectoryEntry {
	e := &schema.DirectoryTasks{User: user, Job: job, Labels: map[string]string{schema.LabelUser: user, schema.LabelJob: job}}
	e.SetPolicy(p)
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
	return directoryOf(cell, entries...).Snapshot()
}

func directoryOf(cell schema.PolicyDefault, entries ...schema.DirectoryEntry) *naming.Directory {
	d := naming.New()
	for i := 1; i <= 2; i++ {
		entries = append(entries, schema.DirectoryEntry{Machine: &schema.DirectoryMachine{
			Name: fmt.Sprint("m", i), Address: addr(fmt.Sprint("192.0.2.", i)),
			Subnets: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.64.%d.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00::%d:0/112", i))},
		}})
	}
	entries = append(entries, schema.DirectoryEntry{Cell: &schema.DirectoryCell{Name: "c", Network: schema.CellNetwork{Policy: cell}}})
	d.Apply(schema.DirectoryChange{Whole: true, Set: entries})
	return d
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
		s := policy.Of(c.known, c.claims)
		if diff := cmp.Diff(c.want, describe(s, "ana/web", "ana/log")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(s.Selves) != len(s.Guards) {
			t.Errorf("%s: %d addresses reach themselves, of %d that are guarded", name, len(s.Selves), len(s.Guards))
		}
	}
}

func TestGuarded(t *testing.T) {
	t.Parallel()
	byTier, ops := from(schema.PolicyPeer{Selector: "tier=front"}), from(schema.PolicyPeer{Users: []string{"ops"}})
	known := directory("", tasks("ana", "web", "", byTier, "10.64.1.2"))
	claims := []policy.Claim{claim("ana", "web", nil, "10.64.1.2"), claim("ana", "web", nil, "10.64.1.3"), claim("ana", "log", ops, "10.64.1.4")}
	if at := []netip.Addr{addr("10.64.1.2")}; !policy.Guarded(known, claims, at) || policy.Guarded(known, claims[2:], at) {
		t.Error("what is guarded is not what has a policy")
	}
}

// copied returns a state that does not change any more.
func copied(s policy.State) policy.State {
	groups := map[string]policy.Group{}
	for name, g := range s.Groups {
		groups[name] = policy.Group{Sources: maps.Clone(g.Sources), Ranges: g.Ranges}
	}
	return policy.State{Guards: s.Guards, Ports: s.Ports, Selves: s.Selves, Groups: groups}
}

// TestFollower: what follows from changes is what follows from all that is known, and the change is the difference.
func TestFollower(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := naming.New()
		var f policy.Follower
		var claims []policy.Claim
		before := policy.State{}
		policies := []*schema.Policy{
			nil, from(), from(schema.PolicyPeer{Selector: "tier=front"}), from(schema.PolicyPeer{Users: []string{schema.AnyUser}, Ports: []string{"p0"}}, schema.PolicyPeer{Users: []string{"b"}}),
			from(schema.PolicyPeer{Ranges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, schema.PolicyPeer{Users: []string{"a", "b"}, Selector: "tier=back", Ports: []string{"p1"}}),
		}
		user, job := rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]string{"x", "y", "z"})
		address := rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("10.64.%d.%d", rapid.IntRange(1, 2).Draw(t, "m"), rapid.IntRange(2, 6).Draw(t, "host"))
		})
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			var c schema.DirectoryChange
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				m := &schema.DirectoryMachine{Name: fmt.Sprint("m", rapid.IntRange(1, 2).Draw(t, "machine")), Address: addr("192.0.2.1")}
				if rapid.Bool().Draw(t, "has a subnet") {
					m.Subnets = []netip.Prefix{netip.MustParsePrefix("10.64." + m.Name[1:] + ".0/24")}
				}
				c.Set = append(c.Set, schema.DirectoryEntry{Machine: m})
			case 1:
				c.Set = append(c.Set, schema.DirectoryEntry{Cell: &schema.DirectoryCell{Name: "c", Network: schema.CellNetwork{Policy: rapid.SampledFrom([]schema.PolicyDefault{"", schema.PolicyClosed}).Draw(t, "default")}}})
			case 2:
				c.Removed = append(c.Removed, fmt.Sprintf("tasks/%s/%s/0", user.Draw(t, "user"), job.Draw(t, "job")))
			case 3:
				claims = claims[:0:0]
				for range rapid.IntRange(0, 4).Draw(t, "claims") {
					ports := []int{80, 81, 82}[:rapid.IntRange(0, 3).Draw(t, "ports")]
					x := claim(user.Draw(t, "user"), job.Draw(t, "job"), rapid.SampledFrom(policies).Draw(t, "policy"), address.Draw(t, "at"), ports...)
					x.Shared = x.Shared && rapid.Bool().Draw(t, "shared")
					claims = append(claims, x)
				}
			default:
				label := rapid.SampledFrom([]string{"", "tier=front", "tier=back"}).Draw(t, "label")
				at := rapid.SliceOfN(address, 0, 4).Draw(t, "tasks")
				c.Set = append(c.Set, tasks(user.Draw(t, "user"), job.Draw(t, "job"), label, rapid.SampledFrom(policies).Draw(t, "policy"), at...))
			}
			d.Apply(c)
			now := d.Snapshot()
			is, change := f.Next(now, claims)
			want := policy.Of(now, claims)
			if diff := cmp.Diff(copied(want), copied(is), cmpopts.IgnoreUnexported(policy.State{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Fatalf("what follows from changes (-of all, +of changes):\n%s", diff)
			}
			difference := policy.Difference(before, is)
			difference.From, difference.To = change.From, change.To
			if diff := cmp.Diff(difference, change, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Fatalf("the change (-difference, +said):\n%s", diff)
			}
			before = copied(is)
		}
	})
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
	d := directoryOf("", entries...)
	known := d.Snapshot()
	var claims []policy.Claim
	for i := range 100 {
		claims = append(claims, claim("ana", fmt.Sprint("web", i/10), from(schema.PolicyPeer{Selector: "tier=front"}), fmt.Sprint("10.64.1.", 2+i)))
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			policy.Of(known, claims)
		}
	})
	b.Run("one task", func(b *testing.B) {
		var f policy.Follower
		f.Next(d.Snapshot(), claims)
		i := 0
		for b.Loop() {
			i++
			e := tasks("ana", "job7", "tier=front", nil, fmt.Sprint("10.64.2.", i%200))
			d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{e}})
			if _, c := f.Next(d.Snapshot(), claims); c.Size() == 0 && i > 1 {
				b.Fatal("nothing has changed")
			}
		}
	})
}
