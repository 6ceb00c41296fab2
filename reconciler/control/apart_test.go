package control

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// TestWithApart: what is remembered is bounded, of each job once and the newest, ends, and
// whatever the clock does nothing is kept for ever.
func TestWithApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var list []schema.Apart
		newest := map[schema.JobName]time.Time{}
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(-30, 30).Draw(t, "minutes")) * time.Minute)
			job := schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("j", rapid.IntRange(0, 12).Draw(t, "job"))}
			a := schema.Apart{Job: job, Until: now.Add(facts.ApartFor)}
			before := slices.Clone(list)
			was := list
			list = withApart(list, a, now)
			if !slices.Equal(was, before) {
				t.Fatalf("the list that was given is now %v, was %v", was, before)
			}
			newest[job] = a.Until
			if len(list) > schema.MaxApart || !slices.Contains(list, a) && now.Add(facts.ApartFor).After(list[0].Until) {
				t.Fatalf("%d are kept, the newest of them: %t", len(list), slices.Contains(list, a))
			}
			seen := map[schema.JobName]bool{}
			for _, o := range list {
				if seen[o.Job] || !o.Until.Equal(newest[o.Job]) || !facts.Ahead(now, o.Until, facts.ApartFor) {
					t.Fatalf("%v is kept at %s", o, now)
				}
				seen[o.Job] = true
			}
		}
		last := withApart(list, schema.Apart{Job: schema.JobName{Job: "new"}, Until: now.Add(3 * facts.ApartFor)}, now.Add(2*facts.ApartFor))
		if len(last) != 1 {
			t.Fatalf("%v are kept two hours later", last)
		}
	})
}
