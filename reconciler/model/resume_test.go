package model

import (
	"errors"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// TestOnResume: silence in which the master did not listen is no machine's.
func TestOnResume(t *testing.T) {
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
		o.AddReport(schema.Report{Machine: schema.MachineInfo{Name: "m1"}}, start)
		wake := time.Time{}
		if c.wake > 0 {
			wake = start.Add(c.wake)
		}
		o.OnResume(wake, start.Add(c.at))
		if got, _ := o.HealthOf(&schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: "m1"}}, start.Add(c.at)); got != c.want {
			t.Errorf("%s: the machine is %s, want %s", c.name, got, c.want)
		}
		if got, _ := o.HealthOf(&schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: "m2"}}, start.Add(c.at)); c.want == HealthSilent && got != HealthSilent {
			t.Errorf("%s: a machine that has never reported is %s, want %s", c.name, got, HealthSilent)
		}
	}
}

// TestRepeats: a report is nothing new only if the machine is up, nothing is in doubt of
// it, and it says in each respect what it said before.
func TestRepeats(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	overload := &schema.Overload{}
	base := schema.Report{
		Machine: schema.MachineInfo{Name: "m1", Boot: "b", ID: "i"}, View: 3, Tasks: make([]schema.TaskStatus, 2), BusyPorts: []int{1},
		Conditions: []schema.Condition{{Kind: schema.DiskPressure}}, Overload: overload,
	}
	for name, tt := range map[string]struct {
		change func(*Observed, *schema.Report)
		after  time.Duration
		want   bool
	}{
		"the same":                  {nil, 2 * time.Second, true},
		"the same, after a while":   {nil, SilentAfter, false},
		"tasks that were sent":      {func(_ *Observed, r *schema.Report) { r.Tasks = make([]schema.TaskStatus, 2) }, 0, false},
		"fewer tasks":               {func(_ *Observed, r *schema.Report) { r.Tasks = r.Tasks[:1] }, 0, false},
		"another view":              {func(_ *Observed, r *schema.Report) { r.View = 4 }, 0, false},
		"another boot":              {func(_ *Observed, r *schema.Report) { r.Machine.Boot = "c" }, 0, false},
		"another agent":             {func(_ *Observed, r *schema.Report) { r.Machine.ID = "j" }, 0, false},
		"a condition":               {func(_ *Observed, r *schema.Report) { r.Conditions = nil }, 0, false},
		"a port":                    {func(_ *Observed, r *schema.Report) { r.BusyPorts = []int{2} }, 0, false},
		"no overload":               {func(_ *Observed, r *schema.Report) { r.Overload = nil }, 0, false},
		"it has joined":             {func(o *Observed, _ *schema.Report) { o.Join("m1", start) }, 0, false},
		"it was refused":            {func(o *Observed, _ *schema.Report) { o.Refuse("m1", errors.New("no"), start) }, 0, false},
		"its name is contested":     {func(o *Observed, _ *schema.Report) { o.RefuseName(&schema.TakenError{Holder: "m1"}, start) }, 0, false},
		"it is not known":           {func(o *Observed, _ *schema.Report) { o.Dismiss("m1") }, 0, false},
		"its master did not listen": {func(o *Observed, _ *schema.Report) { o.OnResume(start, start.Add(time.Minute)) }, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := NewObserved(start)
			o.AddReport(base, start)
			r := base
			if tt.change != nil {
				tt.change(o, &r)
			}
			now := start.Add(tt.after)
			if got := o.Repeats(&r, now); got != tt.want {
				t.Errorf("repeats: %t, want %t", got, tt.want)
			}
			if tt.want && !o.LastSeen("m1").Equal(now) {
				t.Errorf("last seen at %s, want %s", o.LastSeen("m1"), now)
			}
		})
	}
}
