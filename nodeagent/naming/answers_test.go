package naming_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

// tasksOf returns the entries of a job with n tasks on as many machines as there are, ready if
// ready says so of the index.
func tasksOf(job string, n int, ready func(int) bool) []schema.DirectoryEntry {
	var out []schema.DirectoryEntry
	for i := range n {
		if i%schema.DirectoryPart == 0 {
			out = append(out, schema.DirectoryEntry{Tasks: &schema.DirectoryTasks{
				User: "ann", Job: job, Part: i / schema.DirectoryPart, Labels: map[string]string{"app": job},
			}})
		}
		p := out[len(out)-1].Tasks
		p.Tasks = append(p.Tasks, schema.DirectoryTask{
			Index: i, Machine: "m1", Address: netip.AddrFrom4([4]byte{10, byte(len(job)), byte(i >> 8), byte(i)}), Ready: ready(i),
		})
	}
	return out
}

func indices(e naming.Endpoints, skip int) []string {
	out := []string{}
	for t := range e.From(skip) {
		out = append(out, fmt.Sprint(t.Job.Name, "/", t.Task.Index))
	}
	return out
}

func TestEndpointsFrom(t *testing.T) {
	t.Parallel()
	third := func(i int) bool { return i%3 == 1 }
	never := func(int) bool { return false }
	for _, test := range []struct {
		name  string
		ready func(int) bool
		none  string
		want  naming.Sending
		count int
	}{
		{"some ready", third, "", naming.ToReady, 50 + 33},
		{"none ready", never, schema.SendAnyway, naming.ToAll, 150 + 100},
		{"none ready, refused", never, schema.Refuse, naming.NoneReady, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := naming.New()
			d.Apply(schema.DirectoryChange{Set: slices.Concat(
				tasksOf("a", 150, test.ready), tasksOf("bb", 100, test.ready), tasksOf("zero", 10, test.ready),
				[]schema.DirectoryEntry{{Service: &schema.DirectoryService{ServiceSpec: schema.ServiceSpec{
					User: "ann", Name: "s", Selector: "app in (a,bb,zero)", WhenNoneReady: test.none,
					Weights: []schema.ServiceWeight{{Selector: "app=zero", Weight: 0}},
				}}}},
			)})
			s := d.Snapshot()
			v, _ := s.Service("ann", "s")
			e := s.Endpoints(v)
			all := indices(e, 0)
			if e.Sending != test.want || e.Count != test.count || len(all) != test.count {
				t.Fatalf("sending %v, count %d, %d endpoints; want %v and %d", e.Sending, e.Count, len(all), test.want, test.count)
			}
			for skip := range test.count {
				if got := indices(e, skip); !slices.Equal(got, all[skip:]) {
					t.Fatalf("without the first %d: %v, want %v", skip, got, all[skip:])
				}
			}
			if got := indices(e, test.count); len(got) > 0 {
				t.Fatalf("after the last one: %v", got)
			}
		})
	}
}

func TestNoTasks(t *testing.T) {
	t.Parallel()
	d := naming.New()
	d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{
		{Service: &schema.DirectoryService{ServiceSpec: schema.ServiceSpec{User: "ann", Name: "s", Selector: "app=a"}}},
		{Tasks: &schema.DirectoryTasks{User: "ann", Job: "a", Labels: map[string]string{"app": "a"}, Tasks: []schema.DirectoryTask{{Index: 0, Ready: true}}}},
		{Tasks: &schema.DirectoryTasks{User: "bob", Job: "a", Labels: map[string]string{"app": "a"}, Tasks: []schema.DirectoryTask{{Index: 0, Ready: true, Address: netip.MustParseAddr("10.0.0.1")}}}},
	}})
	s := d.Snapshot()
	v, _ := s.Service("ann", "s")
	if e := s.Endpoints(v); e.Sending != naming.NoTasks || e.Count != 0 {
		t.Errorf("a task without address, and one of another user: %+v", e)
	}
}

