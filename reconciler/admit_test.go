package reconciler_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// at returns j at another priority.
func at(j schema.Job, p schema.Priority) schema.Job { j.Priority = p; return j }

// admit returns the reasons of the rejected, by name.
func admit(in quota.Input) map[string]string {
	out := map[string]string{}
	for name, d := range quota.Admit(in).Rejected {
		out[name.Short()] = d.Message
	}
	return out
}

func admitInput(admitted []schema.Job, objects ...any) quota.Input {
	in := quota.Input{Desired: intent.Declared("c", []*schema.Package{pkg(".", objects...)}), Admitted: map[schema.JobName]*schema.Job{}}
	for _, j := range admitted {
		in.Admitted[j.ID()] = &j
	}
	return in
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	web := func(n int) schema.Job { return service("a", "web", n, "v") }
	api := func(n int) schema.Job { return service("a", "api", n, "v") }
	system := web(1)
	system.Kind = schema.System
	big := web(2)
	big.Task.Resources.CPUMilli = 6000
	cpu := schema.Quota{Name: "cpu", User: "a", Cell: "c", Band: schema.BandProduction, Tasks: 10, Resources: schema.Resources{CPUMilli: 10_000, RAMBytes: 2 << 30, DiskBytes: 1 << 40}}
	tests := []struct {
		name     string
		admitted []schema.Job
		objects  []any
		want     map[string]string
	}{
		{"within", nil, []any{newQuota("q", "a", 3), web(3)}, nil},
		{"over", nil, []any{newQuota("q", "a", 3), web(4)}, map[string]string{"a/web": "over quota: owner a, production: tasks 4 of 3, over by 1; largest jobs: web 4"}},
		{
			"over in two dimensions", nil,
			[]any{cpu, big},
			map[string]string{"a/web": "over quota: owner a, production: CPU 12 of 10, over by 2; largest jobs: web 12"},
		},
		{"quotas of one account add up", nil, []any{newQuota("q", "a", 2), newQuota("r", "a", 2), web(4)}, nil},
		{"none at all", nil, []any{newQuota("q", "b", 9), web(1)}, map[string]string{"a/web": "owner a has no quota at band production in cell c"}},
		{"band free needs none", nil, []any{at(web(1000), 99)}, nil},
		{"quota is off", nil, []any{schema.Cell{Name: "c", Quota: "off"}, web(1000)}, nil},
		{"what is admitted stays, whatever became of its quota", []schema.Job{web(5)}, []any{web(5)}, nil},
		{"it may shrink while it is over", []schema.Job{web(5)}, []any{newQuota("q", "a", 1), web(4)}, nil},
		{
			"it may not grow",
			[]schema.Job{web(5)},
			[]any{newQuota("q", "a", 5), web(6)},
			map[string]string{"a/web": "over quota: owner a, production: tasks 6 of 5, over by 1; largest jobs: web 6"},
		},
		{"one shrinks and makes room for the other", []schema.Job{web(5)}, []any{newQuota("q", "a", 5), web(2), api(3)}, nil},
		{"one is removed and makes room", []schema.Job{web(5)}, []any{newQuota("q", "a", 5), api(5)}, nil},
		{"one leaves the band and makes room for one that is asked first", []schema.Job{web(5)}, []any{newQuota("q", "a", 5), at(api(5), 210), at(web(5), 0)}, nil},
		{
			"priority goes first, whatever the name", nil,
			[]any{newQuota("q", "a", 4), api(3), at(web(3), 201)},
			map[string]string{"a/api": "over quota: owner a, production: tasks 6 of 4, over by 2; largest jobs: api 3, web 3"},
		},
		{
			"then the name", nil,
			[]any{newQuota("q", "a", 4), web(3), api(3)},
			map[string]string{"a/web": "over quota: owner a, production: tasks 6 of 4, over by 2; largest jobs: api 3, web 3"},
		},
		{"a smaller one takes what a larger one leaves", nil, []any{newQuota("q", "a", 4), at(api(5), 210), web(4)}, map[string]string{"a/api": "over quota: owner a, production: tasks 9 of 4, over by 5; largest jobs: api 5, web 4"}},
		{"a system job counts one task where the machines are unknown", nil, []any{newQuota("q", "a", 1), system}, nil},
		{"and needs quota for it", nil, []any{newQuota("q", "a", 0), system}, map[string]string{"a/web": "over quota: owner a, production: tasks 1 of 0, over by 1; largest jobs: web 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := admit(admitInput(tt.admitted, tt.objects...))
			if diff := cmp.Diff(tt.want, got); diff != "" && len(tt.want)+len(got) > 0 {
				t.Errorf("rejected (-want +got)\n%s", diff)
			}
		})
	}
}

