package nodeagent_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

func TestCollect(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []nodeagent.Remains
		for i := range rapid.IntRange(0, 12).Draw(t, "remains") {
			all = append(all, nodeagent.Remains{
				TaskRef: schema.TaskRef{Task: task("web", rapid.IntRange(0, 2).Draw(t, "index")), Generation: uint64(i + 1)},
				Ended:   t0.Add(-time.Duration(rapid.IntRange(-1, 48).Draw(t, "hours")) * time.Hour),
				Failed:  rapid.Bool().Draw(t, "failed"), Bytes: rapid.Int64Range(0, 5).Draw(t, "bytes"),
			})
		}
		keep := nodeagent.Keep{Bytes: rapid.Int64Range(1, 20).Draw(t, "keep"), Age: 12 * time.Hour, FailedAge: 36 * time.Hour}
		short := max(0, rapid.Int64Range(-10, 10).Draw(t, "short"))
		gone, next := nodeagent.Collect(all, keep, short, t0)

		removed := map[uint64]nodeagent.Reason{}
		for _, g := range gone {
			removed[g.Generation] = g.Reason
		}
		left, freed, unknown := int64(0), int64(0), false
		for _, r := range all {
			age := keep.Age
			if r.Failed {
				age = keep.FailedAge
			}
			reason, went := removed[r.Generation]
			old := !r.Ended.After(t0) && t0.Sub(r.Ended) >= age
			switch {
			case !went && old:
				t.Fatalf("%v stays and is too old", r)
			case !went:
				left += r.Bytes
				if until := slices.MinFunc([]time.Time{r.Ended, t0}, time.Time.Compare).Add(age); next.IsZero() || next.After(until) {
					t.Fatalf("next %v is after %v gets too old", next, r)
				}
			case reason == nodeagent.TooOld && !old:
				t.Fatalf("%v goes for its age", r)
			case reason == nodeagent.ShortDisk:
				freed += r.Bytes
				unknown = unknown || r.Bytes == 0
			}
		}
		if left > keep.Bytes {
			t.Fatalf("%d bytes stay: want at most %d", left, keep.Bytes)
		}
		if short > 0 && freed < short && !unknown && len(gone) < len(all) {
			t.Fatalf("%d bytes are freed of %d, and something is left", freed, short)
		}
		checkOrder(t, all, gone)
	})
}

// checkOrder errs when something went for its size or the machine's sake before
// what was to go first.
func checkOrder(t *rapid.T, all []nodeagent.Remains, gone []nodeagent.Removal) {
	for _, g := range gone {
		if g.Reason != nodeagent.TooLarge && g.Reason != nodeagent.ShortDisk {
			continue
		}
		for _, r := range all {
			stays := !slices.ContainsFunc(gone, func(o nodeagent.Removal) bool { return o.Generation == r.Generation })
			if stays && (!r.Failed && g.Failed || r.Failed == g.Failed && r.Ended.Before(g.Ended)) {
				t.Fatalf("%v goes while %v stays, which is to go first", g, r)
			}
		}
	}
}

// What runs, or is assigned, is never removed, however short the machine is.
func TestCollectLeavesWhatIsLive(t *testing.T) {
	t.Parallel()
	pressure, limits := short(1024*mib, 0)
	web := using("web", 7, 0, mib, 0)
	done := ended(using("done", 8, 0, 0, 0), schema.CauseFinished, 48*time.Hour)
	v := &schema.View{Epoch: 1, Version: 1, Assignments: []schema.Assignment{web.Assignment, done.Assignment}}
	plan := nodeagent.Decide(nodeagent.Input{Machine: "m1", Boot: "boot-1", Now: t0, View: v, Held: []nodeagent.Held{web, done}, Pressure: pressure, Limits: limits})
	if len(plan.Actions) > 0 {
		t.Errorf("actions %v: want none", describe(plan.Actions))
	}
	plan = nodeagent.Decide(nodeagent.Input{Machine: "m1", Boot: "boot-1", Now: t0, Held: []nodeagent.Held{web, done}, Pressure: pressure, Limits: limits})
	if len(plan.Actions) > 0 {
		t.Errorf("actions without a view %v: want none", describe(plan.Actions))
	}
}
