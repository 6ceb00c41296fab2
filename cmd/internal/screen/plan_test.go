package screen_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// TestPlan: a plan in lines of 80 cells.
func TestPlan(t *testing.T) {
	t.Parallel()
	o := &plan.Outcome{
		Ending: plan.Blocked, Seconds: 125,
		Tasks: []plan.Task{
			{Name: "search/web/0", Fate: plan.Moves, From: "m1", To: "m2", Causes: []schema.CauseKind{schema.CauseUpdate}},
			{Name: "search/web/1", Fate: plan.Evicted, From: "m1", Causes: []schema.CauseKind{schema.CausePreempted}},
		},
		Steps:     []plan.Step{{}},
		Preempted: []plan.Preempted{{Task: "search/web/1", Priority: 100, By: "ads/db/0", Becomes: "it is pending: no machine has room"}},
		Pending:   []plan.Pending{{Task: "search/web/1", Reason: "no machine has room"}, {Task: "ads/x/0", Reason: "no machine has room", Before: true}},
		Rollouts:  []plan.Rollout{{Job: "search/web", Stops: 2, Starts: 1, Seconds: 61, MostDown: 2, MayBeDown: 1}, {Job: "ads/db", MostDown: 1, MayBeDown: 3, PerHour: 6}},
		Quota:     []plan.QuotaChange{{User: "search", Band: schema.BandProduction}},
		Blocked:   []status.Blocker{{Message: "job search/web: paused: " + strings.Repeat("long ", 30), Next: "muster why search/web"}},
		Warnings:  []string{"\x1b[31mred"},
	}
	o.Quota[0].After.CPUMilli = 1500
	var b strings.Builder
	for _, s := range screen.Plan(o, 80, 1) {
		b.WriteString(s.Title + "\n" + s.Text)
	}
	for line := range strings.Lines(b.String()) {
		if screen.Cells(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("a line of over 80 cells: %q", line)
		}
	}
	for _, want := range []string{"search/web/0  moves", "m1 → m2", "search/web/1 (priority 100) for ads/db/0", "search/web/1: no machine has room\n", "2 of 1\n", "1 of 3, 6 an hour", "0 → 1500m"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("an escape is printed: %q", b.String())
	}
	head := screen.PlanHead(&plan.Outcome{Ending: plan.Waiting, Seconds: 3, Next: &plan.Next{At: time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC), What: "the suspension of search/web ends"}})
	if want := "then nothing happens before 2026-03-01T14:00:00Z (the suspension of search/web ends), and not all is as desired, in 3s at the least"; head != want {
		t.Errorf("head %q, want %q", head, want)
	}
	if got := screen.PlanHead(o); got != "tasks: 1 move, 1 left without a machine; then it is blocked: a person has to act, in 2m5s at the least" {
		t.Error(got)
	}
}

// TestPlanSteps: each step of a rollout has a line; of a long one the first, and those in which it is
// at a canary or has an end.
func TestPlanSteps(t *testing.T) {
	t.Parallel()
	long := plan.Rollout{Job: "search/web", Steps: []plan.RolloutStep{
		{Stops: []int{0}},
		{Seconds: 0.1, Starts: []int{0}},
		{Seconds: 5.1, Says: "canary 1 of 1 healthy: waits for a commit with the trailer Muster-Promote: search/web"},
	}}
	for i := range 40 {
		long.Steps = append(long.Steps, plan.RolloutStep{Seconds: 10 + float64(i), Stops: []int{2 * i, 2*i + 1, 2*i + 2, 2*i + 4}, Changes: []int{200}})
	}
	long.Steps = append(long.Steps, plan.RolloutStep{Seconds: 60, Says: "rollout complete"})
	o := &plan.Outcome{Rollouts: []plan.Rollout{{Job: "ads/new"}, long}}
	text := func(o *plan.Outcome, width, most int) string {
		for _, s := range screen.Plan(o, width, most) {
			if s.Title == "rollouts, step by step" {
				return s.Text
			}
		}
		return ""
	}
	const few = `  JOB         AFTER  TASKS
  search/web  0s     stop 0
              100ms  start 0
              5.1s   canary 1 of 1 healthy: waits for a commit with the trailer…
              10s    stop 0-2, 4; change in place 200
                     … and 39 more steps: --all shows them
              1m0s   rollout complete
`
	if got := text(o, 80, 4); got != few {
		t.Errorf("got\n%s\nwant\n%s", got, few)
	}
	if got := text(o, 0, 0); strings.Count(got, "\n") != 45 || strings.Contains(got, "more") || !strings.Contains(got, "Muster-Promote: search/web\n") {
		t.Errorf("not all:\n%s", got)
	}
	many := &plan.Outcome{}
	for i := range 30 {
		many.Rollouts = append(many.Rollouts, long)
		many.Rollouts[i].Job = fmt.Sprintf("search/web%d", i)
	}
	if got := text(many, 80, 20); strings.Count(got, "search/web") != 6 || !strings.HasSuffix(got, "\n  … and 24 more rollouts: --all shows them\n") {
		t.Errorf("of many rollouts:\n%s", got)
	}
}

