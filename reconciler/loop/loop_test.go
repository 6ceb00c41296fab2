package loop_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// A machine is sent only what the store has (Push of the rig checks each view),
// and nothing twice.
func TestPushFollowsStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		wantTrace(t, r.traced())
		epoch := r.join()
		wantTrace(t, r.traced(), "store: taken", "push 1 to m1: []")
		r.report(epoch)
		wantTrace(t, r.traced())
		r.apply("c1", web(2))
		wantTrace(t, r.traced(), "store: taken", "store: taken", "push 2 to m1: [u/web/0#1 u/web/1#2]")
		r.report(epoch)
		wantTrace(t, r.traced(), "store: taken") // all tasks are healthy with this data
		r.report(epoch)
		wantTrace(t, r.traced())
		// A machine that connects again is sent all again.
		r.join()
		wantTrace(t, r.traced(), "store: taken", "push 3 to m1: [u/web/0#1 u/web/1#2]")
		// One that has left is sent nothing.
		r.Leave("m1", 2)
		r.apply("c2", web(1))
		wantTrace(t, r.traced(), "store: taken", "store: taken")
		r.stop()
	})
}

// TestJoinsStoredTogether: machines that join at the same time cost a transaction for
// many, not one each, and each knows its epoch when that is stored.
func TestJoinsStoredTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		const machines = 100
		var joins []func()
		for i := range machines {
			info := machine()
			info.Name = fmt.Sprintf("m%03d", i)
			joins = append(joins, func() {
				if epoch, err := r.Join(t.Context(), info); err != nil || epoch != 1 {
					t.Errorf("%s joins with epoch %d, %v", info.Name, epoch, err)
				}
				if r.stored().Machines[info.Name] == nil {
					t.Errorf("%s has joined and is not stored", info.Name)
				}
			})
		}
		before := r.memory.Transactions()
		r.burst(append(joins, func() { // whose connection was lost meanwhile
			if epoch, err := r.Join(t.Context(), schema.MachineInfo{Name: "m007"}); err != nil || epoch != 2 {
				t.Errorf("m007 joins again with epoch %d, %v", epoch, err)
			}
		})...)
		if took := r.memory.Transactions() - before; took > 2 {
			t.Errorf("%d machines joined in %d transactions", machines, took)
		}
		r.stop()
	})
}

// converge brings a cell to run two tasks, whatever it held before. It returns
// early once the loop has ended.
func converge(r *rig) {
	ctx := r.t.Context()
	epoch, err := r.Join(ctx, machine())
	report := func() {
		synctest.Wait()
		if err == nil {
			err = r.Report(ctx, "m1", epoch, r.running())
		}
	}
	report()
	if err == nil {
		err = errors.Join(r.HeadSeen(ctx, model.Seen{Commit: "c1"}), r.Adopt(ctx, compiledOf("c1", web(2))))
	}
	report()
	report()
	if err != nil && !errors.Is(err, loop.ErrStopped) {
		r.t.Error(err)
	}
}

// Whichever transaction fails, taken or not: Run ends with the error, nothing
// is pushed from then on, and the next master goes on from what is stored. One of
// the two logs each thing that was done.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	for _, fate := range []store.Fate{store.Refused, store.Forgotten} {
		for n := 1; ; n++ {
			failed := false
			synctest.Test(t, func(t *testing.T) {
				m := store.NewMemory()
				r := prepare(t, m)
				r.failAt(n, fate)
				r.run()
				converge(r)
				synctest.Wait()
				trace := r.traced()
				at := slices.IndexFunc(trace, func(s string) bool { return s == "store: refused" || s == "store: forgotten" })
				if failed = at >= 0; !failed {
					r.stop()
					return
				}
				if err := <-r.ended; !errors.Is(err, store.ErrInjected) || !strings.Contains(err.Error(), "cell c") {
					t.Errorf("transaction %d: Run ended with %v", n, err)
				}
				if after := trace[at+1:]; len(after) > 0 {
					t.Errorf("transaction %d: after it failed: %q", n, after)
				}
				next := start(t, m)
				converge(next)
				if s := next.status(); !s.Converged || len(s.Tasks) != 2 {
					t.Errorf("transaction %d: the next master waits for %q", n, s.Waiting)
				}
				logged := r.logged()
				maps.Copy(logged, next.logged())
				for _, want := range []string{"machine", "submit", "apply", "schedule u/web/0", "schedule u/web/1"} {
					if !logged[want] {
						t.Errorf("transaction %d: no event %q, but %q", n, want, slices.Sorted(maps.Keys(logged)))
					}
				}
				next.stop()
			})
			if !failed {
				if n < 4 {
					t.Errorf("only %d transactions", n-1)
				}
				break
			}
		}
	}
}

func TestLeadershipLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := store.NewMemory()
		old := start(t, m)
		converge(old)
		next := start(t, m)
		old.traced()
		if _, err := old.Join(t.Context(), machine()); !errors.Is(err, loop.ErrStopped) {
			t.Errorf("a master that was fenced answers a join with %v", err)
		}
		if err := <-old.ended; !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("Run ended with %v", err)
		}
		if trace := old.traced(); slices.ContainsFunc(trace, func(s string) bool { return strings.HasPrefix(s, "push") }) {
			t.Errorf("a master that was fenced pushed: %q", trace)
		}
		converge(next)
		if s := next.status(); !s.Converged {
			t.Errorf("the next master waits for %q", s.Waiting)
		}
		next.stop()
	})
}

func TestLoadFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := prepare(t, store.NewMemory())
		failing := loop.New(loop.Config{Cell: "c", Store: noStore{}, Pusher: r, Events: r, Now: time.Now})
		if err := failing.Run(t.Context()); !errors.Is(err, errNoStore) || !strings.Contains(err.Error(), "cell c") {
			t.Errorf("Run: %v", err)
		}
		if _, _, err := failing.Snapshot(t.Context()); !errors.Is(err, loop.ErrStopped) {
			t.Errorf("Snapshot: %v", err)
		}
	})
}

var errNoStore = errors.New("no store")

type noStore struct{ loop.Store }

func (noStore) Load(context.Context) (map[string][]byte, error) { return nil, errNoStore }

// An epoch is stored when it is given, so that it rises over a restart.
func TestEpochs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := store.NewMemory()
		want := uint64(1)
		for range 3 {
			r := start(t, m)
			for range 2 {
				epoch := r.join()
				if stored := r.stored().Machines["m1"].Epoch; epoch != want || stored != want {
					t.Errorf("epoch %d, stored %d: want %d", epoch, stored, want)
				}
				want++
			}
			r.stop()
		}
		for _, fate := range []store.Fate{store.Refused, store.Forgotten} {
			r := start(t, m)
			r.failAt(1, fate)
			if epoch, err := r.Join(t.Context(), machine()); !errors.Is(err, loop.ErrStopped) {
				t.Errorf("epoch %d that may not be stored is given: %v", epoch, err)
			}
			if err := <-r.ended; !errors.Is(err, store.ErrInjected) {
				t.Errorf("Run ended with %v", err)
			}
		}
	})
}

func TestReportOfOldEpoch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		refused := func(epoch uint64) {
			t.Helper()
			before := r.status().Version
			if err := r.Report(t.Context(), "m1", epoch, r.running()); err == nil || errors.Is(err, loop.ErrStopped) {
				t.Errorf("report of epoch %d: %v", epoch, err)
			}
			if s := r.status(); len(s.Machines) > 0 && s.Machines[0].Health != "silent" {
				t.Errorf("version %d after %d: the refused report was taken", s.Version, before)
			}
		}
		refused(0)
		refused(1)
		first, second := r.join(), r.join()
		refused(first)
		r.Leave("m1", first) // comes late, and means nothing
		r.report(second)
		if s := r.status(); s.Machines[0].Health != "up" {
			t.Errorf("machine is %s after a report", s.Machines[0].Health)
		}
		r.Leave("m1", second)
		if err := r.Report(t.Context(), "m1", second, r.running()); err == nil {
			t.Error("a report is taken from a machine that has left")
		}
		r.stop()
	})
}

func TestBurstCostsOneRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		epoch := r.join()
		var calls []func()
		for range 100 {
			calls = append(calls, func() { r.report(epoch) })
		}
		before := r.status().Version
		r.burst(calls...)
		// Calls return before the round.
		if s := r.status(); s.Version != before+1 {
			t.Errorf("%d rounds", s.Version-before)
		}
		r.stop()
	})
}

// startWithTask starts a master with one machine, which has joined, and has reported in the
// session of the epoch, and a job of one task: said is the report that it runs.
func startWithTask(t *testing.T) (r *rig, epoch uint64, said schema.Report) {
	t.Helper()
	r = start(t, store.NewMemory())
	epoch = r.join()
	r.report(epoch)
	r.apply("c1", web(1))
	synctest.Wait()
	return r, epoch, r.running()
}

// A machine that says what it has said costs no round; it is up all the same, and one
// that says other things is decided upon at once.
func TestRepeatedReportsCostNoRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, epoch, said := startWithTask(t)
		again := func(times int) uint64 {
			before := r.status().Version
			for range times {
				time.Sleep(2 * time.Second) // of the bubble's clock
				if err := r.Report(t.Context(), "m1", epoch, said); err != nil {
					t.Fatal(err)
				}
			}
			return r.status().Version - before
		}
		again(1)
		// Now and then it is looked whether machines are silent.
		if rounds := again(100); rounds > 100*2/5 {
			t.Errorf("100 reports that say the same in 200 s cost %d rounds", rounds)
		}
		if s := r.status(); s.Machines[0].Health != string(model.HealthUp) || !s.Converged {
			t.Errorf("the machine is %s, waiting for %q", s.Machines[0].Health, s.Waiting)
		}
		said.Tasks = slices.Clone(said.Tasks)
		said.Tasks[0].Incarnation++
		if rounds := again(1); rounds == 0 {
			t.Error("a report that says other things costs no round")
		}
		r.stop()
	})
}

