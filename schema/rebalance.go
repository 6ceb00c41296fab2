package schema

import "time"

// RebalancePolicy bounds the moves of running tasks by which a cell is made better: for the
// spread of their jobs, to make room for tasks that wait or may come, and to empty machines.
type RebalancePolicy struct {
	// MovesPerHour is how many tasks may be moved within an hour: 0, for none, to MaxTasks.
	MovesPerHour int `json:"movesPerHour"`
	// EmptyBelow is of how little of each resource, in percent of a machine, tasks move away so
	// that it is empty: 0, for never, to MaxEmptyBelow.
	EmptyBelow int `json:"emptyBelow,omitempty"`
	// Quiet is when no move begins, each day; nil: at no time.
	Quiet *QuietHours `json:"quiet,omitempty"`
}

// DefaultMovesPerHour is RebalancePolicy.MovesPerHour of a cell that says nothing: in a day
// these are 2% of the tasks of a cell with 72,000.
const DefaultMovesPerHour = 60

// MaxEmptyBelow bounds RebalancePolicy.EmptyBelow, in percent: what has more of a machine than
// that rarely finds room on others.
const MaxEmptyBelow = 90

// QuietHours are a time within each day, in UTC.
type QuietHours struct {
	// From and To are times of day, as 15:04. A time that ends before it begins ends on the
	// next day.
	From string `json:"from"`
	To   string `json:"to"`
}

// clockForm is how times of day are written.
const clockForm = "15:04"

// IsClock reports whether s is a time of day, as QuietHours has it.
func IsClock(s string) bool {
	_, err := time.Parse(clockForm, s)
	return err == nil && len(s) == len(clockForm)
}

// Within reports whether a time is within the quiet hours, and when they end. Of hours that
// are not two different times of day it is not.
func (q *QuietHours) Within(now time.Time) (end time.Time, quiet bool) {
	if q == nil || !IsClock(q.From) || !IsClock(q.To) || q.From == q.To {
		return time.Time{}, false
	}
	now = now.UTC().Round(0)
	midnight := now.Truncate(24 * time.Hour)
	at := func(s string) time.Time {
		t, _ := time.Parse(clockForm, s) // IsClock has seen that it is one
		return midnight.Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute)
	}
	from, to := at(q.From), at(q.To)
	switch {
	case from.Before(to):
		return to, !now.Before(from) && now.Before(to)
	case now.Before(to):
		return to, true
	}
	return to.Add(24 * time.Hour), !now.Before(from)
}
