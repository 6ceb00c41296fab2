package naming_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

// plain is a directory as a map, of which each question is answered by a look at all of it.
type plain map[string]schema.DirectoryEntry

func (p plain) apply(c schema.DirectoryChange) {
	set := map[string]bool{}
	for _, e := range c.Set {
		set[e.Key()] = true
	}
	maps.DeleteFunc(p, func(key string, _ schema.DirectoryEntry) bool {
		return !set[key] && (c.Whole || slices.Contains(c.Shards, schema.DirectoryShard(key)))
	})
	for _, key := range c.Removed {
		delete(p, key)
	}
	for _, e := range c.Set {
		p[e.Key()] = e
	}
}

func (p plain) digests() schema.DirectoryDigests {
	var all schema.DirectoryDigests
	for key, e := range p {
		i := schema.DirectoryShard(key)
		all[i] = all[i].Plus(e.Digest())
	}
	return all
}

// endpoints returns what connections to each service are sent to, as lines.
func (p plain) endpoints() map[naming.Name][]string {
	out := map[naming.Name][]string{}
	for _, e := range p {
		s := e.Service
		if s == nil {
			continue
		}
		var ready, all []string
		for _, key := range slices.Sorted(maps.Keys(p)) {
			t := p[key].Tasks
			if t == nil || t.User != s.User || !matches(s.Selector, t.Labels) {
				continue
			}
			weight := schema.DefaultWeight
			if i := slices.IndexFunc(s.Weights, func(w schema.ServiceWeight) bool { return matches(w.Selector, t.Labels) }); i >= 0 {
				weight = s.Weights[i].Weight
			}
			for _, task := range t.Tasks {
				if !task.Address.IsValid() || weight == 0 {
					continue
				}
				line := fmt.Sprint(t.User, "/", t.Job, "/", task.Index, " ", task.Address, " ", weight)
				all = append(all, line)
				if task.Ready {
					ready = append(ready, line)
				}
			}
		}
		if len(ready) == 0 && s.WhenNoneReady != schema.Refuse {
			ready = all
		}
		out[naming.Name{User: s.User, Name: s.Name}] = ready
	}
	return out
}

func matches(selector string, labels map[string]string) bool {
	s, err := schema.ParseSelector(selector)
	return err == nil && s.Matches(labels)
}

// endpoints returns the same of a snapshot.
func endpoints(s *naming.Snapshot) map[naming.Name][]string {
	out := map[naming.Name][]string{}
	for v := range s.Services() {
		var lines []string
		for e := range s.Endpoints(v).From(0) {
			lines = append(lines, fmt.Sprint(e.Job.User, "/", e.Job.Name, "/", e.Task.Index, " ", e.Task.Address, " ", e.Weight))
		}
		out[naming.Name{User: v.User, Name: v.Name}] = lines
	}
	return out
}

func copyOf[T any](t *rapid.T, v T) T {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var is T
	if err := json.Unmarshal(b, &is); err != nil {
		t.Fatal(err)
	}
	return is
}

var (
	users     = rapid.SampledFrom([]string{"ann", "bob"})
	labels    = rapid.MapOfN(rapid.SampledFrom([]string{"app", "tier", "track"}), rapid.SampledFrom([]string{"a", "b", ""}), 0, 3)
	selectors = rapid.SampledFrom([]string{"app=a", "app!=a", "app in (a,b),tier", "!track", "tier notin (b)", "app=a,tier=b", "track", "app=a,app=b", "=", "app in (a,a)"})
)

func entries(t *rapid.T) schema.DirectoryEntry {
	switch user := users.Draw(t, "user"); rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return schema.DirectoryEntry{Machine: &schema.DirectoryMachine{
			Name:    rapid.SampledFrom([]string{"m1", "m2"}).Draw(t, "machine"),
			Subnets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(t, "net"), 0}), 24)},
		}}
	case 1, 2:
		spec := schema.ServiceSpec{
			Name: rapid.SampledFrom([]string{"s", "t", "u"}).Draw(t, "service"), User: user,
			Selector:      selectors.Draw(t, "selector"),
			WhenNoneReady: rapid.SampledFrom([]string{"", schema.Refuse}).Draw(t, "none ready"),
		}
		for range rapid.IntRange(0, 2).Draw(t, "weights") {
			spec.Weights = append(spec.Weights, schema.ServiceWeight{Selector: selectors.Draw(t, "weighted"), Weight: rapid.SampledFrom([]int{0, 1, 1000}).Draw(t, "weight")})
		}
		return schema.DirectoryEntry{Service: &schema.DirectoryService{ServiceSpec: spec}}
	}
	job := rapid.SampledFrom([]string{"j", "k", "l"}).Draw(t, "job")
	p := &schema.DirectoryTasks{User: users.Draw(t, "owner"), Job: job, Part: rapid.IntRange(0, 1).Draw(t, "part")}
	p.Labels = labels.Draw(t, "labels")
	for i := range rapid.IntRange(0, 3).Draw(t, "tasks") {
		task := schema.DirectoryTask{Index: p.Part*schema.DirectoryPart + 7*i, Machine: "m1", Ready: rapid.Bool().Draw(t, "ready"), Ports: schema.NewPorts(schema.Port{Name: "http", Port: 80})}
		if rapid.IntRange(0, 4).Draw(t, "addressed") > 0 {
			task.Address = netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "address")})
		}
		p.Tasks = append(p.Tasks, task)
	}
	return schema.DirectoryEntry{Tasks: p}
}

