package quota_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// train is a job of the gang of that name, at band free.
func train(name string, tasks int) schema.Job {
	j := manyJob("a", name, tasks)
	j.Gang = "train"
	return j
}

func unpreempted(j schema.Job) schema.Job {
	j.Preemptible = new(bool)
	return j
}

func prod(j schema.Job) schema.Job {
	j.Priority = 200
	return j
}

// The jobs of a gang are admitted together or not at all, whichever bound one of them is beyond.
func TestGangsAreAdmittedAtOnce(t *testing.T) {
	t.Parallel()
	jobs := func(j ...schema.Job) []schema.Job { return j }
	user := func(name string, j schema.Job) schema.Job {
		j.User = name
		return j
	}
	causes := func(out map[string]quota.RejectionCause, also ...string) map[string]quota.RejectionCause {
		for _, name := range also {
			out[name] = quota.RejectedGang
		}
		return out
	}
	many := func(names ...string) map[string]quota.RejectionCause {
		out := map[string]quota.RejectionCause{}
		for _, n := range names {
			out[n] = quota.RejectedTooMany
		}
		return out
	}
	five, small := 5, schema.Cell{Name: "c", Quota: "on", MaxTasks: 5}
	free, smallFree := schema.Cell{Name: "c", Quota: "off"}, schema.Cell{Name: "c", Quota: "off", MaxTasks: 5}
	on := schema.Cell{Name: "c", Quota: "on"}
	tenant := []schema.Tenant{{Name: "a", Paths: []string{"teams"}, Users: []string{"a", "b"}, NonPreemptibleTasks: 5, TasksWithoutQuota: &five}}
	roomy := []schema.Tenant{{Name: "a", Paths: []string{"teams"}, Users: []string{"a", "b"}, NonPreemptibleTasks: 5}}
	tests := []struct {
		name              string
		cells             []schema.Cell
		tenants           []schema.Tenant
		quotas            []schema.Quota
		admitted, desired []schema.Job
		want              map[string]quota.RejectionCause
	}{
		{name: "room for all", cells: []schema.Cell{small, smallFree}, desired: jobs(train("x", 2), train("y", 3))},
		{name: "room in the cell for one", cells: []schema.Cell{small, smallFree}, desired: jobs(train("x", 4), train("y", 2), manyJob("a", "z", 1)), want: causes(many("a/y"), "a/x")},
		{name: "each fits alone, and the last one does not fit", cells: []schema.Cell{small, smallFree}, desired: jobs(train("x", 2), train("y", 2), train("z", 2)), want: causes(many("a/z"), "a/x", "a/y")},
		{name: "none fits", cells: []schema.Cell{small, smallFree}, desired: jobs(train("x", 6), train("y", 7)), want: many("a/x", "a/y")},
		{name: "a gang of another user is another gang", cells: []schema.Cell{small, smallFree}, desired: jobs(train("x", 4), user("b", train("y", 2))), want: many("b/y")},
		{name: "a job alone in its gang", cells: []schema.Cell{small, smallFree}, desired: jobs(train("x", 6), manyJob("a", "y", 5)), want: many("a/x")},
		{name: "tasks without quota", cells: []schema.Cell{on, free}, tenants: tenant, desired: jobs(train("x", 4), train("y", 2), manyJob("a", "z", 1)), want: causes(many("a/y"), "a/x")},
		{name: "tasks that may not be preempted", cells: []schema.Cell{on, free}, tenants: roomy, desired: jobs(unpreempted(train("x", 4)), unpreempted(train("y", 2)), unpreempted(manyJob("a", "z", 1))), want: causes(many("a/y"), "a/x")},
		{name: "one that comes to be protected", cells: []schema.Cell{on, free}, tenants: roomy, admitted: jobs(train("x", 4), train("y", 4)), desired: jobs(unpreempted(train("x", 4)), unpreempted(train("y", 4))), want: causes(many("a/y"), "a/x")},
		{name: "what is admitted stays when the bound is lowered", cells: []schema.Cell{on, free}, tenants: roomy, admitted: jobs(unpreempted(train("x", 4)), unpreempted(train("y", 4))), desired: jobs(unpreempted(train("x", 4)), unpreempted(train("y", 3)))},
		{name: "and does not grow", cells: []schema.Cell{on, free}, tenants: roomy, admitted: jobs(unpreempted(train("x", 4)), unpreempted(train("y", 4))), desired: jobs(unpreempted(train("x", 3)), unpreempted(train("y", 5))), want: causes(many("a/y"), "a/x")},
		{name: "one makes room for the other", cells: []schema.Cell{small, smallFree}, admitted: jobs(train("x", 1), train("y", 4)), desired: jobs(train("x", 4), train("y", 1))},
		{name: "and for others", cells: []schema.Cell{small, smallFree}, admitted: jobs(train("x", 1), train("y", 4)), desired: jobs(manyJob("a", "w", 1), train("x", 2), train("y", 1), manyJob("a", "z", 1))},
		{name: "one that does not fit gives nothing to others", cells: []schema.Cell{small, smallFree}, admitted: jobs(train("x", 1), train("y", 4)), desired: jobs(train("x", 7), train("y", 1), manyJob("a", "z", 3)), want: causes(many("a/x", "a/z"), "a/y")},
		{name: "one leaves the gang, which fits then", cells: []schema.Cell{small, smallFree}, admitted: jobs(train("x", 2), train("y", 3)), desired: jobs(train("x", 2), manyJob("a", "y", 9)), want: many("a/y")},
		{name: "one joins", cells: []schema.Cell{small, smallFree}, admitted: jobs(train("x", 2), train("y", 2)), desired: jobs(train("x", 1), train("y", 2), train("z", 3)), want: causes(many("a/z"), "a/x", "a/y")},
		{name: "the lowest priority says when", cells: []schema.Cell{smallFree}, desired: jobs(train("x", 1), prod(train("y", 2)), prod(manyJob("a", "z", 4))), want: causes(many("a/y"), "a/x")},
		{
			name: "quota for one", cells: []schema.Cell{on}, quotas: []schema.Quota{{Name: "q", User: "a", Cell: "c", Band: schema.BandProduction, Tasks: 5}},
			desired: jobs(prod(train("x", 4)), prod(train("y", 2)), prod(manyJob("a", "z", 1))), want: causes(map[string]quota.RejectionCause{"a/y": quota.RejectedOverQuota}, "a/x"),
		},
		{name: "no quota", cells: []schema.Cell{on}, desired: jobs(train("x", 4), prod(train("y", 2))), want: causes(map[string]quota.RejectionCause{"a/y": quota.RejectedNoQuota}, "a/x")},
	}
	for _, tt := range tests {
		for _, cell := range tt.cells {
			t.Run(tt.name+", quota "+cell.Quota, func(t *testing.T) {
				t.Parallel()
				got := bounded(cell, tt.tenants, tt.quotas, tt.admitted, tt.desired)
				if diff := cmp.Diff(tt.want, got); diff != "" && len(tt.want)+len(got) > 0 {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		}
	}
}

// A job of a gang that comes from another tenant takes the others along, or none goes.
func TestGangMoves(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"on", "off"} {
		for bound, rejected := range map[int]int{3: 2, 4: 0} {
			root := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{}}
			root.Objects.Cells = []schema.Cell{{Name: "c", Quota: of}}
			root.Objects.Tenants = []schema.Tenant{
				{Name: "from", Paths: []string{"from"}, Users: []string{"a"}, NonPreemptibleTasks: 4},
				{Name: "to", Paths: []string{"to"}, Users: []string{"a"}, NonPreemptibleTasks: bound},
			}
			in := quota.Input{Admitted: map[schema.JobName]*schema.Job{}, Records: map[schema.JobName]*schema.JobRecord{}}
			packages := []*schema.Package{root}
			for _, name := range []string{"x", "y"} {
				j := unpreempted(train(name, 2))
				p := &schema.Package{Dir: "to", Origins: map[schema.ObjectKey]schema.Position{{Kind: schema.KindJob, Name: j.ID().String()}: {Path: "to/x.cue", Line: 1}}}
				p.Objects.Jobs = []schema.Job{j}
				packages = append(packages, p)
				in.Admitted[j.ID()] = &j
				in.Records[j.ID()] = &schema.JobRecord{Admitted: schema.DigestOf(&j), Origin: schema.Position{Path: "from/x.cue"}}
			}
			in.Desired = intent.Declared("c", packages)
			got := quota.Admit(in)
			if len(got.Rejected) != rejected || len(got.Warnings) > 0 {
				t.Errorf("quota %s, bound %d: rejects %v, warns %v, want %d rejected", of, bound, got.Rejected, got.Warnings, rejected)
			}
		}
	}
}

// Each job of a gang that is rejected says which one does not fit, and why; one that runs what is desired of it
// is not rejected.
func TestGangSaysWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	root := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{}}
	root.Objects.Cells = []schema.Cell{{Name: "c", Quota: "on"}}
	root.Objects.Quotas = []schema.Quota{{Name: "q", User: "a", Cell: "c", Band: schema.BandProduction, Tasks: 5}}
	stays, changes, grows := prod(train("stays", 1)), prod(train("changes", 1)), prod(train("grows", 9))
	was := changes
	was.Priority = 201
	p := &schema.Package{Dir: "teams", Origins: map[schema.ObjectKey]schema.Position{}}
	p.Objects.Jobs = []schema.Job{stays, changes, grows}
	in := quota.Input{
		Desired:  intent.Declared("c", []*schema.Package{root, p}),
		Admitted: map[schema.JobName]*schema.Job{stays.ID(): &stays, changes.ID(): &was},
		Records:  map[schema.JobName]*schema.JobRecord{stays.ID(): {Admitted: schema.DigestOf(&stays)}, changes.ID(): {Admitted: schema.DigestOf(&was)}},
	}
	got := quota.Admit(in)
	if len(got.Rejected) != 2 || got.Rejected[stays.ID()] != nil || len(got.Order) != 1 {
		t.Fatalf("rejects %v, admits %v", got.Rejected, got.Order)
	}
	d, why := got.Rejected[changes.ID()], got.Rejected[grows.ID()]
	if want := `gang "train" is admitted as a whole, and job grows of it is not: ` + why.Message; d.Message != want || d.Field != "job.changes.gang" || d.Hint != why.Hint {
		t.Errorf("says %+v, want %s", d, want)
	}
	if !strings.Contains(why.Message, "tasks 11 of 5, over by 6; largest jobs: grows 9, changes 1, stays 1") {
		t.Errorf("says %s", why.Message)
	}
}

