package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// Counts are how many tasks a fate has, as planned and as it happened. Field names are stable.
type Counts struct {
	Fate     plan.Fate `json:"fate"`
	Planned  int       `json:"planned"`
	Happened int       `json:"happened"`
}

// Difference is a task that did not do what was planned. Field names are stable.
type Difference struct {
	Task string `json:"task"`
	// Planned and Happened are what becomes of it; nil if nothing does.
	Planned  *plan.Task `json:"planned"`
	Happened *plan.Task `json:"happened"`
	Why      string     `json:"why"`
}

// Reason is why tasks did not do what was planned, with how many. Field names are stable.
type Reason struct {
	Why   string `json:"why"`
	Tasks int    `json:"tasks"`
}

// Result is a plan beside what happened. Field names are stable.
type Result struct {
	Counts []Counts `json:"counts"` // of the fates that a task has
	// Same is how many tasks did what was planned. That those which were to change in place
	// have done so is not in the events, and taken for granted.
	Same        int          `json:"same"`
	Differences []Difference `json:"differences"` // by task
	Reasons     []Reason     `json:"reasons"`     // of these, the most frequent first
}

// Window is the time in which a commit was at work.
type Window struct {
	Records  []schema.EventRecord // from when the plan was made
	Until    time.Time            // what happened later is left out; zero for nothing
	Open     bool                 // the cell has not come to an end with the commit yet
	Stopping []uint64             // the generations of tasks that were being stopped when it began
}

// Compare holds a plan beside what has happened.
func Compare(o *plan.Outcome, in Window) *Result {
	w := &window{open: in.Open, planned: map[string]*plan.Task{}}
	for i := range o.Tasks {
		w.planned[o.Tasks[i].Name] = &o.Tasks[i]
	}
	for i := range in.Records {
		if r := &in.Records[i]; in.Until.IsZero() || !r.At.After(in.Until) {
			w.records = append(w.records, r)
		}
	}
	w.happened = happened(w.records, in.Stopping)
	return w.compare()
}

// window is a Window with the plan.
type window struct {
	open     bool
	planned  map[string]*plan.Task
	happened map[string]*happening
	records  []*schema.EventRecord
}

func (w *window) compare() *Result {
	r := &Result{Counts: []Counts{}, Differences: []Difference{}, Reasons: []Reason{}}
	count, names := map[plan.Fate]*Counts{}, map[string]bool{}
	of := func(f plan.Fate) *Counts {
		if count[f] == nil {
			count[f] = &Counts{Fate: f}
		}
		return count[f]
	}
	for name, t := range w.planned {
		names[name] = true
		of(t.Fate).Planned++
	}
	for name, h := range w.happened {
		names[name] = true
		of(h.Fate).Happened++
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p, h := w.planned[name], w.happened[name]
		switch {
		case p != nil && h == nil && p.Fate == plan.InPlace:
			of(plan.InPlace).Happened++
			r.Same++
		case p != nil && h != nil && p.Fate == h.Fate && p.To == h.To:
			r.Same++
		default:
			d := Difference{Task: name, Planned: p}
			if h != nil {
				d.Happened = &h.Task
			}
			r.Differences = append(r.Differences, d)
		}
	}
	for _, c := range count {
		r.Counts = append(r.Counts, *c)
	}
	slices.SortFunc(r.Counts, func(a, b Counts) int { return strings.Compare(string(a.Fate), string(b.Fate)) })
	w.explain(r)
	return r
}

// explain says why tasks did something else. Where nothing that was about a task says so, what
// says it of another task of its job does: a rollout that stops stops for all of them.
func (w *window) explain(r *Result) {
	about, ofJob, rest := w.about(), map[string]string{}, w.rest()
	asked, machines := w.asked(), w.machines()
	for i := range r.Differences {
		d := &r.Differences[i]
		d.Why = w.own(d, about[d.Task])
		if job := jobOf(d.Task); d.Why != "" && ofJob[job] == "" {
			ofJob[job] = d.Task + ": " + d.Why
		}
	}
	n := map[string]int{}
	for i := range r.Differences {
		d := &r.Differences[i]
		if d.Why == "" {
			d.Why = cmp.Or(asked.first("", jobOf(d.Task)), machines.first(d.machines()...), ofJob[jobOf(d.Task)], rest)
		}
		n[d.Why]++
	}
	for why, tasks := range n {
		r.Reasons = append(r.Reasons, Reason{why, tasks})
	}
	slices.SortFunc(r.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), strings.Compare(a.Why, b.Why))
	})
}

