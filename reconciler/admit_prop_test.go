package reconciler_test

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// world is an input of admission that can be changed and asked again.
type world struct {
	objects  []any
	admitted []schema.Job
	capacity *schema.Resources
	now      time.Time
}

func (w *world) input() quota.Input {
	in := admitInput(w.admitted, w.objects...)
	in.Size, in.Now = sizeOf(w.capacity), w.now
	return in
}

// sizeOf returns the size of a cell with one machine; nil if its capacity is not
// known.
func sizeOf(capacity *schema.Resources) *quota.CellSize {
	if capacity == nil {
		return nil
	}
	return &quota.CellSize{Capacity: *capacity, Machines: 1}
}

// drawAmount is small, or so large that two of them overflow 64 bits.
func drawAmount(t *rapid.T, label string) int64 {
	return rapid.OneOf(rapid.Int64Range(0, 9), rapid.Int64Range(0, 9), rapid.Int64Range(1<<60-2, 1<<60+2)).Draw(t, label)
}

func drawJobs(t *rapid.T, label string) []schema.Job {
	var out []schema.Job
	for _, name := range []string{"a", "b", "d", "e"} {
		n := rapid.IntRange(-1, 5).Draw(t, label+name)
		if n < 0 {
			continue
		}
		j := service(rapid.SampledFrom([]string{"u", "v"}).Draw(t, "user"), name, n, "v")
		j.Gang = rapid.SampledFrom([]string{"", "", "g", "h"}).Draw(t, "gang")
		j.Task.Resources.Resources = schema.Resources{CPUMilli: drawAmount(t, "cpu"), RAMBytes: 1, DiskBytes: drawAmount(t, "disk")}
		out = append(out, at(j, schema.Priority(rapid.SampledFrom([]int{0, 100, 150, 200, 210, 300}).Draw(t, "priority"))))
	}
	return out
}

func drawQuotas(t *rapid.T) []any {
	var out []any
	for i := range rapid.IntRange(0, 8).Draw(t, "quotas") {
		q := schema.Quota{
			Name: fmt.Sprintf("q%d", i), User: rapid.SampledFrom([]string{"u", "v"}).Draw(t, "user"), Cell: "c",
			Band:      rapid.SampledFrom(schema.Bands()[1:]).Draw(t, "band"),
			Resources: schema.Resources{CPUMilli: drawAmount(t, "cpu"), RAMBytes: 30, DiskBytes: drawAmount(t, "disk")},
			Tasks:     rapid.IntRange(0, 9).Draw(t, "tasks"),
		}
		if n := rapid.IntRange(-2, 3).Draw(t, "jobs"); n >= 0 {
			q.Jobs = &n
		}
		if rapid.Bool().Draw(t, "period") {
			q.From = epoch.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "from")) * time.Hour)
			q.Until = q.From.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "length")) * time.Hour)
		}
		out = append(out, q)
	}
	return out
}

func drawWorld(t *rapid.T) *world {
	w := &world{admitted: drawJobs(t, "was "), now: epoch}
	policy := schema.Cell{Name: "c", Quota: "on"}
	if rapid.Bool().Draw(t, "oversold") {
		policy.OversellPercent.Batch = rapid.IntRange(100, 300).Draw(t, "percent")
	}
	w.objects = append(drawQuotas(t), policy)
	for _, j := range drawJobs(t, "is ") {
		w.objects = append(w.objects, j)
	}
	if rapid.Bool().Draw(t, "machines") {
		w.capacity = &schema.Resources{CPUMilli: drawAmount(t, "cores"), RAMBytes: 40, DiskBytes: drawAmount(t, "space")}
	}
	return w
}

// The oracle: amounts are big numbers in lists, everything is added up afresh
// for each question.

var none = new(big.Int)