// A job that names what there is not keeps its gang from being admitted; one that stays as it is by an overlay, or
// returns to the version before, has no part in that.
func TestGangOfRefused(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"on", "off"} {
		for _, by := range []intent.Overlay{"", intent.Returned} {
			p := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{}}
			p.Objects.Cells = []schema.Cell{{Name: "c", Quota: of}}
			p.Objects.Jobs = []schema.Job{train("bad", 1), train("mate", 1)}
			in := quota.Input{Desired: intent.Declared("c", []*schema.Package{p})}
			bad, mate := p.Objects.Jobs[0].ID(), p.Objects.Jobs[1].ID()
			d := in.Desired.Jobs[bad]
			d.Refused = []schema.Diagnostic{{Message: "there is no such thing"}}
			in.Desired.Jobs[bad] = d
			d = in.Desired.Jobs[mate]
			d.By = by
			in.Desired.Jobs[mate] = d
			got := quota.Admit(in)
			want := map[schema.JobName]quota.RejectionCause{bad: quota.RejectedRefused, mate: quota.RejectedGang}
			if by != "" {
				delete(want, mate)
			}
			if diff := cmp.Diff(want, got.Causes); diff != "" {
				t.Errorf("quota %s, by %q: (-want +got)\n%s", of, by, diff)
			}
		}
	}
}