func jobOf(task string) string { return task[:max(0, strings.LastIndexByte(task, '/'))] }

// about returns the events of tasks.
func (w *window) about() map[string][]*schema.EventRecord {
	out := map[string][]*schema.EventRecord{}
	for _, r := range w.records {
		if r.Task != "" {
			out[r.Task] = append(out[r.Task], r)
		}
	}
	return out
}

// own is what has happened to a task itself that was not planned; "" for nothing.
func (w *window) own(d *Difference, about []*schema.EventRecord) string {
	planned := func(c schema.CauseKind) bool { return d.Planned != nil && slices.Contains(d.Planned.Causes, c) }
	for _, r := range about {
		switch {
		case r.Kind == schema.EventFinish:
			return "it is done, and a plan takes batch tasks not to be"
		case r.Kind == schema.EventUnhealthy, r.Kind == schema.EventOOM:
			return r.Message
		case r.Kind == schema.EventLost:
			return fmt.Sprintf("machine %s was lost with it", r.Machine)
		case r.Kind == schema.EventFail && !planned(r.Cause):
			return r.Message
		}
	}
	if h := w.happened[d.Task]; h != nil {
		for i := range h.first {
			if r := &h.first[i]; !planned(r.Cause) {
				return cmp.Or(r.Message, string(r.Cause))
			}
		}
	}
	return ""
}

// firsts are what the first event about a thing says, by its name: a plan and a history may both be of
// all the tasks of a cell.
type firsts map[string]said

type said struct {
	at   int // place of the record
	text string
}

func (f firsts) add(at int, name, text string) {
	if _, there := f[name]; !there {
		f[name] = said{at, text}
	}
}

// first returns what was said first of some names; "" for nothing.
func (f firsts) first(names ...string) string {
	var out *said
	for _, name := range names {
		if s, there := f[name]; there && (out == nil || s.at < out.at) {
			out = &s
		}
	}
	if out == nil {
		return ""
	}
	return out.text
}

// asked is what somebody has asked for jobs meanwhile, or for all of them, by job; "" is all.
func (w *window) asked() firsts {
	out := firsts{}
	for i, r := range w.records {
		switch r.Kind {
		case schema.EventSuspend, schema.EventResume, schema.EventRestart:
			if r.Task == "" {
				out.add(i, r.Job, r.Message)
			}
		}
	}
	return out
}

// machines is what has happened to machines.
func (w *window) machines() firsts {
	out := firsts{}
	for i, r := range w.records {
		if unplanned(r) {
			out.add(i, r.Machine, "machine "+r.Machine+" "+r.Message)
		}
	}
	return out
}

// machines returns the machines that a task was to be on, or is on; "" among them for none.
func (d *Difference) machines() []string {
	var names []string
	for _, t := range []*plan.Task{d.Planned, d.Happened} {
		if t != nil {
			names = append(names, t.To, t.From)
		}
	}
	return names
}

// unplanned reports whether an event is about a machine, and nothing that a commit brings about.
func unplanned(r *schema.EventRecord) bool {
	return r.Kind == schema.EventMachine && r.Machine != "" && !r.Declared
}

// rest is what may have been the reason, where nothing says more.
func (w *window) rest() string {
	for _, r := range w.records {
		if unplanned(r) {
			return "machine " + r.Machine + " " + r.Message
		}
	}
	for _, r := range w.records {
		if r.Kind == schema.EventMaster {
			return "another master began to lead"
		}
	}
	if w.open {
		return "it has not happened yet"
	}
	return "the events do not say why"
}
