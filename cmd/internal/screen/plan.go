package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// Section is a part of a plan: a headline, and lines below it.
type Section struct{ Title, Text string }

// PlanHead says in one line what a plan comes to.
func PlanHead(o *plan.Outcome) string {
	took := "in " + spell(o.Seconds) + " at the least"
	var end string
	switch o.Ending {
	case plan.Settled:
		end = "all is as desired " + took
		if len(o.Tasks) == 0 {
			end = "no task is touched"
		}
	case plan.Blocked:
		end = "then it is blocked: a person has to act, " + took
		if o.Next != nil {
			end += "; next at " + nextOf(o)
		}
	case plan.Waiting:
		end = "then nothing happens any more, and not all is as desired, " + took
		if o.Next != nil {
			end = "then nothing happens before " + nextOf(o) + ", and not all is as desired, " + took
		}
	case plan.Endless:
		end = "it goes on for longer than it was followed, " + spell(o.Seconds)
	case plan.Reached:
		end = "stopped at a breakpoint after " + spell(o.Seconds)
	}
	if n := countFates(o); n != "" {
		return "tasks: " + n + "; " + end
	}
	return end
}

// nextOf says what comes by itself after the end.
func nextOf(o *plan.Outcome) string {
	return o.Next.At.UTC().Format(time.RFC3339) + " (" + o.Next.What + ")"
}

// spell writes a time in seconds for people.
func spell(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond).String()
}

// countFates counts tasks by what becomes of them, "" if nothing does of any.
func countFates(o *plan.Outcome) string {
	var parts []string
	for _, f := range []plan.Fate{plan.Starts, plan.Restarts, plan.Moves, plan.InPlace, plan.Stops, plan.Evicted, plan.Tries} {
		n := 0
		for i := range o.Tasks {
			if o.Tasks[i].Fate == f {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, strconv.Itoa(n)+" "+wordOf(f))
		}
	}
	return strings.Join(parts, ", ")
}

func wordOf(f plan.Fate) string {
	switch f {
	case plan.InPlace:
		return "changed in place"
	case plan.Evicted:
		return "left without a machine"
	case plan.Tries:
		return "started and failed"
	default:
		return strings.TrimSuffix(string(f), "s")
	}
}

// Plan returns the sections of a plan that have anything, in lines of at most width cells, 0
// for no bound; of each list at most the given number of lines, 0 for all.
func Plan(o *plan.Outcome, width, most int) []Section {
	p := planned{width, most}
	all := []Section{
		{"blocked: " + schema.Count(len(o.Blocked), "thing") + " that a person has to act on", p.blocked(o)},
		{"preempted: " + schema.Count(len(o.Preempted), "task"), p.preempted(o)},
		{"pending: " + schema.Count(len(o.Pending), "task"), p.pending(o)},
		{"warnings", p.list(o.Warnings)},
		{"jobs", p.rollouts(o)},
		{"rollouts, step by step", p.steps(o)},
		{"tasks", p.tasks(o)},
		{"quota", p.quota(o)},
		{"machines", p.machines(o)},
	}
	return slices.DeleteFunc(all, func(s Section) bool { return s.Text == "" })
}

// planned writes lists.
type planned struct{ width, most int }

// list writes texts, each in a paragraph of its own.
func (p planned) list(texts []string) string {
	var b strings.Builder
	for i, t := range texts {
		if p.most > 0 && i == p.most && len(texts) > i+1 {
			Printf(&b, "  … and %d more: --all shows them\n", len(texts)-i)
			break
		}
		b.WriteString(Wrap("  ", "    ", t, p.width))
	}
	return b.String()
}

// table writes rows in columns.
func (p planned) table(heads []string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	t := Table{}
	for i, h := range heads {
		c := Column{Head: h, Always: i == 0}
		if i == len(heads)-1 {
			c.Least = 8
		}
		t.Columns = append(t.Columns, c)
	}
	more := 0
	if p.most > 0 && len(rows) > p.most+1 {
		rows, more = rows[:p.most], len(rows)-p.most
	}
	for _, r := range rows {
		cells := make([]Cell, 0, len(r))
		for _, text := range r {
			cells = append(cells, Cell{Text: text})
		}
		t.Rows = append(t.Rows, cells)
	}
	var b strings.Builder
	for line := range strings.Lines(t.Text(max(0, p.width-2), Painter(false))) {
		b.WriteString("  " + strings.TrimRight(line, " \n") + "\n")
	}
	if more > 0 {
		Printf(&b, "  … and %d more: --all shows them\n", more)
	}
	return b.String()
}

func (p planned) blocked(o *plan.Outcome) string {
	texts := make([]string, 0, len(o.Blocked))
	for i := range o.Blocked {
		texts = append(texts, o.Blocked[i].Message+". Next: "+o.Blocked[i].Next)
	}
	return p.list(texts)
}

