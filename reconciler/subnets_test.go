package reconciler_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
	"pgregory.net/rapid"
)

// ranged commits a cell with this network, and takes steps in which machines report until nothing
// is written any more.
func (c *cell) ranged(commit string, network *schema.CellNetwork, jobs ...schema.Job) {
	p := &schema.Package{Dir: "a", Objects: schema.Objects{Cells: []schema.Cell{{Name: "c", Quota: "off", Network: network}}, Jobs: jobs}, Origins: map[schema.ObjectKey]schema.Position{}}
	for i := range jobs {
		p.Origins[schema.ObjectKey{Kind: schema.KindJob, Name: jobs[i].ID().String()}] = schema.Position{Path: "a/jobs.cue", Line: i + 1, Column: 1}
	}
	c.commit(schema.Compiled{Commit: commit, Trailers: schema.Trailers{AllowPrune: 1000}, Packages: []schema.CompiledPackage{{Dir: "a", Package: p, Digest: schema.DigestOf(p)}}})
	c.settle()
}

// settle takes steps in which machines report until nothing is written any more.
func (c *cell) settle() {
	for range 6 {
		c.now = c.now.Add(2e9)
		c.exchange()
		c.step()
	}
}

// able has a machine join that can give tasks networks of their own.
func (c *cell) able(name string) {
	if c.agent(name) == nil {
		a := agentOf(name, 4, 8)
		a.info.Attributes = map[string]string{schema.HasOwnNetwork: "true", schema.HasNamespaces: "true"}
		c.agents = append(c.agents, a)
		slices.SortFunc(c.agents, func(a, b *agent) int { return strings.Compare(a.info.Name, b.info.Name) })
	}
	c.join(name, 4, 8)
}

// apart errs if two machines have addresses in common, now or of before.
func (c *cell) apart() error {
	type of struct {
		subnet  netip.Prefix
		machine string
	}
	var all []of
	for name, r := range c.state.Machines {
		for _, s := range slices.Concat(r.Subnets, r.Leaving) {
			for _, o := range all {
				if o.subnet.Overlaps(s) {
					return fmt.Errorf("%s has %s, and %s has %s", name, s, o.machine, o.subnet)
				}
			}
			all = append(all, of{s, name})
		}
	}
	return nil
}

// owner is a job whose tasks have networks of their own.
func owner(tasks int) schema.Job {
	return schema.Job{
		Name: "own", User: "u", Cell: "c", Kind: schema.Service, Tasks: tasks,
		Task: schema.TaskSpec{
			Process: schema.Process{Command: []string{"serve"}}, Isolation: &schema.Isolation{Network: schema.OwnNetwork},
			Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 100, RAMBytes: 1 << 20, DiskBytes: 1 << 20}, Ports: []string{"http"}, PortNumbers: map[string]int{"http": 80}},
		},
		Update: schema.UpdatePolicy{MaxParallel: 1},
	}
}

// TestSubnets: machines that can have one get a subnet each of the cell's range, and keep it; one
// of another range stays for as long as tasks have addresses of it.
func TestSubnets(t *testing.T) {
	t.Parallel()
	network := func(of string, bits int) *schema.CellNetwork {
		return &schema.CellNetwork{Range: netip.MustParsePrefix(of), SubnetBits: bits, Mode: schema.ModeRoutes}
	}
	c := newCell()
	c.join("old", 4, 8)
	for i := range 4 {
		c.able(fmt.Sprint("m", i))
	}
	c.ranged("1", network("10.64.0.0/23", 24), owner(2))
	given := map[string][]netip.Prefix{}
	for name, r := range c.state.Machines {
		if len(r.Subnets) > 0 {
			given[name] = r.Subnets
		}
	}
	if len(given) != 2 || given["old"] != nil {
		t.Fatalf("of two subnets, and a machine that can have none: %v", given)
	}
	why, notes := c.status(), 0
	for i := range why.Machines {
		if slices.ContainsFunc(why.Machines[i].Notes, func(s string) bool { return strings.HasPrefix(s, "no subnet of 10.64.0.0/23 is left for it") }) {
			notes++
		}
	}
	if notes != 2 {
		t.Errorf("%d machines say that they have no subnet", notes)
	}
	for i := range why.Tasks {
		if task := &why.Tasks[i]; given[task.Machine] == nil || portOf(task.Ports, "http") != 80 {
			t.Errorf("%s is on %q with ports %v: %s", task.Name, task.Machine, task.Ports, task.Reason)
		}
	}
	c.restart()
	c.ranged("2", network("10.64.0.0/22", 24), owner(2))
	for name, had := range given {
		if is := c.state.Machines[name].Subnets; !slices.Equal(is, had) {
			t.Errorf("%s had %v, and has %v of a larger range", name, had, is)
		}
	}
	for i := range 4 {
		if r := c.state.Machines[fmt.Sprint("m", i)]; len(r.Subnets) != 1 {
			t.Errorf("%s has no subnet of the larger range", r.Name)
		}
	}
	address := map[string]netip.Addr{}
	for _, a := range c.agents {
		for _, s := range a.tasks {
			at := c.state.Machines[a.info.Name].Subnets[0].Addr().Next().Next()
			s.Own, address[a.info.Name] = &schema.TaskNetwork{Addresses: []netip.Addr{at}}, at
		}
	}
	c.ranged("3", network("10.80.0.0/20", 22), owner(2))
	for name, r := range c.state.Machines {
		at, has := address[name]
		if has != (len(r.Leaving) == 1 && r.Leaving[0].Contains(at)) || name != "old" && (len(r.Subnets) != 1 || r.Subnets[0].Bits() != 22) {
			t.Errorf("%s with a task at %s: subnets %v, leaving %v", name, at, r.Subnets, r.Leaving)
		}
	}
	for _, s := range c.status().Tasks {
		if s.Address != address[s.Machine].String() {
			t.Errorf("%s on %s is at %s, want %s", s.Name, s.Machine, s.Address, address[s.Machine])
		}
	}
	c.ranged("4", network("10.80.0.0/20", 22))
	for name, r := range c.state.Machines {
		if len(r.Leaving) > 0 {
			t.Errorf("%s has no task, and %v is leaving", name, r.Leaving)
		}
	}
	if err := c.apart(); err != nil {
		t.Error(err)
	}
}

