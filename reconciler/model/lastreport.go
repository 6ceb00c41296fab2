package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// LastReport is what one machine said last.
type LastReport struct {
	at     time.Time
	waited time.Duration // of Observed, at that time
	// Number is another for each report that does not only repeat the one before, and
	// greater.
	Number uint64
	Report schema.Report
	tasks  []ReportedTask // of Report, sorted by generation
	fewer  uint64         // number of the newest report without a task that the one before had
}

// ReportedTask is what a machine said last of a generation. It is empty if it said nothing.
type ReportedTask struct {
	*schema.TaskStatus
	// Since is when the master first got a report that the incarnation runs, or that the
	// generation has ended: by its own clock, since machines' clocks differ.
	Since time.Time

	generation uint64
	number     uint64 // of the first report that said the same
}

// newLastReport returns a report with a number, and nothing of its tasks yet: see add.
func newLastReport(r *schema.Report, number uint64) *LastReport {
	return &LastReport{Number: number, Report: *r, tasks: make([]ReportedTask, 0, len(r.Tasks))}
}

// add adds a task of the report; before is what the last one said of its generation.
func (h *LastReport) add(status *schema.TaskStatus, before ReportedTask, now time.Time) {
	t := ReportedTask{TaskStatus: status, Since: now, generation: status.Generation, number: h.Number}
	if runs(before, t.Incarnation) || before.TaskStatus != nil && before.End != nil {
		t.Since = before.Since
	}
	if before.TaskStatus != nil && before.Same(status) {
		t.number = before.number
	}
	h.tasks = append(h.tasks, t)
}

// complete says that all tasks are added; was is the report before, nil if there was none.
func (h *LastReport) complete(was *LastReport) {
	slices.SortStableFunc(h.tasks, func(a, b ReportedTask) int { return cmp.Compare(a.generation, b.generation) })
	if was == nil {
		h.fewer = h.Number // there may have been one before that is dismissed
		return
	}
	h.fewer = was.fewer
	for i := range was.tasks {
		if h.Task(was.tasks[i].generation).TaskStatus == nil {
			h.fewer = h.Number
		}
	}
}

// Task returns what the machine said of a generation.
func (h *LastReport) Task(generation uint64) ReportedTask {
	i, ok := slices.BinarySearchFunc(h.tasks, generation, func(t ReportedTask, g uint64) int { return cmp.Compare(t.generation, g) })
	if !ok {
		return ReportedTask{}
	}
	return h.tasks[i]
}

// NewsSince calls f with each task of which this report may say something else than that of
// a number, 0 for none, did. It returns false, and calls f with none, if that cannot be seen
// by the tasks: there is no report, the other one is newer, or a task in it is not in this
// one.
func (h *LastReport) NewsSince(number uint64, f func(*schema.TaskStatus)) bool {
	if h == nil || number == 0 || number > h.Number || h.fewer > number {
		return false
	}
	for i := range h.tasks {
		if h.tasks[i].number > number {
			f(h.tasks[i].TaskStatus)
		}
	}
	return true
}

// shift moves the times by so much.
func (h *LastReport) shift(by time.Duration) {
	h.at = h.at.Add(by)
	for i := range h.tasks {
		h.tasks[i].Since = h.tasks[i].Since.Add(by)
	}
}