func (p planned) preempted(o *plan.Outcome) string {
	texts := make([]string, 0, len(o.Preempted))
	for _, x := range o.Preempted {
		texts = append(texts, fmt.Sprintf("%s (priority %d) for %s: %s", x.Task, x.Priority, x.By, x.Becomes))
	}
	return p.list(texts)
}

// pending writes the tasks without a machine, those with the same reason together.
func (p planned) pending(o *plan.Outcome) string {
	var order []string
	tasks := map[string][]string{}
	for _, x := range o.Pending {
		why := x.Reason
		if x.Before {
			why += " (as before)"
		}
		if tasks[why] == nil {
			order = append(order, why)
		}
		tasks[why] = append(tasks[why], x.Task)
	}
	texts := make([]string, 0, len(order))
	for _, why := range order {
		names := named
		if p.most == 0 {
			names = 0
		}
		texts = append(texts, Names(tasks[why], names)+": "+why)
	}
	// Many names are no line for anybody, and of a comment it would be cut.
	return planned{cmp.Or(p.width, 120), p.most}.list(texts)
}

func (p planned) rollouts(o *plan.Outcome) string {
	rows := make([][]string, 0, len(o.Rollouts))
	for i := range o.Rollouts {
		r := &o.Rollouts[i]
		down := strconv.Itoa(r.MostDown)
		if r.MayBeDown > 0 {
			down = fmt.Sprintf("%d of %d", r.MostDown, r.MayBeDown)
		}
		if r.PerHour > 0 {
			down += fmt.Sprintf(", %d an hour", r.PerHour)
		}
		rows = append(rows, []string{r.Job, strconv.Itoa(r.Stops), strconv.Itoa(r.Starts), spell(r.Seconds), down, r.State})
	}
	return p.table([]string{"JOB", "STOPS", "STARTS", "TAKES", "DOWN AT ONCE", "ROLLOUT"}, rows)
}

// fewSteps is how many steps are shown of a rollout at the least, where not all of several are.
const fewSteps = 3

// steps writes the rollouts with a line for each step; of a long one the first, and those in which
// the master says something of it.
func (p planned) steps(o *plan.Outcome) string {
	rollouts := slices.DeleteFunc(slices.Clone(o.Rollouts), func(r plan.Rollout) bool { return len(r.Steps) == 0 })
	most, more := 0, 0
	if p.most > 0 && len(rollouts) > 0 {
		if few := max(1, p.most/fewSteps); len(rollouts) > few+1 {
			rollouts, more = rollouts[:few], len(rollouts)-few
		}
		most = max(fewSteps, p.most/len(rollouts))
	}
	var rows [][]string
	for i := range rollouts {
		rows = append(rows, stepRows(&rollouts[i], most)...)
	}
	text := planned{p.width, 0}.table([]string{"JOB", "AFTER", "TASKS"}, rows)
	if more > 0 {
		text += fmt.Sprintf("  … and %s: --all shows them\n", schema.Count(more, "more rollout"))
	}
	return text
}

// stepRows returns the rows of a rollout: the first steps, so many at most if that is not 0, and those
// in which the master says something.
func stepRows(r *plan.Rollout, most int) (rows [][]string) {
	job, left := r.Job, 0
	add := func(after, what string) {
		rows = append(rows, []string{job, after, what})
		job = ""
	}
	skipped := func(next int) {
		if left == 1 { // it takes no more room than to say so
			s := &r.Steps[next-1]
			add(spell(s.Seconds), stepOf(s))
		} else if left > 0 {
			add("", fmt.Sprintf("… and %s: --all shows them", schema.Count(left, "more step")))
		}
		left = 0
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		if most > 0 && i >= most && len(r.Steps) > most+1 && s.Says == "" {
			left++
			continue
		}
		skipped(i)
		add(spell(s.Seconds), stepOf(s))
	}
	skipped(len(r.Steps))
	return rows
}

// stepOf says in words what is done to tasks, and what the master says of it.
func stepOf(s *plan.RolloutStep) string {
	var parts []string
	add := func(word string, tasks []int) {
		if len(tasks) > 0 {
			parts = append(parts, word+" "+ranges(tasks))
		}
	}
	add("stop", s.Stops)
	add("end", s.Ends)
	add("change in place", s.Changes)
	add("start", s.Starts)
	if s.Says != "" {
		parts = append(parts, s.Says)
	}
	return strings.Join(parts, "; ")
}

// ranges writes numbers in order, those that follow each other as the first and the last.
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		switch part := strconv.Itoa(numbers[i]); {
		case end-i > 2:
			parts = append(parts, part+"-"+strconv.Itoa(numbers[end-1]))
			i = end
		default:
			parts = append(parts, part)
			i++
		}
	}
	return strings.Join(parts, ", ")
}

func (p planned) tasks(o *plan.Outcome) string {
	rows := make([][]string, 0, len(o.Tasks))
	for i := range o.Tasks {
		t := &o.Tasks[i]
		where := t.To
		switch {
		case t.From != "" && t.To != "" && t.From != t.To:
			where = t.From + " → " + t.To
		case t.To == "":
			where = t.From
		}
		causes := make([]string, 0, len(t.Causes))
		for _, c := range t.Causes {
			causes = append(causes, string(c))
		}
		rows = append(rows, []string{t.Name, string(t.Fate), where, strings.Join(causes, ", ")})
	}
	return p.table([]string{"TASK", "WHAT", "MACHINE", "WHY"}, rows)
}

