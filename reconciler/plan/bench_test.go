package plan_test

import (
	"bytes"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/plan/plantest"
	"github.com/musterhq/muster/schema"
)

// BenchmarkPlan plans a new version of one job of 10 tasks in a cell of 10,000 machines that
// run 10,000 such jobs, from the checkpoint on as it is read.
func BenchmarkPlan(b *testing.B) {
	const machines = 10_000
	all := make([]schema.MachineInfo, 0, machines)
	jobs := make([]schema.Job, 0, machines)
	for i := range machines {
		all = append(all, plantest.Machine(fmt.Sprintf("m%05d", i), 16, 64))
		jobs = append(jobs, plantest.Job(fmt.Sprintf("web%d", i), 200, 10, "1"))
	}
	c := newCell(b, all...)
	does(b, c, plantest.Commit(1, slices.Clone(jobs)...))
	in := c.Moment()
	var file bytes.Buffer
	if err := checkpoint.Write(&file, checkpoint.HeaderOf(in.State, in.Observed, in.Head, in.Now), in.State, in.Observed); err != nil {
		b.Fatal(err)
	}
	jobs[17] = plantest.Job("web17", 200, 10, "2")
	next := plantest.Commit(2, slices.Clone(jobs)...)
	var used time.Duration // of processors, of which there may be fewer than are asked for
	for b.Loop() {
		b.StopTimer()
		saved, err := checkpoint.Read(bytes.NewReader(file.Bytes()))
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		began := cpuTime(b)
		copied, err := plan.New(plan.Config{State: saved.State, Machines: saved.Machines, Now: saved.At, Since: saved.Since})
		if err != nil {
			b.Fatal(err)
		}
		if o := does(b, copied, next); o.Ending != plan.Settled || len(o.Tasks) != 10 || len(o.Steps) != 20 {
			b.Fatalf("%s: %s", o.Ending, fates(o))
		}
		used += cpuTime(b) - began
	}
	b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s/op")
}

// cpuTime is what this process has used of processors.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