// TestForeignAddress: what a machine reports of addresses that it has not is not believed.
func TestForeignAddress(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.able("m1")
	c.able("m2")
	c.ranged("1", &schema.CellNetwork{Range: netip.MustParsePrefix("10.64.0.0/16"), SubnetBits: 24, Mode: schema.ModeRoutes}, owner(2))
	foreign := c.state.Machines["m2"].Subnets[0].Addr().Next().Next()
	report := func(machine string, at netip.Addr) {
		for _, s := range c.agent(machine).tasks {
			s.Own = &schema.TaskNetwork{Addresses: []netip.Addr{at}}
		}
		c.settle()
	}
	report("m1", foreign)
	is := c.status()
	for i := range is.Tasks {
		if task := &is.Tasks[i]; task.Machine == "m1" && task.Address != "" {
			t.Errorf("%s is at %s, which is the other machine's", task.Name, task.Address)
		}
	}
	for i := range is.Machines {
		m := &is.Machines[i]
		notes := slices.IndexFunc(m.Notes, func(s string) bool {
			return strings.HasPrefix(s, "it reports an address that is of none of its subnets")
		})
		if (notes >= 0) != (m.Name == "m1") {
			t.Errorf("%s: %q", m.Name, m.Notes)
		}
	}
	own := c.state.Machines["m1"].Subnets[0].Addr().Next().Next()
	report("m1", own)
	is = c.status()
	for i := range is.Tasks {
		if task := &is.Tasks[i]; task.Machine == "m1" && task.Address != own.String() {
			t.Errorf("%s is at %q, want %s", task.Name, task.Address, own)
		}
	}
	if notes := is.Machines[0].Notes; len(notes) > 0 {
		t.Errorf("%q", notes)
	}
}

// TestSubnetsApart: whatever comes, no two machines have addresses in common, and nothing that a
// task may have an address of is given to another machine.
func TestSubnetsApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCell()
		commits, machines := 0, map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "actions") {
			name := fmt.Sprint("m", rapid.IntRange(0, 5).Draw(t, "machine"))
			switch rapid.IntRange(0, 3).Draw(t, "action") {
			case 0:
				c.able(name)
				machines[name] = true
			case 1:
				commits++
				of := rapid.SampledFrom([]string{"10.64.0.0/22", "10.64.0.0/21", "10.64.4.0/22", "10.96.0.0/22"}).Draw(t, "range")
				n := &schema.CellNetwork{Range: netip.MustParsePrefix(of), SubnetBits: rapid.IntRange(22, 25).Draw(t, "bits")}
				if rapid.Bool().Draw(t, "IPv6") {
					n.Range6, n.SubnetBits6 = netip.MustParsePrefix("fd00::/110"), rapid.IntRange(110, 113).Draw(t, "bits6")
				}
				c.ranged(fmt.Sprint(commits), n, owner(rapid.IntRange(0, 4).Draw(t, "tasks")))
			case 2:
				if a := c.agent(name); a != nil {
					a.silent = !a.silent
				}
			default:
				c.restart()
			}
			for _, a := range c.agents { // what starts takes an address of what its machine has now
				for _, g := range slices.Sorted(maps.Keys(a.tasks)) {
					s := a.tasks[g]
					if r := c.state.Machines[a.info.Name]; s.Own == nil && r != nil && len(r.Subnets) > 0 {
						s.Own = &schema.TaskNetwork{Addresses: []netip.Addr{r.Subnets[0].Addr().Next().Next()}}
					}
				}
			}
			c.settle()
			if err := c.apart(); err != nil {
				t.Fatal(err)
			}
			for _, a := range c.agents {
				r := c.state.Machines[a.info.Name]
				for _, s := range a.tasks {
					if s.State != schema.Dead && s.Own != nil && !slices.ContainsFunc(slices.Concat(r.Subnets, r.Leaving), func(p netip.Prefix) bool { return p.Contains(s.Own.Addresses[0]) }) {
						t.Fatalf("%s has a task at %s: subnets %v, leaving %v", a.info.Name, s.Own.Addresses[0], r.Subnets, r.Leaving)
					}
				}
			}
		}
	})
}

// portOf returns a port by its name, 0 if it is not there.
func portOf(p schema.Ports, name string) int {
	n, _ := p.Get(name)
	return n
}
