package sim

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

var (
	seeds = flag.Int("sim.seeds", 20, "seeds of the random simulation")
	steps = flag.Int("sim.steps", 400, "turns of each")
	first = flag.Uint64("sim.first", 1, "first seed")
)

// patience is how many turns the cell may take for one step of the story:
// silence included, a machine counts as lost after 240 of them.
const patience = 200

// play takes turns until done says "", and fails with the history otherwise.
func play(w *World, what string, done func(*reconciler.Status) string) error {
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

func converged(s *reconciler.Status) string {
	if s.Converged {
		return ""
	}
	return strings.Join(append(s.Waiting, "not converged"), "; ")
}

// demoSteps is the story of `muster demo`.
func demoSteps(w *World) error {
	root := Root(10, "shop")
	web := schema.JobName{Cell: cellName, User: "shop", Job: "web"}
	good := Team("shop", Service("web", 5, "good-day"), Service("clock", 1, "tick"))
	w.Commit(map[string]*schema.Package{".": root, "teams/shop": Team("shop", Service("web", 3, "hello"), Service("clock", 1, "tick"), Batch("report", 5))})
	err := play(w, "first commit", func(s *reconciler.Status) string {
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
	if err := play(w, "killed task", func(s *reconciler.Status) string {
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
	if err := play(w, "a package that does not compile", func(s *reconciler.Status) string {
		if len(s.Stale) != 1 || s.Stale[0].Diagnostics[0].Line != 3 {
			return "it is not stale"
		}
		return ""
	}); err != nil {
		return err
	}
	w.Commit(map[string]*schema.Package{".": root, "teams/shop": Team("shop", Service("web", 50, "good-day"), Service("clock", 1, "tick"), Batch("report", 5))})
	if err := play(w, "more than the quota", func(s *reconciler.Status) string {
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

// quiet errs when a converged cell goes on writing.
func (w *World) quiet() error {
	before := 0
	for turn := range 40 {
		if turn == 20 { // a master that has just started is joined by its machines first
			before = w.memory.Transactions()
		}
		if err := w.Turn(); err != nil {
			return err
		}
	}
	if n := w.memory.Transactions() - before; n != 0 {
		return fmt.Errorf("a converged cell wrote %d times", n)
	}
	return nil
}

func job(s *reconciler.Status, name string) *reconciler.JobStatus {
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

// random is the world of a seed.
func random(seed uint64, mutant *Mutant) *World {
	return New(Config{Seed: seed, Machines: 4, Cut: int(seed % 4), Slow: seed%2 == 0, Mutant: mutant})
}

// live plays a seed.
func (w *World) live(turns int) error {
	if err := w.storm(turns); err != nil {
		return err
	}
	return w.calm()
}

// TestRandom lets anything happen at any time, and wants the cell to converge
// once it is left alone; the same seed has the same history.
func TestRandom(t *testing.T) {
	t.Parallel()
	for i := range *seeds {
		seed := *first + uint64(i)
		w := random(seed, nil)
		if err := w.live(*steps); err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, w.History())
		}
		if i >= 3 {
			continue
		}
		again := random(seed, nil)
		_ = again.live(*steps)
		if diff := cmp.Diff(w.History(), again.History()); diff != "" {
			t.Errorf("seed %d has two histories (-first +second):\n%s", seed, diff)
		}
	}
}

// storm is random commits and faults.
func (w *World) storm(turns int) error {
	for range turns {
		name := w.machines[w.rng.IntN(len(w.machines))].name
		switch w.rng.IntN(40 * (1 + 9*int(w.cfg.Seed/4%2))) { // some worlds are quiet
		case 0, 1, 2:
			w.randomCommit()
		case 3:
			w.KillMaster()
		case 13:
			w.FreezeMaster()
		case 4:
			w.KillAgent(name)
		case 5:
			w.Reboot(name)
		case 6, 7:
			w.Silence(name, w.rng.IntN(2) == 0)
		case 8, 9, 10:
			w.killAny()
		case 12:
			m, port := w.machines[w.rng.IntN(len(w.machines))], 20000+w.rng.IntN(100)
			if m.foreign[port] = !m.foreign[port]; !m.foreign[port] {
				delete(m.foreign, port)
			}
		case 11:
			n, fate := w.memory.Transactions()+1+w.rng.IntN(5), store.Fate(1+w.rng.IntN(2))
			w.memory.Hook(func(i int) store.Fate {
				if i == n {
					return fate
				}
				return store.Taken
			})
		}
		if err := w.Turn(); err != nil {
			return err
		}
	}
	return nil
}

// calm ends the faults and wants the newest commit to be in force.
func (w *World) calm() error {
	w.memory.Hook(nil)
	for _, m := range w.machines {
		w.Silence(m.name, false)
	}
	w.Commit(map[string]*schema.Package{".": Root(30, "a", "b"), "teams/a": Team("a", Service("last", 6, "end"), System("logs", "end"))})
	why := ""
	for range 2000 { // back-off of what failed may take minutes
		if err := w.Turn(); err != nil {
			return err
		}
		if s := w.Status(); s != nil {
			if why = converged(s); why == "" {
				if n := len(w.processes()); n != 6+len(w.machines) {
					return fmt.Errorf("%d tasks run, want 6 and one on each of %d machines", n, len(w.machines))
				}
				return w.quiet()
			}
		}
	}
	return fmt.Errorf("left alone, the cell does not converge: %s", why)
}

func (w *World) killAny() {
	names := make([]schema.TaskName, 0)
	for _, m := range w.machines {
		for _, h := range m.held {
			if m.live(h) != nil && h.Assignment.Job.Kind != schema.Allocs { // that has no process
				names = append(names, h.Assignment.Task)
			}
		}
	}
	if len(names) > 0 {
		w.KillTask(names[w.rng.IntN(len(names))])
	}
}

// careful is a service whose new tasks must run for some seconds.
func careful(j schema.Job, seconds int) schema.Job {
	j.Update.MinHealthySeconds = seconds
	return j
}

// versions are the arguments of a service; "crash" and "sick" do what they say,
// and "tired" becomes sick.
var versions = []string{"v1", "v2", "v3", "v4", "crash", "sick", "tired"}

func (w *World) randomCommit() {
	packages := map[string]*schema.Package{".": Root(14, "a", "b"), "cells": Cordoned()}
	if w.rng.IntN(2) == 0 {
		packages["cells"] = Cordoned(w.machines[w.rng.IntN(len(w.machines))].name)
	}
	for _, user := range []string{"a", "b"} {
		dir := "teams/" + user
		switch w.rng.IntN(6) {
		case 0: // the team is gone
		case 1:
			packages[dir] = nil
		default:
			packages[dir] = Team(user,
				Service("web", w.rng.IntN(12), versions[w.rng.IntN(len(versions))]),
				careful(Service("api", w.rng.IntN(12), versions[w.rng.IntN(3)]), w.rng.IntN(4)),
				Batch(fmt.Sprintf("count-%d", w.commits), w.rng.IntN(5)))
			if w.rng.IntN(2) > 0 {
				p := packages[dir]
				low := schema.Priority(w.rng.IntN(3) * 40)
				packages[dir] = Team(user, append(p.Objects.Jobs, Heavy("bulk", w.rng.IntN(9), low), Heavy("main", w.rng.IntN(4), 200+low))...)
			}
			if w.rng.IntN(3) > 0 {
				p := packages[dir]
				packages[dir] = Team(user, append(p.Objects.Jobs, System("logs", versions[w.rng.IntN(len(versions))]))...)
			}
			if w.rng.IntN(2) > 0 {
				Within(packages[dir], Pair("pair", w.rng.IntN(4), int64(300+100*w.rng.IntN(3))),
					Service("inner", w.rng.IntN(6), versions[w.rng.IntN(len(versions))]), careful(Service("saver", w.rng.IntN(4), versions[w.rng.IntN(2)]), w.rng.IntN(3)))
			}
		}
	}
	w.Commit(packages)
}
