package facts

import "time"

// Until is until when an answer holds if nothing happens: the earliest of some times, in
// two parts that cannot be compared once the clock was set. Monotonic is of times since
// something that this master saw, Wall of times of day, as they are stored. Either is
// zero if there is none.
type Until struct {
	Monotonic, Wall time.Time
}

// Or returns the earlier of two, in each part.
func (u Until) Or(o Until) Until {
	return Until{Monotonic: earlier(u.Monotonic, o.Monotonic), Wall: earlier(u.Wall, o.Wall)}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Ahead reports whether a wait that ends at until, and was at most longest when it
// began, still goes on at now. When much more is left than that, the clock was set
// back since, and to wait until it has caught up could take for ever: the wait is
// over. A small correction makes it a little longer.
func Ahead(now, until time.Time, longest time.Duration) bool {
	left := until.Sub(now)
	return left > 0 && left <= 2*longest
}

// Clock is the moment at which questions are asked.
type Clock struct {
	Now time.Time
}

// Say writes a time of day for people: in UTC, and with the date unless that is today's.
func (c Clock) Say(t time.Time) string {
	t = t.UTC()
	if now := c.Now.UTC(); t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format("15:04:05Z")
	}
	return t.Format(time.RFC3339)
}

// At is the one time t, nothing if that has come.
func (c Clock) At(t time.Time) Until {
	switch {
	case !t.After(c.Now):
		return Until{}
	case identical(t, t.Round(0)): // it has no monotonic reading, which Equal does not see
		return Until{Wall: t}
	}
	return Until{Monotonic: t}
}

// identical reports whether all fields of a and b are the same.
func identical[T comparable](a, b T) bool { return a == b }

// In is the time in so long, nothing if that is over.
func (c Clock) In(d time.Duration) Until { return c.At(c.Now.Add(d)) }

// Waits is Ahead of a stored wait, and until when it goes on.
func (c Clock) Waits(until time.Time, longest time.Duration) (bool, Until) {
	if !Ahead(c.Now, until, longest) {
		return false, Until{}
	}
	return true, c.At(until)
}

// Past returns when something began that has: at t, or now if a clock that was ahead
// wrote t down. What is counted from there begins again, once.
func (c Clock) Past(t time.Time) time.Time {
	if t.After(c.Now) {
		return c.Now
	}
	return t
}
