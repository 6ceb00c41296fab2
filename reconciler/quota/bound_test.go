package quota_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// manyJob is a job at band free of so many tasks, of the user who is named like the job's directory.
func manyJob(user, name string, tasks int) schema.Job {
	return schema.Job{Cell: "c", User: user, Name: name, Kind: schema.Service, Tasks: tasks}
}

// bounded is what admission says of jobs, each declared in teams/USER, where others are admitted.
func bounded(cell schema.Cell, tenants []schema.Tenant, quotas []schema.Quota, admitted, desired []schema.Job) map[string]quota.RejectionCause {
	root := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{}}
	root.Objects.Cells, root.Objects.Tenants, root.Objects.Quotas = []schema.Cell{cell}, tenants, quotas
	packages := []*schema.Package{root}
	for _, j := range desired {
		p := &schema.Package{Dir: "teams/" + j.User, Origins: map[schema.ObjectKey]schema.Position{
			{Kind: schema.KindJob, Name: j.ID().String()}: {Path: "teams/" + j.User + "/x.cue", Line: 1},
		}}
		p.Objects.Jobs = []schema.Job{j}
		packages = append(packages, p)
	}
	in := quota.Input{Desired: intent.Declared("c", packages), Admitted: map[schema.JobName]*schema.Job{}}
	for _, j := range admitted {
		in.Admitted[j.ID()] = &j
	}
	out := map[string]quota.RejectionCause{}
	for name, cause := range quota.Admit(in).Causes {
		out[name.Short()] = cause
	}
	return out
}

