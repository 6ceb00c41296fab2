package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

const (
	// headLines is how many lines the verdict and the notes have of a short status.
	headLines = 4
	// machineLines is how many the machines that are not plainly up have.
	machineLines = 6
)

// short returns a cell in as many lines as there are: what is wrong, the worst first, and
// how much there is in all.
func (v *View) short(s *status.Status) string {
	all := causes(s)
	var b strings.Builder
	v.head(&b, s, all)
	head := v.few(strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), headLines, "note")
	foot := []string{"", machineCount(s)}
	left := v.Lines - len(head) - len(foot) - 2 // the totals and how to see all
	if t := v.machineTable(s, (*status.MachineStatus).NotReady); len(t.Rows) > 0 {
		slices.SortStableFunc(t.Rows, func(a, b []Cell) int { return cmp.Compare(severity(a[1].Colour), severity(b[1].Colour)) })
		foot = append(foot, v.rows(t, min(left, machineLines), len(t.Rows), "machine")...)
	}
	left = v.Lines - len(head) - len(foot) - 2
	jobs := worstFirst(s.Jobs, false)
	wanted := 2 + min(len(jobs), left)
	shown := v.shortCauses(s, all, max(left/2, left-wanted))
	left -= len(shown)
	total := s.Counted()
	if len(jobs) > 0 && left > 2 {
		foot = append(append(foot, ""), v.rows(v.jobs(s, jobs), left-1, total.Jobs.Total, "job")...)
	}
	foot = append(foot, v.line("", fmt.Sprintf("%s: %d as desired; %s", schema.Count(total.Jobs.Total, "job"), total.Jobs.AsDesired, tasksOf(&total.Tasks))), v.line("", "details: muster status --all, muster status USER/JOB, muster why USER/JOB"))
	return strings.Join(slices.Concat(head, shown, foot), "\n") + "\n"
}

// tasksOf says how many tasks there are, of each kind that there is.
func tasksOf(t *status.TaskTotals) string {
	out := schema.Count(t.Desired, "task")
	sep := ": "
	for _, x := range []struct {
		n    int
		what string
	}{{t.Running, "running"}, {t.Pending, "pending"}, {t.Failed, "failed"}, {t.Unknown, "unknown"}, {t.Done, "done"}} {
		if x.n > 0 {
			out += fmt.Sprintf("%s%d %s", sep, x.n, x.what)
			sep = ", "
		}
	}
	return out
}

// line returns a label and a text in one line.
func (v *View) line(label, text string) string {
	return Elide(label+oneLine(v.bounded(text)), v.Width)
}

// few returns the first lines of a list, with the last saying how many more there are.
func (v *View) few(list []string, most int, what string) []string {
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most-1]), v.line("  ", fmt.Sprintf("and %s more", schema.Count(len(list)-most+1, "line")+" of "+what+"s")))
}

// rows returns a table in at most so many lines, of which the last says how many of all
// are left out.
func (v *View) rows(t *Table, most, all int, what string) []string {
	shown := *t
	if all+1 > most {
		shown.Rows = t.Rows[:max(0, min(len(t.Rows), most-2))]
	}
	out := strings.Split(strings.TrimSuffix(shown.Text(v.Width, v.Painter), "\n"), "\n")
	if left := all - len(shown.Rows); left > 0 {
		out = append(out, v.line("", "and "+schema.Count(left, "more "+what)))
	}
	return out
}

// shortCauses returns the worst causes, and the warnings about quotas, in so many lines.
func (v *View) shortCauses(s *status.Status, all []cause, most int) []string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b cause) int {
		return cmp.Or(cmp.Compare(severity(a.colour), severity(b.colour)), cmp.Compare(len(b.names), len(a.names)))
	})
	for i := range s.Warnings {
		all = append(all, cause{label: "warning", colour: Yellow, text: s.Warnings[i].Diagnostic.Message, harmless: true})
	}
	var out []string
	for i := range all {
		lines := all[i].short(v)
		room := most - len(out) - 1 // an empty line before
		if i < len(all)-1 {
			room-- // and what is left out
		}
		if len(lines) > room {
			if room = most - len(out); room > 1 {
				out = append(out, "", v.line("", "and "+schema.Count(len(all)-i, "more cause")))
			}
			break
		}
		if i == 0 {
			out = append(out, "")
		}
		out = append(out, lines...)
	}
	return out
}

// short returns a cause in a few lines.
func (c *cause) short(v *View) []string {
	first := v.line(c.label+": ", c.text)
	out := []string{string(v.Painter.Paint(c.colour, c.label)) + strings.TrimPrefix(first, c.label)}
	if len(c.names) > 0 {
		out = append(out, v.line("  "+schema.Count(len(c.names), "job")+": ", Names(c.names, named)))
	}
	if c.next != "" {
		out = append(out, v.line("  next: ", c.next))
	}
	return out
}

// severity orders colours, the worst first.
func severity(colour string) int {
	switch colour {
	case Red:
		return 0
	case Yellow:
		return 1
	}
	return 2
}

// worstFirst returns jobs with those that are not as desired first, and of these the worst;
// or by name.
func worstFirst(list []status.JobStatus, byName bool) []*status.JobStatus {
	out := make([]*status.JobStatus, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	if !byName {
		slices.SortStableFunc(out, func(a, b *status.JobStatus) int {
			return cmp.Or(cmp.Compare(trouble(a), trouble(b)), number(a.Reason != "")*cmp.Compare(b.Priority, a.Priority))
		})
	}
	return out
}

// trouble says how bad it is that a job is not as desired, the worst least.
func trouble(j *status.JobStatus) int {
	switch {
	case j.Reason == "":
		return 4
	case j.Failed > 0 || j.Rollout.Failed():
		return 0
	case j.Unknown > 0:
		return 1
	case j.Pending > 0:
		return 2
	}
	return 3
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
