package pack

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
)

// How the tasks of churn come and go if nothing else is said. The mean is that of the
// tasks of Google's cells; what is short is common, and what is long holds most of the room.
const (
	churnMean  = 82 * time.Minute
	churnSigma = 1.0
)

// Life is how the tasks of churn come and go.
type Life struct {
	Mean  time.Duration // that a task stays; 0 means 82 min
	Sigma float64       // of the logarithm of how long tasks stay; 0 means 1
	// Burst is how many tasks come at a time, all alike, as those of a job do; 0 means 1.
	Burst int
	// Fails is the mean time between two failures of a machine; 0 means that none fails. What it had
	// is pending again, for the time that is left, and the machine is back after Down.
	Fails, Down time.Duration
}

// orUsual returns the life with what is not said filled in.
func (l Life) orUsual() Life {
	l.Mean, l.Sigma, l.Burst = cmp.Or(l.Mean, churnMean), cmp.Or(l.Sigma, churnSigma), cmp.Or(l.Burst, 1)
	return l
}

// arrive has tasks come at a time.
func (x *cell) arrive(now time.Duration) {
	g := x.guest(now, 0)
	x.pending = append(x.pending, g)
	for range x.life.Burst - 1 {
		x.pending = append(x.pending, x.guestLike(g.of, now, 0))
	}
}

// failing says which machines fail. What is drawn does not depend on where tasks are.
type failing struct {
	random *rand.Rand
	life   Life
	all    []placement.Machine
	back   map[int]time.Duration // those that are down, by number
}

func newFailing(all []placement.Machine, life Life, seed uint64) *failing {
	return &failing{rand.New(rand.NewPCG(seed, 83)), life, all, map[int]time.Duration{}} //nolint:gosec // a simulation wants what can be repeated
}

// turn returns which machines fail in a pass, and which are back.
func (f *failing) turn(now time.Duration) (down, up []placement.Machine) {
	if f.life.Fails == 0 {
		return nil, nil
	}
	for i := range f.all {
		m := f.all[i]
		fails := f.random.Float64() < float64(churnPass)/float64(f.life.Fails)
		switch back, is := f.back[i]; {
		case is && now >= back:
			delete(f.back, i)
			up = append(up, m)
		case !is && fails && now > 0:
			f.back[i] = now + f.life.Down
			m.Up = false
			down = append(down, m)
		}
	}
	return down, up
}

// fail has machines fail and come back.
func (x *cell) fail(pass int, now time.Duration) {
	down, up := x.failing.turn(now)
	for _, m := range slices.Concat(down, up) {
		x.snapshot.SetMachine(m)
	}
	for _, m := range down {
		for end, list := range x.leaving {
			x.leaving[end] = slices.DeleteFunc(list, func(g guest) bool { return x.loses(g, m.Name, now, time.Duration(end-pass)*churnPass) })
		}
	}
	if len(down) > 0 { // in an order that is the same each time
		slices.SortFunc(x.pending, func(a, b guest) int { return cmp.Or(cmp.Compare(a.came, b.came), a.ask.Name.Compare(b.ask.Name)) })
	}
}

// loses reports whether a task was on a machine that fails, and has it pending again then.
func (x *cell) loses(g guest, machine string, now, left time.Duration) bool {
	if g.machine != machine {
		return false
	}
	x.snapshot.RemoveTask(g.ask.Name, g.machine, 0)
	x.used -= g.amount
	g.machine, g.came, g.stays = "", now, left
	x.pending = append(x.pending, g)
	return true
}
