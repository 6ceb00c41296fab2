package placement_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// With the default weights, and relaxed, a job of tasks that fit in every rack
// has about as many tasks in each: the most and the fewest differ by one.
func TestJobsAreSpreadEvenlyOverRacks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.IntRange(2, 12).Draw(t, "racks")
		var machines []placement.Machine
		rackOf := map[string]string{}
		for i := range racks * rapid.IntRange(4, 40).Draw(t, "machines in each") {
			m := placement.Machine{
				Name: fmt.Sprintf("m%04d", i), Up: true, Attributes: map[string]string{"rack": fmt.Sprint("r", i%racks)},
				Capacity: schema.Resources{CPUMilli: int64(32+32*(i%3)) * 1000, RAMBytes: 256 * gib},
				Devices:  []placement.Device{{Kind: "gpu", Model: "T4", Count: i % 3 * 4}},
			}
			machines, rackOf[m.Name] = append(machines, m), m.Attributes["rack"]
		}
		var asks []placement.Ask
		for j := range rapid.IntRange(1, 5).Draw(t, "jobs") {
			a := placement.Ask{Priority: 200, Limit: schema.Resources{
				CPUMilli: int64(rapid.IntRange(1, 4).Draw(t, "cpu")) * 1000, RAMBytes: int64(rapid.IntRange(1, 8).Draw(t, "ram")) * gib,
			}}
			for i := range rapid.IntRange(1, 3*racks).Draw(t, "tasks") {
				a.Name = schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("j", j)}.Task(i)
				asks = append(asks, a)
			}
		}
		counts := map[schema.JobName]map[string]int{}
		for _, d := range placement.Place(placement.NewSnapshot(machines, nil), asks, 1) {
			if d.Machine == "" {
				t.Fatalf("%v is pending in a cell with room: %v", d.Name, d.Why)
			}
			if counts[d.Name.JobName] == nil {
				counts[d.Name.JobName] = map[string]int{}
			}
			counts[d.Name.JobName][rackOf[d.Machine]]++
		}
		for job, in := range counts {
			fewest, most := len(asks), 0
			for r := range racks {
				n := in[fmt.Sprint("r", r)]
				fewest, most = min(fewest, n), max(most, n)
			}
			if most-fewest > 1 {
				t.Fatalf("%v has from %d to %d tasks in a rack: %v", job, fewest, most, in)
			}
		}
	})
}