// While rounds take long, reports of machines are gathered for as long as one took; what else
// happens is decided upon at once.
func TestRoundsRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, epoch, said := startWithTask(t)
		restarted := func() {
			said.Tasks = slices.Clone(said.Tasks)
			said.Tasks[0].Incarnation++
			if err := r.Report(t.Context(), "m1", epoch, said); err != nil {
				t.Fatal(err)
			}
		}
		const took, between = 100 * time.Millisecond, 10 * time.Millisecond // of the bubble's clock
		r.mu.Lock()
		r.slow = took
		r.mu.Unlock()
		before := r.status().Version
		for range 500 {
			restarted()
			time.Sleep(between)
		}
		// One comes while a round is made, and the others while the owner rests.
		if rounds := r.status().Version - before; rounds < 2 || rounds > 500/uint64(took/between)+1 {
			t.Errorf("500 reports, %v apart, cost %d rounds of %v", between, rounds, took)
		}

		restarted()
		time.Sleep(took + between) // the round is over, and the owner rests
		_, newer := r.statusAndNewer()
		restarted()
		if r.status(); !isClosed(newer) {
			t.Error("the answer to a question that came while the owner rests is of before the news")
		}
		_, newer = r.statusAndNewer()
		restarted()
		began := time.Now()
		r.apply("c2", web(1))
		if <-newer; time.Since(began) > 2*took {
			t.Errorf("a commit that came while the owner rests waited %v", time.Since(began))
		}
		r.stop()
	})
}

func TestNewerStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		synctest.Wait()
		first, newer := r.statusAndNewer()
		if same, again := r.statusAndNewer(); same.Version != first.Version || again != newer {
			t.Error("a question made a new version")
		}
		one, _, err := r.Snapshot(t.Context())
		if two, _, again := r.Snapshot(t.Context()); err != nil || again != nil || one != two {
			t.Errorf("the same moment was described twice: %v, %v", err, again)
		}
		synctest.Wait()
		if isClosed(newer) {
			t.Fatal("newer is closed without news")
		}
		r.join()
		synctest.Wait()
		if !isClosed(newer) {
			t.Fatal("newer is not closed after news")
		}
		second, newer := r.statusAndNewer()
		if second.Version <= first.Version || isClosed(newer) || len(second.Machines) != 1 || len(first.Machines) != 0 {
			t.Errorf("version %d after %d, machines %v after %v", second.Version, first.Version, second.Machines, first.Machines)
		}
		r.stop()
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// What happens because time passes happens without news.
func TestWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		begin := time.Now()
		r.report(r.join())
		var got []string
		for range 3 {
			s, newer := r.statusAndNewer()
			got = append(got, fmt.Sprintf("%s %s", time.Since(begin), s.Machines[0].Health))
			select {
			case <-newer:
			case <-time.After(time.Hour):
			}
		}
		want := []string{"0s up", "10s silent", "1m0s lost"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("machine: (-want +got)\n%s", diff)
		}
		if time.Since(begin) < time.Hour {
			t.Errorf("a round after %s, when nothing can change any more", time.Since(begin))
		}
		r.stop()
	})
}

// A quota that begins and ends changes what is admitted, and what is warned of,
// without news, to the moment.
func TestQuotaPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		begin := time.Now()
		job := web(2)
		job.Priority = 200
		c := compiledOf("c1", job)
		c.Packages[0].Package.Objects.Quotas = []schema.Quota{{
			Name: "q", User: "u", Cell: "c", Band: schema.BandProduction, Resources: schema.Resources{CPUMilli: 200}, Tasks: 2,
			From: begin.Add(time.Hour), Until: begin.AddDate(0, 6, 0),
		}}
		c.Packages[0].Digest = schema.DigestOf(c.Packages[0].Package)
		if err := errors.Join(r.HeadSeen(t.Context(), model.Seen{Commit: "c1"}), r.Adopt(t.Context(), c)); err != nil {
			t.Error(err)
		}
		var got []string
		for range 3 {
			s, newer := r.statusAndNewer()
			got = append(got, fmt.Sprintf("%s: %d rejected, %d jobs, %d warnings", time.Since(begin), len(s.Rejected), len(s.Jobs), len(s.Warnings)))
			select {
			case <-newer:
			case <-time.After(10 * 365 * 24 * time.Hour):
			}
		}
		want := []string{
			"0s: 1 rejected, 0 jobs, 1 warnings", "1h0m0s: 0 rejected, 1 jobs, 1 warnings", // no cell is declared
			fmt.Sprintf("%s: 0 rejected, 1 jobs, 2 warnings", begin.AddDate(0, 6, 0).Sub(begin)),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		r.stop()
	})
}

