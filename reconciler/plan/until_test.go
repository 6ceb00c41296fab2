package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/plan/plantest"
	"github.com/musterhq/muster/schema"
)

func TestParseCondition(t *testing.T) {
	t.Parallel()
	for text, job := range map[string]string{
		"pending": "", " job  search/web pending ": "search/web", "task search/web/3 running": "search/web", "machine m1 empty": "", "blocked": "", "job search/web rejected": "search/web",
	} {
		c, err := plan.ParseCondition(text)
		if err != nil || c.Job() != job || c.String() != strings.Join(strings.Fields(text), " ") {
			t.Errorf("%q: %q of job %q, %v", text, c.String(), c.Job(), err)
		}
	}
	for text, want := range map[string]string{
		"":                          "want a state",
		"job pending":               "want a state",
		"job search/web is pending": "want a state",
		"job search/web wait":       `"wait" is not a state`,
		"running":                   "want that a job or a task is running",
		"task search/web/0 blocked": "want that a job is blocked",
		"machine m1 pending":        "want that a job or a task is pending",
		"jobs search/web pending":   "want that a job or a task is pending",
		"job web pending":           `"web" is not the name of a job`,
		"job search/web/1 pending":  `"search/web/1" is not the name of a job`,
		"task search/web pending":   `"search/web" is not the name of a task`,
		"machine M/1 lost":          `"M/1" is not the name of a machine`,
	} {
		_, err := plan.ParseCondition(text)
		message, hint := schema.HintOf(err)
		if err == nil || !strings.Contains(message, want) || !strings.Contains(hint, plan.Conditions) {
			t.Errorf("%q: %q, hint %q; want %q", text, message, hint, want)
		}
	}
}

// TestUntil: each condition stops the cell at the decision with which it comes true, for those for
// whom it has, and not for what holds before.
func TestUntil(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		until string
		jobs  []schema.Job
		want  string // names; "" if it does not come true
	}{
		{"pending", []schema.Job{plantest.Job("web", 0, 8, "1")}, "search/web/6 search/web/7"},
		{"job search/web pending", []schema.Job{plantest.Job("web", 0, 7, "1")}, "search/web/6"},
		{"job search/other pending", []schema.Job{plantest.Job("web", 0, 7, "1")}, ""},
		{"task search/web/6 pending", []schema.Job{plantest.Job("web", 0, 8, "1")}, "search/web/6"},
		{"preempted", []schema.Job{plantest.Job("web", 0, 4, "1"), plantest.Job("high", 200, 6, "1")}, "search/web/0 search/web/1 search/web/2 search/web/3"},
		{"stopped", []schema.Job{plantest.Job("web", 0, 2, "1")}, "search/web/2 search/web/3"},
		{"task search/web/1 stopped", []schema.Job{plantest.Job("web", 0, 4, "2")}, "search/web/1"},
		{"task search/web/1 preempted", []schema.Job{plantest.Job("web", 0, 4, "2")}, ""},
		{"job search/new running", []schema.Job{plantest.Job("web", 0, 4, "1"), plantest.Job("new", 0, 2, "1")}, "search/new"},
		{"task search/new/1 running", []schema.Job{plantest.Job("web", 0, 4, "1"), plantest.Job("new", 0, 2, "1")}, "search/new/1"},
		{"job search/web running", []schema.Job{plantest.Job("web", 0, 4, "1")}, ""}, // it does all the while
		{"machine m2 empty", []schema.Job{plantest.Job("web", 0, 0, "1")}, "m2"},
	} {
		c := newCell(t, plantest.Machine("m1", 3, 16), plantest.Machine("m2", 3, 16))
		does(t, c, plantest.Commit(1, plantest.Job("web", 0, 4, "1")))
		condition, err := plan.ParseCondition(tc.until)
		if err != nil {
			t.Fatal(err)
		}
		c.Until([]plan.Condition{condition})
		o := does(t, c, plantest.Commit(2, tc.jobs...))
		got := c.Breakpoint()
		switch {
		case tc.want == "":
			if got != nil || o.Ending == plan.Reached {
				t.Errorf("%s: %s, %+v", tc.until, o.Ending, got)
			}
		case got == nil || o.Ending != plan.Reached || got.Condition != tc.until || strings.Join(got.Names, " ") != tc.want:
			t.Errorf("%s: %s, %+v; want %s", tc.until, o.Ending, got, tc.want)
		}
	}
}