// TestTaskBounds: how many tasks a tenant may have without quota is bounded, and how many the cell
// may have at all; what is admitted stays.
func TestTaskBounds(t *testing.T) {
	t.Parallel()
	on, off := schema.Cell{Name: "c", Quota: "on"}, schema.Cell{Name: "c", Quota: "off"}
	small, smallOff := on, off
	small.MaxTasks, smallOff.MaxTasks = 100, 100
	tenant := func(bound *int, users ...string) schema.Tenant {
		return schema.Tenant{Name: users[0], Paths: []string{"teams/" + users[0]}, Users: users, TasksWithoutQuota: bound}
	}
	ten, none := 10, 0
	jobs := func(j ...schema.Job) []schema.Job { return j }
	most := schema.DefaultTasksWithoutQuota
	rejected := func(names ...string) map[string]quota.RejectionCause {
		out := map[string]quota.RejectionCause{}
		for _, n := range names {
			out[n] = quota.RejectedTooMany
		}
		return out
	}
	batch := manyJob("a", "batch", 30_000)
	batch.Priority = 100
	sold := []schema.Quota{{Name: "q", User: "a", Cell: "c", Band: schema.BandBatch, Tasks: 30_000}}
	inside := manyJob("a", "inside", 30_000)
	inside.AllocSet, inside.Priority = "set", 200
	prod := func(j schema.Job) schema.Job {
		j.Priority = 200
		return j
	}
	few, some := manyJob("a", "inside", 60), manyJob("a", "batch", 60)
	few.AllocSet, some.Priority = "set", 100
	system := manyJob("a", "logs", 0)
	system.Kind = schema.System
	tests := []struct {
		name              string
		cell              schema.Cell
		tenants           []schema.Tenant
		quotas            []schema.Quota
		admitted, desired []schema.Job
		want              map[string]quota.RejectionCause
	}{
		{name: "as many as may be", cell: on, desired: jobs(manyJob("a", "x", most-1), manyJob("a", "y", 1))},
		{name: "one more", cell: on, desired: jobs(manyJob("a", "x", most), manyJob("a", "y", 1)), want: rejected("a/y")},
		{name: "each user without tenants", cell: on, desired: jobs(manyJob("a", "x", most), manyJob("b", "y", most))},
		{name: "the users of a tenant together", cell: on, tenants: []schema.Tenant{tenant(nil, "a", "b")}, desired: jobs(manyJob("a", "x", most), manyJob("b", "y", 1)), want: rejected("b/y")},
		{name: "another tenant", cell: on, tenants: []schema.Tenant{tenant(nil, "a"), tenant(nil, "b")}, desired: jobs(manyJob("a", "x", most+1), manyJob("b", "y", 1)), want: rejected("a/x")},
		{name: "a tenant that may have less", cell: on, tenants: []schema.Tenant{tenant(&ten, "a")}, desired: jobs(manyJob("a", "x", 11), manyJob("a", "y", 10)), want: rejected("a/x")},
		{name: "none", cell: on, tenants: []schema.Tenant{tenant(&none, "a")}, desired: jobs(manyJob("a", "x", 0), manyJob("a", "y", 1)), want: rejected("a/y")},
		{name: "what has quota counts for it", cell: on, quotas: sold, desired: jobs(batch, manyJob("a", "x", most))},
		{name: "what is in an alloc set needs none", cell: on, desired: jobs(inside), want: rejected("a/inside")},
		{name: "what is admitted stays", cell: on, admitted: jobs(manyJob("a", "x", most+5)), desired: jobs(manyJob("a", "x", most+4), manyJob("a", "y", 1)), want: rejected("a/y")},
		{name: "one shrinks and makes room", cell: on, admitted: jobs(manyJob("a", "x", most)), desired: jobs(manyJob("a", "x", 1), manyJob("a", "y", most-1))},
		{name: "one gets quota and makes room", cell: on, quotas: sold, admitted: jobs(manyJob("a", "batch", most)), desired: jobs(batch, manyJob("a", "y", most))},
		{name: "where no band needs quota, no tenant is bounded", cell: off, tenants: []schema.Tenant{tenant(nil, "a")}, desired: jobs(manyJob("a", "x", most+1), system)},
		{name: "but one that is bounded itself", cell: off, tenants: []schema.Tenant{tenant(&ten, "a")}, desired: jobs(manyJob("a", "x", 11)), want: rejected("a/x")},
		{name: "the cell", cell: small, desired: jobs(manyJob("a", "x", 60), manyJob("b", "y", 41)), want: rejected("b/y")},
		{name: "the cell, without quota", cell: smallOff, desired: jobs(manyJob("a", "x", 60), manyJob("b", "y", 41)), want: rejected("b/y")},
		{name: "what is in an alloc set comes by its priority", cell: small, quotas: sold, desired: jobs(few, some), want: rejected("a/inside")},
		{name: "so it does without quota", cell: smallOff, desired: jobs(few, some), want: rejected("a/inside")},
		{name: "what a cell has stays, without quota", cell: smallOff, admitted: jobs(manyJob("b", "y", 101)), desired: jobs(manyJob("a", "x", 1), manyJob("b", "y", 101)), want: rejected("a/x")},
		{name: "and what shrinks makes room", cell: smallOff, admitted: jobs(manyJob("b", "y", 101)), desired: jobs(manyJob("a", "x", 50), manyJob("b", "y", 50))},
		{name: "in any order", cell: smallOff, admitted: jobs(manyJob("b", "y", 101)), desired: jobs(manyJob("a", "x", 50), prod(manyJob("b", "y", 50)))},
		{name: "a cell that may have more", cell: schema.Cell{Name: "c", Quota: "off", MaxTasks: schema.DefaultCellTasks + 1}, desired: jobs(manyJob("a", "x", schema.DefaultCellTasks+1))},
		{name: "a cell that does not say", cell: off, desired: jobs(manyJob("a", "x", schema.DefaultCellTasks+1)), want: rejected("a/x")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := bounded(tt.cell, tt.tenants, tt.quotas, tt.admitted, tt.desired)
			if diff := cmp.Diff(tt.want, got); diff != "" && len(tt.want)+len(got) > 0 {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
