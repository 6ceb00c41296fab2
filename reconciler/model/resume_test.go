package model

import (
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// TestAwake: silence in which the master did not listen is no machine's.
func TestAwake(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		wake time.Duration // when it wanted to step, 0: never
		at   time.Duration // when it does
		want Health
	}{
		{"it is in time", time.Minute, time.Minute, HealthLost},
		{"it is a little late", 57 * time.Second, time.Minute, HealthLost},
		{"it has nothing to wait for", 0, time.Minute, HealthLost},
		{"it was stopped", 10 * time.Second, time.Minute, HealthSilent},
		{"it was stopped for a moment", 10 * time.Second, 16 * time.Second, HealthSilent},
		{"it was stopped while all was well", time.Second, 9 * time.Second, HealthUp},
	} {
		o := NewObserved(start)
		o.Hear(schema.Report{Machine: schema.MachineInfo{Name: "m1"}}, start)
		wake := time.Time{}
		if c.wake > 0 {
			wake = start.Add(c.wake)
		}
		o.OnResume(wake, start.Add(c.at))
		if got, _ := o.HealthOf(&schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: "m1"}}, start.Add(c.at)); got != c.want {
			t.Errorf("%s: the machine is %s, want %s", c.name, got, c.want)
		}
		if got, _ := o.HealthOf(&schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: "m2"}}, start.Add(c.at)); c.want == HealthSilent && got != HealthSilent {
			t.Errorf("%s: a machine that was never heard is %s, want %s", c.name, got, HealthSilent)
		}
	}
}
