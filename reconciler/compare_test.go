package reconciler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// printed returns a comparison as lines.
func printed(c intent.Comparison) string {
	var b strings.Builder
	for i := range c.Objects {
		o := &c.Objects[i]
		fmt.Fprintf(&b, "%s %s %s at %s: %q +%d -%d ~%d\n", o.Action, o.Kind, o.Name, o.Origin, o.Change, o.Start, o.Stop, o.Restart)
		for _, f := range o.Fields {
			fmt.Fprintf(&b, "  %s: %s → %s: %s\n", f.Field, f.Old, f.New, f.Change)
		}
	}
	for _, h := range c.Held {
		fmt.Fprintf(&b, "held in %s: %s\n", h.Cell, h.Reason)
	}
	fmt.Fprintf(&b, "skipped %q, +%d -%d ~%d\n", c.Skipped, c.Start, c.Stop, c.Restart)
	return b.String()
}

func letGo(tasks int, c schema.Compiled) schema.Compiled {
	c.AllowPrune = tasks
	return c
}

func TestCompare(t *testing.T) {
	t.Parallel()
	more := service("u", "web", 5, "w")
	more.Labels = map[string]string{"a.b": "c", "d": "e"}
	boxed := service("u", "web", 3, "v")
	boxed.Task.Process, boxed.Task.Container = schema.Process{}, container()
	fewer := service("u", "web", 1, "w")
	strict := service("u", "web", 3, "v")
	strict.Update.MaxParallel = 2
	strict.Disruption = &schema.Disruption{MaxDown: 1}
	strict.Silence = &schema.Silence{NeverTwice: true}
	drains := schema.Machine{Name: "m1", Cell: "c", Cordon: true, Drain: &schema.Drain{AtOnce: 1, AtDeadline: schema.DeadlineBudget}}
	for _, tt := range []struct {
		name       string
		base, head schema.Compiled
		want       string
	}{
		{
			"another place is no change",
			compiled("1", good(pkg("a", service("u", "web", 3, "v")))), compiled("2", good(pkg("b", service("u", "web", 3, "v")))),
			"skipped [], +0 -0 ~0\n",
		},
		{
			"fields, with words and values, and tasks",
			compiled("1", good(pkg("a", service("u", "web", 3, "v")))), compiled("2", good(pkg("a", more))),
			`changed job c/u/web at a/x.cue:1:1: "restart" +2 -0 ~3
  labels."a.b":  → "c": in place
  labels.d:  → "e": in place
  task.process.command: ["serve","v"] → ["serve","w"]: restart
  tasks: 3 → 5: in place
skipped [], +2 -0 ~3
`,
		},
		{
			"a container for the process",
			compiled("1", good(pkg("a", service("u", "web", 3, "v")))), compiled("2", good(pkg("a", boxed))),
			`changed job c/u/web at a/x.cue:1:1: "restart" +0 -0 ~3
  task.container.args:  → ["y"]: restart
  task.container.command:  → ["x"]: restart
  task.container.image:  → "a": restart
  task.container.runtime:  → "crun": restart
  task.container.user:  → "1": restart
  task.container.workdir:  → "/srv": restart
  task.process.command: ["serve","v"] → : restart
skipped [], +0 -0 ~3
`,
		},
		{
			"fewer tasks",
			compiled("1", good(pkg("a", service("u", "web", 3, "v")))), compiled("2", good(pkg("a", fewer))),
			`changed job c/u/web at a/x.cue:1:1: "restart" +0 -2 ~1
  task.process.command: ["serve","v"] → ["serve","w"]: restart
  tasks: 3 → 1: in place
skipped [], +0 -2 ~1
`,
		},
		{
			"other kinds change in place, and what is gone has its old place",
			compiled("1", good(pkg(".", schema.Quota{Name: "q", User: "u", Cell: "c", Band: schema.BandBatch, Tasks: 1})), good(pkg("a", service("u", "web", 3, "v")))),
			compiled("2", good(pkg(".", schema.Quota{Name: "q", User: "u", Cell: "c", Band: schema.BandBatch, Tasks: 2}))),
			`removed job c/u/web at a/x.cue:1:1: "" +0 -3 ~0
changed quota q at x.cue:1:1: "in place" +0 -0 ~0
  tasks: 1 → 2: in place
skipped [], +0 -3 ~0
`,
		},
		{
			"a directory with mistakes is left out, on whichever side",
			compiled("1", good(pkg("a", service("u", "web", 3, "v"))), bad("b")),
			compiled("2", bad("a"), good(pkg("b", service("u", "db", 1, "v"))), good(pkg("d", service("u", "new", 1, "v")))),
			`added job c/u/new at d/x.cue:1:1: "" +1 -0 ~0
skipped ["a" "b"], +1 -0 ~0
`,
		},
		{
			"a job that names a priority which is not there is left out",
			compiled("1", good(pkg("a", schema.NamedPriority{Name: "p", Value: 9}, namedJob{service("u", "web", 3, "v"), "p"}))),
			compiled("2", good(pkg("a", namedJob{service("u", "web", 4, "v"), "p"}))),
			`removed priority p at a/x.cue:1:1: "" +0 -0 ~0
skipped ["job c/u/web"], +0 -0 ~0
`,
		},
		{
			"what a name stands for is what is compared",
			compiled("1", good(pkg("a", schema.NamedPriority{Name: "p", Value: 9}, namedJob{service("u", "web", 3, "v"), "p"}))),
			compiled("2", good(pkg("a", schema.NamedPriority{Name: "p", Value: 10}, namedJob{service("u", "web", 3, "v"), "p"}))),
			`changed job c/u/web at a/x.cue:2:1: "in place" +0 -0 ~0
  priority: 9 → 10: in place
changed priority p at a/x.cue:1:1: "in place" +0 -0 ~0
  value: 9 → 10: in place
skipped [], +0 -0 ~0
`,
		},
		{
			"the words of policies are in place",
			compiled("1", good(pkg("a", service("u", "web", 3, "v")))), compiled("2", good(pkg("a", strict))),
			`changed job c/u/web at a/x.cue:1:1: "in place" +0 -0 ~0
  disruption.maxDown:  → 1: in place
  silence.neverTwice:  → true: in place
  update.maxParallel: 1 → 2: in place
skipped [], +0 -0 ~0
`,
		},
		{
			"a drain takes tasks away",
			compiled("1", good(pkg(".", schema.Machine{Name: "m1", Cell: "c"}))), compiled("2", good(pkg(".", drains, schema.Machine{Name: "m2", Cell: "c", Gone: true}))),
			`changed machine c/m1 at x.cue:1:1: "move" +0 -0 ~0
  cordon: false → true: in place
  drain.atDeadline:  → "budget": move
  drain.atOnce:  → 1: move
added machine c/m2 at x.cue:2:1: "move" +0 -0 ~0
skipped [], +0 -0 ~0
`,
		},
		{
			"and its end does not",
			compiled("1", good(pkg(".", drains, schema.Machine{Name: "m2", Cell: "c", Gone: true}))), compiled("2", good(pkg(".", schema.Machine{Name: "m1", Cell: "c"}))),
			`changed machine c/m1 at x.cue:1:1: "in place" +0 -0 ~0
  cordon: true → false: in place
  drain.atDeadline: "budget" → : in place
  drain.atOnce: 1 → : in place
removed machine c/m2 at x.cue:2:1: "" +0 -0 ~0
skipped [], +0 -0 ~0
`,
		},
		{
			"what a guard will hold is said",
			compiled("1", good(pkg("a", service("u", "web", 30, "v"), service("u", "db", 3, "v")))), compiled("2", good(pkg("a", service("u", "db", 3, "v")))),
			`removed job c/u/web at a/x.cue:1:1: "" +0 -30 ~0
held in c: the removal of 30 tasks of 1 job: 30 of the 33 tasks of the cell, at most 10 at once
skipped [], +0 -30 ~0
`,
		},
		{
			"but not what a trailer lets go",
			compiled("1", good(pkg("a", service("u", "web", 30, "v"), service("u", "db", 3, "v")))), letGo(30, compiled("2", good(pkg("a", service("u", "db", 3, "v"))))),
			`removed job c/u/web at a/x.cue:1:1: "" +0 -30 ~0
skipped [], +0 -30 ~0
`,
		},
		{
			"nothing of one side can be read",
			compiled("1", good(pkg("a", service("u", "web", 3, "v")))),
			schema.Compiled{Commit: "2", Diagnostics: []schema.Diagnostic{{Severity: schema.Error, Message: "no module"}}},
			"skipped [\".\"], +0 -0 ~0\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := printed(intent.Compare(tt.base, tt.head, nil)); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

// TestCompareProperties: a commit does not differ from itself, and the way back
// is the way there turned round.
func TestCompareProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) schema.Compiled {
			var jobs []any
			for i := range 4 {
				if tasks := rapid.IntRange(-1, 3).Draw(t, label); tasks >= 0 {
					jobs = append(jobs, service("u", fmt.Sprintf("j%d", i), tasks, rapid.SampledFrom([]string{"v", "w"}).Draw(t, label)))
				}
			}
			return compiled(label, good(pkg("a", jobs...)))
		}
		one, other := draw("one"), draw("other")
		if c := intent.Compare(one, one, nil); len(c.Objects) != 0 {
			t.Fatalf("a commit differs from itself:\n%s", printed(c))
		}
		there, back := intent.Compare(one, other, nil), intent.Compare(other, one, nil)
		turned := map[string]string{intent.Added: intent.Removed, intent.Removed: intent.Added, intent.Changed: intent.Changed}
		same := slices.EqualFunc(there.Objects, back.Objects, func(a, b intent.ObjectChange) bool {
			return a.Name == b.Name && a.Action == turned[b.Action] && a.Start == b.Stop && a.Stop == b.Start && a.Restart == b.Restart && len(a.Fields) == len(b.Fields)
		})
		if !same {
			t.Fatalf("there:\n%s\nand back:\n%s", printed(there), printed(back))
		}
	})
}

