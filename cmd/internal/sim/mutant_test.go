package sim

import (
	"encoding/json"
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

var mutantSeeds = flag.Int("sim.mutants", 50, "seeds within which each planted bug must be found")

// mutants are bugs that somebody could write into the cores or between them,
// planted at the seams.
func mutants() []*Mutant {
	return []*Mutant{
		{Name: "the counter is not stored", Writes: without("counter")},
		{Name: "the epoch is not stored", Writes: without("machine/")},
		{Name: "data goes before what refers to it", Writes: deletesFirst("data/")},
		{Name: "the head flips before its packages are there", Writes: putFirst("head")},
		{Name: "moves are not stored", Writes: without("moves")},
		{Name: "old packages go before the head flips", Writes: deletesFirst("package/")},
		{Name: "views are pushed before they are stored", Early: true},
		{Name: "what is done is forgotten", Writes: tasks(func(r *schema.TaskRecord) { r.Done = nil })},
		{Name: "back-off is not stored", Writes: tasks(func(r *schema.TaskRecord) { r.NotBefore, r.Failures = time.Time{}, 0 })},
		{Name: "generations are given twice", Writes: tasks(func(r *schema.TaskRecord) { r.Generation -= r.Generation % 2 })},
		{Name: "a stop has no cause", Writes: tasks(func(r *schema.TaskRecord) {
			if r.Stop != nil {
				r.Stop.Kind = ""
			}
		})},
		{Name: "a stop waits for nobody", Writes: tasks(func(r *schema.TaskRecord) {
			if r.Stop != nil {
				r.Machine, r.Stop = "", nil
			}
		})},
		{Name: "a task that stops is forgotten", Report: reports(schema.Stopping, schema.Dead)},
		{Name: "a package that does not compile is empty", Commit: emptied},
		{Name: "a new master has no patience", Since: func(t time.Time) time.Time { return t.Add(-time.Hour) }},
		{Name: "a rollout has no budget", Input: jobs(func(j *schema.Job) { j.Update.MaxParallel = 100 })},
		{Name: "quota is not asked for", Input: packages(func(o *schema.Objects) {
			o.Cells = slices.Clone(o.Cells)
			for i := range o.Cells {
				o.Cells[i].Quota = "off"
			}
		})},
		{Name: "cordons are not seen", Input: packages(func(o *schema.Objects) { o.Machines = nil })},
		{Name: "the master never wakes", Output: func(o *control.Output) { o.Wake = time.Time{} }},
		{Name: "an index forgets its machine", Writes: tasks(func(r *schema.TaskRecord) {
			if r.Machine == "" {
				r.On = ""
			}
		})},
		{Name: "a prod job passes for less", Input: jobs(func(j *schema.Job) {
			if j.Name == "web" || j.Name == "main" && j.Priority == 200 {
				j.Priority = 1
			}
		})},
		{Name: "who is preempted is not waited for", Writes: tasks(func(r *schema.TaskRecord) {
			if r.Stop != nil && r.Stop.By != "" {
				r.Machine, r.Stop = "", nil
			}
		})},
		{Name: "who was preempted does not come back", Writes: tasks(func(r *schema.TaskRecord) {
			if n := len(r.Causes); n > 0 && r.Causes[n-1].Kind == schema.CausePreempted && r.Machine == "" {
				r.Done = &schema.Exit{}
			}
		})},
		{Name: "what leaves counts as gone", Input: leaving},
		{Name: "who has which device is not stored", Writes: tasks(func(r *schema.TaskRecord) { r.Devices = r.Devices[:len(r.Devices)/2] })},
		{Name: "which alloc a task runs in is not stored", Writes: tasks(func(r *schema.TaskRecord) { r.Alloc = nil })},
		{Name: "an alloc has room for any number", Input: jobs(func(j *schema.Job) {
			if j.AllocSet != "" {
				j.Task.Resources.Resources = schema.Resources{}
			}
		})},
		{Name: "tasks need no room", Input: jobs(func(j *schema.Job) { j.Task.Resources.Resources = schema.Resources{} })},
	}
}

// TestMutants: each planted bug is found, and by how many seeds.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, m := range mutants() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for i := range *mutantSeeds {
				if err := caught(uint64(i+1), m); err != nil {
					t.Logf("found by seed %d: %v", i+1, err)
					return
				}
			}
			t.Errorf("%d seeds do not find it", *mutantSeeds)
		})
	}
}

