package reconciler_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

func period(q schema.Quota, from, until time.Time) schema.Quota {
	q.From, q.Until = from, until
	return q
}

func ask(user, name string, milli, gib int64, tasks int) schema.Job {
	j := service(user, name, tasks, "v")
	j.Task.Resources.Resources = schema.Resources{CPUMilli: milli, RAMBytes: gib << 30}
	return j
}

func amount(name, user string, milli, gib int64) schema.Quota {
	return schema.Quota{Name: name, User: user, Cell: "c", Band: schema.BandProduction, Resources: schema.Resources{CPUMilli: milli, RAMBytes: gib << 30}, Tasks: 1000}
}

// TestQuotaMessages: a rejection and a warning say who, where, how much of how
// much, by which jobs, why the quota is not more, and what to do.
func TestQuotaMessages(t *testing.T) {
	t.Parallel()
	one, none := 1, 0
	hour := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Hour) }
	limited := amount("search-prod", "search", 100_000, 100)
	limited.Jobs = &one
	batch := amount("search-batch", "search", 8000, 8)
	batch.Band = schema.BandBatch
	nothing := schema.Quota{Name: "nothing", User: "search", Cell: "c", Band: schema.BandProduction, Jobs: &none, Until: hour(-1)}
	alerts := amount("zz-alerts", "obs", 6000, 0)
	alerts.Band = schema.BandMonitoring
	oversell := schema.Cell{Name: "c", Quota: "on", OversellPercent: schema.Oversell{Batch: 150}}
	machines := &schema.Resources{CPUMilli: 16_000, RAMBytes: 64 << 30}
	tests := []struct {
		name     string
		admitted []schema.Job
		objects  []any
		capacity *schema.Resources
		want     []string // message, want, hint of each rejection and warning
	}{
		{
			name:    "the three largest, and the refused one",
			objects: []any{amount("search-prod", "search", 10_000, 100), at(ask("search", "a", 1000, 0, 3), 210), at(ask("search", "b", 4000, 0, 1), 210), at(ask("search", "d", 2000, 0, 1), 210), ask("search", "web", 500, 0, 4)},
			want: []string{
				"over quota: owner search, production: CPU 11 of 10, over by 1; largest jobs: b 4, a 3, d 2, web 2",
				"together CPU at most 10", `ask for less, or have quota "search-prod" (x.cue:1:1) raised`,
			},
		},
		{
			name:    "two dimensions, bytes in a larger unit",
			objects: []any{amount("search-prod", "search", 10_000, 12), ask("search", "api", 4000, 8, 1), ask("search", "web", 4000, 5, 2)},
			want: []string{
				"over quota: owner search, production: CPU 12 of 10, over by 2; largest jobs: web 8, api 4; and " +
					"RAM 18 GiB of 12 GiB, over by 6 GiB; largest jobs: web 10 GiB, api 8 GiB",
				"together CPU at most 10, RAM at most 12 GiB", `ask for less, or have quota "search-prod" (x.cue:1:1) raised`,
			},
		},
		{
			name:    "a job of no tasks is a job",
			objects: []any{limited, ask("search", "api", 1, 0, 0), ask("search", "web", 1, 0, 0)},
			want: []string{
				"over quota: owner search, production: jobs 2 of 1, over by 1",
				"together jobs at most 1", `ask for less, or have quota "search-prod" (x.cue:1:1) raised`,
			},
		},
		{name: "a quota that is silent on jobs does not limit them, nor does another then", objects: []any{limited, amount("more", "search", 1, 0), ask("search", "api", 1, 0, 1), ask("search", "web", 1, 0, 1)}},
		{
			name:    "it ended, and one is to begin",
			objects: []any{period(amount("old", "search", 9000, 9), hour(-4), hour(-2)), period(amount("older", "search", 9000, 9), hour(-9), hour(-6)), period(amount("new", "search", 9000, 9), hour(5), time.Time{}), ask("search", "web", 2000, 1, 2)},
			want: []string{
				`owner search has no quota at band production in cell c now: quota "new" (x.cue:3:1) begins at 2026-01-01T05:00:00Z; quota "old" (x.cue:1:1) ended at 2025-12-31T22:00:00Z; ` +
					`quota "older" (x.cue:2:1) ended at 2025-12-31T18:00:00Z; the job asks for CPU 4, RAM 2 GiB, tasks 2, jobs 1`,
				"a quota that is valid now, or a priority of band free", `ask for less, or wait until 2026-01-01T05:00:00Z, when quota "new" (x.cue:3:1) begins`,
			},
		},
		{
			name:    "part of it ended this moment",
			objects: []any{amount("base", "search", 3000, 9), period(amount("launch", "search", 9000, 9), hour(-4), hour(0)), ask("search", "web", 2000, 1, 2)},
			want: []string{
				`over quota: owner search, production: CPU 4 of 3, over by 1; largest jobs: web 4; quota "launch" (x.cue:2:1) ended at 2026-01-01T00:00:00Z`,
				"together CPU at most 3", `ask for less, or have quota "launch" (x.cue:2:1) prolonged`,
			},
		},
		{name: "it began this moment", objects: []any{period(amount("launch", "search", 9000, 9), hour(0), hour(1)), ask("search", "web", 2000, 1, 2)}},
		{
			name:     "what runs is over a quota that ended: warned, and may not grow",
			admitted: []schema.Job{ask("search", "web", 2000, 0, 2), ask("search", "api", 2000, 0, 1)},
			objects:  []any{period(amount("launch", "search", 9000, 9), hour(-4), hour(-1)), ask("search", "web", 2000, 0, 3), ask("search", "api", 2000, 0, 1)},
			want: []string{
				`owner search has no quota at band production in cell c now: quota "launch" (x.cue:1:1) ended at 2025-12-31T23:00:00Z; the job asks for CPU 6, tasks 3, jobs 1`,
				"a quota that is valid now, or a priority of band free", `ask for less, or have quota "launch" (x.cue:1:1) prolonged`,
				"x.cue:1:1: quota.launch: owner search, production, has no quota now, and jobs of CPU 6, tasks 3, jobs 2; largest jobs by CPU: web 4, api 2; " +
					`quota "launch" (x.cue:1:1) ended at 2025-12-31T23:00:00Z`,
				"", `what runs is left alone, and what is new or grown is refused: ask for less, or have quota "launch" (x.cue:1:1) prolonged`,
			},
		},
		{
			name:     "the quota is gone: the warning is at the largest job",
			admitted: []schema.Job{ask("search", "web", 2000, 0, 1), ask("search", "api", 3000, 0, 1)},
			objects:  []any{ask("search", "web", 2000, 0, 1), ask("search", "api", 3000, 0, 1)},
			want: []string{
				"x.cue:2:1: job.api: owner search, production, has no quota now, and jobs of CPU 5, tasks 2, jobs 2; largest jobs by CPU: api 3, web 2",
				"", `what runs is left alone, and what is new or grown is refused: ask for less, or declare a quota for user "search" at band "production"`,
			},
		},
		{
			name:    "a quota of nothing that ended is no quota",
			objects: []any{nothing, ask("search", "web", 1, 0, 0)},
			want: []string{
				"over quota: owner search, production: jobs 1 of 0, over by 1", "together jobs at most 0",
				`ask for less, or declare a quota for user "search" at band "production"`,
			},
		},
		{
			name:     "monitoring is backed first, then production by name",
			objects:  []any{amount("b", "search", 12_000, 0), amount("a", "ads", 4000, 0), alerts, ask("search", "web", 7000, 0, 1), ask("ads", "db", 4000, 0, 1)},
			capacity: machines,
			want: []string{
				`over quota: owner search, production: CPU 7 of 6, over by 1; largest jobs: web 7; the machines back quota "b" (x.cue:1:1) for CPU 6 of 12 only`,
				"together CPU at most 6", "ask for less, or have machines added to cell c: more quota does not help",
				"x.cue:1:1: quota.b: the machines of cell c back it in part only: CPU 6 of 12, short by 6 (of 16 in all, 10 is sold to quotas before it)",
				"", "add machines, or lower quotas: a job that needs what is short is rejected",
			},
		},
		{name: "batch is not bounded", objects: []any{at(ask("search", "sum", 8000, 8, 1), 100), batch}, capacity: &schema.Resources{}},
		{
			name:     "batch is oversold as far as the cell says",
			objects:  []any{oversell, batch, at(ask("search", "sum", 6000, 7, 1), 100), at(ask("search", "tap", 1000, 1, 1), 100)},
			capacity: &schema.Resources{CPUMilli: 4001, RAMBytes: 64 << 30},
			want: []string{
				`over quota: owner search, batch: CPU 7 of 6,001m, over by 999m; largest jobs: sum 6, tap 1; the machines back quota "search-batch" (x.cue:2:1) for CPU 6,001m of 8 only`,
				"together CPU at most 6,001m", "ask for less, or have machines added to cell c or its oversellPercent raised: more quota does not help",
				"x.cue:2:1: quota.search-batch: the machines of cell c back it in part only: CPU 6,001m of 8, short by 1,999m",
				"", "add machines, or lower quotas: a job that needs what is short is rejected",
			},
		},
		{name: "where quota is off, nothing is said", objects: []any{schema.Cell{Name: "c", Quota: "off"}, amount("a", "ads", 4000, 0), ask("search", "web", 7000, 0, 1)}, capacity: &schema.Resources{}},
		{
			name:     "what grows within its quota may, though another dimension is over",
			admitted: []schema.Job{ask("search", "web", 2000, 0, 2)},
			objects:  []any{amount("q", "search", 1000, 9), ask("search", "web", 1000, 1, 4)},
			want: []string{
				"x.cue:1:1: quota.q: owner search, production, has more than its quota: CPU 4 of 1, over by 3; largest jobs: web 4",
				"", `what runs is left alone, and what is new or grown is refused: ask for less, or have quota "q" (x.cue:1:1) raised`,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := admitInput(tt.admitted, tt.objects...)
			in.Now, in.Size = epoch, sizeOf(tt.capacity)
			verdict := quota.Admit(in)
			var got []string
			for _, name := range slices.SortedFunc(maps.Keys(verdict.Rejected), schema.JobName.Compare) {
				d := verdict.Rejected[name]
				got = append(got, d.Message, d.Expected, d.Hint)
			}
			for _, w := range verdict.Warnings {
				got = append(got, w.Diagnostic.Error(), w.Diagnostic.Expected, w.Diagnostic.Hint)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestStepWakesForQuota: with nothing else to wait for, the next step is when a
// quota begins, and then when it ends.
func TestStepWakesForQuota(t *testing.T) {
	t.Parallel()
	c := newCell()
	begin, end := epoch.Add(time.Hour), epoch.AddDate(1, 0, 0)
	c.commit(compiled("1", good(pkg(".", schema.Cell{Name: "c", Quota: "on"}, period(newQuota("q", "a", 3), begin, end), service("a", "web", 3, "v")))))
	if out := c.step(); out.Wake != begin || len(c.state.Jobs) > 0 {
		t.Errorf("wake at %s, want %s; %d jobs are admitted", out.Wake, begin, len(c.state.Jobs))
	}
	c.now = begin
	if out := c.step(); out.Wake != end || len(c.state.Jobs) != 1 {
		t.Errorf("wake at %s, want %s; %d jobs are admitted", out.Wake, end, len(c.state.Jobs))
	}
	c.now = end
	if out := c.step(); !out.Wake.IsZero() || len(c.state.Jobs) != 1 || len(c.status().Warnings) != 1 {
		t.Errorf("wake at %s, want never; %d jobs are admitted; warnings %v", out.Wake, len(c.state.Jobs), c.status().Warnings)
	}
}

// BenchmarkAdmit admits 10,000 jobs of 100 owners again, as each step does, and
// rejects 100 of them.
func BenchmarkAdmit(b *testing.B) {
	var admitted []schema.Job
	var objects []any
	for u := range 100 {
		user := fmt.Sprintf("u%d", u)
		objects = append(objects, newQuota(user, user, 300))
		for i := range 100 {
			j := service(user, fmt.Sprintf("j%d", i), 3, "v")
			admitted = append(admitted, j)
			if i == 50 {
				j.Tasks++
			}
			objects = append(objects, j)
		}
	}
	in := admitInput(admitted, objects...)
	for b.Loop() {
		if n := len(quota.Admit(in).Rejected); n != 100 {
			b.Fatalf("%d are rejected", n)
		}
	}
}

// TestWarningsOfAGroup: who asks for one owner's jobs is warned about the owner's
// quota, and why says it, too.
func TestWarningsOfAGroup(t *testing.T) {
	t.Parallel()
	c := newCell()
	objects := []any{schema.Cell{Name: "c", Quota: "on"}, newQuota("q", "a", 1), newQuota("r", "b", 1), service("a", "web", 1, "v"), service("b", "web", 1, "v")}
	c.commit(compiled("1", good(pkg(".", objects...))))
	c.step()
	c.commit(compiled("2", good(pkg(".", slices.Delete(objects, 1, 2)...))))
	c.step()
	s := c.snapshot()
	for name, want := range map[string]int{"": 1, "a/web": 1, "b/web": 0} {
		n, err := status.Group{Name: name}.Of(s)
		if err != nil || len(n.Brief().Warnings) != want {
			t.Errorf("%q: %d warnings, %v, want %d", name, len(n.Brief().Warnings), err, want)
		}
		if e, _ := status.Explain(c.described(), s, name, ""); name != "" && len(e.Warnings) != want {
			t.Errorf("why %q: %d warnings, want %d", name, len(e.Warnings), want)
		}
	}
}
