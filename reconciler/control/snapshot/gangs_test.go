package snapshot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// ganged returns data of a job in one of some gangs, or in none.
func ganged(name schema.JobName, n, gangs int) *schema.Job {
	j := &schema.Job{Cell: "c", User: name.User, Name: name.Job, Kind: schema.Batch, Tasks: 1 + n%3}
	if n%4 > 0 {
		j.Gang = fmt.Sprint("g", n%gangs)
	}
	return j
}

// put has a job be admitted with data.
func (h *history) put(data *schema.Job) {
	digest := schema.DigestOf(data)
	h.write(h.state.Document(model.KeyData+string(digest), data), h.state.Document(model.KeyJob+data.ID().Short(), &schema.JobRecord{Name: data.ID(), Admitted: digest}))
}

// naive returns the gang of a job, by a look at all.
func naive(f *facts.Facts, name schema.JobName) (jobs []facts.GangJob, missing bool) {
	own := f.Admitted(name)
	if own == nil || own.Gang == "" {
		return nil, false
	}
	for _, other := range f.Jobs() {
		if j := f.Admitted(other); j != nil && j.User == own.User && j.Gang == own.Gang {
			jobs = append(jobs, facts.GangJob{Name: other, Tasks: facts.Together(f, other)})
		}
	}
	for name, d := range f.Desired.Jobs {
		missing = missing || d.Job != nil && d.Job.User == own.User && d.Job.Gang == own.Gang && f.Admitted(name) == nil
	}
	return jobs, missing
}

// TestGangsFollow: the gangs that are kept are those that a look at all jobs finds, whatever is
// written, drafted and not written, or declared; and cost what has changed.
func TestGangsFollow(t *testing.T) {
	t.Parallel()
	h := &history{t: t, r: rand.New(rand.NewPCG(3, 4)), state: model.NewState("c")}
	const jobs = 60
	for i := range jobs {
		h.put(ganged(h.job(i), i, 5))
	}
	kept, desired, unstored := &Kept{}, &intent.Desired{}, 0
	for step := range 500 {
		changed := unstored
		for range h.r.IntN(3) {
			if i := h.r.IntN(jobs); h.r.IntN(3) == 0 {
				h.remove(i)
				changed += 2
			} else {
				h.put(ganged(h.job(i), h.r.IntN(100), 5))
				changed += 2
			}
		}
		if h.r.IntN(20) == 0 { // a commit
			changed += jobs
			desired = &intent.Desired{Jobs: map[schema.JobName]intent.DesiredJob{}}
			for i := range jobs {
				desired.Jobs[h.job(i)] = intent.DesiredJob{Job: ganged(h.job(i), h.r.IntN(100), 5)}
			}
		}
		c := facts.Changes{Jobs: map[schema.JobName]*schema.JobRecord{}, Data: map[schema.Digest]*schema.Job{}}
		for range h.r.IntN(3) {
			name := h.job(h.r.IntN(jobs))
			if c.Jobs[name] = nil; h.r.IntN(3) > 0 {
				data := ganged(name, h.r.IntN(100), 5)
				digest := schema.DigestOf(data)
				c.Data[digest], c.Jobs[name] = data, &schema.JobRecord{Name: name, Admitted: digest}
			}
		}
		unstored = len(c.Jobs)
		f := facts.New(facts.ViewOf(h.state, &c), desired, model.NewObserved(now), now, nil)
		cell, looks := New(f, kept), kept.gangs.Looks()
		for i := range jobs {
			want, missing := naive(f, h.job(i))
			g := cell.Gang(h.job(i))
			if g == nil {
				g = &facts.Gang{}
			}
			if d := cmp.Diff(want, g.Jobs); d != "" {
				t.Fatalf("step %d, the gang of %v (-at a look at all +kept):\n%s", step, h.job(i), d)
			}
			if missing && g.Waits == "" {
				t.Fatalf("step %d: the gang of %v waits for nobody", step, h.job(i))
			}
		}
		if n := kept.gangs.Looks() - looks; step > 0 && n > changed+unstored+jobs/20 {
			t.Fatalf("step %d looks at %d jobs, and %d have changed", step, n, changed+unstored)
		}
	}
}

// BenchmarkGang is a step in which a gang of ten jobs waits, in a cell of so many, one of which
// was written since the step before.
func BenchmarkGang(b *testing.B) {
	for _, jobs := range []int{1000, 100_000} {
		for _, how := range []string{"kept", "anew"} {
			b.Run(fmt.Sprintf("%s/jobs=%d", how, jobs), func(b *testing.B) {
				state := model.NewState("c")
				var last []model.Write
				for i := range jobs {
					name := schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("j", i)}
					data := &schema.Job{Cell: "c", User: "u", Name: name.Job, Kind: schema.Batch, Tasks: 1}
					if i < 10 {
						data.Gang = "g"
					}
					digest := schema.DigestOf(data)
					last = []model.Write{
						state.Document(model.KeyData+string(digest), data), state.Document(model.KeyJob+name.Short(), &schema.JobRecord{Name: name, Admitted: digest}),
					}
					if err := state.Apply(slices.Clone(last)); err != nil {
						b.Fatal(err)
					}
				}
				f := facts.New(facts.Stored(state), &intent.Desired{}, model.NewObserved(now), now, nil)
				kept := &Kept{}
				name := schema.JobName{Cell: "c", User: "u", Job: "j3"}
				New(f, kept).Gang(name)
				for b.Loop() {
					if err := state.Apply(slices.Clone(last[1:])); err != nil {
						b.Fatal(err)
					}
					if how == "anew" {
						kept = &Kept{}
					}
					if g := New(f, kept).Gang(name); len(g.Jobs) != 10 {
						b.Fatalf("the gang has %d jobs", len(g.Jobs))
					}
				}
			})
		}
	}
}
