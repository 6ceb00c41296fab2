package placement_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Tasks of one job that were all stopped to run again come back to where they ran, which is kept for
// them. Most of what that costs for each should not grow with their number.
func BenchmarkClaimBack(b *testing.B) {
	for _, by := range []string{placement.MachineAttribute, "rack"} {
		for _, n := range []int{250, 1000, 4000} {
			b.Run(fmt.Sprintf("%s-%d", by, n), func(b *testing.B) {
				s := placement.NewSnapshot(fleet(8000), nil)
				asks := make([]placement.Ask, 0, n)
				for i := range n {
					asks = append(asks, placement.Ask{
						Name: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(i), Priority: 200, Limit: schema.Resources{CPUMilli: 500},
					})
					asks[i].PerDomain = []placement.DomainLimit{{Attribute: by, Max: max(1, n/100)}}
				}
				var spent time.Duration
				for i := range b.N + 1 { // the first places them
					began := time.Now()
					s.ClaimBack(asks, func(name schema.TaskName) string { return asks[name.Index].Last })
					for _, d := range placement.Place(s, asks, 1) {
						asks[d.Name.Index].Last = d.Machine
					}
					if i > 0 {
						spent += time.Since(began)
					}
					for i := range asks {
						s.RemoveTask(asks[i].Name, asks[i].Last, 0)
					}
				}
				b.ReportMetric(float64(spent.Microseconds())/float64(n*b.N), "µs/task")
			})
		}
	}
}
