package placement_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
)

// TestFill: how full the cell is stays right, whatever becomes of its machines and tasks.
func TestFill(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		s := c.snapshot(placement.Options{Preempt: true})
		placement.Place(s, c.asks, 1)
		for range 4 {
			m := c.machines[rapid.IntRange(0, len(c.machines)-1).Draw(t, "machine")]
			switch rapid.IntRange(0, 4).Draw(t, "change") {
			case 0:
				m.Up = !m.Up
				s.SetMachine(m)
			case 1:
				m.Capacity.CPUMilli += 1000
				m.Devices = append([]placement.Device{{Kind: "gpu", Model: "A10", Count: 1}}, m.Devices...)
				s.SetMachine(m)
			case 2:
				s.RemoveMachine(m.Name)
			case 3:
				for _, h := range c.tasks {
					s.RemoveTask(h.Name, h.Machine, h.Generation)
				}
			case 4:
				placement.Place(s, c.asks, 2)
			}
			if !s.CountsFill() {
				t.Fatal("the counts differ from what the machines say")
			}
		}
	})
}
