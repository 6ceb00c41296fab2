package placement_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

func prefers(attribute, value string, weight int) placement.Preference {
	return placement.Preference{Constraint: placement.Constraint{Attribute: attribute, Op: placement.OpIn, Values: []string{value}}, Weight: weight}
}

// TestRelaxedMeetsAsMuch: what asks wish for is met as well among some of the machines as among all: where
// each wish is met by many and all together by few, where machines that meet the
// most are not feasible or have no room, and where room opens later.
func TestRelaxedMeetsAsMuch(t *testing.T) {
	t.Parallel()
	const machines = 5000
	fleet := make([]placement.Machine, machines)
	for i := range fleet {
		both, few := i%400 == 399, i%500 == 7
		is := func(ok bool) string {
			if ok {
				return "1"
			}
			return "0"
		}
		fleet[i] = placement.Machine{
			Name: fmt.Sprintf("m%05d", i), Up: true, Capacity: schema.Resources{CPUMilli: 64_000, RAMBytes: 64 << 30},
			Attributes: map[string]string{
				"rack": fmt.Sprintf("r%03d", i/40), "x": is(i%2 == 0 || both), "y": is(i%2 == 1 || both), "tenth": is(i%10 == 3),
				"zone": is(i%7 == 0), "inzone": is(i%7 != 0 || few),
			},
		}
		if i%2 == 0 || both {
			fleet[i].Packages = []string{"tool"}
		}
		if both { // most of these are as good as full
			fleet[i].Capacity.CPUMilli = 3000
		}
	}
	near := func(by string) *placement.Relations {
		return &placement.Relations{Affinity: []placement.Affinity{{Selector: selector("app=db"), By: by, Weight: 50}}}
	}
	for name, change := range map[string]func(a *placement.Ask){
		"two": func(a *placement.Ask) {
			a.Preferences = []placement.Preference{prefers("x", "1", 50), prefers("y", "1", 50)}
		},
		"not": func(a *placement.Ask) {
			a.Preferences = []placement.Preference{prefers("x", "0", -50), prefers("y", "0", -50)}
		},
		"unequal": func(a *placement.Ask) {
			a.Preferences = []placement.Preference{prefers("x", "1", 1), prefers("tenth", "1", 100)}
		},
		"and a package": func(a *placement.Ask) {
			a.Preferences, a.Packages = []placement.Preference{prefers("y", "1", 50)}, []string{"tool"}
		},
		"and a relation": func(a *placement.Ask) {
			a.Preferences, a.Relations = []placement.Preference{prefers("x", "1", 50)}, near("rack")
		},
		"other relations": func(a *placement.Ask) { a.Preferences, a.Relations = nil, near("x") },
		"under a constraint": func(a *placement.Ask) {
			a.Preferences = []placement.Preference{prefers("inzone", "1", 50)}
			a.Constraints = []placement.Constraint{{Attribute: "zone", Op: placement.OpIn, Values: []string{"1"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, job := range []bool{false, true} {
				relaxed, full := wishesMet(fleet, change, job, placement.Options{}), wishesMet(fleet, change, job, placement.Options{NoRelaxed: true})
				if relaxed < full-0.01 || full == 0 && relaxed != 0 {
					t.Errorf("one job %v: among some of the machines %.2f of the wishes are missed, among all %.2f", job, -relaxed, -full)
				}
			}
		})
	}
}

// wishesMet returns what 20 asks among many get of what they wish for, in the first of two passes and in the
// second, before which the tasks of the first have gone.
func wishesMet(fleet []placement.Machine, change func(a *placement.Ask), job bool, o placement.Options) (sum float32) {
	s := placement.NewSnapshot(fleet, nil)
	s.Configure(o)
	db := placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: "db"}.Task(0), Priority: 200, Limit: schema.Resources{CPUMilli: 100, RAMBytes: 1 << 20}}
	db.Relations = &placement.Relations{Labels: map[string]string{"app": "db"}}
	db.Constraints = []placement.Constraint{{Attribute: placement.MachineAttribute, Op: placement.OpIn, Values: []string{"m01201"}}}
	placement.Place(s, []placement.Ask{db}, 1)
	for pass := range 2 {
		var asks []placement.Ask
		for i := range 20 + 400 {
			a := placement.Ask{
				Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("p%dj%05d", pass, i)}.Task(0), Priority: 200,
				Limit: schema.Resources{CPUMilli: 1000 + int64(i), RAMBytes: 1 << 30},
			}
			if i < 20 {
				if change(&a); job {
					a.Limit.CPUMilli, a.Name = 1500, schema.JobName{Cell: "c", User: "u", Job: "job"}.Task(i)
					a.Spread = placement.NoSpread
				}
			}
			asks = append(asks, a)
		}
		for _, d := range placement.Place(s, asks, 1) {
			if d.Why.Score != nil {
				sum += d.Why.Score.Terms.Wish + d.Why.Score.Terms.Packages + d.Why.Score.Terms.Affinity
			}
			s.RemoveTask(d.Name, d.Machine, 0)
		}
	}
	return sum
}

// Where tasks prefer to be follows what they prefer to be near, from pass to pass.
func TestFavouredFollow(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"rack", placement.MachineAttribute} {
		s := placement.NewSnapshot(fleet(5000), nil)
		s.Configure(placement.Options{Enough: 8})
		web := same(4)
		for i := range web {
			web[i].Spread = placement.NoSpread
			web[i].Relations = &placement.Relations{Affinity: []placement.Affinity{{Selector: selector("app=db"), By: by, Weight: 50}}}
		}
		web[1].Relations, web[2].Relations, web[3].Relations = web[0].Relations, web[0].Relations, web[0].Relations
		for _, at := range []string{"m03021", "m01021", "m04021"} {
			db := distinct(1)[0]
			db.Relations = &placement.Relations{Labels: map[string]string{"app": "db"}}
			db.Constraints = []placement.Constraint{{Attribute: placement.MachineAttribute, Op: placement.OpIn, Values: []string{at}}}
			placement.Place(s, []placement.Ask{db}, 1)
			for _, d := range placement.Place(s, web, 1) {
				if d.Why.Score == nil || d.Why.Score.Terms.Affinity != 0 {
					t.Errorf("by %s: %s is on %s, not near %s", by, d.Name, d.Machine, at)
				}
				s.RemoveTask(d.Name, d.Machine, 0)
			}
			s.RemoveTask(db.Name, at, 0)
		}
	}
}