// TestCompareIn: what is of one cell, and what holds in all.
func TestCompareIn(t *testing.T) {
	t.Parallel()
	there := service("u", "web", 7, "v")
	there.Cell = "d"
	machine := func(cell string) schema.Machine {
		return schema.Machine{Name: "m1", Cell: cell, Cordon: true, Drain: &schema.Drain{AtOnce: 1, AtDeadline: schema.DeadlineBudget}}
	}
	p := pkg(".", service("u", "web", 3, "v"), there, machine("c"), machine("d"),
		schema.Tenant{Name: "t", Paths: []string{"."}, Users: []string{"u"}}, schema.Quota{Name: "q", Cell: "d", User: "u"})
	head := compiled("2", good(p))
	all := intent.Compare(compiled("1"), head, nil)
	if all.Start != 10 || all.Moving != 2 || len(all.Objects) != 6 {
		t.Fatalf("in all: %s", printed(all))
	}
	for cell, want := range map[string]string{"c": "job c/u/web, machine c/m1, tenant t: 3", "d": "job d/u/web, machine d/m1, quota q, tenant t: 7", "e": "tenant t: 0"} {
		c := all.In(cell)
		var names []string
		for i := range c.Objects {
			names = append(names, string(c.Objects[i].Kind)+" "+c.Objects[i].Name)
		}
		if got := fmt.Sprintf("%s: %d", strings.Join(names, ", "), c.Start); got != want || c.Moving != min(1, c.Start) {
			t.Errorf("in %s: %s, %d move; want %s", cell, got, c.Moving, want)
		}
	}
}

