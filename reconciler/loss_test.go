package reconciler_test

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// TestManyLost: when very many tasks are rescheduled at once, a step has some of them, so that
// others need not wait for all.
func TestManyLost(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m1", 64, 256)
	web := service("u", "web", 300, "v")
	web.Task.Resources.CPUMilli, web.Task.Resources.RAMBytes, web.Task.Resources.DiskBytes, web.Task.Resources.Ports = 1, 1<<20, 1<<20, nil
	web.Spread = &schema.Spread{By: schema.NoSpread} // all stay on the first machine
	c.commit(compiled("c1", good(pkg(".", schema.Cell{
		Name: "c", Quota: "off", Lost: &schema.LossPolicy{Domain: "rack", MaxPercent: 100, TasksPerMinute: 600, Burst: 1000},
	}, web))))
	for range 2 {
		c.now = c.now.Add(time.Second)
		c.exchange()
		c.step()
	}
	c.exchange()
	c.join("m2", 64, 256)
	c.agent("m1").silent = true
	var lost []int
	for range 70 {
		c.now = c.now.Add(time.Second)
		c.exchange()
		for again := true; again; {
			n := 0
			for _, e := range c.step().Events {
				if e.Kind == schema.EventLost {
					n++
				}
			}
			if n > 0 {
				lost = append(lost, n)
			}
			if again = !c.last.Wake.IsZero() && c.last.Wake.Sub(c.now) <= time.Millisecond; again {
				c.now = c.last.Wake
			}
		}
	}
	if want := []int{80, 80, 80, 60}; !slices.Equal(lost, want) {
		t.Errorf("steps that follow one another reschedule %d tasks, want %d", lost, want)
	}
	if n := len(c.agent("m2").tasks); n != 300 {
		t.Errorf("m2 runs %d of 300 tasks", n)
	}
}