// Settled is called for each commit once, from when its head was seen.
func TestSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := store.NewMemory()
		r := start(t, m)
		epoch := r.join()
		r.report(epoch)
		r.HeadSeen(t.Context(), model.Seen{Commit: "c1"})
		time.Sleep(2 * time.Second)
		r.report(epoch)
		r.Adopt(t.Context(), compiledOf("c0", web(5))) // not the head: dropped
		r.apply("c1", web(1))
		time.Sleep(3 * time.Second)
		r.report(epoch)
		r.report(epoch)
		r.HeadSeen(t.Context(), model.Seen{Commit: "c1"})
		r.apply("c2", web(1)) // changes nothing
		synctest.Wait()
		if diff := cmp.Diff([]string{"c1 5s", "c2 0s"}, r.settled); diff != "" {
			t.Errorf("settled: (-want +got)\n%s", diff)
		}
		r.stop()
		// The next master did not see the head come.
		next := start(t, m)
		next.HeadSeen(t.Context(), model.Seen{Commit: "c2"})
		epoch = next.join()
		synctest.Wait()
		next.report(epoch)
		if s := next.status(); !s.Converged || len(next.settled) > 0 {
			t.Errorf("converged %v, settled %q", s.Converged, next.settled)
		}
		next.stop()
	})
}

// A call that nobody answers ends with its context.
func TestCallEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := prepare(t, store.NewMemory())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := r.Snapshot(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Snapshot: %v", err)
		}
		for range 1000 { // until the inbox is full
			if err := r.HeadSeen(ctx, model.Seen{Commit: "c"}); err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("HeadSeen: %v", err)
				}
				break
			}
		}
	})
}

func TestCallsAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		synctest.Wait()
		r.stop()
		wantStopped(t, r.Loop)
	})
}

// wantStopped holds each call of a Loop against ErrStopped.
func wantStopped(t *testing.T, l *loop.Loop) {
	t.Helper()
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"HeadSeen":       func() error { return l.HeadSeen(ctx, model.Seen{Commit: "c"}) },
		"Adopt":          func() error { return l.Adopt(ctx, compiledOf("c")) },
		"Join":           func() error { _, err := l.Join(ctx, machine()); return err },
		"UpdateSessions": func() error { return said(ctx, l, model.SessionUpdate{Machine: "m1", Epoch: 1, Reported: true}) },
		"Snapshot":       func() error { _, _, err := l.Snapshot(ctx); return err },
		"Why":            func() error { _, _, err := l.Why(ctx, "u/web", ""); return err },
		"Locate":         func() error { _, err := l.Locate(ctx, schema.TaskName{}, 0); return err },
	} {
		for range 100 { // the inbox has room still
			if err := call(); !errors.Is(err, loop.ErrStopped) {
				t.Errorf("%s after the end: %v", name, err)
				break
			}
		}
	}
}

// A machine that has seen more than is stored is refused, and its epochs do not
// move on: however often it asks, it is not taken for one that the store knows.
func TestStoreBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		for _, seen := range []schema.Seen{{Epoch: 1}, {Epoch: 1}, {Generation: 1}} {
			ahead := machine()
			ahead.Seen = seen
			if _, err := r.Join(t.Context(), ahead); !errors.As(err, new(*schema.BehindError)) || !strings.Contains(err.Error(), "\nhint: ") {
				t.Errorf("a machine that has seen %+v joins: %v", seen, err)
			}
		}
		wantTrace(t, r.traced())
		refused := 0
		for _, e := range r.events {
			if strings.HasPrefix(e.Message, "refused: machine m1 has seen ") {
				refused++
			}
		}
		if notes := r.status().Notes; refused != 2 || len(notes) != 1 || !strings.Contains(notes[0], "machine m1 has seen generation 1") {
			t.Errorf("%d events for two different refusals; the status notes %q", refused, notes)
		}
		epoch := r.join()
		if r.report(epoch); epoch != 1 || len(r.status().Notes) > 0 {
			t.Errorf("the first epoch is %d; the status notes %q", epoch, r.status().Notes)
		}
		again := machine()
		again.Seen.Epoch = 1
		if epoch, err := r.Join(t.Context(), again); err != nil || epoch != 2 {
			t.Errorf("a machine that joins again: epoch %d, %v", epoch, err)
		}
		r.stop()
	})
}
