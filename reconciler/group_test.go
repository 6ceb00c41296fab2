package reconciler_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// grouped is a cell whose parts fare differently.
func grouped() *status.Status {
	labels := func(own ...string) map[string]string {
		out := map[string]string{schema.LabelUser: "u"}
		for _, kv := range own {
			k, v, _ := strings.Cut(kv, "=")
			out[k] = v
		}
		return out
	}
	at := func(dir string) schema.Position { return schema.Position{Path: dir + "/a.cue", Line: 1, Column: 1} }
	return &status.Status{
		Cell: "c", Commit: "1", Applied: "1", Waiting: []string{"everything"},
		Behind:   status.Behind{Stale: []status.StalePackage{{Dir: "y", Reason: "broken"}}},
		Rejected: []status.Rejection{{Job: "u/new", Labels: labels("t=b"), Diagnostic: schema.Diagnostic{Message: "no quota"}}},
		Machines: []status.MachineStatus{{Name: "m"}, {Name: "n"}},
		Jobs: []status.JobStatus{
			{Name: "u/fine", Labels: labels("t=a"), Origin: at("x")},
			{Name: "u/slow", Labels: labels("t=b"), Origin: at("x"), Reason: "1 of 2 tasks do not run"},
			{Name: "u/stale", Labels: labels("t=c"), Origin: at("y")},
		},
		Tasks: []status.TaskStatus{{Name: "u/fine/0", Machine: "m"}, {Name: "u/slow/0", Machine: "m"}, {Name: "u/slow/1"}, {Name: "u/stale/0", Machine: "n"}},
	}
}

func TestGroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, selector, tasks, machines, waiting string }{
		{"", "", "u/fine/0 u/slow/0 u/slow/1 u/stale/0", "m n", "everything"},
		{"u/fine", "", "u/fine/0", "m", ""},
		{"u/slow", "", "u/slow/0 u/slow/1", "m", "job u/slow: 1 of 2 tasks do not run"},
		{"u/slow/1", "", "u/slow/1", "", "job u/slow: 1 of 2 tasks do not run"},
		{"u/stale", "", "u/stale/0", "n", "y is stale: broken"},
		{"u/new", "", "", "", "job u/new is rejected: no quota"},
		{"m", "", "u/fine/0 u/slow/0", "m", "everything"},
		{"m", "t=b", "u/slow/0", "m", "everything"},
		{"", "t=a", "u/fine/0", "m", ""},
		{"", "t=b", "u/slow/0 u/slow/1", "m", "job u/new is rejected: no quota; job u/slow: 1 of 2 tasks do not run"},
		{"", "t in (a,c)", "u/fine/0 u/stale/0", "m n", "y is stale: broken"},
		{"u/slow", "t=b", "u/slow/0 u/slow/1", "m", "job u/slow: 1 of 2 tasks do not run"},
	} {
		g := status.Group{Name: c.name}
		if c.selector != "" {
			var err error
			if g.Selector, err = schema.ParseSelector(c.selector); err != nil {
				t.Fatal(err)
			}
		}
		whole := grouped()
		picked, err := g.Of(status.SnapshotOf(whole))
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		part := picked.Whole()
		tasks := []string{}
		for i := range part.Tasks {
			tasks = append(tasks, part.Tasks[i].Name)
		}
		if got := strings.Join(tasks, " "); got != c.tasks {
			t.Errorf("%+v: tasks %s", c, got)
		}
		var machines []string
		for i := range part.Machines {
			machines = append(machines, part.Machines[i].Name)
		}
		if got := strings.Join(machines, " "); got != c.machines {
			t.Errorf("%+v: machines %s", c, got)
		}
		if got := strings.Join(part.Waiting, "; "); got != c.waiting {
			t.Errorf("%+v: waiting for %s", c, got)
		}
		var blocked []string
		for _, b := range part.Blocked {
			blocked = append(blocked, b.Message)
			if c.name != "m" && !strings.Contains(c.waiting, b.Message) {
				t.Errorf("%+v: blocked by %s, which it does not wait for", c, b.Message)
			}
		}
		for _, w := range part.Waiting {
			if (strings.Contains(w, "stale") || strings.Contains(w, "rejected")) && !slices.Contains(blocked, w) {
				t.Errorf("%+v: %s needs a person, and is not among %q", c, w, blocked)
			}
		}
		if part.Converged != (c.waiting == "") {
			t.Errorf("%+v: converged %v", c, part.Converged)
		}
		if diff := cmp.Diff(grouped(), whole); diff != "" {
			t.Errorf("%+v: the whole was written to:\n%s", c, diff)
		}
	}
}

// TestGroupWaitsForTheCommit: no part has converged before the newest commit is
// applied, or when the repository as a whole is in trouble.
func TestGroupWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*status.Status){
		"commit 2 is being compiled":  func(s *status.Status) { s.Commit = "2" },
		"the repository: gone":        func(s *status.Status) { s.Source = "gone" },
		"no commit has been seen yet": func(s *status.Status) { s.Commit = "" },
		"the commit could not be read: no module was found": func(s *status.Status) {
			s.Unread = &status.UnreadCommit{Reason: "no module was found"}
		},
	} {
		s := grouped()
		change(s)
		picked, err := status.Group{Name: "u/fine"}.Of(status.SnapshotOf(s))
		if err != nil {
			t.Fatal(err)
		}
		part := picked.Brief()
		if part.Converged || !slices.Equal(part.Waiting, []string{want}) {
			t.Errorf("%s: converged %v, waiting for %q", want, part.Converged, part.Waiting)
		}
	}
}

func TestGroupOfNothing(t *testing.T) {
	t.Parallel()
	b, err := schema.ParseSelector("t=z")
	if err != nil {
		t.Fatal(err)
	}
	for want, g := range map[string]status.Group{
		`cell c has no machine "x"`:                        {Name: "x"},
		`cell c has no job "u/x"`:                          {Name: "u/x"},
		`cell c has no task "u/fine/1"`:                    {Name: "u/fine/1"},
		`cell c has no task "u/fine/0/0"`:                  {Name: "u/fine/0/0"},
		`cell c has no job with labels that match t=z`:     {Selector: b},
		`nothing of m in cell c has labels that match t=z`: {Name: "m", Selector: b},
	} {
		_, err := g.Of(status.SnapshotOf(grouped()))
		var none *model.NotFoundError
		if !errors.As(err, &none) || none.Message != want || none.Hint == "" {
			t.Errorf("%+v: %v, want %s", g, err, want)
		}
	}
}