// TestCompareLive: of batch jobs those tasks are not counted that have finished in the cell, and a
// machine whose tasks move comes with those that it holds.
func TestCompareLive(t *testing.T) {
	t.Parallel()
	batch := func(tasks int, v string) schema.Job {
		j := service("u", "b", tasks, v)
		j.Kind = schema.Batch
		return j
	}
	drained := schema.Machine{Name: "m1", Cell: "c", Cordon: true, Drain: &schema.Drain{AtOnce: 1, AtDeadline: schema.DeadlineBudget}}
	matched := drained
	matched.Name, matched.Match = "rack", "rack=r1"
	labelled := schema.Machine{Name: "m2", Cell: "c", Labels: map[string]string{"rack": "r1"}}
	elsewhere := drained
	elsewhere.Name = "m9"
	live := liveCell(t)
	for _, tt := range []struct {
		name       string
		base, head []any
		live       *model.State
		want       string
	}{
		{"removed, not known", []any{batch(10, "v")}, nil, nil, "at most +0 -10 ~0, 0 finished"},
		{"removed", []any{batch(10, "v")}, nil, live, "+0 -6 ~0, 4 finished"},
		{"another version", []any{batch(10, "v")}, []any{batch(10, "w")}, live, "+0 -0 ~6, 4 finished"},
		{"another version, of more, not known", []any{batch(10, "v")}, []any{batch(12, "w")}, nil, "at most +2 -0 ~10, 0 finished"},
		{"fewer", []any{batch(10, "v")}, []any{batch(3, "v")}, live, "+0 -4 ~0, 3 finished"},
		{"fewer, and another version", []any{batch(10, "v")}, []any{batch(3, "w")}, live, "+0 -4 ~2, 4 finished"},
		{"more stop none, also if not known", []any{batch(10, "v")}, []any{batch(12, "v")}, nil, "+2 -0 ~0, 0 finished"},
		{"a service, which runs again what has finished", []any{batch(10, "v")}, []any{service("u", "b", 10, "w")}, live, "+4 -0 ~6, 0 finished"},
		{"a service has no end", []any{service("u", "b", 10, "v")}, []any{service("u", "b", 10, "w")}, nil, "+0 -0 ~10, 0 finished"},
		{"in another cell", []any{batch(10, "v")}, nil, model.NewState("d"), "at most +0 -10 ~0, 0 finished"},
		{"what is not in the base is not counted", []any{batch(2, "v")}, nil, live, "+0 -1 ~0, 1 finished"},
		{"what has finished is nothing to a guard", []any{batch(35, "v")}, nil, live, "+0 -31 ~0, 4 finished; held: the removal of 31 tasks"},
		{"a drain, not known", nil, []any{drained}, nil, "+0 -0 ~0, 0 finished"},
		{"a drain", nil, []any{drained}, live, "+0 -0 ~0, 0 finished; 1 machines hold 3: 2 u/web, 1 u/b"},
		{"by a label that the head gives", nil, []any{matched, labelled}, live, "+0 -0 ~0, 0 finished; 1 machines hold 1: 1 u/web"},
		{"of no machine", nil, []any{elsewhere}, live, "+0 -0 ~0, 0 finished; 0 machines hold 0: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := intent.Compare(compiled("1", good(pkg(".", tt.base...))), compiled("2", good(pkg(".", tt.head...))), tt.live)
			if got := liveWords(c); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// liveCell is a cell in which the tasks 0, 5, 7 and 9 of u/b have finished.
func liveCell(t *testing.T) *model.State {
	t.Helper()
	s := model.NewState("c")
	var writes []model.Write
	for _, name := range []string{"m1", "m2"} {
		writes = append(writes, s.Document(model.KeyMachine+name, schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: name}}))
	}
	done := &schema.Exit{}
	for job, tasks := range map[string][]schema.TaskRecord{
		"b":   {{Index: 0, Done: done}, {Index: 1, Machine: "m1"}, {Index: 5, Done: done}, {Index: 7, Done: done}, {Index: 9, Done: done}},
		"web": {{Index: 0, Machine: "m1"}, {Index: 1, Machine: "m1"}, {Index: 2, Machine: "m2"}},
	} {
		name := schema.JobName{Cell: "c", User: "u", Job: job}
		writes = append(writes, s.Document(model.KeyChunk+"u/"+job+"/0", schema.Chunk{Job: name, Tasks: tasks}))
	}
	if err := s.Apply(writes); err != nil {
		t.Fatal(err)
	}
	return s
}

// liveWords returns what a comparison says of tasks.
func liveWords(c intent.Comparison) string {
	var b strings.Builder
	if c.AtMost {
		b.WriteString("at most ")
	}
	fmt.Fprintf(&b, "+%d -%d ~%d, %d finished", c.Start, c.Stop, c.Restart, c.Finished)
	for i := range c.Objects {
		h := c.Objects[i].Holds
		if h == nil {
			continue
		}
		var jobs []string
		for _, j := range h.Jobs {
			jobs = append(jobs, fmt.Sprintf("%d %s", j.Tasks, j.Job))
		}
		fmt.Fprintf(&b, "; %d machines hold %d: %s", h.Machines, h.Tasks, strings.Join(jobs, ", "))
	}
	for _, h := range c.Held {
		reason, _, _ := strings.Cut(h.Reason, " of 1 job")
		fmt.Fprintf(&b, "; held: %s", reason)
	}
	return b.String()
}
