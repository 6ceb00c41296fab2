package reserve_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/placement/reserve"
	"github.com/musterhq/muster/schema"
)

var (
	at    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	task  = schema.TaskName{JobName: schema.JobName{Cell: "c", User: "u", Job: "web"}}
	limit = schema.Resources{CPUMilli: 1000, RAMBytes: 1 << 30}
)

func limits(schema.TaskName, uint64) (schema.Resources, bool) { return limit, true }

// sample is one of a machine with a task of a generation that uses so many thousandths of a core.
func sample(generation uint64, cpu int64) *schema.MachineUsage {
	return &schema.MachineUsage{Machine: "m1", Tasks: []schema.TaskUsage{{Task: task, Generation: generation, Usage: schema.Usage{CPUMilli: cpu, RAMBytes: 1 << 29}}}}
}

// TestReservation: all is held back while a task starts, then what it uses and a quarter of it, slowly,
// and more at once when it uses more.
func TestReservation(t *testing.T) {
	t.Parallel()
	var b reserve.Book
	if got := b.Reservation(7); got != (schema.Resources{}) {
		t.Errorf("of a task that nothing is known of: %v", got)
	}
	at := at
	follow := func(cpu int64, d time.Duration) int64 {
		for end := at.Add(d); at.Before(end); at = at.Add(time.Minute) {
			b.Take(sample(7, cpu), limits, at)
		}
		return b.Reservation(7).CPUMilli
	}
	if got := follow(400, reserve.Startup); got != 1000 {
		t.Errorf("while it starts: %d, want its limit", got)
	}
	if got := follow(400, reserve.HalfLife); got < 720 || got > 780 {
		t.Errorf("after a half-life: %d, want half of the way from 1000 to 500", got)
	}
	if got := follow(400, 2*time.Hour); got < 500 || got > 532 {
		t.Errorf("after long: %d, want 500", got)
	}
	if got := follow(600, time.Minute); got != 750 {
		t.Errorf("when it uses more: %d, want 750 at once", got)
	}
	if got := follow(1000, time.Minute); got != 1000 {
		t.Errorf("when it uses all: %d, want no more than its limit", got)
	}
	if got := b.Reservation(7).RAMBytes; got < 640<<20 || got > 672<<20 {
		t.Errorf("memory: %d, want 640 MiB", got)
	}
}

// TestSince: whoever asks learns of each change that is worth it, and of no other.
func TestSince(t *testing.T) {
	t.Parallel()
	var b reserve.Book
	_, next, _ := b.Since(0)
	now := at
	for range 6 { // it starts
		b.Take(sample(7, 400), limits, now)
		now = now.Add(time.Minute)
	}
	first, next, ok := b.Since(next)
	if !ok || len(first) != 1 || first[0] != task { // of the last minute
		t.Errorf("%v, %t", first, ok)
	}
	for range 500 {
		b.Take(sample(7, 400), limits, now)
		now = now.Add(time.Minute)
	}
	all, next, _ := b.Since(next)
	if len(all) == 0 || len(all) > 32 {
		t.Errorf("%d changes on the way down by a half in two dimensions, want one for each 32nd of the limit", len(all))
	}
	b.Take(sample(8, 400), limits, now) // a new generation, and the old one is gone
	if got := b.Reservation(7); got != (schema.Resources{}) {
		t.Errorf("of one that has ended: %v", got)
	}
	if got := b.Reservation(8); got != limit {
		t.Errorf("of one that starts: %v", got)
	}
	none := func(schema.TaskName, uint64) (schema.Resources, bool) { return schema.Resources{}, false }
	b.Take(sample(8, 400), none, now)
	if got := b.Reservation(8); got != (schema.Resources{}) {
		t.Errorf("of one that nothing is reclaimed of: %v", got)
	}
	if _, again, _ := b.Since(next); again != next {
		t.Error("a change that is none")
	}
}

// TestForgotten: changes that are too long ago are said not to be known.
func TestForgotten(t *testing.T) {
	t.Parallel()
	var b reserve.Book
	now := at
	for i := range 1<<16 + 10 {
		b.Take(sample(7, int64(i%2)*800), limits, now) // up and down
		now = now.Add(time.Hour)
	}
	if _, _, ok := b.Since(0); ok {
		t.Error("all changes are known")
	}
	if _, next, ok := b.Since(1 << 16); !ok || next <= 1<<16 {
		t.Errorf("the newest are not: %d", next)
	}
}

// TestClone: a copy is as the book was, and neither follows the other.
func TestClone(t *testing.T) {
	t.Parallel()
	var b reserve.Book
	b.Take(sample(7, 400), limits, at)
	was := b.Clone()
	later := at.Add(reserve.Startup + 2*time.Hour)
	b.Take(sample(7, 400), limits, later)
	if got, is := was.Reservation(7), b.Reservation(7); got != limit || is == limit {
		t.Errorf("%v is held back in the copy, want %v, and %v in the book", got, limit, is)
	}
	was.Take(sample(8, 400), limits, later)
	if _, next, ok := was.Since(0); !ok || next != 0 || b.Reservation(8) != (schema.Resources{}) {
		t.Errorf("the copy knows %d changes, %t, and the book of %v", next, ok, b.Reservation(8))
	}
	if got := was.Reservation(7); got != (schema.Resources{}) {
		t.Errorf("of a task that has ended the copy holds back %v", got)
	}
}
