package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// crowd is a full cell whose small tasks come and go, some of which nobody knows how long
// they run. Each pass is a minute.
type crowd struct {
	*placement.Snapshot
	r       *rand.Rand
	now     time.Time
	waiting []placement.Ask
	since   map[schema.TaskName]time.Time
	first   map[schema.TaskName]time.Time // held
	here    map[schema.TaskName]running
	number  int
}

type running struct {
	ask              placement.Ask
	machine          string
	expected, really time.Time // its end; expected is zero if it is not known
}

const (
	crowdCores = 8000
	// A task runs for this long at most, and for half as long again as expected.
	crowdRun = time.Hour
)

func newCrowd(seed uint64) *crowd {
	c := &crowd{
		Snapshot: placement.NewSnapshot(nil, nil), r: rand.New(rand.NewPCG(seed, 1)), now: noon, //nolint:gosec // reproducible
		since: map[schema.TaskName]time.Time{}, first: map[schema.TaskName]time.Time{}, here: map[schema.TaskName]running{},
	}
	for i := range 4 {
		c.SetMachine(placement.Machine{Name: fmt.Sprint("m", i), Up: true, Capacity: schema.Resources{CPUMilli: crowdCores, RAMBytes: 100}})
	}
	return c
}

// comes has a task ask, which lasts as long as it says, if it does.
func (c *crowd) comes(cores int64, lasts time.Duration) {
	c.number++
	a := placement.Ask{
		Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%04d", c.number)}.Task(0), Priority: 100,
		Limit: schema.Resources{CPUMilli: cores * 1000, RAMBytes: 1}, Waiting: placement.Waiting{Lasts: lasts},
	}
	c.since[a.Name] = c.now
	c.waiting = append(c.waiting, a)
}

// pass places what waits, and returns what came to run and why the others wait on.
func (c *crowd) pass(seed int) (placed []running, whys map[schema.TaskName]placement.Why) {
	for name, h := range c.here {
		if !c.now.Before(h.really) {
			c.RemoveTask(name, h.machine, 0)
			delete(c.here, name)
		}
	}
	c.SetTimes(c.now, func(task schema.TaskName) time.Time { return c.here[task].expected })
	byName := map[schema.TaskName]placement.Ask{}
	for i := range c.waiting {
		c.waiting[i].Waited = c.now.Sub(c.since[c.waiting[i].Name])
		byName[c.waiting[i].Name] = c.waiting[i]
	}
	whys = map[schema.TaskName]placement.Why{}
	asks := c.waiting
	c.waiting = nil
	for _, d := range placement.Place(c.Snapshot, asks, uint64(seed)) {
		a := byName[d.Name]
		if d.Machine == "" {
			whys[d.Name] = d.Why
			if d.Why.Held != a.Held {
				a.Held, a.HeldUntil = d.Why.Held, d.Why.Room
			} else if a.HeldUntil.IsZero() {
				a.HeldUntil = d.Why.Room
			}
			c.waiting = append(c.waiting, a)
			continue
		}
		h := running{ask: a, machine: d.Machine, really: c.now.Add(time.Duration(1 + c.r.Int64N(int64(crowdRun))))}
		if a.Lasts > 0 {
			h.expected, h.really = c.now.Add(a.Lasts), c.now.Add(a.Lasts/2+time.Duration(c.r.Int64N(int64(a.Lasts))))
		}
		c.here[d.Name] = h
		placed = append(placed, h)
	}
	return placed, whys
}

// isBeside reports whether an ask has room where something runs that has come, whichever tasks have gone
// there that would leave it room without that.
func (c *crowd) isBeside(a *placement.Ask, came *running) bool {
	var others []int64
	for _, h := range c.here {
		if h.machine == came.machine && h.ask.Name != came.ask.Name {
			others = append(others, h.ask.Limit.CPUMilli)
		}
	}
	for gone := range 1 << len(others) {
		left := int64(crowdCores)
		for i, cpu := range others {
			if gone>>i&1 == 0 {
				left -= cpu
			}
		}
		if left >= a.Limit.CPUMilli && left-came.ask.Limit.CPUMilli < a.Limit.CPUMilli {
			return false
		}
	}
	return true
}

// Where a machine is held nothing runs that takes the room away which is expected there, and
// once that time has come nothing new does; so what is large waits no longer than others run.
func TestNothingGetsBetween(t *testing.T) {
	t.Parallel()
	behind, late := 0, 0
	for seed := range uint64(20) {
		c := newCrowd(seed)
		for pass := range 600 {
			if c.r.IntN(10) < 6 {
				lasts := time.Duration(0)
				if c.r.IntN(3) > 0 {
					lasts = time.Duration(5+c.r.IntN(35)) * time.Minute
				}
				c.comes(1+c.r.Int64N(3), lasts)
			}
			if pass%40 == 10 {
				c.comes(7+c.r.Int64N(2), 20*time.Minute)
			}
			until := map[schema.TaskName]time.Time{}
			for i := range c.waiting {
				until[c.waiting[i].Name] = c.waiting[i].HeldUntil
			}
			placed, whys := c.pass(pass)
			for _, a := range c.waiting {
				why := whys[a.Name]
				if why.Held == "" {
					continue
				}
				if _, ok := c.first[a.Name]; !ok {
					c.first[a.Name] = c.now
				}
				if held := c.now.Sub(c.first[a.Name]); held > 2*crowdRun {
					t.Fatalf("seed %d, pass %d: %s has had a machine held for %s: %v", seed, pass, a.Name.Short(), held, why)
				}
				strict := !until[a.Name].IsZero() && c.now.After(until[a.Name])
				if strict {
					late++
				}
				for _, p := range placed {
					if p.machine != why.Held || p.ask.Waited >= a.Waited { // which was decided before
						continue
					}
					if behind++; why.Room.IsZero() && !c.isBeside(&a, &p) || strict && a.Held == why.Held {
						t.Fatalf("seed %d, pass %d: %s runs on %s, which is held for %s, %v", seed, pass, p.ask.Name.Short(), p.machine, a.Name.Short(), why)
					}
				}
				left := int64(crowdCores)
				for _, h := range c.here {
					if h.machine == why.Held && (h.expected.IsZero() || h.expected.After(why.Room)) {
						left -= h.ask.Limit.CPUMilli
					}
				}
				if !why.Room.IsZero() && left < a.Limit.CPUMilli && !strict {
					t.Fatalf("seed %d, pass %d: %s is to have room at %s, and what runs until then leaves %d", seed, pass, a.Name.Short(), why.Room, left)
				}
			}
			c.now = c.now.Add(time.Minute)
		}
	}
	if behind < 100 || late < 10 {
		t.Errorf("%d tasks ran behind others, and %d passes were after the time: the test proves little", behind, late)
	}
}
