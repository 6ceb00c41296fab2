package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

var plannedCommits = flag.Int("e2e.planned", 2, "commits of TestRandomCommitsArePlanned")

// TestRandomCommitsArePlanned: of random commits, a cell of three agents does what the plan says: each task is stopped and
// started in the same order and on the same machines, the tasks of a job are stopped in the same order, and a person has to act
// on the same. Between tasks that the plan has at one time, and between the starts of a job, there is no order.
//
// When a process ends, starts or is healthy is its own affair, which the plan cannot know. Where tasks that are stopped at one
// time leave room that several want, it decides who gets which. So where something else happened than the plan says, the log is
// replayed, which has the times: all decisions must be the same then.
func TestRandomCommitsArePlanned(t *testing.T) {
	t.Parallel()
	f := newForetold(newFleetOf(t, 3, []string{"--cpu-milli", "420"}))
	next := randomCommits(rand.New(rand.NewPCG(19, 0)))
	of, timed := map[commitKind]int{}, 0
	for i := range *plannedCommits {
		meant, allow := next.turn()
		what := fmt.Sprintf("commit %d, a %s", i, meant)
		if allow {
			what += "\n\n" + schema.AllowPruneTrailer + ": 100"
		}
		cell, cue := next.declares()
		before := f.save()
		said, hash := f.commit(what, cell, cue)
		records, diff := f.happened(what, said, hash)
		if diff != "" {
			timed++
			f.replays(before, records)
		}
		kinds := kindsOf(said)
		for _, kind := range kinds {
			of[kind]++
		}
		t.Logf("commit %d, a %s: %d steps, ends %s; has %v\n%s", i, meant, len(said.Steps), said.Ending, kinds, diff)
	}
	t.Logf("commits of each kind: %v; %d of %d went as planned, and the others as the replay with their times", of, *plannedCommits-timed, *plannedCommits)
	if *plannedCommits < 50 {
		return // several of each are not to be expected
	}
	if timed > *plannedCommits/10 {
		t.Errorf("%d of %d commits went other ways than planned, by the times that processes took: want at most a tenth", timed, *plannedCommits)
	}
	for _, kind := range commitKinds {
		if kind != anything && of[kind] < 3 {
			t.Errorf("%d of %d commits are a %s: want at least 3", of[kind], *plannedCommits, kind)
		}
	}
}

// save saves a checkpoint, and returns its file.
func (f *foretold) save() string {
	f.t.Helper()
	file := f.path("before.checkpoint")
	if out, err := f.command("checkpoint", "save", file, "--master", f.url).CombinedOutput(); err != nil {
		f.t.Fatalf("muster checkpoint save: %v: %s", err, out)
	}
	return file
}

// happened waits until a commit is done, and returns the log, and how what it says differs from the plan: "" if it does not.
func (f *foretold) happened(what string, said *plan.Outcome, hash string) (records []schema.EventRecord, diff string) {
	f.t.Helper()
	var final bool
	err := within(bound, func() error {
		s, _, err := f.api.Status(f.t.Context(), client.StatusQuery{})
		if err != nil {
			return err
		}
		if s.Applied != hash || !atRest(s, said) {
			return fmt.Errorf("applied %.10s: %s", s.Applied, strings.Join(s.Waiting, "; "))
		}
		if records, err = f.api.Events(f.t.Context(), client.EventQuery{}, 0); err != nil {
			return err
		}
		diff, final = cmp.Diff(blockers(said.Blocked), blockers(s.Blocked)), false
		for _, key := range []stepKey{byTask, byStop} {
			want, have := inOrder(said.Steps, stepsOf(records, f.last), key)
			diff += cmp.Diff(want, have)
			final = final || contradicts(want, have)
		}
		if diff != "" && !final {
			return errors.New(diff)
		}
		return nil
	})
	if err != nil {
		f.t.Fatalf("%s: the plan said other things than what happened:\n%v", what, err)
	}
	f.last = records[len(records)-1].ID
	return records, diff
}

// atRest reports whether nothing is under way but what the plan leaves so.
func atRest(s *status.Status, said *plan.Outcome) bool {
	return !slices.ContainsFunc(s.Tasks, func(t status.TaskStatus) bool {
		return t.State != status.TaskRunning && t.State != status.TaskPending || t.Drain != "" && !strings.Contains(t.Drain, "no other machine can run it")
	}) && !slices.ContainsFunc(s.Jobs, func(j status.JobStatus) bool {
		left := slices.ContainsFunc(said.Rollouts, func(r plan.Rollout) bool { return r.Job == j.Name && r.State != "" })
		return j.Rollout != nil && j.Rollout.Next == "" && !left
	})
}

// contradicts reports whether nothing that is yet to happen makes what happened what is wanted.
func contradicts(want, have map[string][]string) bool {
	for group, lines := range have {
		if len(lines) > len(want[group]) || len(lines) == len(want[group]) && !slices.Equal(lines, want[group]) {
			return true
		}
	}
	return false
}

// replays replays a log on a checkpoint: all that the log says must come out.
func (f *foretold) replays(checkpoint string, records []schema.EventRecord) {
	f.t.Helper()
	var log bytes.Buffer
	to := json.NewEncoder(&log)
	for i := range records {
		f.must(to.Encode(&records[i]))
	}
	events := f.path("events.json")
	f.must(os.WriteFile(events, log.Bytes(), 0o600))
	if out, err := f.command("simulate", "replay", events, "--against", checkpoint, "--repo", f.clone, "--all").CombinedOutput(); err != nil {
		f.t.Fatalf("muster simulate replay: %v: %s", err, out)
	}
}

