package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// Reached is the ending of a cell that is followed until a Condition comes true.
const Reached Ending = "reached"

// Condition is what a cell can be followed until.
type Condition struct {
	text    string
	kind    string // job, task or machine; "" of whatever it holds for
	name    string // user/job, user/job/index or a machine; "" with kind
	holders func(*moment, *Condition) []string
}

// Conditions are the forms of a Condition, for people.
const Conditions = "[job USER/JOB | task USER/JOB/INDEX] pending | preempted | stopped, job USER/JOB | task USER/JOB/INDEX running, [job USER/JOB] rejected | blocked, machine MACHINE empty | lost"

// states are the words that end a condition, what each may be of, and who it holds for.
var states = map[string]struct {
	of      []string
	holders func(*moment, *Condition) []string
}{
	"pending":   {[]string{"", "job", "task"}, (*moment).pending},
	"preempted": {[]string{"", "job", "task"}, (*moment).preempted},
	"stopped":   {[]string{"", "job", "task"}, (*moment).stopped},
	"running":   {[]string{"job", "task"}, (*moment).running},
	"rejected":  {[]string{"", "job"}, (*moment).rejected},
	"blocked":   {[]string{"", "job"}, (*moment).blocked},
	"empty":     {[]string{"machine"}, (*moment).empty},
	"lost":      {[]string{"machine"}, (*moment).lost},
}

// ParseCondition returns the condition that text says, in one of the forms of Conditions. It errs
// with a schema.HintedError if that is none.
func ParseCondition(text string) (Condition, error) {
	words := strings.Fields(text)
	c := Condition{text: strings.Join(words, " ")}
	fail := func(format string, args ...any) (Condition, error) {
		return c, schema.Hintf("the conditions are: "+Conditions, "condition %q: %s", text, fmt.Sprintf(format, args...))
	}
	if len(words) != 1 && len(words) != 3 {
		return fail("want a state, or what it is of, its name and a state, such as job search/web pending")
	}
	word := words[len(words)-1]
	state, ok := states[word]
	if !ok {
		return fail("%q is not a state", word)
	}
	c.holders = state.holders
	if len(words) == 3 {
		c.kind, c.name = words[0], words[1]
	}
	if !slices.Contains(state.of, c.kind) {
		of := strings.Join(slices.DeleteFunc(slices.Clone(state.of), func(s string) bool { return s == "" }), " or a ")
		return fail("want that a %s is %s", of, word)
	}
	parts, err := strings.Split(c.name, "/"), error(nil)
	switch c.kind {
	case "job":
		_, err = schema.ParseJobName("cell/" + c.name)
	case "task":
		_, err = schema.ParseTaskName("cell/" + c.name)
	case "machine":
		err = schema.CheckName(c.name)
	}
	if err != nil || c.kind == "job" && len(parts) != 2 {
		return fail("%q is not the name of a %s", c.name, c.kind)
	}
	return c, nil
}

// String returns the condition as it was given.
func (c *Condition) String() string { return c.text }

// Job returns the job, user/job, that c is of, "" if it is of none by name.
func (c *Condition) Job() string {
	switch c.kind {
	case "job":
		return c.name
	case "task":
		return shortJob(c.name)
	}
	return ""
}

// Machine returns the machine that c is of, "" if it is of none.
func (c *Condition) Machine() string {
	if c.kind == "machine" {
		return c.name
	}
	return ""
}

// takes reports whether c is of a job or a task.
func (c *Condition) takes(name string) bool {
	return c.kind == "" || name == c.name || c.kind == "job" && model.JobOf(name) == c.name
}

// moment is a cell after a decision.
type moment struct {
	status *status.Snapshot
	steps  []Step
}

// parts are those of the jobs that c is of.
func (m *moment) parts(c *Condition) []*status.Part {
	if c.kind == "" {
		return m.status.Parts()
	}
	if p := m.status.Part(c.Job()); p != nil {
		return []*status.Part{p}
	}
	return nil
}

// tasks returns those that c is of and that are in a state.
func (m *moment) tasks(c *Condition, state status.TaskState) (names []string) {
	for _, p := range m.parts(c) {
		for i := range p.Tasks {
			if t := &p.Tasks[i]; t.State == state && c.takes(t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	return names
}

func (m *moment) pending(c *Condition) []string { return m.tasks(c, status.TaskPending) }

func (m *moment) running(c *Condition) []string {
	if c.kind == "task" {
		return m.tasks(c, status.TaskRunning)
	}
	for _, p := range m.parts(c) {
		if j := p.Job; j.Running > 0 && j.Reason == "" {
			return []string{j.Name}
		}
	}
	return nil
}

// stops returns the tasks that c is of and that were stopped, for a cause or for any.
func (m *moment) stops(c *Condition, cause schema.CauseKind) (names []string) {
	for i := range m.steps {
		s := &m.steps[i]
		if (s.Do == Stop || s.Do == End) && (cause == "" || s.Cause == cause) && c.takes(s.Task) {
			names = append(names, s.Task)
		}
	}
	return names
}

func (m *moment) stopped(c *Condition) []string { return m.stops(c, "") }

func (m *moment) preempted(c *Condition) []string { return m.stops(c, schema.CausePreempted) }

func (m *moment) rejected(c *Condition) (names []string) {
	rejected := m.status.Brief().Rejected
	for i := range rejected {
		if c.takes(rejected[i].Job) {
			names = append(names, rejected[i].Job)
		}
	}
	return names
}

// blocked returns the jobs, or other things, on which a person has to act.
func (m *moment) blocked(c *Condition) (names []string) {
	blocked := m.status.Brief().Blocked
	for i := range blocked {
		if c.takes(blocked[i].Name) {
			names = append(names, blocked[i].Name)
		}
	}
	if p := m.status.Part(c.Job()); p != nil && p.Job.Held != "" { // which is of a guard's name
		names = append(names, p.Job.Name)
	}
	return names
}

func (m *moment) empty(c *Condition) []string {
	return m.machines(c, func(is *status.MachineStatus) bool { return is.Tasks == 0 })
}

func (m *moment) lost(c *Condition) []string {
	return m.machines(c, func(is *status.MachineStatus) bool { return is.Health == string(model.HealthLost) })
}

func (m *moment) machines(c *Condition, holds func(*status.MachineStatus) bool) (names []string) {
	for _, is := range m.status.Machines() {
		if is.Name == c.name && holds(is) {
			names = append(names, is.Name)
		}
	}
	return names
}

// Breakpoint is where a cell is that was followed until a condition came true.
type Breakpoint struct {
	Condition string
	// Names are the tasks, jobs or machines for which it has come true, sorted.
	Names []string
}

// watch is what a cell is followed until.
type watch struct {
	conditions []Condition
	held       []map[string]bool // for whom, at the last look, by condition
	stop       *Breakpoint
	decided    bool // since the last look
}

// look returns the first condition that has come true since the last look, nil if none has.
func (w *watch) look(m *moment) (stop *Breakpoint) {
	for i := range w.conditions {
		is, fresh := map[string]bool{}, []string(nil)
		for _, name := range w.conditions[i].holders(m, &w.conditions[i]) {
			if !is[name] && !w.held[i][name] {
				fresh = append(fresh, name)
			}
			is[name] = true
		}
		w.held[i] = is
		if len(fresh) > 0 && stop == nil {
			slices.SortFunc(fresh, model.CompareNames)
			stop = &Breakpoint{w.conditions[i].text, fresh}
		}
	}
	return stop
}
