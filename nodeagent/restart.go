package nodeagent

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// The restart policy within a generation. The back-off's start is short since
// most crashes are one of a kind; its cap and reset keep a crash loop cheap
// (Kubernetes waits 10 s to 5 min, Nomad 15 s).
const (
	FirstBackoff = 500 * time.Millisecond
	MaxBackoff   = 30 * time.Second
	// ResetAfter is how long an incarnation must run for the failures before
	// it to be forgotten.
	ResetAfter = 60 * time.Second
	// MaxFailures without a reset end the generation.
	MaxFailures = 5
)

// failures counts the ends of incarnations since one last ran for ResetAfter,
// leaving out those that are not the task's fault.
func failures(h *Held, boot string) int {
	n := 0
	for i := range h.Incarnations {
		c := &h.Incarnations[i]
		if c.Exit == nil || c.blameless(boot) {
			continue
		}
		if !c.StartedAt.IsZero() && c.Exit.At.Sub(c.StartedAt) >= ResetAfter {
			n = 0
		}
		n++
	}
	return n
}

// Backoff returns the time between the n-th failure in a row and the next
// start.
func Backoff(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	d := FirstBackoff
	for range n - 1 {
		if d *= 2; d >= MaxBackoff {
			return MaxBackoff
		}
	}
	return d
}

// nextStart returns when the next incarnation of h, which is not alive, is due.
func nextStart(h *Held, now time.Time, boot string) time.Time {
	c := h.last()
	if c == nil || c.blameless(boot) {
		return now
	}
	return due(now, c.Exit.At, Backoff(failures(h, boot)))
}

// due returns from+d, or now if from lies in the future: the clock was set back
// since, and waiting for it to catch up could take for ever.
func due(now, from time.Time, d time.Duration) time.Time {
	if from.After(now) {
		return now
	}
	return from.Add(d)
}

// finished reports whether h is a batch task that is done. An exit with 0 after
// SIGTERM is not taken for that: many programs end so when they are told to.
func finished(h *Held, kind schema.JobKind) bool {
	c := h.last()
	return kind == schema.Batch && c != nil && c.Exit != nil && c.Exit.Code == 0 &&
		(c.Stop == nil || c.Exit.At.Before(c.Stop.At))
}