// dims is what a job asks for: cpu, ram, disk, tasks, jobs.
func dims(j *schema.Job) []*big.Int {
	if j == nil {
		return []*big.Int{none, none, none, none, none}
	}
	n := big.NewInt(int64(j.Tasks))
	r := j.Task.Resources
	out := []*big.Int{big.NewInt(r.CPUMilli), big.NewInt(r.RAMBytes), big.NewInt(r.DiskBytes), big.NewInt(1), nil}
	for i := range 4 {
		out[i] = new(big.Int).Mul(out[i], n)
	}
	out[4] = big.NewInt(1)
	return out
}

// limit returns what an account may use of a dimension, nil for any amount.
func limit(in quota.Input, user string, band schema.Band, dim int) *big.Int {
	total := new(big.Int)
	pools := map[schema.Band]*big.Int{}
	if in.Size != nil && dim < 3 {
		c := big.NewInt(in.Size.Capacity.Of(schema.Dimensions()[dim]))
		pools[schema.BandProduction] = new(big.Int).Set(c)
		pools[schema.BandMonitoring] = pools[schema.BandProduction]
		if p := in.Desired.Policy.OversellPercent.Batch; p != 0 {
			pools[schema.BandBatch] = new(big.Int).Div(new(big.Int).Mul(c, big.NewInt(int64(p))), big.NewInt(100))
		}
	}
	for _, b := range []schema.Band{schema.BandMonitoring, schema.BandProduction, schema.BandBatch} {
		for _, name := range slices.Sorted(maps.Keys(in.Desired.QuotaOrigins)) {
			q := in.Desired.Quotas[slices.IndexFunc(in.Desired.Quotas, func(q schema.Quota) bool { return q.Name == name })]
			if q.Band != b || in.Now.Before(q.From) || !q.Until.IsZero() && !in.Now.Before(q.Until) {
				continue
			}
			var have *big.Int
			switch {
			case dim < 3:
				have = big.NewInt(q.Of(schema.Dimensions()[dim]))
			case dim == 3:
				have = big.NewInt(int64(q.Tasks))
			case q.Jobs == nil && q.User == user && q.Band == band:
				return nil
			case q.Jobs == nil:
				continue
			default:
				have = big.NewInt(int64(*q.Jobs))
			}
			if p := pools[b]; p != nil {
				if have.Cmp(p) > 0 {
					have = new(big.Int).Set(p)
				}
				p.Sub(p, have)
			}
			if q.User == user && q.Band == band {
				total.Add(total, have)
			}
		}
	}
	return total
}

// usage adds up what the jobs of an account ask for in a dimension.
func usage(jobs map[schema.JobName]*schema.Job, user string, band schema.Band, dim int) *big.Int {
	total := new(big.Int)
	for _, j := range jobs {
		if j != nil && j.User == user && j.Priority.Band() == band {
			total.Add(total, dims(j)[dim])
		}
	}
	return total
}

func grew(in quota.Input, name schema.JobName, dim int) bool {
	was, is := in.Admitted[name], in.Desired.Jobs[name].Job
	if was != nil && was.Priority.Band() != is.Priority.Band() {
		was = nil
	}
	return dims(is)[dim].Cmp(dims(was)[dim]) > 0
}

// oracle returns the jobs that the cell runs after an admission.
func oracle(in quota.Input) map[schema.JobName]*schema.Job {
	runs := map[schema.JobName]*schema.Job{}
	left := slices.SortedFunc(maps.Keys(in.Desired.Jobs), schema.JobName.Compare)
	grows := func(n schema.JobName) bool {
		return slices.ContainsFunc(mates(in, n), func(n schema.JobName) bool {
			return slices.ContainsFunc([]int{0, 1, 2, 3, 4}, func(d int) bool { return grew(in, n, d) })
		})
	}
	priority := func(n schema.JobName) (p schema.Priority) {
		p = in.Desired.Jobs[n].Job.Priority
		for _, m := range mates(in, n) {
			p = min(p, in.Desired.Jobs[m].Job.Priority)
		}
		return p
	}
	for _, n := range left {
		if was := in.Admitted[n]; was != nil {
			runs[n] = was
		}
	}
	slices.SortStableFunc(left, func(x, y schema.JobName) int {
		if grows(x) != grows(y) {
			return map[bool]int{true: 1, false: -1}[grows(x)]
		}
		return int(priority(y) - priority(x))
	})
	left = slices.DeleteFunc(left, func(n schema.JobName) bool { return mates(in, n)[0] != n })
	for before := -1; before != len(left); {
		before = len(left)
		left = slices.DeleteFunc(left, func(n schema.JobName) bool {
			next, all := takeEach(in, runs, mates(in, n))
			if all {
				runs = next
			}
			return all
		})
	}
	return runs
}

