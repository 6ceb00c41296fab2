package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// patience is how many turns the cell may take for one step of the story:
// silence included, a machine counts as lost after 240 of them.
const patience = 200

// play takes turns until done says "", and fails with the history otherwise.
func play(w *World, what string, done func(*status.Status) string) error {
	why := ""
	for range patience {
		if err := w.Turn(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if s := w.Status(); s != nil {
			if why = done(s); why == "" {
				return nil
			}
		} else {
			why = "there is no master"
		}
	}
	return fmt.Errorf("%s: not within %d turns: %s", what, patience, why)
}

// demoSteps is the story of `muster demo`.
func demoSteps(w *World) error {
	root := Root(10, "shop")
	web := schema.JobName{Cell: cellName, User: "shop", Job: "web"}
	good := Team("shop", Service("web", 5, "good-day"), Service("clock", 1, "tick"))
	w.Commit(map[string]*schema.Package{".": root, "teams/shop": Team("shop", Service("web", 3, "hello"), Service("clock", 1, "tick"), Batch("report", 5))})
	err := play(w, "first commit", func(s *status.Status) string {
		if j := job(s, "shop/report"); j == nil || j.Done != 5 {
			return "the batch is not done"
		}
		return converged(s)
	})
	if err != nil {
		return err
	}
	clock := w.pidOf(schema.JobName{Cell: cellName, User: "shop", Job: "clock"}.Task(0))
	good.Objects.Jobs = append(good.Objects.Jobs, Team("shop", Batch("report", 5)).Objects.Jobs...)
	w.Commit(map[string]*schema.Package{".": root, "teams/shop": good})
	if err := play(w, "second commit", converged); err != nil {
		return err
	}
	if now := w.pidOf(schema.JobName{Cell: cellName, User: "shop", Job: "clock"}.Task(0)); now != clock {
		return fmt.Errorf("the clock was pid %d and is %d: it was touched", clock, now)
	}
	if !w.KillTask(web.Task(1)) {
		return fmt.Errorf("%s does not run", web.Task(1))
	}
	if err := play(w, "killed task", func(s *status.Status) string {
		for _, t := range s.Tasks {
			if t.Name == "shop/web/1" && t.State == "running" && strings.Contains(strings.Join(t.History, " "), "SIGKILL") {
				return converged(s)
			}
		}
		return "it does not run again, with its cause"
	}); err != nil {
		return err
	}
	return w.demoEnd(root, good)
}

// demoEnd is the second half: bad commits, a master that dies, and the end.
func (w *World) demoEnd(root, good *schema.Package) error {
	before := w.pidsOf()
	w.Commit(map[string]*schema.Package{".": root, "teams/shop": nil})
	if err := play(w, "a package that does not compile", func(s *status.Status) string {
		if len(s.Stale) != 1 || s.Stale[0].Diagnostics[0].Line != 3 {
			return "it is not stale"
		}
		return ""
	}); err != nil {
		return err
	}
	w.Commit(map[string]*schema.Package{".": root, "teams/shop": Team("shop", Service("web", 50, "good-day"), Service("clock", 1, "tick"), Batch("report", 5))})
	if err := play(w, "more than the quota", func(s *status.Status) string {
		if len(s.Rejected) != 1 || s.Rejected[0].Job != "shop/web" {
			return "it is not rejected"
		}
		return ""
	}); err != nil {
		return err
	}
	w.Commit(map[string]*schema.Package{".": root, "teams/shop": good})
	w.KillMaster()
	if err := play(w, "a new master", converged); err != nil {
		return err
	}
	if diff := cmp.Diff(before, w.pidsOf()); diff != "" {
		return fmt.Errorf("bad commits or the master's death touched what runs (-before +after):\n%s", diff)
	}
	w.Commit(map[string]*schema.Package{".": root})
	if err := play(w, "removal", converged); err != nil {
		return err
	}
	if left := w.pidsOf(); len(left) > 0 {
		return fmt.Errorf("left behind: %v", left)
	}
	return w.quiet()
}

func job(s *status.Status, name string) *status.JobStatus {
	for i := range s.Jobs {
		if s.Jobs[i].Name == name {
			return &s.Jobs[i]
		}
	}
	return nil
}

// pidsOf returns the pid of each task that has a process.
func (w *World) pidsOf() map[string]int {
	out := map[string]int{}
	for task, ps := range w.processes() {
		out[task.Short()] = ps[0].pid
	}
	return out
}

func (w *World) pidOf(task schema.TaskName) int { return w.pidsOf()[task.Short()] }

func TestDemo(t *testing.T) {
	t.Parallel()
	w := New(Config{Seed: 1, Machines: 3})
	if err := demoSteps(w); err != nil {
		t.Fatalf("%v\n%s", err, w.History())
	}
	again := New(Config{Seed: 1, Machines: 3})
	if err := demoSteps(again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.History(), again.History()); diff != "" {
		t.Errorf("the same seed has two histories (-first +second):\n%s", diff)
	}
}

// TestMasterDiesAtEveryTransaction plays the story again and again: the master
// dies at the n-th transaction, once before it has taken effect, once after.
func TestMasterDiesAtEveryTransaction(t *testing.T) {
	t.Parallel()
	config := Config{Seed: 1, Machines: 3, Cut: 1} // a crash between any two writes
	base := New(config)
	if err := demoSteps(base); err != nil {
		t.Fatal(err)
	}
	all := base.memory.Transactions()
	if all < 20 {
		t.Fatalf("the story has %d transactions only", all)
	}
	for n := 1; n <= all; n++ {
		for _, fate := range []store.Fate{store.Refused, store.Forgotten} {
			w := New(config)
			w.memory.Hook(func(i int) store.Fate {
				if i == n {
					return fate
				}
				return store.Taken
			})
			if err := demoSteps(w); err != nil {
				t.Errorf("transaction %d of %d, fate %d: %v\n%s", n, all, fate, err, w.History())
				return
			}
		}
	}
}

// TestAgentDiesAtEveryAction plays the story with each machine's agent dying
// after its n-th action.
func TestAgentDiesAtEveryAction(t *testing.T) {
	t.Parallel()
	for machine := range 3 {
		for n := 1; n <= 25; n++ {
			w := New(Config{Seed: 1, Machines: 3})
			w.machines[machine].crashIn = n
			if err := demoSteps(w); err != nil {
				t.Fatalf("machine %d, action %d: %v\n%s", machine, n, err, w.History())
			}
		}
	}
}
