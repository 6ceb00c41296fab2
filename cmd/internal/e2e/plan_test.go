package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// planStages are what the repository declares with one commit after the other.
var planStages = []struct{ what, cue string }{
	{"two jobs start", planJob("web", "production", 4, "1") + planJob("low", "free", 2, "1")},
	{"one of them gets a new version", planJob("web", "production", 4, "2") + planJob("low", "free", 2, "1")},
	{"one grows, and the other goes", planJob("web", "production", 6, "2")},
	{"a machine is drained", planJob("web", "production", 6, "2") + "machine: m2: muster.#Machine & {cell: \"" + cellName + "\", drain: {}}\n"},
	{"it is not any more, and all change", planJob("web", "production", 3, "3") + planJob("low", "free", 3, "1")},
}

func planJob(name, priority string, tasks int, version string) string {
	return fmt.Sprintf(`job: %s: muster.#Job & {
	user: "plan", cell: %q, priority: %q, tasks: %d
	task: {
		process: command: ["/bin/sleep", "100000"]
		resources: {cpuMilli: 10, ramBytes: 8Mi, diskBytes: 1Mi}
		env: VERSION: %q
		graceSeconds: 0
	}
}
`, name, cellName, priority, tasks, version)
}

// TestPlanIsWhatHappens: what muster plan says of a commit is what a cell of three agents then
// does with it: each task is stopped and started on the same machines, of each job in the same
// order, and nothing else is.
func TestPlanIsWhatHappens(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	clone := f.path("clone")
	f.git(f.dir, "clone", "-q", f.repo, clone)
	f.git(clone, "config", "user.name", "e2e")
	f.git(clone, "config", "user.email", "e2e@example.com")
	var last uint64
	for _, stage := range planStages {
		f.must(os.WriteFile(filepath.Join(clone, "cells", cellName, "cell.cue"), []byte("package cells\n\nimport \""+module+"/muster\"\n\ncell: "+cellName+": muster.#Cell & {quota: \"off\"}\n"+stage.cue), 0o600))
		f.git(clone, "add", "-A")
		f.git(clone, "commit", "-q", "--no-verify", "-m", stage.what)
		hash := strings.TrimSpace(f.git(clone, "rev-parse", "HEAD"))
		said := f.planned(clone)
		f.git(f.repo, "fetch", "-q", clone, "HEAD")
		f.git(f.repo, "update-ref", "refs/heads/main", hash)

		var newest uint64
		f.must(within(bound, func() error {
			records, err := f.api.Events(t.Context(), client.EventQuery{}, 0)
			if err != nil {
				return err
			}
			newest = records[len(records)-1].ID
			want, have := inOrder(said.Steps, stepsOf(records, last))
			if diff := cmp.Diff(want, have); diff != "" {
				return errors.New("the plan said other things than what happened:\n" + diff)
			}
			return nil
		}))
		s := f.converge(hash)
		last = newest
		for _, task := range said.Tasks {
			at := slices.IndexFunc(s.Tasks, func(t status.TaskStatus) bool { return t.Name == task.Name })
			if task.To != "" && (at < 0 || s.Tasks[at].Machine != task.To) || task.To == "" && at >= 0 {
				t.Errorf("%s: the plan said %+v", stage.what, task)
			}
		}
		t.Logf("%s: %d tasks, %d steps, planned in %.0f s at the least", stage.what, len(said.Tasks), len(said.Steps), said.Seconds)
	}
}

// stepsOf returns what the events after one say was done to tasks, in order. Of a generation that is
// stopped the first is of that decision, and the next of its end.
func stepsOf(records []schema.EventRecord, after uint64) []plan.Step {
	var out []plan.Step
	ended := map[uint64]bool{}
	for i := range records {
		r := &records[i]
		s := plan.Step{Task: r.Task, Machine: r.Machine}
		switch r.Kind {
		case schema.EventSchedule:
			s.Do = plan.Start
		case schema.EventEvict, schema.EventKill:
			s.Do = plan.Stop
		case schema.EventLost, schema.EventFail, schema.EventFinish:
			s.Do = plan.End
		default:
			continue
		}
		if s.Do != plan.Start {
			if ended[r.Generation] {
				continue
			}
			ended[r.Generation] = true
		}
		if r.ID > after {
			out = append(out, s)
		}
	}
	return out
}

// inOrder returns steps as lines, by job, of a plan and of what happened. Those that the plan has
// at one time are in no order among each other, and are sorted in both.
func inOrder(planned, happened []plan.Step) (want, have map[string][]string) {
	line := func(s *plan.Step) (job, text string) {
		return s.Task[:strings.LastIndexByte(s.Task, '/')], fmt.Sprintf("%s %s on %s", s.Do, s.Task, s.Machine)
	}
	want, have = map[string][]string{}, map[string][]string{}
	times := map[string][]float64{}
	for i := range planned {
		if s := &planned[i]; s.Do != plan.Change { // of which there is no event
			job, text := line(s)
			want[job], times[job] = append(want[job], text), append(times[job], s.Seconds)
		}
	}
	for i := range happened {
		job, text := line(&happened[i])
		have[job] = append(have[job], text)
	}
	for job, at := range times {
		for from := 0; from < len(at); {
			to := from + 1
			for to < len(at) && at[to] == at[from] {
				to++
			}
			slices.Sort(want[job][from:to])
			if to <= len(have[job]) {
				slices.Sort(have[job][from:to])
			}
			from = to
		}
	}
	return want, have
}

// planned is what muster plan says of the newest commit of a clone.
func (f *fleet) planned(clone string) *plan.Outcome {
	f.t.Helper()
	out, err := f.command("plan", "HEAD~1..HEAD", "--repo", clone, "--master", f.url, "-o", "json").Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() != 1 {
		f.t.Fatalf("muster plan: %v: %s", err, exit.Stderr)
	}
	var p struct{ Outcome *plan.Outcome }
	f.must(json.Unmarshal(out, &p))
	if p.Outcome.Ending != plan.Settled {
		f.t.Fatalf("the plan ends as %s: %v", p.Outcome.Ending, p.Outcome.Waiting)
	}
	return p.Outcome
}
