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
	f := newForetold(newFleet(t, 3))
	for _, stage := range planStages {
		said := f.does(stage.what, `quota: "off"`, stage.cue, byJob)
		if said.Ending != plan.Settled {
			t.Fatalf("the plan ends as %s: %v", said.Ending, said.Waiting)
		}
		t.Logf("%s: %d tasks, %d steps, planned in %.0f s at the least", stage.what, len(said.Tasks), len(said.Steps), said.Seconds)
	}
}

// foretold is a fleet whose commits are planned before it has them.
type foretold struct {
	*fleet
	clone string
	last  uint64 // event of the commit before
}

func newForetold(f *fleet) *foretold {
	p := &foretold{fleet: f, clone: f.path("clone")}
	f.git(f.dir, "clone", "-q", f.repo, p.clone)
	f.git(p.clone, "config", "user.name", "e2e")
	f.git(p.clone, "config", "user.email", "e2e@example.com")
	return p
}

// commit commits fields of the cell, and what is declared beside it, and has the fleet take it. It returns what the plan says
// of it, and its hash.
func (f *foretold) commit(what, cell, cue string) (said *plan.Outcome, hash string) {
	f.t.Helper()
	f.must(os.WriteFile(filepath.Join(f.clone, "cells", cellName, "cell.cue"), []byte("package cells\n\nimport \""+module+"/muster\"\n\ncell: "+cellName+": muster.#Cell & {"+cell+"}\n"+cue), 0o600))
	f.git(f.clone, "add", "-A")
	f.git(f.clone, "commit", "-q", "--no-verify", "--allow-empty", "-m", what)
	hash = strings.TrimSpace(f.git(f.clone, "rev-parse", "HEAD"))
	said = f.planned(f.clone)
	f.git(f.repo, "fetch", "-q", f.clone, "HEAD")
	f.git(f.repo, "update-ref", "refs/heads/main", hash)
	return said, hash
}

// does commits fields of the cell, and what is declared beside it, and has the fleet do it. The steps of the plan and what the
// events say of it must be the same, by each of the keys. It returns the plan.
func (f *foretold) does(what, cell, cue string, keys ...stepKey) *plan.Outcome {
	t := f.t
	t.Helper()
	said, hash := f.commit(what, cell, cue)
	var newest uint64
	f.must(within(bound, func() error {
		records, err := f.api.Events(t.Context(), client.EventQuery{}, 0)
		if err != nil {
			return err
		}
		newest = records[len(records)-1].ID
		for _, key := range keys {
			want, have := inOrder(said.Steps, stepsOf(records, f.last), key)
			if diff := cmp.Diff(want, have); diff != "" {
				return fmt.Errorf("%s: the plan said other things than what happened:\n%s", what, diff)
			}
		}
		return nil
	}))
	s := f.until("the commit is applied", func(s *status.Status) string {
		if s.Applied != hash || said.Ending == plan.Settled && !s.Converged {
			return fmt.Sprintf("applied %.10s: %s", s.Applied, strings.Join(s.Waiting, "; "))
		}
		return ""
	})
	f.last = newest
	for _, task := range said.Tasks {
		at := slices.IndexFunc(s.Tasks, func(t status.TaskStatus) bool { return t.Name == task.Name })
		if task.To != "" && (at < 0 || s.Tasks[at].Machine != task.To) || task.To == "" && at >= 0 && s.Tasks[at].Machine != "" {
			t.Errorf("%s: the plan said %+v", what, task)
		}
	}
	return said
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

// stepKey says of a step beside which others its order counts, and how it stands there; "" if not at all.
type stepKey func(*plan.Step) (group, line string)

func byJob(s *plan.Step) (group, line string) {
	return s.Task[:strings.LastIndexByte(s.Task, '/')], fmt.Sprintf("%s %s on %s", s.Do, s.Task, s.Machine)
}

func byTask(s *plan.Step) (group, line string) {
	return s.Task, fmt.Sprintf("%s on %s", s.Do, s.Machine)
}

// byStop has only what is stopped, which the master decides; a start follows once the process has ended.
func byStop(s *plan.Step) (group, line string) {
	if s.Do != plan.Stop {
		return "", ""
	}
	return byJob(s)
}

// inOrder returns steps as lines, by key, of a plan and of what happened. Those that the plan has
// at one time are in no order among each other, and are sorted in both.
func inOrder(planned, happened []plan.Step, key stepKey) (want, have map[string][]string) {
	want, have = map[string][]string{}, map[string][]string{}
	times := map[string][]float64{}
	for i := range planned {
		s := &planned[i]
		if group, line := key(s); group != "" && s.Do != plan.Change { // of which there is no event
			want[group], times[group] = append(want[group], line), append(times[group], s.Seconds)
		}
	}
	for i := range happened {
		if group, line := key(&happened[i]); group != "" {
			have[group] = append(have[group], line)
		}
	}
	for group, at := range times {
		for from := 0; from < len(at); {
			to := from + 1
			for to < len(at) && at[to] == at[from] {
				to++
			}
			slices.Sort(want[group][from:to])
			if to <= len(have[group]) {
				slices.Sort(have[group][from:to])
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
	return p.Outcome
}