// TestUntilAgain: what holds in the beginning is said, and has to end first; the steps of one
// commit are none of the next.
func TestUntilAgain(t *testing.T) {
	t.Parallel()
	c := newCell(t, plantest.Machine("m1", 3, 16))
	does(t, c, plantest.Commit(1, plantest.Job("web", 0, 4, "1")))
	pending, err := plan.ParseCondition("pending")
	if err != nil {
		t.Fatal(err)
	}
	stopped, err := plan.ParseCondition("task search/web/0 stopped")
	if err != nil {
		t.Fatal(err)
	}
	if hold := c.Until([]plan.Condition{pending, stopped}); !slices.Equal(hold, []string{"pending"}) {
		t.Errorf("hold: %v", hold)
	}
	if o := does(t, c, plantest.Commit(2, plantest.Job("web", 0, 4, "1"), plantest.Job("other", 0, 0, "1"))); o.Ending == plan.Reached {
		t.Errorf("what held before has come true: %+v", c.Breakpoint())
	}
	for n := range 2 {
		does(t, c, plantest.Commit(3+n, plantest.Job("web", 0, 3, string(rune('2'+n)))))
		if got := c.Breakpoint(); got == nil || got.Condition != "task search/web/0 stopped" {
			t.Errorf("version %d: %+v", n, got)
		}
		c.Until(nil)
		if _, _, err := c.Run(); err != nil {
			t.Fatal(err)
		}
		c.Until([]plan.Condition{pending, stopped})
	}
	if why, known := c.Why("search/web/0"); !known || why.Name != "search/web/0" || len(why.Tasks) != 1 {
		t.Errorf("why: %v, %+v", known, why)
	}
}

// TestUntilStates: a cell stops where a machine is lost, a job is rejected, and a person has to
// act: on a rollout that has failed, and on a removal that is held.
func TestUntilStates(t *testing.T) {
	t.Parallel()
	limited := func(n int, jobs ...schema.Job) schema.Compiled {
		c := plantest.Commit(n, jobs...)
		c.Packages[0].Package.Objects.Cells[0].Quota = ""
		c.Packages[0].Digest = schema.DigestOf(c.Packages[0].Package)
		return c
	}
	held := func(n int, jobs ...schema.Job) schema.Compiled {
		c := plantest.Commit(n, jobs...)
		c.Trailers = schema.Trailers{}
		return c
	}
	next := func(c *plan.Cell, commit schema.Compiled) error { return c.Commit(commit) }
	web, api := plantest.Job("web", 0, 12, "1"), plantest.Job("api", 0, 2, "1")
	for _, tc := range []struct {
		until string
		do    func(*plan.Cell) error
		want  string // names; "" if it does not come true
	}{
		{"machine m2 lost", func(c *plan.Cell) error { _, err := c.Lose([]string{"m2"}); return err }, "m2"},
		{"machine m1 lost", func(c *plan.Cell) error { _, err := c.Lose([]string{"m2"}); return err }, ""},
		{"rejected", func(c *plan.Cell) error { return next(c, limited(2, web, api, plantest.Job("big", 200, 1, "1"))) }, "search/big"},
		{"job search/big rejected", func(c *plan.Cell) error { return next(c, limited(2, web, api, plantest.Job("big", 200, 1, "1"))) }, "search/big"},
		{"job search/web rejected", func(c *plan.Cell) error { return next(c, limited(2, web, api, plantest.Job("big", 200, 1, "1"))) }, ""},
		{"blocked", func(c *plan.Cell) error { return next(c, plantest.Commit(2, web, plantest.Job("api", 0, 2, "2"))) }, "search/api"},
		{"job search/api blocked", func(c *plan.Cell) error { return next(c, plantest.Commit(2, web, plantest.Job("api", 0, 2, "2"))) }, "search/api"},
		{"job search/web blocked", func(c *plan.Cell) error { return next(c, plantest.Commit(2, web, plantest.Job("api", 0, 2, "2"))) }, ""},
		{"blocked", func(c *plan.Cell) error { return next(c, held(2, api)) }, "cell"},
		{"job search/web blocked", func(c *plan.Cell) error { return next(c, held(2, api)) }, "search/web"},
		{"job search/api blocked", func(c *plan.Cell) error { return next(c, held(2, api)) }, ""},
	} {
		c := newCell(t, plantest.Machine("m1", 20, 64), plantest.Machine("m2", 20, 64), plantest.Machine("m3", 20, 64))
		does(t, c, plantest.Commit(1, web, api))
		condition, err := plan.ParseCondition(tc.until)
		if err != nil {
			t.Fatal(err)
		}
		c.Until([]plan.Condition{condition})
		c.Fail(func(j *schema.Job) bool { return j.Name == "api" && j.Task.Env["VERSION"] == "2" })
		if err := tc.do(c); err != nil {
			t.Fatal(err)
		}
		ending, _, err := c.Run()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if stop := c.Breakpoint(); stop != nil {
			got = strings.Join(stop.Names, " ")
		}
		if got != tc.want || (ending == plan.Reached) != (tc.want != "") {
			t.Errorf("%s: %s, stopped for %q, want %q", tc.until, ending, got, tc.want)
		}
	}
}
