package control

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// Moves count for an hour by the minute, and for a day by the hour, and never for less.
func TestMovesOfADay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 30, 0, 0, time.UTC)
	ago := func(d time.Duration, tasks int) schema.Disrupted {
		return schema.Disrupted{At: now.Add(-d), Tasks: tasks}
	}
	s := &moveBounds{}
	for _, d := range []schema.Disrupted{
		ago(25*time.Hour, 100), ago(24*time.Hour, 50), ago(24*time.Hour-time.Second, 1), ago(3*time.Hour+20*time.Minute, 2), ago(3*time.Hour+10*time.Minute, 4),
		ago(61*time.Minute, 8), ago(time.Hour, 16), ago(59*time.Minute, 32), ago(time.Minute, 64),
	} {
		s.count(d, now)
	}
	want := []schema.Disrupted{ago(24*time.Hour-time.Second, 1), ago(3*time.Hour+10*time.Minute, 6), ago(time.Hour, 24)}
	if diff := cmp.Diff(want, s.earlier); diff != "" {
		t.Errorf("before the last hour (-want +is):\n%s", diff)
	}
	if got := sumOf(s.moved); got != 96 {
		t.Errorf("%d tasks were moved within an hour: want 96", got)
	}
	if got := s.today(); got != 127 {
		t.Errorf("%d tasks were moved within a day: want 127", got)
	}
}
