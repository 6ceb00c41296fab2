package screen

import (
	"strconv"
	"strings"

	"github.com/musterhq/muster/reconciler/history"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// History writes what happened beside what was planned, if that is so, in lines of at most
// width cells, 0 for no bound; of the tasks at most the given number, 0 for all.
func History(r *history.Result, compared bool, width, most int) string {
	p := planned{width, most}
	rows := make([][]string, 0, len(r.Counts))
	for _, c := range r.Counts {
		was := strconv.Itoa(c.Planned)
		if !compared {
			was = "-"
		}
		rows = append(rows, []string{string(c.Fate), was, strconv.Itoa(c.Happened)})
	}
	var b strings.Builder
	if t := p.table([]string{"TASKS", "PLANNED", "HAPPENED"}, rows); t != "" {
		b.WriteString("\n" + t)
	}
	if !compared {
		return b.String()
	}
	if len(r.Differences) == 0 {
		return b.String() + "\n" + Wrap("", "  ", "all happened as planned", width)
	}
	b.WriteString("\nwhy\n")
	texts := make([]string, 0, len(r.Reasons))
	for _, x := range r.Reasons {
		texts = append(texts, schema.Count(x.Tasks, "task")+": "+x.Why)
	}
	b.WriteString(p.list(texts) + "\nother than planned\n")
	rows = rows[:0]
	for i := range r.Differences {
		d := &r.Differences[i]
		rows = append(rows, []string{d.Task, fateOf(d.Planned), fateOf(d.Happened)})
	}
	b.WriteString(p.table([]string{"TASK", "PLANNED", "HAPPENED"}, rows))
	Printf(&b, "\n%d as planned, %d otherwise\n", r.Same, len(r.Differences))
	return b.String()
}

// fateOf says what becomes of a task, and where.
func fateOf(t *plan.Task) string {
	switch {
	case t == nil:
		return "nothing"
	case t.To != "" && t.From != "" && t.To != t.From:
		return string(t.Fate) + " " + t.From + " → " + t.To
	case t.To != "":
		return string(t.Fate) + " on " + t.To
	case t.From != "":
		return string(t.Fate) + " on " + t.From
	}
	return string(t.Fate)
}
