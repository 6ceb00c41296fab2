package screen

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// cause is one thing that keeps a cell from what its commit says, with all that it
// concerns; or one that a person should know of, though it keeps nothing back.
type cause struct {
	label    string // one or two words
	colour   string
	text     string
	names    []string // jobs or directories
	lines    []string // further facts, each on a line of its own
	ds       []schema.Diagnostic
	next     string
	hint     string
	harmless bool // it keeps nothing back
	listed   bool // names are shown on a line of their own, be it only one
}

// causes returns what of s is not as desired, each cause once: what is wrong with
// the repository, what of the newest commit is not in force, and then what jobs
// wait for.
func causes(s *status.Status) []cause {
	var out []cause
	if s.Source != "" {
		c := cause{label: "repository", colour: Red, text: strings.TrimPrefix(s.Source, "repository "), hint: s.SourceHint}
		if !s.SourceAt.IsZero() {
			c.lines = []string{fmt.Sprintf("the repository was last read %s", ago(s.At.Sub(s.SourceAt)))}
		}
		out = append(out, c)
	}
	if u := s.Unread; u != nil {
		out = append(out, cause{label: "unread", colour: Red, text: "the commit could not be read: " + u.Reason, ds: u.Diagnostics, next: u.Next})
	}
	for i := range s.Stale {
		st := &s.Stale[i]
		out = append(out, cause{label: "stale", colour: Red, text: st.Dir + " keeps its last good version: " + st.Reason, ds: st.Diagnostics, next: st.Next})
	}
	for i := range s.Pending {
		p := &s.Pending[i]
		out = append(out, cause{label: "pending", colour: Yellow, text: p.Dir + " keeps its last good version: " + p.Reason})
	}
	out = append(out, rejections(s.Rejected)...)
	for i := range s.Held {
		h := &s.Held[i]
		out = append(out, cause{label: "held", colour: Yellow, text: h.Reason, names: h.Jobs, next: h.Next})
	}
	out = append(out, suspensions(s.Suspended)...)
	for i := range s.Losses {
		h := &s.Losses[i]
		out = append(out, cause{label: "lost machines", colour: Red, text: fmt.Sprintf("%s, since %s: the tasks on them are not rescheduled", h.Reason, h.Since.Format(time.RFC3339)), next: h.Next})
	}
	out = append(out, jobCauses(s)...)
	for i := range s.Waits {
		out = append(out, cause{label: "waiting", colour: Yellow, text: s.Waits[i].Message})
	}
	return out
}

func suspensions(list []status.SuspensionStatus) []cause {
	var out []cause
	for i := range list {
		x := &list[i]
		c := cause{label: "suspended", colour: Yellow, text: "job " + x.Name, lines: []string{x.Suspension.String()}, next: x.Next, harmless: x.Waits == ""}
		if x.All() {
			c.text = "the whole cell: no commit is applied"
		}
		if x.Waits != "" {
			c.lines = append(c.lines, x.Waits+" for that to end")
		}
		out = append(out, c)
	}
	return out
}

// refusal is what rejections have in common that are shown as one.
type refusal struct {
	cause    quota.RejectionCause
	user     string
	band     schema.Band
	want     string
	machines bool
	until    time.Time
}

// rejections joins those that have one cause in one quota.
func rejections(list []status.Rejection) []cause {
	var out []cause
	at := map[refusal]int{}
	for i := range list {
		r := &list[i]
		key := refusal{r.Cause, r.User, r.Band, r.Diagnostic.Expected, r.Machines, r.Until}
		if n, ok := at[key]; ok && r.Cause != quota.RejectedRefused {
			out[n].names = append(out[n].names, r.Job)
			continue
		}
		at[key] = len(out)
		out = append(out, cause{label: "rejected", colour: Red, names: []string{r.Job}, ds: []schema.Diagnostic{r.Diagnostic}, next: r.Next})
	}
	for i := range out {
		c := &out[i]
		c.text = fmt.Sprintf("%s keeps its last admitted version", c.names[0])
		if n := len(c.names); n > 1 {
			c.text = fmt.Sprintf("%d jobs keep their last admitted version, for one reason", n)
			continue
		}
		c.names = nil
	}
	return out
}

