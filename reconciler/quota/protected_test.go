package quota_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// TestBoundOfProtected: how many tasks of a tenant may not be preempted is bounded. What is admitted
// stays, whatever becomes of the bound.
func TestBoundOfProtected(t *testing.T) {
	t.Parallel()
	never := func(name string, tasks int) schema.Job {
		j := manyJob("a", name, tasks)
		j.Preemptible = new(bool)
		return j
	}
	of := func(user string, j schema.Job) schema.Job {
		j.User = user
		return j
	}
	prod := func(j schema.Job) schema.Job {
		j.Priority = 200
		return j
	}
	set := never("pair", 3)
	set.Kind = schema.Allocs
	tenant := func(bound int, users ...string) []schema.Tenant {
		return []schema.Tenant{{Name: users[0], Paths: []string{"teams"}, Users: users, NonPreemptibleTasks: bound}}
	}
	jobs := func(j ...schema.Job) []schema.Job { return j }
	rejected := func(names ...string) map[string]quota.RejectionCause {
		out := map[string]quota.RejectionCause{}
		for _, n := range names {
			out[n] = quota.RejectedTooMany
		}
		return out
	}
	tests := []struct {
		name              string
		tenants           []schema.Tenant
		admitted, desired []schema.Job
		want              map[string]quota.RejectionCause
	}{
		{name: "no tenant, no bound", desired: jobs(never("x", 1000))},
		{name: "a tenant that does not say", tenants: tenant(0, "a"), desired: jobs(never("x", 1), manyJob("a", "y", 10)), want: rejected("a/x")},
		{name: "as many as may be", tenants: tenant(3, "a"), desired: jobs(never("x", 1), never("y", 2), manyJob("a", "z", 10))},
		{name: "one more", tenants: tenant(3, "a"), desired: jobs(never("x", 2), never("y", 2), never("z", 1)), want: rejected("a/y")},
		{name: "those of higher priority first", tenants: tenant(3, "a"), desired: jobs(never("x", 2), prod(never("y", 2))), want: rejected("a/x")},
		{name: "the users of a tenant together", tenants: tenant(3, "a", "b"), desired: jobs(never("x", 2), of("b", never("y", 2))), want: rejected("b/y")},
		{name: "allocs are tasks", tenants: tenant(2, "a"), desired: jobs(set), want: rejected("a/pair")},
		{name: "what is admitted stays", tenants: tenant(1, "a"), admitted: jobs(never("x", 5)), desired: jobs(never("x", 4), never("y", 1)), want: rejected("a/y")},
		{name: "and does not grow", tenants: tenant(1, "a"), admitted: jobs(never("x", 5)), desired: jobs(never("x", 6)), want: rejected("a/x")},
		{name: "what could be preempted", tenants: tenant(1, "a"), admitted: jobs(manyJob("a", "x", 5)), desired: jobs(never("x", 5)), want: rejected("a/x")},
		{name: "one that may be preempted now makes room", tenants: tenant(5, "a"), admitted: jobs(never("y", 5)), desired: jobs(never("x", 5), manyJob("a", "y", 5))},
		{name: "so does one that shrinks", tenants: tenant(5, "a"), admitted: jobs(never("y", 5)), desired: jobs(never("x", 3), never("y", 2))},
	}
	for _, tt := range tests {
		for _, of := range []string{"on", "off"} {
			t.Run(tt.name+", quota "+of, func(t *testing.T) {
				t.Parallel()
				sold := []schema.Quota{{Name: "q", User: "a", Cell: "c", Band: schema.BandProduction, Tasks: 30_000}}
				got := bounded(schema.Cell{Name: "c", Quota: of}, tt.tenants, sold, tt.admitted, tt.desired)
				if diff := cmp.Diff(tt.want, got); diff != "" && len(tt.want)+len(got) > 0 {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		}
	}
}

// A job that comes from another tenant has had nothing of what is bounded of this one, and leaves
// room there once it is admitted.
func TestBoundsOfMoved(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"on", "off"} {
		for _, bound := range []int{0, 4, 5} {
			root := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{}}
			root.Objects.Cells = []schema.Cell{{Name: "c", Quota: of}}
			root.Objects.Tenants = []schema.Tenant{
				{Name: "from", Paths: []string{"from"}, Users: []string{"a"}, NonPreemptibleTasks: 5},
				{Name: "to", Paths: []string{"to"}, Users: []string{"a"}, NonPreemptibleTasks: 5, TasksWithoutQuota: &bound},
			}
			if bound == 0 {
				root.Objects.Tenants[1].NonPreemptibleTasks, root.Objects.Tenants[1].TasksWithoutQuota = 0, nil
			}
			moved, next := manyJob("a", "moved", 5), manyJob("a", "next", 5)
			moved.Preemptible, next.Preemptible = new(bool), new(bool)
			at := func(dir string, j schema.Job) *schema.Package {
				p := &schema.Package{Dir: dir, Origins: map[schema.ObjectKey]schema.Position{{Kind: schema.KindJob, Name: j.ID().String()}: {Path: dir + "/x.cue", Line: 1}}}
				p.Objects.Jobs = []schema.Job{j}
				return p
			}
			got := quota.Admit(quota.Input{
				Desired:  intent.Declared("c", []*schema.Package{root, at("to", moved), at("from", next)}),
				Admitted: map[schema.JobName]*schema.Job{moved.ID(): &moved},
				Records:  map[schema.JobName]*schema.JobRecord{moved.ID(): {Admitted: "x", Origin: schema.Position{Path: "from/x.cue"}}},
			})
			want := 2
			if bound == 5 {
				want = 0
			}
			if len(got.Rejected) != want || len(got.Warnings) != 0 {
				t.Errorf("quota %s, bound %d: rejects %v, warns %v, want %d rejected", of, bound, got.Rejected, got.Warnings, want)
			}
		}
	}
}

// Where a bound is lowered below what a tenant has, that is said, and nothing else comes of it.
func TestExceededProtected(t *testing.T) {
	t.Parallel()
	j := manyJob("a", "x", 5)
	j.Preemptible = new(bool)
	for _, of := range []string{"on", "off"} {
		root := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{{Kind: schema.KindTenant, Name: "a"}: {Path: "t.cue", Line: 3}}}
		root.Objects.Cells, root.Objects.Tenants = []schema.Cell{{Name: "c", Quota: of}}, []schema.Tenant{{Name: "a", Paths: []string{"."}, Users: []string{"a"}, NonPreemptibleTasks: 4}}
		root.Objects.Jobs = []schema.Job{j}
		in := quota.Input{Desired: intent.Declared("c", []*schema.Package{root}), Admitted: map[schema.JobName]*schema.Job{j.ID(): &j}}
		got := quota.Admit(in)
		const want = "5 tasks of the tenant may not be preempted in cell c, and it may have 4"
		if len(got.Rejected) > 0 || len(got.Warnings) != 1 || got.Warnings[0].Diagnostic.Message != want || got.Warnings[0].Diagnostic.Line != 3 {
			t.Errorf("quota %s: %v, warns %v, want %s", of, got.Rejected, got.Warnings, want)
		}
	}
}
