package nodeagent

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/musterhq/muster/schema"
)

// failures counts the ends of incarnations since one last ran for the window of
// the policy, leaving out those that are not the task's fault. first is when the
// first of them started.
func failures(h *Held, boot string, policy schema.Restart) (n int, first time.Time) {
	for i := range h.Incarnations {
		c := &h.Incarnations[i]
		if c.Exit == nil || c.passed() || c.blameless(boot) {
			continue
		}
		if c.Step == 0 && !c.StartedAt.IsZero() && c.Exit.At.Sub(c.StartedAt) >= policy.Window() {
			n = 0
		}
		if n == 0 {
			first = c.StartedAt
		}
		n++
	}
	return n, first
}

// Backoff returns the time between the n-th failure in a row of a task and its
// next start: the policy's delay doubled n-1 times, up to its longest, and of
// that a part between half and all. The part follows from the task's name, so
// that the tasks of a job that fall together do not rise together.
func Backoff(policy schema.Restart, task schema.TaskName, n int) time.Duration {
	if n <= 0 {
		return 0
	}
	d, longest := policy.Delay(), max(policy.Delay(), policy.MaxDelay())
	for ; n > 1 && d < longest; n-- {
		d *= 2
	}
	d = min(d, longest)
	h := fnv.New32a()
	_, _ = h.Write([]byte(task.String())) // never fails
	return d/2 + time.Duration(uint64(d/2)*uint64(h.Sum32())>>32)
}

// nextStart returns when the next incarnation of h, which is not alive, is due.
func nextStart(h *Held, job *schema.Job, now time.Time, boot string) time.Time {
	c := h.last()
	policy := job.Task.RestartPolicy()
	if c != nil && c.keeperEnded() && !c.shutDown(boot) { // at once, but not for ever as fast as it can
		return due(now, c.Exit.At, Backoff(policy, h.Assignment.Task, keepersEnded(h)-1))
	}
	if c == nil || c.passed() || c.blameless(boot) {
		return now
	}
	n, _ := failures(h, boot, policy)
	return due(now, c.Exit.At, Backoff(policy, h.Assignment.Task, n))
}

// keepersEnded counts the newest incarnations, in a row, whose keepers somebody else
// than an agent ended.
func keepersEnded(h *Held) int {
	n := 0
	for n < len(h.Incarnations) && h.Incarnations[len(h.Incarnations)-1-n].keeperEnded() {
		n++
	}
	return n
}

// usedUp says in words that the restarts of h are used up, "" if they are not.
func usedUp(h *Held, policy schema.Restart, boot string) string {
	c := h.last()
	if c == nil || c.passed() || c.blameless(boot) {
		return ""
	}
	n, first := failures(h, boot, policy)
	if n <= policy.Attempts {
		return ""
	}
	said := h.exit(c, boot).String()
	switch {
	case policy.Attempts == 0:
		return said + "; its policy allows no restart"
	case first.IsZero() || first.After(c.Exit.At):
		return fmt.Sprintf("%s; %d failures in a row", said, n)
	}
	return fmt.Sprintf("%s; %d failures in %s", said, n, span(c.Exit.At.Sub(first)))
}

// span writes a duration as precisely as it matters.
func span(d time.Duration) string {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// counted is how many of the newest incarnations of a generation its failures
// are counted by, with one that may run.
func counted(task *schema.TaskSpec) int {
	return (task.RestartPolicy().Attempts + 2) * (len(task.Before) + 1)
}

// due returns from+d, or now if from lies in the future: the clock was set back
// since, and waiting for it to catch up could take for ever.
func due(now, from time.Time, d time.Duration) time.Time {
	if from.After(now) {
		return now
	}
	return from.Add(d)
}

// earlier returns the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// finished reports whether h is a batch task that is done. An exit with 0 after
// SIGTERM is not taken for that, whoever has sent it: many programs end so when they are
// stopped. One that was to be stopped, and had ended before, is.
func finished(h *Held, kind schema.JobKind) bool {
	c := h.last()
	switch {
	case kind != schema.Batch || c == nil || c.Step > 0 || c.Exit == nil || c.Exit.Code != 0:
		return false
	case c.Stop == nil:
		return !c.Terminated
	}
	return c.EndedItself || c.Exit.At.Before(c.Stop.At)
}

// exits returns the last ends of h's incarnations.
func exits(h *Held, boot string) []schema.Exit {
	var list []schema.Exit
	for i := range h.Incarnations {
		if c := &h.Incarnations[i]; c.Exit != nil && !c.passed() {
			e := h.exit(c, boot)
			e.Blameless = c.blameless(boot)
			list = append(list, e)
		}
	}
	return list[max(0, len(list)-schema.MaxCauses):]
}

// stepName names one of what runs before a task.
func stepName(step int) string { return fmt.Sprintf("before[%d] of the task", step-1) }

// exit returns how c, which has ended, did, and why it was stopped.
func (h *Held) exit(c *Incarnation, boot string) schema.Exit {
	e := *c.Exit
	if c.Step > 0 {
		e.Message = joined(stepName(c.Step), e.Message)
	}
	var why string
	switch {
	case c.Stop != nil:
		why = "stopped: " + c.Stop.String()
		if c.StopNote != "" {
			why += "; its stop command: " + c.StopNote
		}
	case c.shutDown(boot):
		why = "the machine was shut down"
	default:
		return e
	}
	if e.Message == "" {
		e.Message = why
	} else {
		e.Message = why + "; " + e.Message
	}
	return e
}
