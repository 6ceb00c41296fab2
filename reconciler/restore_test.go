package reconciler_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// pass lets time pass for all.
func (c *cell) pass(seconds int) {
	for range seconds {
		c.now = c.now.Add(time.Second)
		c.exchange()
		c.step()
	}
}

// lives returns what runs, as task on machine, generation and pid.
func (c *cell) lives() map[string]string {
	out := map[string]string{}
	for _, a := range c.agents {
		for g, s := range a.tasks {
			if s.State != schema.Dead {
				out[fmt.Sprintf("%s on %s", s.Task.Short(), a.info.Name)] = fmt.Sprintf("#%d pid %d", g, s.PID)
			}
		}
	}
	return out
}

// lose takes the store back to what it was, as muster master restore does.
func (c *cell) lose(docs map[string][]byte, taken time.Time) {
	c.docs = maps.Clone(docs)
	c.restart()
	c.take(model.Restore(c.state, taken, c.now))
	c.restart()
}

func crew(jobs ...any) []schema.CompiledPackage {
	return []schema.CompiledPackage{good(pkg(".", newQuota("q", "u", 50))), good(pkg("u", jobs...))}
}

// After a restore the machines hold what the store never had. All of it
// goes on: under its generations, as its processes; what is decided from then on
// has numbers that nobody ever had.
func TestRestore(t *testing.T) {
	t.Parallel()
	c := newCell()
	for _, m := range []string{"m1", "m2", "m3"} {
		c.join(m, 8, 16)
	}
	c.commit(compiled("c1", crew(service("u", "web", 3, "v1"), service("u", "old", 1, "v1"))...))
	c.pass(30)
	docs, taken := maps.Clone(c.docs), c.now

	// What the snapshot does not know: a rollout, a job, a machine, a removal, and
	// a task that crashed and is somewhere else.
	c.commit(compiled("c2", crew(service("u", "web", 4, "v2"), service("u", "new", 2, "v1"))...))
	c.join("m4", 8, 16)
	c.pass(120)
	a, s := c.find("u/new/0")
	a.die(s, schema.Cause{Kind: schema.CauseFailed, Message: "crashed", At: c.now})
	c.pass(120)
	for range 5 {
		c.join("m1", 8, 16)
	}
	before, counter, epoch := c.lives(), c.state.Counter, c.state.Machines["m1"].Epoch
	if len(before) != 6 || !c.status().Converged {
		t.Fatalf("%d tasks run: %v", len(before), c.status().Waiting)
	}

	c.lose(docs, taken)
	for _, m := range []string{"m1", "m2", "m3", "m4"} {
		c.join(m, 8, 16)
	}
	if got := c.state.Machines["m1"].Epoch; got <= epoch {
		t.Errorf("machine m1 gets epoch %d after %d", got, epoch)
	}
	if got := c.state.Machines["m4"].Epoch; got <= epoch {
		t.Errorf("machine m4, which the snapshot does not know, gets epoch %d", got)
	}
	if c.state.Counter <= counter {
		t.Errorf("counter %d after %d", c.state.Counter, counter)
	}
	c.pass(30)
	if s := c.status(); s.Converged || !strings.Contains(strings.Join(s.Waiting, "\n"), "restored from a snapshot of 2026-01-01T00:00:30Z: waiting until ") {
		t.Errorf("status while the machines report: %v", s.Waiting)
	}
	c.commit(compiled("c2", crew(service("u", "web", 4, "v2"), service("u", "new", 2, "v1"))...))
	c.pass(10)
	if d := cmp.Diff(before, c.lives()); d != "" {
		t.Errorf("while the machines report (-before +after)\n%s", d)
	}
	c.restart() // the master dies in the middle
	c.pass(90)
	if d := cmp.Diff(before, c.lives()); d != "" {
		t.Errorf("the store was restored (-before +after)\n%s", d)
	}
	if s := c.status(); !s.Converged || c.state.Recovering() {
		t.Errorf("not converged: %v", s.Waiting)
	}
	for _, j := range c.state.Jobs {
		if j.Name.Job == "old" {
			t.Error("the job that was removed is there again")
		}
	}
	_, s = c.find("u/new/1")
	s.State, s.End = schema.Dead, &schema.Cause{Kind: schema.CauseFailed, At: c.now}
	c.pass(60)
	if _, s := c.find("u/new/1"); s == nil || s.Generation <= counter+1_000_000 {
		t.Errorf("the next generation is %+v, the last one before the restore was %d", s, counter)
	}
}

// A machine that was silent while the others reported keeps its task, if that
// was not decided upon meanwhile; a generation whose data is lost is stopped by
// its machine and comes back; what ended since the snapshot does not run again
// under its number.
func TestRestoreLosses(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m1", 8, 16)
	c.join("m2", 8, 16)
	c.commit(compiled("c1", crew(service("u", "web", 2, "v1"))...))
	c.pass(30)
	docs, taken := maps.Clone(c.docs), c.now
	c.commit(compiled("c2", crew(service("u", "web", 2, "v2"), service("u", "lost", 1, "v1"))...))
	c.pass(60)
	old := c.lives()
	c.lose(docs, taken)
	c.join("m1", 8, 16)
	c.join("m2", 8, 16)
	// The repository has moved on: nobody has v2 of web, nor lost, any more.
	c.commit(compiled("c3", crew(service("u", "web", 2, "v3"))...))
	c.pass(120)
	now := c.lives()
	if len(now) != 2 {
		t.Errorf("%d tasks run: %v", len(now), now)
	}
	used := map[string]bool{}
	for _, is := range old {
		used[strings.Fields(is)[0]] = true
	}
	for task, is := range now {
		if g := strings.Fields(is)[0]; used[g] || len(g) < 11 {
			t.Errorf("%s runs as %s, a number from before the restore", task, is)
		}
	}
	if !c.status().Converged {
		t.Errorf("not converged: %v", c.status().Waiting)
	}
}

