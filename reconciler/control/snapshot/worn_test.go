package snapshot

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestWorn has 4,000 jobs with selectors of their own come and go, and machines whose names
// do not come again: what a cell keeps of them is bounded.
func TestWorn(t *testing.T) {
	t.Parallel()
	h := &history{t: t, state: model.NewState("c")}
	observed, kept, known := model.NewObserved(now), &Kept{}, &facts.Known{}
	most, builds := 0, 0
	for i := range 4000 {
		machine := fmt.Sprint("m", i/4)
		if i%4 == 0 {
			h.write(h.state.Document(model.KeyMachine+machine, &schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: machine, Capacity: schema.Resources{CPUMilli: 1000}}}))
		}
		name := h.job(i)
		label := fmt.Sprint("x", i)
		data := &schema.Job{
			Cell: "c", User: name.User, Name: name.Job, Kind: schema.Service, Tasks: 1, Labels: map[string]string{"app": label},
			AntiAffinity: []schema.Affinity{{Selector: "app=" + label, By: "machine"}},
		}
		digest := schema.DigestOf(data)
		h.write(
			h.state.Document(model.KeyData+string(digest), data), h.state.Document(model.KeyJob+name.Short(), &schema.JobRecord{Name: name, Admitted: digest}),
			h.state.Document(model.KeyChunk+name.Short()+"/0", &schema.Chunk{Job: name, Tasks: []schema.TaskRecord{{Generation: 1, Machine: machine, Data: digest, At: now}}}),
		)
		was := kept.snapshot
		c := New(facts.New(facts.Stored(h.state), &intent.Desired{}, observed, now, known), kept)
		c.Snapshot()
		a, _ := c.Placement(Ask{Task: name.Task(1), Job: data, Data: digest})
		placement.Place(c.Snapshot(), []placement.Ask{a}, 1)
		c.Leave()
		if kept.snapshot != was {
			builds++
		}
		most = max(most, kept.snapshot.Names())
		h.write(model.Write{Key: model.KeyChunk + name.Short() + "/0"}, model.Write{Key: model.KeyJob + name.Short()}, model.Write{Key: model.KeyData + string(digest)})
		if i%4 == 3 {
			h.write(model.Write{Key: model.KeyMachine + machine})
		}
	}
	if most > 2*wornNames || builds > 40 {
		t.Errorf("the snapshot knows up to %d names, and was made %d times: want at most %d, and 40 times", most, builds, 2*wornNames)
	}
	if n := len(kept.chunks) + len(kept.spans) + len(kept.machines) + len(kept.restless); n > 4 {
		t.Errorf("%d chunks, jobs and machines are kept of what has gone", n)
	}
	if n := len(kept.asks); n > 1100 {
		t.Errorf("the asks of %d jobs are kept", n)
	}
}
