package screen

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
)

// cause is one thing that keeps a cell from what its commit says, with all that it
// concerns; or one that a person should know of, though it keeps nothing back.
type cause struct {
	label  string // one or two words
	colour string
	text   string
	names  []string // jobs or directories
	lines  []string // further facts, each on a line of its own
	ds     []schema.Diagnostic
	next   string
	hint   string
	calm   bool // it keeps nothing back
}

// causes returns what of s is not as desired, each cause once: what is wrong with
// the repository, what of the newest commit is not in force, and then what jobs
// wait for.
func causes(s *reconciler.Status) []cause {
	var out []cause
	if s.Source != "" {
		what, hint, _ := strings.Cut(s.Source, "\nhint: ")
		c := cause{label: "repository", colour: Red, text: strings.TrimPrefix(what, "repository "), hint: hint}
		if !s.SourceAt.IsZero() {
			c.lines = []string{fmt.Sprintf("the repository was last read %s", ago(s.At.Sub(s.SourceAt)))}
		}
		out = append(out, c)
	}
	if u := s.Unread; u != nil {
		out = append(out, cause{label: "unread", colour: Red, text: "nothing of the commit could be read: " + u.Reason, ds: u.Diagnostics, next: u.Next})
	}
	for i := range s.Stale {
		st := &s.Stale[i]
		out = append(out, cause{label: "stale", colour: Red, text: st.Dir + " keeps its last good version: " + st.Reason, ds: st.Diagnostics, next: st.Next})
	}
	out = append(out, rejections(s.Rejected)...)
	for i := range s.Held {
		h := &s.Held[i]
		out = append(out, cause{label: "held", colour: Yellow, text: h.Reason, names: h.Jobs, next: h.Next})
	}
	out = append(out, suspensions(s.Suspended)...)
	for i := range s.Losses {
		h := &s.Losses[i]
		out = append(out, cause{label: "lost machines", colour: Red, text: fmt.Sprintf("%s, since %s: the tasks on them are given to nobody", h.Reason, h.Since.Format(time.RFC3339)), next: h.Next})
	}
	waits := waitsOf(s)
	return append(append(out, jobCauses(s, waits)...), others(s, waits)...)
}

func suspensions(list []reconciler.SuspensionStatus) []cause {
	var out []cause
	for i := range list {
		x := &list[i]
		c := cause{label: "suspended", colour: Yellow, text: "job " + x.Name, lines: []string{x.Suspension.String()}, next: x.Next, calm: x.Waits == ""}
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

// rejections joins those of one owner that say the same but for what the job asks.
func rejections(list []reconciler.Rejection) []cause {
	var out []cause
	at := map[string]int{}
	for i := range list {
		r := &list[i]
		same, _, _ := strings.Cut(r.Diagnostic.Message, "; the job asks for")
		if n, ok := at[same]; ok {
			out[n].names = append(out[n].names, r.Job)
			continue
		}
		at[same] = len(out)
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
func jobCauses(s *reconciler.Status, waits map[string]string) []cause {
	var out []cause
	at := map[string]int{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		what := waits[j.Name]
		if what == "" {
			continue
		}
		key, told := what, j.Name
		if before, ok := strings.CutSuffix(what, ": "+j.Cause); ok && j.Cause != "" {
			how, _, _ := strings.Cut(before, ": ")
			key, told = j.Cause, fmt.Sprintf("%s (%s)", j.Name, how)
		}
		n, ok := at[key]
		if !ok {
			n = len(out)
			at[key] = n
			out = append(out, cause{label: "waiting", colour: Yellow, text: key})
		}
		if j.Failed > 0 || j.Rollout.Failed() {
			out[n].colour = Red
		}
		out[n].names = append(out[n].names, told)
	}
	for i := range out {
		if c := &out[i]; len(c.names) == 1 && !strings.HasSuffix(c.names[0], ")") {
			c.text, c.names = c.names[0]+": "+c.text, nil
		}
	}
	return out
}

// waitsOf returns what of Waiting is told of jobs, by job.
func waitsOf(s *reconciler.Status) map[string]string {
	out := map[string]string{}
	for _, w := range s.Waiting {
		if rest, ok := strings.CutPrefix(w, "job "); ok {
			if job, what, ok := strings.Cut(rest, ": "); ok && !strings.Contains(job, " ") {
				out[job] = what
			}
		}
	}
	return out
}

// others returns what of Waiting no other cause tells.
func others(s *reconciler.Status, waits map[string]string) []cause {
	prefixes := []string{"the repository: ", "nothing of the commit could be read: "}
	for i := range s.Stale {
		prefixes = append(prefixes, s.Stale[i].Dir+" is stale: ")
	}
	for i := range s.Rejected {
		prefixes = append(prefixes, "job "+s.Rejected[i].Job+" is rejected: ")
	}
	if len(s.Held) > 0 {
		prefixes = append(prefixes, "held: ")
	}
	for i := range s.Suspended {
		prefixes = append(prefixes, "job "+s.Suspended[i].Name+" is suspended", "the cell is suspended")
	}
	for i := range s.Losses {
		prefixes = append(prefixes, s.Losses[i].Reason+": ")
	}
	var out []cause
	for _, w := range s.Waiting {
		if job, _, ok := strings.Cut(strings.TrimPrefix(w, "job "), ": "); ok && waits[job] != "" {
			continue
		}
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(w, p) }) {
			continue
		}
		out = append(out, cause{label: "waiting", colour: Yellow, text: w})
	}
	return out
}

// exact are amounts that stand beside a rounded one.
var exact = regexp.MustCompile(`\b[0-9,]+ \(([0-9.]+ [KMGTPE]iB)\)`)

// lines is what bounds a text where it is not told in full.
const lines = 4

// write tells a cause. On a screen with an end a long text is cut, and few names
// and diagnostics are told.
func (c *cause) write(b *strings.Builder, v *View) {
	most := 0
	if v.Width > 0 {
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
			v.para(b, "  ", "", fmt.Sprintf("and %d more; `muster status --wide` tells all", len(c.ds)-i))
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
	v.para(b, indent+where+string(d.Severity)+": ", colour, field+v.short(d.Message))
	if d.Expected != "" {
		v.para(b, indent+"  want: ", "", d.Expected)
	}
	if d.Hint != "" {
		v.para(b, indent+"  hint: ", Green, d.Hint)
	}
}

// short returns a text as far as it is told on a screen with an end.
func (v *View) short(s string) string {
	if v.Width == 0 {
		return s
	}
	return Elide(exact.ReplaceAllString(s, "$1"), lines*v.Width)
}

// para writes a paragraph after a label; the lines that follow stand in by two
// more than the label does.
func (v *View) para(b *strings.Builder, label, colour, text string) {
	in := len(label) - len(strings.TrimLeft(label, " "))
	out := Wrap(label, strings.Repeat(" ", in+2), v.short(text), v.Width)
	if word := strings.TrimSpace(label); colour != "" && strings.HasPrefix(out, label) {
		out = strings.Repeat(" ", in) + v.Painter.Paint(colour, word) + out[in+len(word):]
	}
	b.WriteString(out)
}
