package sim

import (
	"time"
	"unsafe"
)

// clock is the clock of one host. What a program reads of it is what time.Now
// returns: the time of day, which is off by ahead and jumps when that is changed,
// and beside it how long the host has been up, by which Go measures durations.
// What went over a link or a disk has the time of day only (see serialized).
type clock struct {
	ahead time.Duration
}

// read returns what a program on the host reads at the true time now.
func (c clock) read(now time.Time) time.Time {
	return withMonotonic(now.Add(c.ahead), now.Sub(began))
}

// began is when the hosts of all worlds were started.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// instant is how package time keeps a Time that has a monotonic reading: a bit
// that says so, seconds since 1885 and nanoseconds in wall, and in ext the
// monotonic reading in nanoseconds. No function makes one but time.Now, and a
// simulation must not ask that. TestClock fails should this ever change.
type instant struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

var year1885 = time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

func withMonotonic(day time.Time, up time.Duration) time.Time {
	var t time.Time
	*(*instant)(unsafe.Pointer(&t)) = instant{ //nolint:gosec // see instant
		wall: 1<<63 | uint64(day.Unix()-year1885)<<30 | uint64(day.Nanosecond()), //nolint:gosec // neither is negative
		ext:  int64(up) + 1,                                                      // as in package time: 0 is none
	}
	return t
}

// unseen is when the clock of the master's host was last set, and no master saw by
// how much: that which led then went before it decided anything.
type unseen struct {
	at      time.Time
	before  time.Time // what at is if witness sees it
	witness *master
}

// clockSet takes down that the clock of the host is set on which m leads, nil if
// there is no master.
func (o *oracle) clockSet(now time.Time, m *master) {
	o.jumped = now
	if u := &o.unseen; u.witness == nil || u.witness != m {
		u.before = u.at
	}
	o.unseen.at, o.unseen.witness = now, m
}

// seesClock takes down that m has made up for what was done to its clock.
func (o *oracle) seesClock(m *master) {
	if u := &o.unseen; u.witness == m {
		u.at, u.witness = u.before, nil
	}
}

// serialized returns t as another host gets it, or the next process on this one:
// without its monotonic reading.
func serialized(t time.Time) time.Time { return t.Round(0).UTC() }
