package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestNewsSince: a report says of which tasks it is news, since any earlier one.
func TestNewsSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o := model.NewObserved(now)
	report := func(tasks ...schema.TaskStatus) uint64 {
		now = now.Add(time.Second)
		o.AddReport(schema.Report{Machine: schema.MachineInfo{Name: "m1"}, Tasks: tasks}, now)
		return o.Last("m1").Number
	}
	task := func(generation uint64, incarnation int) schema.TaskStatus {
		name := schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(int(generation))
		return schema.TaskStatus{Task: name, Generation: generation, State: schema.Running, Incarnation: incarnation}
	}
	news := func(number uint64) (out []uint64, ok bool) {
		ok = o.Last("m1").NewsSince(number, func(s *schema.TaskStatus) { out = append(out, s.Generation) })
		slices.Sort(out)
		return out, ok
	}
	want := func(number uint64, want ...uint64) {
		t.Helper()
		if got, ok := news(number); !ok || !slices.Equal(got, want) {
			t.Errorf("since report %d: %v (%t), want %v", number, got, ok, want)
		}
	}
	first := report(task(3, 1), task(1, 1), task(2, 1))
	want(first)
	if _, ok := news(0); ok {
		t.Error("there was a report 0")
	}
	second := report(task(3, 1), task(1, 1), task(2, 2))
	third := report(task(3, 1), task(1, 2), task(2, 2), task(4, 1))
	want(first, 1, 2, 4)
	want(second, 1, 4)
	want(third)
	if s := o.Last("m1").Task(3).Since; !s.Equal(now.Add(-2 * time.Second)) {
		t.Errorf("task 3 runs since %v", s)
	}
	fourth := report(task(3, 1), task(1, 2), task(4, 1))
	if _, ok := news(third); ok {
		t.Error("a task that is missing is no news")
	}
	report(task(3, 2), task(1, 2), task(4, 1))
	want(fourth, 3)
	if _, ok := news(fourth + 2); ok {
		t.Error("it is older than the other one")
	}
	if o.Last("m2").NewsSince(1, func(*schema.TaskStatus) {}) {
		t.Error("there is no report of m2")
	}
	if x := o.Last("m1").Task(2); x.TaskStatus != nil {
		t.Errorf("it says %v of a task that is gone", x)
	}
}