// blockers says what a person has to act on.
func blockers(of []status.Blocker) []string {
	var out []string
	for i := range of {
		out = append(out, fmt.Sprintf("%s %s", of[i].Kind, of[i].Name))
	}
	return out
}

// commitKind is what a commit brings about.
type commitKind string

const (
	rollout    commitKind = "rollout"    // tasks get a new version
	preemption commitKind = "preemption" // tasks make room for others
	drain      commitKind = "drain"      // tasks leave a machine
	quotaShort commitKind = "quota"      // a job is not admitted
	guard      commitKind = "guard"      // removals are held
	anything   commitKind = "mixture"
)

var commitKinds = []commitKind{rollout, preemption, drain, quotaShort, guard, anything}

// kindsOf returns what a plan is of.
func kindsOf(o *plan.Outcome) []commitKind {
	caused := func(cause schema.CauseKind) bool {
		return slices.ContainsFunc(o.Steps, func(s plan.Step) bool { return s.Cause == cause })
	}
	blocked := func(kind status.BlockerKind) bool {
		return slices.ContainsFunc(o.Blocked, func(b status.Blocker) bool { return b.Kind == kind })
	}
	has := map[commitKind]bool{
		rollout: caused(schema.CauseUpdate), preemption: len(o.Preempted) > 0, drain: caused(schema.CauseMaintenance),
		quotaShort: blocked(status.BlockedRejected), guard: blocked(status.BlockedHeld),
	}
	return slices.DeleteFunc(slices.Clone(commitKinds), func(k commitKind) bool { return !has[k] })
}

// randomRepo is what random commits declare. Each machine has room for four tasks of web, ads and bulk, of which there are as
// many as two machines hold, so that one can be drained, and what grows while it is makes others give way.
type randomRepo struct {
	*rand.Rand
	tasks, version map[string]int
	drained        string // machine
	short          bool   // quota is, for this commit
	removed        bool   // the many small tasks are; guards hold that
	cycle          []commitKind
}

const (
	taskSlots  = 8  // of two machines
	smallTasks = 11 // more than a guard lets go without leave
)

func randomCommits(r *rand.Rand) *randomRepo {
	return &randomRepo{Rand: r, tasks: map[string]int{"web": 2, "ads": 1, "bulk": 5}, version: map[string]int{}}
}

// turn changes what is declared, and returns what that is to be, and whether the commit gives leave to remove tasks.
func (c *randomRepo) turn() (kind commitKind, allow bool) {
	if len(c.cycle) == 0 {
		c.cycle = []commitKind{drain, preemption, rollout, drain, quotaShort, guard, anything}
		for _, pair := range [][]commitKind{c.cycle[1:3], c.cycle[4:6]} {
			c.Shuffle(2, func(i, j int) { pair[i], pair[j] = pair[j], pair[i] })
		}
	}
	kind, c.cycle = c.cycle[0], c.cycle[1:]
	allow = c.removed && c.IntN(2) == 0
	c.short, c.removed = false, allow // else they are back
	switch kind {
	case rollout:
		c.version[[]string{"web", "ads", "bulk", "small"}[c.IntN(4)]]++
	case preemption:
		c.tasks[[]string{"web", "ads"}[c.IntN(2)]] += 1 + c.IntN(2)
	case drain:
		c.drained = map[string]string{"": []string{"m1", "m2", "m3"}[c.IntN(3)]}[c.drained]
	case quotaShort:
		c.short = true
		c.tasks["web"]++
	case guard:
		c.removed, allow = true, false
	case anything:
		c.tasks = map[string]int{"web": c.IntN(4), "ads": c.IntN(4)}
		c.tasks["bulk"] = taskSlots - c.tasks["web"] - c.tasks["ads"]
		c.version["web"] += c.IntN(2)
	}
	return kind, allow
}

// declares returns fields of the cell, and what is declared beside it.
func (c *randomRepo) declares() (cell, cue string) {
	c.tasks["small"] = smallTasks
	for _, job := range []struct {
		name, priority string
		milli          int
	}{{"ads", "batch", 100}, {"bulk", "free", 100}, {"small", "free", 1}, {"web", "production", 100}} {
		if job.name == "small" && c.removed {
			continue
		}
		text := planJob(job.name, job.priority, c.tasks[job.name], fmt.Sprint(c.version[job.name]))
		text = strings.Replace(text, "cpuMilli: 10", fmt.Sprintf("cpuMilli: %d", job.milli), 1)
		cue += strings.TrimSuffix(text, "}\n") + fmt.Sprintf("\tupdate: {maxParallel: 1, minHealthySeconds: %d}\n}\n", c.IntN(2))
	}
	for _, band := range []string{"batch", "production"} {
		cpu := 700
		if c.short && band == "production" {
			cpu = 100*c.tasks["web"] - 50
		}
		cue += fmt.Sprintf("quota: %q: muster.#Quota & {user: \"plan\", cell: %q, band: %q, cpuMilli: %d, ramBytes: 1Gi, diskBytes: 1Gi, tasks: 100}\n", band, cellName, band, cpu)
	}
	if c.drained != "" {
		cue += fmt.Sprintf("machine: %s: muster.#Machine & {cell: %q, drain: {}}\n", c.drained, cellName)
	}
	return `quota: "on"`, cue
}
