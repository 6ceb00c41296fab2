package screen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// View is what of a status is wanted, and for which screen.
type View struct {
	Width    int  // in cells; 0: lines of any length
	All      bool // show everything: all names, machines, jobs and diagnostics
	Painter  Painter
	Name     string // the job, task or machine that was asked for; "" for the cell
	Tasks    bool   // list tasks
	Machines bool   // list all machines
	// Lines is how many lines the cell has at most, without the tasks that are listed; 0:
	// any number. What has no room is counted.
	Lines int
	// States are those of the tasks that are listed; empty: all but those that
	// are done.
	States []status.TaskState
}

// machine reports whether a machine was asked for.
func (v *View) machine() bool { return v.Name != "" && !strings.Contains(v.Name, "/") }

// Status returns a status: the verdict, what is not as desired, and the machines
// and jobs.
func Status(s *status.Status, v View) string {
	text := v.cell(s)
	if v.Lines > 0 && strings.Count(text, "\n") > v.Lines {
		text = v.short(s)
	}
	b := strings.Builder{}
	b.WriteString(text)
	if v.Tasks {
		b.WriteByte('\n')
		v.tasks(&b, s)
	}
	if v.Name != "" {
		v.details(&b, s)
	}
	return b.String()
}

// head writes whether all is as the commit says, and what is to be known of the cell.
func (v *View) head(b *strings.Builder, s *status.Status, all []cause) {
	b.WriteString(v.verdict(s, all) + "\n")
	if a := s.Master; a != nil {
		what, _, _ := strings.Cut(a.Message, "\n")
		v.para(b, "master: ", Red, fmt.Sprintf("%s (since %s); tasks run on, and what follows is the last known state", what, a.Since.Format("15:04:05")))
	}
	if r := s.Replica; r != nil {
		age := time.Duration(r.AgeSeconds * float64(time.Second)).Round(100 * time.Millisecond)
		v.para(b, "master: ", "", fmt.Sprintf("this one is on standby; %s leads, and the state is %v old", r.Leader, age))
	}
	for _, n := range s.Notes {
		v.para(b, "  note: ", "", n)
	}
}

// cell returns the status of a cell, or of a part of it, without its tasks.
func (v *View) cell(s *status.Status) string {
	var b strings.Builder
	all := causes(s)
	v.head(&b, s, all)
	for i := range all {
		all[i].write(&b, v)
	}
	for i := range s.Warnings {
		if i == 0 {
			b.WriteByte('\n')
		}
		v.diagnostic(&b, "", &s.Warnings[i].Diagnostic)
	}
	b.WriteByte('\n')
	v.machines(&b, s)
	if len(s.Jobs) > 0 {
		b.WriteByte('\n')
		t := v.jobs(s, worstFirst(s.Jobs, v.All))
		b.WriteString(t.Text(v.Width, v.Painter))
		if left := s.Counted().Jobs.Total - len(s.Jobs); left > 0 {
			Printf(&b, "%d more, which are as desired; --all lists them\n", left)
		}
	}
	return b.String()
}

// verdict is the first line: whether all is as the commit says, and which one.
func (v *View) verdict(s *status.Status, all []cause) string {
	subject := "cell " + s.Cell + ": "
	if strings.Contains(v.Name, "/") {
		subject += v.Name + ": "
	}
	by := ""
	if !s.By.At.IsZero() {
		by = fmt.Sprintf("%s, %s: %s", ago(s.At.Sub(s.By.At)), s.By.Author, s.By.Subject)
	}
	word, colour, rest := "converged", Green, " at "+commitName(s.Applied)
	if by != "" {
		rest += " (" + by + ")"
	}
	if !s.Converged {
		n := len(slices.DeleteFunc(slices.Clone(all), func(c cause) bool { return c.harmless }))
		word, colour, rest = "NOT converged", Red, ""
		if n > 0 {
			rest = ": " + schema.Count(n, "cause")
		}
		if s.Commit != s.Applied {
			rest += "; head " + commitName(s.Commit)
		}
		rest += "; applied " + commitName(s.Applied)
		if by != "" {
			rest += " (" + by + ")"
		}
	}
	line := Printable(subject + word + rest)
	if v.Width > 0 && Cells(line) > v.Width {
		line = Elide(line, v.Width)
		if strings.HasSuffix(rest, ")") && v.Width > 2 {
			line = Elide(line, v.Width-1) + ")"
		}
	}
	return strings.Replace(line, word, string(v.Painter.Paint(colour, word)), 1)
}