func TestTaskAt(t *testing.T) {
	t.Parallel()
	d := naming.New()
	own, host := netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("192.0.2.1")
	entry := func(index int, a netip.Addr) schema.DirectoryEntry {
		return schema.DirectoryEntry{Tasks: &schema.DirectoryTasks{User: "ann", Job: "a", Part: index / schema.DirectoryPart, Tasks: []schema.DirectoryTask{
			{Index: index, Machine: "m1", Address: a}, {Index: index + 1, Machine: "m1", Address: host},
		}}}
	}
	at := func(a netip.Addr) string {
		job, index, ok := d.Snapshot().TaskAt(a)
		return fmt.Sprint(job, index, ok)
	}
	want := func(a netip.Addr, want string) {
		t.Helper()
		if got := at(a); got != want {
			t.Errorf("%v: %v, want %v", a, got, want)
		}
	}
	none := fmt.Sprint(naming.Name{}, 0, false)
	d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{entry(3, own)}})
	want(own, none) // of a machine that is not known
	d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{{Machine: &schema.DirectoryMachine{
		Name: "m1", Address: host, Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")},
	}}}})
	want(own, "{ann a} 3 true")
	want(host, none) // the machine's, which is nobody's own
	d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{entry(70, own)}})
	want(own, "{ann a} 70 true")
	d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{entry(3, netip.Addr{})}})
	want(own, "{ann a} 70 true")
	d.Apply(schema.DirectoryChange{Removed: []string{"tasks/ann/a/1"}})
	want(own, none)
}

// TestTaskAtBoth: a task is found at both of its addresses, each for as long as it has it.
func TestTaskAtBoth(t *testing.T) {
	t.Parallel()
	v4, first, second := netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("fd00::5"), netip.MustParseAddr("fd00::6")
	d := naming.New()
	d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{{Machine: &schema.DirectoryMachine{
		Name: "m1", Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")},
	}}}})
	for _, step := range []struct {
		v6   netip.Addr
		want []netip.Addr
	}{{first, []netip.Addr{v4, first}}, {second, []netip.Addr{v4, second}}, {netip.Addr{}, []netip.Addr{v4}}, {second, []netip.Addr{v4, second}}} {
		d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{{Tasks: &schema.DirectoryTasks{User: "ann", Job: "a", Tasks: []schema.DirectoryTask{
			{Index: 0, Machine: "m1", Address: v4, Address6: step.v6},
		}}}}})
		for _, a := range []netip.Addr{v4, first, second} {
			if _, _, ok := d.Snapshot().TaskAt(a); ok != slices.Contains(step.want, a) {
				t.Errorf("with %v: found at %v: %v", step.v6, a, ok)
			}
		}
	}
}

// TestMisfits is about entries that no master sends.
func TestMisfits(t *testing.T) {
	t.Parallel()
	d := naming.New()
	d.Apply(schema.DirectoryChange{
		Shards: []int{-1, 64, 1 << 40}, Removed: []string{"", "tasks/x"},
		Set: []schema.DirectoryEntry{
			{},
			{Tasks: &schema.DirectoryTasks{User: "ann", Job: "a", Part: 1, Tasks: []schema.DirectoryTask{
				{Index: 66}, {Index: 3}, {Index: -5}, {Index: 65, Machine: "first"}, {Index: 65, Machine: "second"},
			}}},
			{Tasks: &schema.DirectoryTasks{User: "ann", Job: "b", Part: -1, Tasks: []schema.DirectoryTask{{Index: -64}, {Index: 0}}}},
		},
	})
	var got []string
	s := d.Snapshot()
	for j := range s.Jobs() {
		for task := range j.Tasks() {
			got = append(got, fmt.Sprint(j.Name.Name, task.Index, task.Machine))
		}
	}
	if want := []string{"a65first", "a66"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, ok := s.Task("ann", "a", -64); ok {
		t.Error("a task with an index below 0")
	}
}
