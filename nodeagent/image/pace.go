package image

import "time"

const (
	// defaultFloor is what a connection must bring at least, in bytes a second: with less, a
	// layer of 100 MiB takes more than a day. It is low, since many connections may share a
	// thin line, and what has come of a layer is lost with the pull.
	defaultFloor = 1 << 10
	// quickFloor is the same, in floors, while there is another host to ask: what has come
	// is kept there, and the slow one is asked again after the others.
	quickFloor = 32
	// defaultWindow is how long a connection must be below: curl's --speed-time, too, has 30 s.
	defaultWindow = 30 * time.Second
)

// pace finds out that a connection is slow which never stalls.
type pace struct {
	floor  int64         // bytes a second
	window time.Duration // of waiting for the other side

	waited time.Duration // since the window began
	came   int64         // bytes in that time
}

// add notes that n bytes came after waiting so long, and reports whether less than the floor
// came over a whole window, and how many bytes a second that was. The time in which nobody
// reads, since the disk is slow, is not of the other side and does not count.
func (p *pace) add(n int, waited time.Duration) (rate int64, slow bool) {
	p.came += int64(n)
	p.waited += waited
	if p.waited < p.window {
		return 0, false
	}
	rate = int64(float64(p.came) / p.waited.Seconds())
	p.waited, p.came = 0, 0
	return rate, rate < p.floor
}