// commitName returns a commit as people name it, or "none".
func commitName(commit string) string {
	if commit == "" {
		return "none"
	}
	return model.ShortCommit(commit)
}

// machines writes how many machines there are of each kind, of a job those that its tasks
// are on, and lists those that are not plainly up, or all.
func (v *View) machines(b *strings.Builder, s *status.Status) {
	switch {
	case v.machine():
	case v.Name == "":
		b.WriteString(machineCount(s) + "\n")
	case len(s.Machines) > 0:
		b.WriteString("on " + machineCount(s) + "\n")
	}
	listed := func(m *status.MachineStatus) bool { return v.Machines || v.machine() || v.All || !m.Plain() }
	if t := v.machineTable(s, listed); len(t.Rows) > 0 {
		b.WriteString(t.Text(v.Width, v.Painter))
	}
}

// machineCount says how many machines there are of each kind.
func machineCount(s *status.Status) string {
	n := s.Counted().Machines
	var parts []string
	for _, x := range []struct {
		n int
		h model.Health
	}{{n.Up, model.HealthUp}, {n.Silent, model.HealthSilent}, {n.Lost, model.HealthLost}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.h))
		}
	}
	line := schema.Count(n.Total, "machine")
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	return line
}

// machineTable returns the machines that are listed.
func (v *View) machineTable(s *status.Status, listed func(*status.MachineStatus) bool) *Table {
	t := &Table{Columns: []Column{
		{Head: "MACHINE", Least: 12, Always: true},
		{Head: "HEALTH", Least: 12, Always: true},
		{Head: "TASKS", Always: true, Rank: 1},
		{Head: "CPU", Always: true, Rank: 2},
		{Head: "RAM", Always: true, Rank: 3},
		{Head: "DISK", Always: true, Rank: 4},
		{Head: "NOTES", Least: 12},
	}}
	for i := range s.Machines {
		m := &s.Machines[i]
		if listed(m) {
			t.Rows = append(t.Rows, machineRow(m))
		}
	}
	return t
}

func machineRow(m *status.MachineStatus) []Cell {
	health, colour := m.Health, ""
	if m.Health != string(model.HealthUp) {
		colour = Yellow
	}
	if m.Health == string(model.HealthLost) {
		colour = Red
	}
	switch {
	case m.Draining != nil && m.Draining.Left == 0:
		health += ", drained"
	case m.Draining != nil:
		health += ", draining"
	case m.Cordoned:
		health += ", cordoned"
	case m.Empty:
		health += ", empty"
	}
	for _, c := range m.Conditions {
		health += ", " + string(c.Kind)
	}
	return []Cell{
		{Text: m.Name},
		{health, colour},
		{Text: strconv.Itoa(m.Tasks)},
		{Text: schema.CPU(m.Used.CPUMilli) + " of " + schema.CPU(m.Capacity.CPUMilli)},
		{Text: schema.Bytes(m.Used.RAMBytes) + " of " + schema.Bytes(m.Capacity.RAMBytes)},
		{Text: schema.Bytes(m.Used.DiskBytes) + " of " + schema.Bytes(m.Capacity.DiskBytes)},
		{Text: strings.Join(m.Notes, "; ")},
	}
}

