package nodeagent

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/schema"
)

// Level is what one look at a machine says of a condition. Between good and bad
// lies what changes nothing, so that a value that wavers about one bound does
// not make the condition come and go.
type Level int

// The levels.
const (
	Good Level = iota
	Between
	Bad
)

// A condition is reported when it was seen bad for longer than a moment, and is over
// when it was seen good for a while: tasks are not sent elsewhere and back for a
// spike (Kubernetes' eviction-pressure-transition-period is 5 min; ours are
// shorter since nothing is stopped by a condition alone).
const (
	ReportAfter = 30 * time.Second // ClockSkew; what tasks are stopped for is reported at once
	ClearAfter  = time.Minute      // all but BrokenRuntime
)

// The runtime counts as broken after StartFailures starts in a row that failed
// for no fault of the task, for FirstHold; if the next start fails too, for
// twice as long, up to MaxHold.
const (
	StartFailures = 3
	FirstHold     = time.Minute
	MaxHold       = 30 * time.Minute
)

// SkewBad and SkewGood bound ClockSkew: certificates and the times in logs and
// events are off by as much.
const (
	SkewBad  = 5 * time.Second
	SkewGood = 2 * time.Second
)

// Conditions are what is wrong with a machine. The zero value is a machine of
// which nothing is known. It is not for two goroutines at once.
type Conditions struct {
	trends  map[schema.ConditionKind]*trend
	starts  int           // failed, in a row
	hold    time.Duration // of the last time that the runtime was broken
	holding time.Time     // BrokenRuntime is reported until then
}

// trend is what was seen of one condition.
type trend struct {
	level    Level
	since    time.Time         // of level
	reported *schema.Condition // nil: it is not the case
}

// See takes what a look at the machine says of a condition; message is what was
// measured, and is kept as of when the condition begins to be reported. It reports
// whether the condition has begun, or is over.
func (c *Conditions) See(kind schema.ConditionKind, level Level, message string, now time.Time) bool {
	t := c.trend(kind)
	if t.level != level || now.Before(t.since) { // the latter: the clock was set back
		t.level, t.since = level, now
	}
	lasted := now.Sub(t.since)
	switch {
	case level == Bad && t.reported == nil && lasted >= reportAfter(kind):
		t.reported = &schema.Condition{Kind: kind, Since: now.UTC(), Message: message}
		return true
	case level == Bad && t.reported != nil && kind == schema.DamagedState && t.reported.Message != message: // more was found
		t.reported = &schema.Condition{Kind: kind, Since: now.UTC(), Message: message}
		return true
	case level == Good && t.reported != nil && lasted >= ClearAfter:
		t.reported = nil
		return true
	}
	return false
}

func reportAfter(kind schema.ConditionKind) time.Duration {
	if kind == schema.ClockSkew {
		return ReportAfter
	}
	return 0
}

func (c *Conditions) trend(kind schema.ConditionKind) *trend {
	if c.trends == nil {
		c.trends = map[schema.ConditionKind]*trend{}
	}
	if c.trends[kind] == nil {
		c.trends[kind] = &trend{}
	}
	return c.trends[kind]
}

// SeeClock takes by how much the master's clock is ahead of the machine's, and
// how far that may be off. It reports as See does.
func (c *Conditions) SeeClock(ahead, within time.Duration, now time.Time) bool {
	known := max(ahead.Abs()-within, 0)
	level := Between
	switch {
	case known >= SkewBad:
		level = Bad
	case known < SkewGood:
		level = Good
	}
	way := "behind"
	if ahead < 0 {
		way = "ahead of"
	}
	const exact = time.Millisecond
	message := fmt.Sprintf("its clock is %v %s the master's, give or take %v", ahead.Abs().Round(exact), way, within.Round(exact))
	return c.See(schema.ClockSkew, level, message, now)
}

// SeeStart takes the outcome of a start: failure says what is wrong with the
// machine, "" that the task runs. What is wrong with the task is not to be reported
// here. It reports as See does.
func (c *Conditions) SeeStart(failure string, now time.Time) bool {
	t := c.trend(schema.BrokenRuntime)
	if failure == "" {
		over := t.reported != nil
		c.starts, c.hold, t.reported = 0, 0, nil
		return over
	}
	if c.starts++; c.starts < StartFailures || t.reported != nil {
		return false
	}
	c.hold = min(max(2*c.hold, FirstHold), MaxHold)
	c.holding = now.Add(c.hold)
	t.reported = &schema.Condition{
		Kind: schema.BrokenRuntime, Since: now.UTC(),
		Message: fmt.Sprintf("%d starts in a row failed, retried in %v; the last: %s", c.starts, c.hold, failure),
	}
	return true
}

// Turn ends what only time ends. It reports as See does, and says when it is to
// be called next; zero: not before something is seen.
func (c *Conditions) Turn(now time.Time) (changed bool, wake time.Time) {
	t := c.trend(schema.BrokenRuntime)
	switch {
	case t.reported == nil:
		return false, time.Time{}
	case now.Before(c.holding) && !now.Before(t.reported.Since):
		return false, c.holding
	}
	t.reported = nil
	return true, time.Time{}
}

// List returns what is wrong, for the report.
func (c *Conditions) List() []schema.Condition {
	var list []schema.Condition
	for _, kind := range schema.ConditionKinds() {
		if t := c.trends[kind]; t != nil && t.reported != nil {
			list = append(list, *t.reported)
		}
	}
	return list
}
