package loop_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// A status that is asked for right after news once said that all runs as
// desired, because nothing had been decided about the news yet.
func TestQuestionsSeeTheDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		epoch := r.join()
		r.report(epoch)
		name := web(1)
		task := name.ID().Task(0)
		r.burst(
			func() {
				if _, _, err := r.Snapshot(t.Context()); err != nil {
					t.Error(err)
				}
			},
			func() {
				if at, err := r.Locate(t.Context(), task, 0); at != "m1" || err != nil {
					t.Errorf("Locate: %q, %v", at, err)
				}
			},
			func() {
				if e, known, err := r.Why(t.Context(), "u/web", ""); !known || err != nil {
					t.Errorf("Why: %+v, %v, %v", e, known, err)
				}
			},
			func() { r.apply("c1", web(1)) },
			func() {
				s := r.status()
				if s.Converged || s.Applied != "c1" || len(s.Tasks) != 1 || s.Tasks[0].Machine != "m1" {
					t.Errorf("status after news: converged %v, applied %q, tasks %+v", s.Converged, s.Applied, s.Tasks)
				}
			},
		)
		r.report(epoch)
		if s := r.status(); !s.Converged {
			t.Errorf("waiting for %q", s.Waiting)
		}
		if at, err := r.Locate(t.Context(), schema.JobName{Cell: "c", User: "u", Job: "none"}.Task(0), 0); at != "" || err != nil {
			t.Errorf("Locate of an unknown task: %q, %v", at, err)
		}
		if _, known, err := r.Why(t.Context(), "u/none", ""); known || err != nil {
			t.Errorf("Why of an unknown job: %v, %v", known, err)
		}
		r.stop()
	})
}

// TestReadersBesideRounds: what readers make of the cell shares nothing with the rounds
// that go on meanwhile; the race detector finds what it does.
func TestReadersBesideRounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		epoch := r.join()
		var readers sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for range 3 {
			readers.Go(func() {
				for ctx.Err() == nil {
					snapshot, newer, err := r.Snapshot(ctx)
					if err != nil {
						return
					}
					s := snapshot.Whole()
					for i := range s.Tasks {
						_, _, _ = r.Why(ctx, s.Tasks[i].Name, "m1")
					}
					_, _ = r.Usages(ctx)
					select {
					case <-newer:
					case <-ctx.Done():
					}
				}
			})
		}
		for i := range 20 {
			r.apply(fmt.Sprint("c", i), web(1+i%3))
			r.report(epoch)
			time.Sleep(time.Second)
			r.report(epoch)
		}
		stop()
		readers.Wait()
		r.stop()
	})
}