// jobs returns the table of some jobs of s.
func (v *View) jobs(s *status.Status, jobs []*status.JobStatus) *Table {
	t := &Table{Columns: []Column{
		{Head: "JOB", Least: 12, Always: true},
		{Head: "KIND", Always: true, Rank: 6},
		{Head: "BAND", Always: true, Rank: 7},
		{Head: "TASKS", Always: true, Rank: 1},
		{Head: "RUNNING", Always: true},
		{Head: "PENDING", Rank: 2},
		{Head: "FAILED"},
		{Head: "UNKNOWN"},
		{Head: "DONE", Rank: 3},
		{Head: "AGE", Always: true, Rank: 5},
		{Head: "COMMIT", Always: true, Rank: 4},
		{Head: "REASON", Least: 16, Rank: 8},
	}}
	for _, j := range jobs {
		reason := j.Reason
		if j.Crashes != "" {
			reason = strings.TrimPrefix(reason+"; it "+j.Crashes, "; ")
		}
		if j.Suspended != "" {
			reason = strings.TrimSuffix("suspended; "+reason, "; ")
		}
		age := ""
		if !j.Since.IsZero() {
			age = Age(s.At.Sub(j.Since))
		}
		number := func(n int, colour string) Cell {
			if n == 0 {
				colour = ""
			}
			return Cell{strconv.Itoa(n), colour}
		}
		t.Rows = append(t.Rows, []Cell{
			{Text: j.Name},
			{Text: string(j.Kind)},
			{Text: string(j.Band)},
			number(j.Desired, ""), number(j.Running, ""),
			number(j.Pending, Yellow), number(j.Failed, Red), number(j.Unknown, Yellow), number(j.Done, ""),
			{Text: age},
			{Text: brief(j.Commit)},
			{Text: reason},
		})
	}
	return t
}

// brief returns the beginning of a commit that is unique enough beside a job.
func brief(commit string) string {
	const most = 7
	return strings.TrimPrefix(commit, "worktree-")[:min(most, len(strings.TrimPrefix(commit, "worktree-")))]
}

// tasks lists tasks, and says how many are left out since they are done.
func (v *View) tasks(b *strings.Builder, s *status.Status) {
	t := Table{Columns: []Column{
		{Head: "TASK", Least: 20, Always: true},
		{Head: "STATE", Always: true},
		{Head: "MACHINE", Least: 10},
		{Head: "PID", Rank: 4},
		{Head: "RESTARTS", Rank: 2, Always: true},
		{Head: "AGE", Rank: 3},
		{Head: "PORTS", Least: 10, Rank: 1},
		{Head: "REASON", Least: 16, Rank: 5},
	}}
	done := 0
	for i := range s.Tasks {
		task := &s.Tasks[i]
		switch {
		case len(v.States) > 0 && !slices.Contains(v.States, task.State):
			continue
		case len(v.States) == 0 && task.State == status.TaskDone && strings.Count(v.Name, "/") < 2 && !v.All:
			done++
			continue
		}
		t.Rows = append(t.Rows, taskRow(s, task))
	}
	if len(t.Rows) > 0 {
		b.WriteString(t.Text(v.Width, v.Painter))
	}
	if done > 0 {
		Printf(b, "%s done; --state done lists them\n", schema.Count(done, "task"))
	}
	if len(t.Rows)+done == 0 {
		b.WriteString("no tasks\n")
	}
}

func taskRow(s *status.Status, t *status.TaskStatus) []Cell {
	pid, age, machine, state, reason := "", "", t.Machine, string(t.State), t.Reason
	if t.PID != 0 {
		pid = strconv.Itoa(t.PID)
	}
	if !t.StartedAt.IsZero() && t.State == status.TaskRunning {
		age = Age(s.At.Sub(t.StartedAt))
	}
	if t.Health == schema.Unhealthy {
		state += " (unhealthy)"
	}
	if t.Line != "" {
		reason = strings.TrimPrefix(reason+"; says: "+t.Line, "; ")
	}
	if t.Alloc != "" {
		machine += ", in " + t.Alloc
	}
	return []Cell{{Text: t.Name}, {state, colourOf(t)}, {Text: machine}, {Text: pid}, {Text: strconv.Itoa(t.Restarts)}, {Text: age}, {Text: portsOf(t.Ports)}, {Text: reason}}
}

// colourOf returns the colour of a task's state, "" if it is as it should be.
func colourOf(t *status.TaskStatus) string {
	switch {
	case t.State == status.TaskFailed, t.State == status.TaskDead, t.Health == schema.Unhealthy:
		return Red
	case t.State == status.TaskRunning, t.State == status.TaskDone:
		return ""
	}
	return Yellow
}

func portsOf(ports schema.Ports) string {
	out := make([]string, 0, len(ports))
	for _, p := range ports {
		out = append(out, fmt.Sprintf("%s:%d", p.Name, p.Port))
	}
	return strings.Join(out, " ")
}