// jobCauses groups the jobs that are not as desired by what their tasks wait for.
func jobCauses(s *status.Status) []cause {
	rejected := map[string]bool{}
	for i := range s.Rejected {
		rejected[s.Rejected[i].Job] = true
	}
	var out []cause
	at := map[string]int{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		key, name := shared(j, rejected[j.Name])
		if key == "" {
			continue
		}
		n, ok := at[key]
		if !ok {
			n = len(out)
			at[key] = n
			out = append(out, cause{label: "waiting", colour: Yellow, text: key, listed: name != j.Name})
		}
		if j.Failed > 0 || j.Rollout.Failed() {
			out[n].colour = Red
		}
		out[n].names = append(out[n].names, name)
	}
	for i := range out {
		if c := &out[i]; len(c.names) == 1 && !c.listed {
			c.text, c.names = c.names[0]+": "+c.text, nil
		}
	}
	return out
}

// shared returns why j is not as desired, as far as other jobs may say the same, and its
// name with how many of its tasks are not; "" if it is as desired, or if its rejection is
// all there is to show.
func shared(j *status.JobStatus, rejected bool) (why, name string) {
	goesOn := j.Rollout == nil || j.Rollout.State == status.RolloutGoing
	if how := missingOf(j); j.Cause != "" && how != "" && goesOn && len(j.Restarting) == 0 {
		return j.Cause, fmt.Sprintf("%s (%s)", j.Name, how)
	}
	switch {
	case !rejected:
		return j.Reason, j.Name
	case j.Rollout != nil:
		return j.Rollout.Message, j.Name
	}
	return j.Cause, j.Name
}

// missingOf says how many tasks of a job are not as desired, "" if none is.
func missingOf(j *status.JobStatus) string {
	switch missing := j.Desired - j.Running - j.Done - j.Unknown; {
	case j.Desired == 0:
		return ""
	case missing > 0:
		return schema.Part(missing, j.Desired, "task", "does not run", "do not run")
	case j.Unknown > 0:
		return schema.Part(j.Unknown, j.Desired, "task", "is unknown", "are unknown")
	case j.Updating > 0 && j.Suspended == "":
		return schema.Part(j.Updating, j.Desired, "task", "runs the previous version", "run the previous version")
	}
	return ""
}

// exact are amounts that stand beside a rounded one.
var exact = lazyregexp.New(`\b[0-9,]+ \(([0-9.]+ [KMGTPE]iB)\)`)

// lines bounds a text that is not shown in full.
const lines = 4

// write writes a cause. On a terminal of limited height a long text is cut, and few names
// and diagnostics are shown.
func (c *cause) write(b *strings.Builder, v *View) {
	most := 0
	if !v.All {
		most = named
	}
	b.WriteByte('\n')
	v.para(b, c.label+": ", c.colour, c.text)
	for _, line := range c.lines {
		v.para(b, "  ", "", line)
	}
	if len(c.names) > 0 {
		v.para(b, "  jobs: ", "", Names(c.names, most))
	}
	for i, d := range c.ds {
		if most > 0 && i == most {
			v.para(b, "  ", "", fmt.Sprintf("and %d more; `muster status --all` shows all", len(c.ds)-i))
			break
		}
		v.diagnostic(b, "  ", &d)
	}
	if c.hint != "" {
		v.para(b, "  hint: ", Green, c.hint)
	}
	if c.next != "" {
		v.para(b, "  next: ", "", c.next)
	}
}

// diagnostic writes where something is wrong, what, and the way out.
func (v *View) diagnostic(b *strings.Builder, indent string, d *schema.Diagnostic) {
	colour := Red
	if d.Severity == schema.Warning {
		colour = Yellow
	}
	where := d.Position.String()
	if where != "" {
		where += ": "
	}
	field := d.Field
	if field != "" {
		field += ": "
	}
	v.para(b, indent+where+string(d.Severity)+": ", colour, field+v.bounded(d.Message))
	if d.Expected != "" {
		v.para(b, indent+"  want: ", "", d.Expected)
	}
	if d.Hint != "" {
		v.para(b, indent+"  hint: ", Green, d.Hint)
	}
}

// bounded returns the part of a text that is shown on a terminal of limited height.
func (v *View) bounded(s string) string {
	if v.All {
		return s
	}
	return Elide(exact.ReplaceAllString(s, "$1"), lines*v.Width)
}

// para writes a paragraph after a label; the lines that follow stand in by two
// more than the label does.
func (v *View) para(b *strings.Builder, label, colour, text string) {
	label = Printable(label)
	in := len(label) - len(strings.TrimLeft(label, " "))
	out := Wrap(label, strings.Repeat(" ", in+2), v.bounded(text), v.Width)
	if word := strings.TrimSpace(label); colour != "" && strings.HasPrefix(out, label) {
		out = strings.Repeat(" ", in) + string(v.Painter.Paint(colour, word)) + out[in+len(word):]
	}
	b.WriteString(out)
}
