package model_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestOOMEvents: each time that the kernel has killed processes of a task that
// lives is an event once, with their number; a new master logs none again, and a
// new incarnation counts from 0.
func TestOOMEvents(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	task := schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(0)
	o := model.NewObserved(now)
	report := func(incarnation int, kills int64) []string {
		got := []string{}
		for _, e := range o.AddReport(schema.Report{Machine: schema.MachineInfo{Name: "m1"}, Tasks: []schema.TaskStatus{{
			Task: task, Generation: 1, State: schema.Running, Incarnation: incarnation, OOMKills: kills,
		}}}, now) {
			if e.Kind == schema.EventOOM {
				got = append(got, e.Task+" on "+e.Machine+": "+e.Message)
			}
		}
		return got
	}
	said := func(n string) []string {
		return []string{"u/web/0 on m1: out of memory: the kernel killed processes of the task (" + n + "); the task keeps running"}
	}
	for i, step := range []struct {
		incarnation int
		kills       int64
		want        []string
	}{{1, 2, []string{}}, {1, 2, []string{}}, {1, 5, said("3")}, {2, 0, []string{}}, {2, 1, said("1")}, {2, 1, []string{}}} {
		if d := cmp.Diff(step.want, report(step.incarnation, step.kills)); d != "" {
			t.Errorf("report %d (-want +got)\n%s", i+1, d)
		}
	}
}
