package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// The shapes of Kubernetes' scheduler_perf at 5,000 nodes: pods of one template, of which
// each must, or prefers to, be near the others or apart from them. Its nodes have one size,
// and three zones. jobs/ are the same of 100 jobs, each about its own tasks.
func BenchmarkKubernetesShape(b *testing.B) {
	machines := fleet(5000)
	for i := range machines {
		machines[i].Capacity = schema.Resources{CPUMilli: 4000, RAMBytes: 32 * gib, DiskBytes: 100 * gib}
		machines[i].Attributes["zone"] = fmt.Sprint("z", i%3)
	}
	none := func(*testing.B, *placement.Relations, string) {}
	for _, x := range []struct {
		name   string
		tasks  int
		change func(b *testing.B, r *placement.Relations, own string)
		skew   []placement.SkewLimit
		nest   []placement.Target // by zone, then racks
	}{
		{"basic", 10_000, none, nil, nil},
		{"affinity", 5000, func(b *testing.B, r *placement.Relations, own string) {
			r.Affinity = []placement.Affinity{selects(b, own, "zone", 0)}
		}, nil, nil},
		{"anti-affinity", 4000, func(b *testing.B, r *placement.Relations, own string) {
			r.AntiAffinity = []placement.Affinity{selects(b, own, placement.MachineAttribute, 0)}
		}, nil, nil},
		{"preferred-affinity", 10_000, func(b *testing.B, r *placement.Relations, own string) {
			r.Affinity = []placement.Affinity{selects(b, own, placement.MachineAttribute, 1)}
		}, nil, nil},
		{"preferred-anti-affinity", 10_000, func(b *testing.B, r *placement.Relations, own string) {
			r.AntiAffinity = []placement.Affinity{selects(b, own, placement.MachineAttribute, 1)}
		}, nil, nil},
		{"rack-anti-affinity", 100, func(b *testing.B, r *placement.Relations, own string) {
			r.AntiAffinity = []placement.Affinity{selects(b, own, "rack", 0)}
		}, nil, nil},
		{"zone-skew", 5000, none, []placement.SkewLimit{{Attribute: "zone", Max: 1}}, nil},
		{"rack-skew", 5000, none, []placement.SkewLimit{{Attribute: "rack", Max: 1}}, nil},
		{"machine-skew", 5000, none, []placement.SkewLimit{{Attribute: placement.MachineAttribute, Max: 1}}, nil},
		{"zone-targets-then-rack", 10_000, none, nil, []placement.Target{{Value: "z0", Tasks: 50}, {Value: "z1", Tasks: 30}, {Value: "z2", Tasks: 20}}},
	} {
		for _, jobs := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/jobs=%d", x.name, jobs), func(b *testing.B) {
				each := x.tasks / jobs
				if x.tasks == 100 { // no more of a job than there are racks
					each = 100
				}
				var asks []placement.Ask
				then, wanted := "", slices.Clone(x.nest) // x.nest is in percent
				for i := range wanted {
					then, wanted[i].Tasks = "rack", wanted[i].Tasks*each/100
				}
				for j := range jobs {
					r := &placement.Relations{Labels: map[string]string{"app": fmt.Sprint("a", j)}}
					x.change(b, r, fmt.Sprint("app=a", j))
					for i := range each {
						asks = append(asks, placement.Ask{
							Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%03d", j)}.Task(i), Priority: 200,
							Limit: schema.Resources{CPUMilli: 100, RAMBytes: 500 << 20}, Spread: "zone", Where: placement.Where{MaxSkew: x.skew}, Relations: r,
							Nesting: placement.Nesting{Then: then, Targets: wanted},
						})
					}
				}
				run(b, machines, asks, placement.Options{})
			})
		}
	}
}