// mates returns the desired jobs of the gang of a job, itself among them, sorted.
func mates(in quota.Input, n schema.JobName) []schema.JobName {
	var out []schema.JobName
	is := in.Desired.Jobs[n].Job
	for name, d := range in.Desired.Jobs {
		if name == n || is.Gang != "" && d.Job.Gang == is.Gang && d.Job.User == is.User {
			out = append(out, name)
		}
	}
	slices.SortFunc(out, schema.JobName.Compare)
	return out
}

// takeEach has each of some jobs run its desired data as soon as its account has room for that, and
// reports whether all do.
func takeEach(in quota.Input, runs map[schema.JobName]*schema.Job, left []schema.JobName) (next map[schema.JobName]*schema.Job, all bool) {
	next = maps.Clone(runs)
	for before := -1; before != len(left); {
		before = len(left)
		left = slices.DeleteFunc(left, func(n schema.JobName) bool {
			with, j := maps.Clone(next), in.Desired.Jobs[n].Job
			with[n] = j
			for d := range 5 {
				most := limit(in, j.User, j.Priority.Band(), d)
				if j.Priority.Band() != schema.BandFree && grew(in, n, d) && most != nil && usage(with, j.User, j.Priority.Band(), d).Cmp(most) > 0 {
					return false
				}
			}
			next = with
			return true
		})
	}
	return next, len(left) == 0
}

// result returns the jobs that the cell runs after a verdict.
func result(in quota.Input, verdict quota.Admission) map[schema.JobName]*schema.Job {
	runs := map[schema.JobName]*schema.Job{}
	for name, d := range in.Desired.Jobs {
		if verdict.Rejected[name] == nil {
			runs[name] = d.Job
		} else if was := in.Admitted[name]; was != nil {
			runs[name] = was
		}
	}
	return runs
}

func names(a quota.Admission) []schema.JobName {
	return slices.SortedFunc(maps.Keys(a.Rejected), schema.JobName.Compare)
}

// TestAdmitOracle: admission decides as an obvious version of it does, whatever
// is admitted, desired and granted.
func TestAdmitOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t).input()
		want, got := oracle(in), result(in, quota.Admit(in))
		for name := range in.Desired.Jobs {
			if want[name] != got[name] {
				t.Fatalf("%s: want %+v, got %+v", name, want[name], got[name])
			}
		}
	})
}