// A job that was scaled to none, and gets tasks from a machine that comes back late, is
// looked at in the step that adopts them: nothing else would have one done.
func TestRestoredLateIsScaled(t *testing.T) {
	t.Parallel()
	c := newCell()
	for _, m := range []string{"m1", "m2", "m3"} {
		c.join(m, 8, 16)
	}
	c.commit(compiled("c1", crew(service("u", "web", 0, "v1"))...))
	c.pass(30)
	docs, taken := maps.Clone(c.docs), c.now
	c.commit(compiled("c2", crew(service("u", "web", 4, "v1"))...))
	c.pass(60)
	late, _ := c.find("u/web/0")
	c.lose(docs, taken)
	for _, m := range []string{"m1", "m2", "m3"} {
		c.join(m, 8, 16)
	}
	late.silent = true
	c.commit(compiled("c3", good(pkg(".", newQuota("q", "u", 1))), good(pkg("u", service("u", "web", 4, "v1"))))) // over quota
	c.pass(120)
	late.silent = false
	c.now = c.now.Add(time.Second)
	c.exchange()
	var kinds []string
	for _, e := range c.step().Events {
		if e.Task == "u/web/0" {
			kinds = append(kinds, string(e.Kind))
		}
	}
	if want := []string{"schedule", "kill"}; !slices.Equal(kinds, want) {
		t.Errorf("events of u/web/0 in the step that adopts it: %q: want %q", kinds, want)
	}
}

// A generation whose data comes to be known just after the machines have reported is not
// taken over any more: its machine was sent that it is to stop, and its room is given away.
func TestRestoredRoomIsGivenOnce(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m1", 1, 16) // room for one of the tasks
	c.commit(compiled("c1", crew(service("u", "first", 1, "v1"))...))
	c.pass(30)
	docs, taken := maps.Clone(c.docs), c.now
	second := compiled("c2", crew(service("u", "second", 1, "v1"))...)
	c.commit(second)
	c.pass(60)
	if a, _ := c.find("u/second/0"); a == nil {
		t.Fatalf("u/second/0 does not run: %v", c.lives())
	}
	c.lose(docs, taken)
	c.join("m1", 1, 16)
	for c.state.Recovering() {
		c.pass(1)
	}
	for range 5 { // the machine has not got its view yet
		c.commit(second)
		c.step()
		held := map[string]int{}
		for _, chunk := range c.state.Chunks {
			for _, r := range chunk.Tasks {
				held[r.Machine]++
			}
		}
		if held["m1"] > 1 {
			t.Fatalf("m1 has room for 1 task and has %d", held["m1"])
		}
	}
	c.pass(60)
	if !c.status().Converged {
		t.Errorf("not converged: %v", c.status().Waiting)
	}
}

// However history and restore mix, no number is given twice, and what ran goes on
// if its data is known.
func TestRestoreProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCell()
		for _, m := range []string{"m1", "m2", "m3"} {
			c.join(m, 8, 16)
		}
		given := map[uint64]string{} // by generation: what it runs as
		look := func() {
			for _, a := range c.agents {
				for g, s := range a.tasks {
					is := fmt.Sprintf("%s on %s pid %d", s.Task.Short(), a.info.Name, max(s.PID, 0))
					if s.State == schema.Dead {
						continue
					}
					if was, ok := given[g]; ok && was != is {
						t.Fatalf("generation %d is %s, and was %s", g, is, was)
					}
					given[g] = is
				}
			}
		}
		docs, taken := maps.Clone(c.docs), c.now
		restored, commits := 0, 0
		var head schema.Compiled
		for range rapid.IntRange(5, 25).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"commit", "pass", "crash", "snapshot", "restore", "rejoin"}).Draw(t, "what") {
			case "commit":
				commits++
				head = compiled(fmt.Sprint("c", commits), crew(service("u", "web", rapid.IntRange(1, 4).Draw(t, "tasks"), fmt.Sprint("v", rapid.IntRange(1, 3).Draw(t, "version"))))...)
				head.AllowPrune = 100
				c.commit(head)
			case "crash":
				for _, a := range c.agents {
					for _, s := range a.tasks {
						if s.Task.Index == 0 && s.State != schema.Dead {
							a.die(s, schema.Cause{Kind: schema.CauseFailed, At: c.now})
						}
					}
				}
			case "snapshot":
				docs, taken = maps.Clone(c.docs), c.now
			case "restore":
				restored++
				c.pass(60)
				before := c.lives()
				settled := c.state.Head.Commit != "" && c.status().Converged
				c.lose(docs, taken)
				for _, m := range []string{"m1", "m2", "m3"} {
					c.join(m, 8, 16)
				}
				if head.Commit != "" {
					c.commit(head)
				}
				c.pass(70)
				if settled {
					if d := cmp.Diff(before, c.lives()); d != "" {
						t.Fatalf("restore number %d (-before +after)\n%s", restored, d)
					}
				}
				docs, taken = maps.Clone(c.docs), c.now
			case "rejoin":
				c.join("m2", 8, 16)
			}
			for range rapid.IntRange(0, 20).Draw(t, "seconds") {
				c.pass(1)
				look()
			}
		}
		if bytes.Contains(c.docs["counter"], []byte("e")) {
			t.Fatalf("counter %s", c.docs["counter"])
		}
		var n uint64
		if raw := c.docs["counter"]; raw != nil && (json.Unmarshal(raw, &n) != nil || n > 1<<53) {
			t.Fatalf("counter %s", raw)
		}
	})
}
