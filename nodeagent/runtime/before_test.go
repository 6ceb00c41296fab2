package runtime_test

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestBefore(t *testing.T) {
	t.Parallel()
	testBefore(t, newMachine(t))
}

// testBefore: what runs before a task has what that has, and the task finds what it left.
func testBefore(t *testing.T, m *machine) {
	t.Helper()
	a := shell(0, "cat left; echo $A")
	step := shell(0, "echo step $A $(cat f) >left; cat left").Job.Task.Process
	a.Job.Task.Env, a.Job.Task.Files = map[string]string{"A": "b"}, map[string]schema.TaskFile{"f": {Content: "file"}}
	a.Job.Task.Before = []schema.Before{{Process: &step}}
	if m.contained {
		a.Job.Task.Before = []schema.Before{{Container: &schema.Container{Image: busyboxImage, Command: step.Command, Workdir: "/muster/work", User: "ada", Runtime: m.by}}}
	}
	for n, want := range []string{"step b file\n", "step b file\nb\n"} {
		which := (n + 1) % 2
		dir := place(t, m.dir, a, n+1)
		p, err := m.Start(t.Context(), dir, a.ForStep(which, 1))
		if err != nil {
			t.Fatal(err)
		}
		if exit := wait(t, p); exit.Code != 0 || said(t, dir) != want || p.State().Step != which {
			t.Errorf("step %d: %v, says %q, is %+v; want %q", which, exit, said(t, dir), p.State(), want)
		}
		again, err := m.Adopt(t.Context(), dir)
		if err != nil || again.State().Step != which {
			t.Errorf("step %d is adopted as %+v, %v", which, again.State(), err)
		}
	}
}
