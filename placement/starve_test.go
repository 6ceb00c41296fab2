package placement_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// passesUntilPlaced runs passes a minute apart, in which small tasks of other
// users take all room there is and end after four, and returns the one in which
// a task that needs a whole machine is placed; 0 if it never is.
func passesUntilPlaced(t *testing.T, o placement.Options) int {
	t.Helper()
	var machines []placement.Machine
	for i := range 5 {
		machines = append(machines, placement.Machine{
			Name: fmt.Sprint("m", i), Up: true, Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 4},
		})
	}
	s := placement.NewSnapshot(machines, nil)
	s.Configure(o)
	large := placement.Ask{
		Name: schema.JobName{Cell: "c", User: "z", Job: "large"}.Task(0), Priority: 100,
		Limit: schema.Resources{CPUMilli: 4000, RAMBytes: 4},
	}
	type held struct {
		name    schema.TaskName
		machine string
		ends    int
	}
	var running []held
	for pass := 1; pass <= 60; pass++ {
		left := running[:0]
		for _, h := range running {
			if h.ends > pass {
				left = append(left, h)
				continue
			}
			s.RemoveTask(h.name, h.machine, 0)
		}
		running = left
		var asks []placement.Ask
		if large.Waited = time.Duration(pass-2) * time.Minute; pass > 1 { // all is full before it comes
			asks = append(asks, large)
		}
		for i := range 20 {
			asks = append(asks, placement.Ask{
				Name: schema.JobName{Cell: "c", User: fmt.Sprint("u", i%4), Job: fmt.Sprint("j", pass)}.Task(i), Priority: 100,
				Limit: schema.Resources{CPUMilli: 1000, RAMBytes: 1},
			})
		}
		for _, d := range placement.Place(s, asks, uint64(pass)) {
			if d.Name == large.Name && d.Machine != "" {
				return pass
			}
			if d.Machine != "" {
				// They begin a pass apart, so that no machine empties by itself.
				running = append(running, held{d.Name, d.Machine, pass + 3 + d.Name.Index%3})
			}
		}
	}
	return 0
}

func TestLongWaitEnds(t *testing.T) {
	t.Parallel()
	// It waits for the reservation and then, on the one machine, for the last
	// of the tasks that run there.
	if pass := passesUntilPlaced(t, placement.Options{ReserveAfter: 8 * time.Minute}); pass < 10 || pass > 10+6 {
		t.Errorf("with a reservation after 8 minutes, in pass 10, it is placed in pass %d", pass)
	}
	if pass := passesUntilPlaced(t, placement.Options{ReserveAfter: -1}); pass != 0 {
		t.Errorf("without reservations it is placed in pass %d: the test proves nothing", pass)
	}
}
