package snapshot

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// history is a cell whose jobs finish tasks.
type history struct {
	t     *testing.T
	r     *rand.Rand
	state *model.State
}

func (h *history) job(i int) schema.JobName {
	return schema.JobName{Cell: "c", User: fmt.Sprint("u", i%5), Job: fmt.Sprint("j", i)}
}

func (h *history) write(w ...model.Write) {
	h.t.Helper()
	if err := h.state.Apply(w); err != nil {
		h.t.Fatal(err)
	}
}

// chunk returns the tasks of a job, of which some have finished.
func (h *history) chunk(i int) *schema.Chunk {
	c := &schema.Chunk{Job: h.job(i)}
	for index := range 1 + h.r.IntN(3) {
		t := schema.TaskRecord{Index: index, Generation: 1, At: now}
		if h.r.IntN(3) > 0 {
			t.Done = &schema.Exit{}
			t.Causes = []schema.Cause{{Kind: schema.CauseFinished, At: now.Add(time.Duration(1+h.r.IntN(1000)) * time.Second)}}
		}
		c.Tasks = append(c.Tasks, t)
	}
	return c
}

// admit has a job run as batch, or as a service, in one of two bands.
func (h *history) admit(i int) {
	name := h.job(i)
	data := &schema.Job{Cell: "c", User: name.User, Name: name.Job, Kind: schema.Batch, Priority: schema.Priority(100 * h.r.IntN(2)), Tasks: 3}
	if h.r.IntN(4) == 0 {
		data.Kind = schema.Service
	}
	digest := schema.DigestOf(data)
	h.write(h.state.Document(model.KeyData+string(digest), data), h.state.Document(model.KeyJob+name.Short(), &schema.JobRecord{Name: name, Admitted: digest}))
}

func (h *history) remove(i int) {
	h.write(model.Write{Key: model.KeyChunk + h.job(i).Short() + "/0"})
	h.write(model.Write{Key: model.KeyJob + h.job(i).Short()})
}

// runs returns what a step finds out whose draft has some chunks.
func (h *history) runs(kept *Kept, drafted map[model.ChunkName]*schema.Chunk) *keptRuns {
	spans := map[schema.JobName]int{}
	log := map[schema.JobName][]int{}
	for name := range drafted {
		spans[name.Job], log[name.Job] = 1, []int{0}
	}
	v := facts.ViewOf(h.state, &facts.Changes{Chunks: drafted, Spans: spans, Log: log})
	c := New(facts.New(v, &intent.Desired{}, model.NewObserved(now), now, nil), kept)
	return c.runs.update()
}

// longest are the longest runs by class.
func longest(k *keptRuns) map[string]time.Duration {
	out := map[string]time.Duration{}
	for class, c := range k.classes {
		out[fmt.Sprint(class)] = c.longest
	}
	return out
}

// TestRunsFollow: what is kept of how long tasks have run is what is found out from nothing,
// whatever is written, or drafted and not written; and costs what has changed.
func TestRunsFollow(t *testing.T) {
	t.Parallel()
	h := &history{t: t, r: rand.New(rand.NewPCG(1, 2)), state: model.NewState("c")}
	const jobs = 200
	for i := range jobs {
		h.admit(i)
		h.write(h.state.Document(model.KeyChunk+h.job(i).Short()+"/0", h.chunk(i)))
	}
	kept, unstored := &Kept{}, 0
	h.runs(kept, nil)
	if n := kept.runs.looks; n != jobs {
		t.Errorf("at first %d jobs are looked at, want %d", n, jobs)
	}
	for step := range 500 {
		before, changed := kept.runs.looks, 1
		switch i := h.r.IntN(jobs); h.r.IntN(4) {
		case 0:
			h.remove(i)
		case 1:
			h.admit(i)
		default:
			h.admit(i)
			h.write(h.state.Document(model.KeyChunk+h.job(i).Short()+"/0", h.chunk(i)))
		}
		changed += unstored
		drafted := map[model.ChunkName]*schema.Chunk{}
		if i := h.r.IntN(jobs); h.r.IntN(2) == 0 {
			drafted[model.ChunkName{Job: h.job(i)}] = h.chunk(i)
		}
		unstored = len(drafted)
		got, want := h.runs(kept, drafted), h.runs(&Kept{}, drafted)
		if diff := cmp.Diff(longest(want), longest(got)); diff != "" {
			t.Fatalf("step %d, by class (-from nothing +kept):\n%s", step, diff)
		}
		if !maps.EqualFunc(want.jobs, got.jobs, func(a, b jobRuns) bool { return a.longest == b.longest }) {
			t.Fatalf("step %d: %v are kept, want %v", step, got.jobs, want.jobs)
		}
		if n := kept.runs.looks - before; n > changed+unstored {
			t.Fatalf("step %d looks at %d jobs, and %d have changed", step, n, changed+unstored)
		}
	}
	for i := range jobs {
		h.remove(i)
	}
	if k := h.runs(kept, nil); len(k.jobs)+len(k.classes) > 0 {
		t.Errorf("of jobs that are gone %d are kept, and %d classes", len(k.jobs), len(k.classes))
	}
}