// TestAdmitExplains: a rejection says where, what was expected and what to do.
func TestAdmitExplains(t *testing.T) {
	t.Parallel()
	in := admitInput(nil, newQuota("q", "a", 3), service("a", "web", 4, "v"))
	got := quota.Admit(in).Rejected[schema.JobName{Cell: "c", User: "a", Job: "web"}]
	want := &schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleQuota, Position: schema.Position{Path: "x.cue", Line: 2, Column: 1}, Field: "job.web",
		Message: "over quota: owner a, production: tasks 4 of 3, over by 1; largest jobs: web 4", Expected: "together tasks at most 3",
		Hint: `ask for less, or have quota "q" (x.cue:1:1) raised`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestAdmitSystem: a system job counts with one task on each known machine; that
// a machine joins is no growth of the job.
func TestAdmitSystem(t *testing.T) {
	t.Parallel()
	logs := service("a", "logs", 0, "v")
	logs.Kind = schema.System
	in := admitInput(nil, newQuota("q", "a", 3), logs)
	ample := schema.Resources{CPUMilli: 1 << 40, RAMBytes: 1 << 60, DiskBytes: 1 << 60}
	for machines, want := range []string{0: "", 3: "", 4: "over quota: owner a, production: tasks 4 of 3, over by 1; largest jobs: logs 4"} {
		in.Size = &quota.CellSize{Capacity: ample, Machines: machines}
		if got := admit(in)["a/logs"]; got != want {
			t.Errorf("%d machines: %q, want %q", machines, got, want)
		}
	}
	in.Admitted[logs.ID()] = &logs
	if got := admit(in); len(got) > 0 {
		t.Errorf("it was admitted before the fourth machine joined, and is rejected: %v", got)
	}
	web := admitInput([]schema.Job{logs}, newQuota("q", "a", 3), logs, service("a", "web", 1, "v"))
	web.Size = &quota.CellSize{Capacity: ample, Machines: 3}
	if got, want := admit(web)["a/web"], "over quota: owner a, production: tasks 4 of 3, over by 1; largest jobs: logs 3, web 1"; got != want {
		t.Errorf("beside it: %q, want %q", got, want)
	}
}

func TestOversold(t *testing.T) {
	t.Parallel()
	in := admitInput(nil, newQuota("q", "a", 3))
	if w := quota.Admit(in).Warnings; len(w) > 0 {
		t.Errorf("offline the capacity is unknown, and there are warnings: %v", w)
	}
	in.Size = &quota.CellSize{Capacity: schema.Resources{CPUMilli: 1, RAMBytes: 1 << 60, DiskBytes: 1 << 60}, Machines: 1}
	want := []quota.Warning{{User: "a", Band: schema.BandProduction, Diagnostic: schema.Diagnostic{
		Severity: schema.Warning, Rule: schema.RuleQuota, Position: schema.Position{Path: "x.cue", Line: 1, Column: 1}, Field: "quota.q",
		Message: "the machines of cell c back it in part only: CPU 1m of 1,000, short by 999,999m",
		Hint:    "add machines, or lower quotas: a job that needs what is short is rejected",
	}}}
	if diff := cmp.Diff(want, quota.Admit(in).Warnings); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}