func (p planned) quota(o *plan.Outcome) string {
	rows := make([][]string, 0, len(o.Quota))
	change := func(was, is, limit string, has bool) string {
		s := was + " → " + is
		if was == is {
			s = is
		}
		if has {
			s += " of " + limit
		}
		return s
	}
	for i := range o.Quota {
		q := &o.Quota[i]
		var limit quota.Amounts
		if q.Limit != nil {
			limit = *q.Limit
		}
		rows = append(rows, []string{
			q.User, string(q.Band),
			change(schema.CPU(q.Before.CPUMilli), schema.CPU(q.After.CPUMilli), schema.CPU(limit.CPUMilli), q.Limit != nil),
			change(schema.Bytes(q.Before.RAMBytes), schema.Bytes(q.After.RAMBytes), schema.Bytes(limit.RAMBytes), q.Limit != nil),
			change(strconv.FormatInt(q.Before.Tasks, 10), strconv.FormatInt(q.After.Tasks, 10), strconv.FormatInt(limit.Tasks, 10), q.Limit != nil),
		})
	}
	return p.table([]string{"OWNER", "BAND", "CPU", "RAM", "TASKS"}, rows)
}

func (p planned) machines(o *plan.Outcome) string {
	if o.Machines.Before == o.Machines.After {
		return ""
	}
	row := func(what string, m *plan.Machines) []string {
		return []string{
			what, strconv.Itoa(m.Up),
			schema.CPU(m.Used.CPUMilli) + " of " + schema.CPU(m.Capacity.CPUMilli), schema.Bytes(m.Used.RAMBytes) + " of " + schema.Bytes(m.Capacity.RAMBytes),
			schema.CPU(m.Stranded.CPUMilli) + " CPU, " + schema.Bytes(m.Stranded.RAMBytes),
		}
	}
	return p.table([]string{"", "UP", "CPU", "RAM", "STRANDED"}, [][]string{row("before", &o.Machines.Before), row("after", &o.Machines.After)})
}

// maxComment is how long a comment may be that all forges take, in bytes: GitHub takes 65,536
// characters.
const maxComment = 60_000

// Comment returns a plan as Markdown for a comment of a forge: a few lines first, and the
// sections folded. What is in it is shown as it is: nothing of it is markup, or names anybody.
// What does not fit is cut, of each section its end, and that is said.
func Comment(head string, sections []Section) string {
	var b strings.Builder
	head, _ = fit(head+"\n", maxComment/4)
	b.WriteString("**Plan of the cell**\n\n" + fenced(head))
	cut := 0
	for i, s := range sections {
		begin, end := fmt.Sprintf("\n<details><summary>%s</summary>\n\n", inHTML(s.Title)), "\n</details>\n"
		room := (maxComment-b.Len())/(len(sections)-i) - len(begin) - len(end)
		text, whole := fit(s.Text, room)
		if !whole {
			cut++
		}
		b.WriteString(begin + fenced(text) + end)
	}
	if cut > 0 {
		Printf(&b, "\n%s cut for length: `muster plan --all` prints all.\n", schema.Part(cut, len(sections), "section", "is", "are"))
	}
	return b.String()
}

// maxCommentLine is how long a line of a comment may be, in bytes: a value may have a megabyte.
const maxCommentLine = 500

// fit returns the lines of text of which a block of at most room bytes can be made, long ones cut;
// it returns whether these are all, as they were.
func fit(text string, room int) (out string, whole bool) {
	var b strings.Builder
	whole = true
	room -= 2*fenceFor(text) + len("text\n\n") + len("… and 1000000 more lines\n")
	lines := slices.Collect(strings.Lines(PrintableLines(text)))
	for i, line := range lines {
		if len(line) > maxCommentLine {
			line, whole = strings.ToValidUTF8(line[:maxCommentLine], "")+"…\n", false
		}
		if b.Len()+len(line) > room {
			Printf(&b, "… and %s\n", schema.Count(len(lines)-i, "more line"))
			return b.String(), false
		}
		b.WriteString(line)
	}
	return b.String(), whole
}

// inHTML returns text as it is shown between tags.
func inHTML(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "&#64;", "`", "&#96;", "*", "&#42;", "_", "&#95;", "[", "&#91;").Replace(Printable(s))
}

// fenced returns text in a block of code that nothing in it ends.
func fenced(text string) string {
	fence := strings.Repeat("`", fenceFor(text))
	return fence + "text\n" + PrintableLines(text) + fence + "\n"
}

// fenceFor returns how many signs the fence of a block of text has.
func fenceFor(text string) int {
	run, longest := 0, 2
	for _, r := range text {
		if r == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	return longest + 1
}