// caught plays a seed with a bug: a world of all there is, one of services of which half
// of the racks are drained, one in which machines come and go, one in which room is
// scarce, and one in which machines are emptied.
func caught(seed uint64, m *Mutant) error {
	for _, s := range []Script{Seeded(seed, *steps), HalfDrained(seed, drainSteps), Rough(seed, *steps/roughShare), Tight(seed, tightActions(*steps)), Emptied(seed, drainSteps)} {
		if _, err := s.Play(m); err != nil {
			return err
		}
	}
	return nil
}

// without drops the writes of a kind of document once there is one.
func without(prefix string) func([]model.Write) []model.Write {
	return func(writes []model.Write) []model.Write {
		return slices.DeleteFunc(slices.Clone(writes), func(w model.Write) bool { return strings.HasPrefix(w.Key, prefix) })
	}
}

// sortFirst puts the writes that isFirst picks before all others.
func sortFirst(writes []model.Write, isFirst func(model.Write) bool) []model.Write {
	var a, b []model.Write
	for _, w := range writes {
		if isFirst(w) {
			a = append(a, w)
		} else {
			b = append(b, w)
		}
	}
	return append(a, b...)
}

func putFirst(prefix string) func([]model.Write) []model.Write {
	return func(writes []model.Write) []model.Write {
		return sortFirst(writes, func(w model.Write) bool { return strings.HasPrefix(w.Key, prefix) })
	}
}

func deletesFirst(prefix string) func([]model.Write) []model.Write {
	return func(writes []model.Write) []model.Write {
		return sortFirst(writes, func(w model.Write) bool { return strings.HasPrefix(w.Key, prefix) && w.Value == nil })
	}
}

// tasks changes each record that is stored.
func tasks(change func(*schema.TaskRecord)) func([]model.Write) []model.Write {
	return func(writes []model.Write) []model.Write {
		out := slices.Clone(writes)
		for i, w := range out {
			var c schema.Chunk
			if !strings.HasPrefix(w.Key, "chunk/") || w.Value == nil || json.Unmarshal(w.Value, &c) != nil {
				continue
			}
			for j := range c.Tasks {
				change(&c.Tasks[j])
			}
			out[i].Value = schema.Canonical(c)
		}
		return out
	}
}

// reports has agents say that a task is in another state than it is.
func reports(is, said schema.TaskState) func(*schema.Report) {
	return func(r *schema.Report) {
		r.Tasks = slices.Clone(r.Tasks)
		for i := range r.Tasks {
			if t := &r.Tasks[i]; t.State == is {
				t.State, t.End = said, &schema.Cause{Kind: schema.CauseSuperseded}
			}
		}
	}
}

func emptied(c schema.Compiled) schema.Compiled {
	c.Packages = slices.Clone(c.Packages)
	for i := range c.Packages {
		if p := &c.Packages[i]; p.Package == nil {
			p.Package = &schema.Package{Dir: p.Dir}
			p.Digest = schema.DigestOf(p.Package)
		}
	}
	return c
}

// jobs shows the core other data than is stored.
func jobs(change func(*schema.Job)) func(*control.Input) {
	return func(in *control.Input) {
		s := *in.State
		s.Data = maps.Clone(s.Data)
		for digest, j := range s.Data {
			c := *j
			change(&c)
			s.Data[digest] = &c
		}
		in.State = &s
	}
}

// leaving shows the core a cell without the tasks that were stopped to make room.
func leaving(in *control.Input) {
	s := *in.State
	s.Chunks = maps.Clone(s.Chunks)
	for name, c := range s.Chunks {
		less := *c
		less.Tasks = slices.DeleteFunc(slices.Clone(c.Tasks), func(r schema.TaskRecord) bool { return r.Stop != nil && r.Stop.By != "" })
		s.Chunks[name] = &less
	}
	in.State = &s
}

// packages shows the core other declarations than are stored.
func packages(change func(*schema.Objects)) func(*control.Input) {
	return func(in *control.Input) {
		docs := *in.State
		docs.Packages = map[schema.Digest]*schema.Package{}
		for digest, p := range in.State.Packages {
			c := *p
			change(&c.Objects)
			docs.Packages[digest] = &c
		}
		in.State = &docs
	}
}
