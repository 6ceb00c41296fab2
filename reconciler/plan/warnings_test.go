package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/plan/plantest"
	"github.com/musterhq/muster/schema"
)

// TestNobodyHas: a plan warns of an image that no machine holds, where machines say what they do.
func TestNobodyHas(t *testing.T) {
	t.Parallel()
	image := func(digit string) string { return "registry.example/web@sha256:" + strings.Repeat(digit, 64) }
	for _, tc := range []struct {
		held []schema.Digest
		want int
	}{{nil, 0}, {[]schema.Digest{schema.Content(image("a"))}, 1}, {[]schema.Digest{schema.Content(image("a")), schema.Content(image("b"))}, 0}} {
		in := newCell(t, plantest.Machine("m1", 4, 16), plantest.Machine("m2", 4, 16)).Moment()
		machines := slices.Collect(model.SavedOf(in.Observed))
		machines[1].Content = tc.held
		copied, err := plan.New(plan.Config{State: in.State, Machines: machines, Now: in.Now})
		if err != nil {
			t.Fatal(err)
		}
		web := plantest.Job("web", 0, 1, "1")
		web.Task.Process, web.Task.Container = schema.Process{}, &schema.Container{Image: image("a")}
		web.Task.Before = []schema.Before{{Container: &schema.Container{Image: image("b")}}}
		var said []string
		for _, w := range does(t, copied, plantest.Commit(1, web)).Warnings {
			if strings.Contains(w, "no machine has ") {
				said = append(said, w)
			}
		}
		if len(said) != tc.want || tc.want == 1 && !strings.HasPrefix(said[0], "search/web: no machine has "+image("b")) {
			t.Errorf("held %v: %v", tc.held, said)
		}
	}
}

// TestWarnings: what a plan warns of, for jobs that change, and of nothing that was there before.
func TestWarnings(t *testing.T) {
	t.Parallel()
	with := func(j schema.Job, change func(*schema.Job)) schema.Job {
		change(&j)
		return j
	}
	health := func(j *schema.Job) { j.Task.Health = checked(1, 1) }
	budget := func(j *schema.Job) { j.Disruption = &schema.Disruption{MaxDown: 2} }
	const noHealth = "search/web: a production service without a health check: a rollout cannot see that it does not work"
	for name, tc := range map[string]struct {
		machines []schema.MachineInfo // r1, r2 …
		job      schema.Job
		want     []string
	}{
		"no health check":  {rackMachines("r1", "r2"), plantest.Job("web", 200, 2, "1"), []string{noHealth}},
		"monitoring":       {rackMachines("r1", "r2"), plantest.Job("web", 300, 2, "1"), []string{noHealth}},
		"with one":         {rackMachines("r1", "r2"), with(plantest.Job("web", 200, 2, "1"), health), nil},
		"below production": {rackMachines("r1", "r1"), plantest.Job("web", 100, 2, "1"), nil},
		"batch":            {rackMachines("r1", "r2"), with(plantest.Job("web", 200, 2, "1"), func(j *schema.Job) { j.Kind = schema.Batch }), nil},
		"one rack": {
			rackMachines("r1", "r1"), with(plantest.Job("web", 200, 6, "1"), health),
			[]string{"search/web: all 6 tasks are on rack r1: one failure takes them all"},
		},
		"one machine": {
			rackMachines("r1", "r2"), with(with(plantest.Job("web", 200, 3, "1"), health), func(j *schema.Job) {
				j.Constraints = []schema.Constraint{{Attribute: "rack", Operator: schema.In, Values: []string{"r2"}}}
			}),
			[]string{"search/web: all 3 tasks are on machine m2: one failure takes them all"},
		},
		"one task": {rackMachines("r1", "r2"), with(plantest.Job("web", 200, 1, "1"), health), nil},
		"no drain": {
			rackMachines("r1", "r2"), with(with(plantest.Job("web", 200, 10, "1"), health), budget),
			[]string{"search/web: 2 of 10 tasks are pending, and its disruption budget allows 2 down: no drain may stop any of its tasks"},
		},
		"some drain": {rackMachines("r1", "r2"), with(with(plantest.Job("web", 200, 9, "1"), health), budget), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, tc.machines...)
			o := does(t, c, plantest.Commit(1, tc.job))
			if diff := cmp.Diff(tc.want, o.Warnings, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			// Another job alone changes.
			if o = planned(t, c, plantest.Commit(2, tc.job, plantest.Job("low", 0, 1, "1")), nil); len(o.Warnings) > 0 {
				t.Errorf("of a job that does not change: %q", o.Warnings)
			}
		})
	}
}

// TestNewWarnings: a commit's warnings are those that were not there before, wherever they stand.
func TestNewWarnings(t *testing.T) {
	t.Parallel()
	warned := func(n int, fields ...string) schema.Compiled {
		commit := plantest.Commit(n, plantest.Job("low", 0, n, "1"))
		for i, field := range fields {
			commit.Packages[0].Diagnostics = append(commit.Packages[0].Diagnostics, schema.Diagnostic{
				Severity: schema.Warning, Rule: schema.RuleNoEffect, Position: schema.Position{Path: "cells/x.cue", Line: n, Column: 1 + i}, Field: field, Message: "has no effect",
			})
		}
		return commit
	}
	c := newCell(t, plantest.Machine("m1", 4, 16))
	if o := does(t, c, warned(1, "tenant.a")); !slices.Equal(o.Warnings, []string{"cells/x.cue:1:1: tenant.a: has no effect"}) {
		t.Errorf("the first: %q", o.Warnings)
	}
	if o := planned(t, c, warned(2, "tenant.a", "tenant.b"), nil); !slices.Equal(o.Warnings, []string{"cells/x.cue:2:2: tenant.b: has no effect"}) {
		t.Errorf("the next: %q", o.Warnings)
	}
}

// rackMachines are machines m1, m2 … with four cores, in racks.
func rackMachines(racks ...string) (out []schema.MachineInfo) {
	for i, rack := range racks {
		m := plantest.Machine(fmt.Sprintf("m%d", i+1), 4, 16)
		m.Attributes["rack"] = rack
		out = append(out, m)
	}
	return out
}