// TestBreak: a line is broken where it is too wide, and loses nothing but the spaces there.
func TestBreak(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text, want string
		width      int
	}{
		{"  a  b\n", "  a  b\n", 0},
		{"  a  b\n", "  a  b\n", 14},
		{"  field  \"one  two\"        restart\nb\n", "  field  \"one\n      two\"\n      restart\nb\n", 16},
		{"  " + strings.Repeat("ä", 20) + "\n", "  " + strings.Repeat("ä", 12) + "\n      " + strings.Repeat("ä", 8) + "\n", 14},
		{strings.Repeat("x", 20) + "…\n", strings.Repeat("x", 12) + "\n    " + strings.Repeat("x", 8) + "\n    …\n", 3},
	} {
		if got := screen.Break(tc.text, tc.width); got != tc.want {
			t.Errorf("%q in %d cells: %q, want %q", tc.text, tc.width, got, tc.want)
		}
	}
}

// TestPlanAll: of a plan that is shown in full no row and no name is left out, in no line that a
// comment cuts.
func TestPlanAll(t *testing.T) {
	t.Parallel()
	o := &plan.Outcome{Ending: plan.Waiting}
	for i := range 300 {
		name := fmt.Sprintf("search/web/%d", i)
		o.Tasks = append(o.Tasks, plan.Task{Name: name, Fate: plan.Starts, To: "m1"})
		o.Pending = append(o.Pending, plan.Pending{Task: name + "p", Reason: "no machine has room"})
	}
	for _, width := range []int{0, 80} {
		got := screen.Comment("head", screen.Plan(o, width, 0))
		for i := range 300 {
			if name := fmt.Sprintf("search/web/%d", i); !strings.Contains(got, "  "+name+" ") || !strings.Contains(got, name+"p") {
				t.Errorf("width %d: %s is missing", width, name)
			}
		}
		if strings.Contains(got, "more") || strings.Contains(got, "cut for length") {
			t.Errorf("width %d: something is left out:\n%s", width, got)
		}
	}
	if got := screen.Plan(o, 80, 20)[0].Text; !strings.Contains(got, "search/web/2p and 297 more: ") {
		t.Errorf("all are named:\n%s", got)
	}
}

// TestComment: nothing in a plan ends the block that it stands in, and what is too long is cut:
// lines, sections and the head.
func TestComment(t *testing.T) {
	t.Parallel()
	evil := "```\n</details><img src=x>\n@everyone **bold** \x1b[2J\n"
	got := screen.Comment("head", []screen.Section{{Title: "<b>@all", Text: evil}, {Title: "long", Text: strings.Repeat("x", 70_000)}})
	if !strings.Contains(got, "\n````text\n```\n") || !strings.Contains(got, "\n````\n\n</details>\n") {
		t.Errorf("what is in a section ends its block:\n%s", got)
	}
	if strings.Contains(got, "<b>") || strings.Contains(got, "<summary>@") || strings.Contains(got, "\x1b") {
		t.Errorf("it is not shown as it is:\n%s", got)
	}
	if !strings.Contains(got, "xxx…\n") || !strings.Contains(got, fmt.Sprintf("%d of %d sections is cut", 1, 2)) {
		t.Errorf("it is not said that a section is cut:\n%s", got)
	}
}

// TestCommentLength: whatever a plan has, each of its sections is there, its blocks are closed,
// and a forge takes it.
func TestCommentLength(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"many lines":     strings.Repeat("search/web/1 restarts\n", 20_000),
		"a long value":   "env " + strings.Repeat("ä", 1<<20),
		"a long fence":   strings.Repeat("`", 100_000),
		"fences":         strings.Repeat("````````````\n", 20_000),
		"no line at all": "",
		"not for people": strings.Repeat("\x00\xff\u202e", 50_000),
	} {
		var sections []screen.Section
		for i := range 11 {
			sections = append(sections, screen.Section{Title: fmt.Sprintf("title %d", i), Text: text})
		}
		sections = append(sections, screen.Section{Title: "the last", Text: "a warning\n"})
		got := screen.Comment("plan\n"+text, sections)
		if len(got) > 60_500 {
			t.Errorf("%s: %d bytes", name, len(got))
		}
		if n := strings.Count(got, "\n<details><summary>"); n != 12 || strings.Count(got, "\n</details>\n") != n || !strings.Contains(got, "\na warning\n") {
			t.Errorf("%s: %d sections are begun, %d closed", name, n, strings.Count(got, "\n</details>\n"))
		}
		fence := ""
		for line := range strings.Lines(got) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case fence == "" && strings.HasSuffix(line, "```text"):
				fence = strings.TrimSuffix(line, "text")
			case line == fence:
				fence = ""
			case fence == "" && strings.Contains(line, "``") && line != "":
				t.Errorf("%s: %.60q is outside of a block", name, line)
			}
		}
		if fence != "" {
			t.Errorf("%s: a block is not closed", name)
		}
	}
}