// TestApply compares a directory after each of many changes with one that is a plain map; and
// snapshots, which must stay as they were.
func TestApply(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d, p := naming.New(), plain{}
		type kept struct {
			s  *naming.Snapshot
			is map[naming.Name][]string
		}
		var old []kept
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			var c schema.DirectoryChange
			for range rapid.IntRange(0, 6).Draw(t, "set") {
				e := entries(t)
				if !slices.ContainsFunc(c.Set, func(o schema.DirectoryEntry) bool { return o.Key() == e.Key() }) {
					c.Set = append(c.Set, e)
				}
			}
			keys := slices.Sorted(maps.Keys(p))
			for range min(len(keys), rapid.IntRange(0, 2).Draw(t, "removed")) {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				if !slices.ContainsFunc(c.Set, func(o schema.DirectoryEntry) bool { return o.Key() == key }) {
					c.Removed = append(c.Removed, key)
				}
			}
			switch rapid.IntRange(0, 8).Draw(t, "whole") {
			case 0:
				c.Whole = true
			case 1:
				c.Shards = rapid.SliceOfN(rapid.IntRange(0, schema.DirectoryShards-1), 0, 40).Draw(t, "shards")
			}
			// Labels are those of the job, so all its parts have the same.
			for _, e := range c.Set {
				if e.Tasks == nil {
					continue
				}
				other := schema.DirectoryEntry{Tasks: &schema.DirectoryTasks{User: e.Tasks.User, Job: e.Tasks.Job, Part: 1 - e.Tasks.Part}}
				if was, ok := p[other.Key()]; ok {
					e.Tasks.Labels = was.Tasks.Labels
				}
			}
			for i, e := range c.Set {
				for _, o := range c.Set[:i] {
					if e.Tasks != nil && o.Tasks != nil && e.Tasks.User == o.Tasks.User && e.Tasks.Job == o.Tasks.Job {
						e.Tasks.Labels = o.Tasks.Labels
					}
				}
			}
			check(t, d, p, c)
			s := d.Snapshot()
			old = append(old, kept{s, endpoints(s)})
		}
		for i, k := range old {
			if diff := cmp.Diff(k.is, endpoints(k.s)); diff != "" {
				t.Fatalf("snapshot %d has changed:\n%s", i, diff)
			}
		}
	})
}

// check applies c to both, and compares them.
func check(t *rapid.T, d *naming.Directory, p plain, c schema.DirectoryChange) {
	before, digests := p.endpoints(), d.Digests()
	p.apply(copyOf(t, c))
	touched := d.Apply(c)
	s := d.Snapshot()
	if diff := cmp.Diff(p.digests(), d.Digests()); diff != "" {
		t.Fatalf("digests:\n%s", diff)
	}
	for i, was := range digests {
		if differs := was != d.DigestOf(i); differs && !slices.Contains(touched.Shards, i) {
			t.Fatalf("shard %d is not in %v", i, touched.Shards)
		}
	}
	after := p.endpoints()
	if diff := cmp.Diff(after, endpoints(s)); diff != "" {
		t.Fatalf("endpoints (-want +got):\n%s", diff)
	}
	for _, names := range []map[naming.Name][]string{before, after} {
		for n := range names {
			if !cmp.Equal(before[n], after[n]) && !slices.Contains(touched.Services, n) {
				t.Fatalf("service %v has other endpoints, and is not in %v", n, touched.Services)
			}
		}
	}
	got := plain{}
	for i := range schema.DirectoryShards {
		for _, e := range d.Entries(i) {
			got[e.Key()] = e
		}
	}
	if diff := cmp.Diff(p.strings(), got.strings()); diff != "" {
		t.Fatalf("entries (-want +got):\n%s", diff)
	}
	jobs := map[string]bool{}
	services := map[string]bool{}
	for _, e := range p {
		if e.Service != nil {
			services[e.Service.User] = true
		}
		if e.Tasks == nil || len(e.Tasks.Tasks) == 0 {
			continue
		}
		jobs[e.Tasks.User] = true
		for _, want := range e.Tasks.Tasks {
			got, ok := s.Task(e.Tasks.User, e.Tasks.Job, want.Index)
			if !ok || !cmp.Equal(*got, want, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
				t.Fatalf("%s: %v, want %v", e.Key(), got, want)
			}
		}
	}
	if s.Empty() && len(jobs)+len(services) > 0 {
		t.Fatal("it is empty")
	}
	for _, user := range []string{"ann", "bob"} {
		if s.HasJobs(user) != jobs[user] || s.HasServices(user) != services[user] {
			t.Fatalf("%s: has jobs %v, services %v", user, s.HasJobs(user), s.HasServices(user))
		}
	}
}

func (p plain) strings() map[string]string {
	out := map[string]string{}
	for key, e := range p {
		out[key] = string(schema.Canonical(e))
	}
	return out
}
