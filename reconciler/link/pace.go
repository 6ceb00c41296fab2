package link

import "time"

const (
	// mostPulls and mostUsages are how many reports of machines that have nothing new to
	// say, and samples of usage, are asked for in a second: most of what a cell costs in
	// which nothing happens. (Nomad's servers bound heartbeats likewise, by
	// max_heartbeats_per_second.)
	mostPulls  = 2000
	mostUsages = 500
	// slowestPull is half of the silence after which a machine gets no new tasks
	// (model.SilentAfter): one answer may be late. slowestUsage is half of how long a
	// sample counts.
	slowestPull  = 5 * time.Second
	slowestUsage = 30 * time.Second
)

// pace is how often each machine is asked.
type pace struct{ pull, usage time.Duration }

// moments is how many moments there are, in the time between two pulls of a machine, at which
// machines are asked: those that are due at one are asked together. Thousands of timers, each
// with a wake-up of its own, were a good part of what a cell costs at rest.
const moments = 50

// wait returns how long to wait at now until a machine that has answered is asked again: until
// the first of these moments after the time of the pace.
func (p *pace) wait(now time.Time) time.Duration {
	every := p.pull / moments
	next := now.Add(p.pull)
	if at := next.Truncate(every); at.Before(next) {
		next = at.Add(every)
	}
	return next.Sub(now)
}

// paceOf returns the pace with so many sessions; each time is at least as configured.
func paceOf(cfg *Config, sessions int) pace {
	slow := func(least, most time.Duration, perSecond int) time.Duration {
		return max(least, min(most, time.Duration(sessions)*time.Second/time.Duration(perSecond)))
	}
	return pace{
		pull:  slow(cfg.PullEvery, slowestPull, mostPulls),
		usage: slow(cfg.UsageEvery, slowestUsage, mostUsages),
	}
}