// TestAdmitProperties: what is admitted exceeds no quota but by what was
// admitted before; what asks for no more is admitted; the order of declaration
// is of no matter; what came out is admitted again, and is rejected again.
func TestAdmitProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		in := w.input()
		verdict := quota.Admit(in)
		runs := result(in, verdict)
		before := map[schema.JobName]*schema.Job{}
		for name := range in.Desired.Jobs {
			before[name] = in.Admitted[name]
			all := mates(in, name)
			if verdict.Rejected[name] != nil && !slices.ContainsFunc(all, func(n schema.JobName) bool {
				return slices.ContainsFunc([]int{0, 1, 2, 3, 4}, func(d int) bool { return grew(in, n, d) })
			}) {
				t.Fatalf("%s asks for no more than it has and is rejected: %s", name, verdict.Rejected[name].Message)
			}
			if i := slices.IndexFunc(all, func(n schema.JobName) bool { return (verdict.Rejected[n] == nil) != (verdict.Rejected[name] == nil) }); i >= 0 {
				t.Fatalf("of one gang %s is rejected (%v), and %s is (%v)", name, verdict.Rejected[name], all[i], verdict.Rejected[all[i]])
			}
		}
		for _, user := range []string{"u", "v"} {
			for _, band := range schema.Bands()[1:] {
				for d := range 5 {
					is, was, most := usage(runs, user, band, d), usage(before, user, band, d), limit(in, user, band, d)
					if most != nil && is.Cmp(most) > 0 && is.Cmp(was) > 0 {
						t.Fatalf("%s %s dimension %d: %s are admitted, %s were, the quota is %s", user, band, d, is, was, most)
					}
				}
			}
		}
		shuffled := *w
		shuffled.objects = rapid.Permutation(w.objects).Draw(t, "objects")
		if again := quota.Admit(shuffled.input()); !slices.Equal(names(verdict), names(again)) {
			t.Fatalf("the order of declaration matters: %v, %v", names(verdict), names(again))
		}
		in.Admitted = runs
		if again := quota.Admit(in); !slices.Equal(names(verdict), names(again)) {
			t.Fatalf("asked again, other jobs are rejected: %v, then %v", names(verdict), names(again))
		}
		settled := *w
		settled.admitted = nil
		settled.objects = slices.DeleteFunc(slices.Clone(w.objects), func(o any) bool { _, isJob := o.(schema.Job); return isJob })
		for _, j := range runs {
			settled.admitted, settled.objects = append(settled.admitted, *j), append(settled.objects, *j)
		}
		if again := quota.Admit(settled.input()); len(again.Rejected) > 0 {
			t.Fatalf("what was admitted is rejected: %v", names(again))
		}
	})
}

// TestAdmitMonotone: where everything is admitted it still is with more quota,
// as long as that takes none from others, or with more machines.
func TestAdmitMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		if len(quota.Admit(w.input()).Rejected) > 0 {
			return
		}
		if w.capacity != nil {
			more := *w.capacity
			more.CPUMilli += rapid.Int64Range(0, 9).Draw(t, "cores")
			more.DiskBytes += rapid.Int64Range(0, 9).Draw(t, "space")
			w.capacity = &more
			if got := quota.Admit(w.input()).Rejected; len(got) > 0 {
				t.Fatalf("more machines, and these are rejected: %v", got)
			}
			w.capacity = nil
		}
		if got := quota.Admit(w.input()).Rejected; len(got) > 0 {
			t.Fatalf("capacity is unknown, and these are rejected: %v", got)
		}
		for i, o := range w.objects {
			if q, ok := o.(schema.Quota); ok && rapid.Bool().Draw(t, "raise") {
				q.CPUMilli += rapid.Int64Range(0, 9).Draw(t, "cpu")
				q.Tasks += rapid.IntRange(0, 9).Draw(t, "tasks")
				if !q.Until.IsZero() {
					q.Until = q.Until.Add(time.Hour)
				}
				w.objects[i] = q
			}
		}
		extra := schema.Quota{Name: "extra", User: "u", Cell: "c", Band: schema.BandProduction, Tasks: rapid.IntRange(0, 9).Draw(t, "tasks")}
		if rapid.Bool().Draw(t, "limits jobs") {
			extra.Jobs = new(int)
		}
		w.objects = append(w.objects, extra)
		if got := quota.Admit(w.input()).Rejected; len(got) > 0 {
			t.Fatalf("more quota, and these are rejected: %v", got)
		}
	})
}

// TestAdmitNext: until Next the answer is the same, in every word.
func TestAdmitNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		verdict := quota.Admit(w.input())
		switch {
		case verdict.Next.IsZero():
			w.now = w.now.AddDate(100, 0, 0)
		case !verdict.Next.After(w.now):
			t.Fatalf("next is %s, now it is %s", verdict.Next, w.now)
		default:
			w.now = verdict.Next.Add(-1)
		}
		later := quota.Admit(w.input())
		if fmt.Sprint(verdict.Rejected) != fmt.Sprint(later.Rejected) || !slices.Equal(verdict.Warnings, later.Warnings) || verdict.Next != later.Next {
			t.Fatalf("at %s: %+v\nwas %+v", w.now, later, verdict)
		}
	})
}
