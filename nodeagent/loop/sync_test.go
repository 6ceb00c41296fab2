package loop_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	syncPhase = 10 * time.Second
	// settle is how long the agent has to see that the neighbour waits, and to find
	// the bound that helps: some of its looks.
	settle = 15 * time.Second
	// syncGoal is how much longer syncs may take beside a writer than alone.
	syncGoal = 3
)

// syncs writes 4 KiB every 20 ms and has the disk have it. It prints when each sync
// began and how long it took, or it does no more than write and sync.
func syncs() int {
	f, err := os.Create("log")
	if err != nil {
		return 1
	}
	out := bufio.NewWriter(os.Stdout)
	block := make([]byte, 4<<10)
	for n := 0; ; n++ {
		_, err := f.WriteAt(block, int64(n%1024*len(block)))
		began := time.Now()
		if err := errors.Join(err, f.Sync()); err != nil {
			return 1
		}
		fmt.Fprintf(out, "%d %d\n", began.UnixNano(), time.Since(began))
		if n%10 == 0 {
			_ = out.Flush()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// flush writes over a file of 64 MiB and has the disk have all of it, for ever.
func flush() int {
	f, err := os.Create("file")
	if err != nil {
		return 1
	}
	block := make([]byte, 1<<20)
	for n := 0; ; n++ {
		_, err := f.WriteAt(block, int64(n%64*len(block)))
		if n%64 == 63 {
			err = errors.Join(err, f.Sync())
		}
		if err != nil {
			return 1
		}
	}
}

// syncsBeside measures a latency-sensitive task that syncs, alone and beside batch
// tasks that do, before the agent has bounded them and then.
func syncsBeside(t *testing.T) {
	h := newHogs(t)
	db := h.task("syncs", schema.Service, 500)
	db.Job.Task.Resources.DiskBytes = 1 << 30
	db.Data = schema.DigestOf(db.Job)
	h.assign(db)
	h.until("it syncs", db.Generation, isRunning)
	var ratios []float64
	for range *hogRounds {
		alone := h.slowest(db, syncPhase)
		hogs := h.flushers()
		h.assign(append(hogs, db)...)
		h.until("the writers run", hogs[0].Generation, isRunning)
		first := h.slowest(db, 2*time.Second)
		time.Sleep(settle)
		beside := h.slowest(db, syncPhase)
		h.assign(db)
		for _, hog := range hogs {
			h.until("the writers are gone", hog.Generation, isDead)
		}
		ratios = append(ratios, float64(beside)/float64(alone))
		t.Logf("p99 of syncs alone %v; beside writers %v at first, %v later: %.2f", alone, first, beside, ratios[len(ratios)-1])
	}
	slices.Sort(ratios)
	if median := ratios[len(ratios)/2]; median > syncGoal {
		t.Errorf("median of %d ratios %.2f, want at most %d", len(ratios), median, syncGoal)
	} else {
		t.Logf("median of %d ratios %.2f, goal %d", len(ratios), median, syncGoal)
	}
}

// flushers are batch tasks that run flush.
func (h *hogs) flushers() []schema.Assignment {
	var hogs []schema.Assignment
	for range 2 {
		a := h.task("flush", schema.Batch, 300)
		a.Task.Job = fmt.Sprint("flush", len(hogs))
		a.Job.Name = a.Task.Job
		a.Job.Task.Resources.DiskBytes = 1 << 30
		a.Data = schema.DigestOf(a.Job)
		hogs = append(hogs, a)
	}
	return hogs
}

// slowest returns the 99th percentile of the task's syncs of a phase.
func (h *hogs) slowest(db schema.Assignment, phase time.Duration) time.Duration {
	h.t.Helper()
	took := h.took(db, phase)
	if len(took) == 0 {
		return phase // at least
	}
	return took[len(took)*99/100]
}
