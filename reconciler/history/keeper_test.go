package history_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/history"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// log is a history of events.
type log struct {
	mu  sync.Mutex // guards all
	all []schema.EventRecord
}

func (l *log) add(all ...schema.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range all {
		e.At = time.Now()
		l.all = append(l.all, schema.EventRecord{ID: uint64(len(l.all) + 1), Event: e})
	}
}

func (l *log) Since(q schema.EventQuery) ([]schema.EventRecord, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.Newest {
		return l.all[max(0, len(l.all)-q.Limit):], nil
	}
	var out []schema.EventRecord
	for i := range l.all {
		if l.all[i].ID > q.After && q.Matches(&l.all[i].Event) {
			out = append(out, l.all[i])
		}
	}
	return out, nil
}

type planner func(commit *schema.Compiled) (*plan.Outcome, error)

// begin returns a Keeper that runs until the test ends.
func begin(t *testing.T, dir string, l *log, p planner) *history.Keeper {
	t.Helper()
	k := history.New(history.Config{
		Dir: dir, Events: l.Since, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Plan: func(_ context.Context, c *schema.Compiled, _ func(io.Writer) error) (*plan.Outcome, error) {
			return p(c)
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return k
}

func hash(n int) string { return fmt.Sprintf("%040x", n) }

func (l *log) commit(k *history.Keeper, n int) {
	k.Begin(schema.Compiled{Commit: hash(n)}, history.Moment{Cell: "c", At: time.Now(), Applied: hash(n - 1)})
	l.add(schema.Event{Kind: schema.EventApply, Commit: hash(n), Message: "applied"})
}

func mustCommit(t *testing.T, k *history.Keeper, n int) *history.Comparison {
	t.Helper()
	c, err := k.Commit(hash(n))
	if err != nil || c == nil {
		t.Fatalf("commit %d: %v, %v", n, c, err)
	}
	return c
}

// TestKeeper: a commit is planned, converges, and stays known when the events and the process
// are gone; one that another follows is superseded; and one that nobody took is what events say.
func TestKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, l := t.TempDir(), &log{}
		l.add(schema.Event{Kind: schema.EventApply, Commit: "abc", Message: "applied"})
		k := begin(t, dir, l, func(*schema.Compiled) (*plan.Outcome, error) { return restarts("u/web/0"), nil })
		l.commit(k, 1)
		time.Sleep(time.Second)
		if c := mustCommit(t, k, 1); c.State != history.Open || c.Different != 1 || c.Plan == nil || len(c.Notes) > 0 {
			t.Errorf("at first: %+v", c)
		}
		l.add(updated("u/web/0", "m1", 1)...)
		k.Converged(hash(1), time.Now())
		time.Sleep(time.Second)
		if c := mustCommit(t, k, 1); c.State != history.Converged || c.Same != 1 || c.Different != 0 {
			t.Errorf("converged: %+v", c)
		}
		l.commit(k, 2)
		time.Sleep(time.Second)
		l.commit(k, 3)
		time.Sleep(time.Second)
		if c := mustCommit(t, k, 2); c.State != history.Superseded {
			t.Errorf("superseded: %+v", c)
		}
		if c, err := k.Commit("abc"); err != nil || c == nil || c.Plan != nil || c.State != history.Superseded || !strings.Contains(c.Notes[0], "there is no plan: ") {
			t.Errorf("of another master: %+v, %v", c, err)
		}
		if c, err := k.Commit("dddd"); err != nil || c != nil {
			t.Errorf("of nobody: %+v, %v", c, err)
		}

		again := begin(t, dir, &log{}, nil)
		if c := mustCommit(t, again, 1); c.State != history.Converged || c.Same != 1 {
			t.Errorf("after all: %+v", c)
		}
		list, err := again.List(2)
		if err != nil || len(list) != 2 || list[0].Commit != hash(3) || list[1].State != history.Superseded {
			t.Errorf("list %+v, %v", list, err)
		}
		time.Sleep(2 * time.Hour)
		if c := mustCommit(t, again, 3); c.State != history.Unsettled {
			t.Errorf("hours later: %+v", c)
		}
	})
}

// TestKeeperParts: the plan of a part says what it is without; and a commit of which no part was
// applied is planned when all of it is there, and is one entry.
func TestKeeperParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := begin(t, t.TempDir(), &log{}, func(*schema.Compiled) (*plan.Outcome, error) { return restarts("u/web/0"), nil })
		pending := schema.CompiledPackage{Dir: "slow", Diagnostics: []schema.Diagnostic{{Severity: schema.Error, Rule: schema.RulePending}}}
		for n, packages := range [][]schema.CompiledPackage{{pending}, {{Dir: "slow", Package: &schema.Package{Dir: "slow"}}}} {
			k.Begin(schema.Compiled{Commit: hash(1), Packages: packages}, history.Moment{Cell: "c", At: time.Now(), Applied: hash(0)})
			time.Sleep(time.Second)
			c := mustCommit(t, k, 1)
			if part := n == 0; part != (c.Late == 1) || part != (len(c.Notes) == 1 && strings.Contains(c.Notes[0], "without 1 directory")) || c.State != history.Open {
				t.Errorf("time %d: %+v", n, c)
			}
			if list, err := k.List(10); err != nil || len(list) != 1 {
				t.Errorf("time %d: listed %+v, %v", n, list, err)
			}
		}
	})
}

// TestKeeperBusy: of the commits that come while one is planned the newest is planned, and the
// others say that they are not; a plan that fails says why.
func TestKeeperBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, slow := &log{}, make(chan struct{})
		k := begin(t, t.TempDir(), l, func(c *schema.Compiled) (*plan.Outcome, error) {
			if c.Commit == hash(1) {
				<-slow
				return restarts(), nil
			}
			return nil, errors.New("it took longer than 2m0s")
		})
		for n := 1; n <= 3; n++ {
			l.commit(k, n)
			synctest.Wait()
			if n == 1 {
				time.Sleep(time.Second)
			}
		}
		if c := mustCommit(t, k, 2); !strings.Contains(c.Unplanned, "before it was planned") || c.State != history.Superseded {
			t.Errorf("between: %+v", c)
		}
		if c := mustCommit(t, k, 3); c.Notes[0] != "it is being planned" {
			t.Errorf("the newest: %+v", c)
		}
		close(slow)
		synctest.Wait()
		if c := mustCommit(t, k, 3); c.Unplanned != "it took longer than 2m0s" {
			t.Errorf("the newest in the end: %+v", c)
		}
	})
}

// TestKeeperBound: the oldest commits go.
func TestKeeperBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, l := t.TempDir(), &log{}
		k := begin(t, dir, l, func(*schema.Compiled) (*plan.Outcome, error) { return restarts(), nil })
		for n := range 205 {
			l.commit(k, n+1)
			time.Sleep(time.Second)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 200 {
			t.Errorf("%d files, %v", len(entries), err)
		}
	})
}

// TestKeeperConvergedFirst: a commit that converges before its turn to be planned has both in the end.
func TestKeeperConvergedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // which of the two Run sees first is not certain
			l, slow := &log{}, make(chan struct{})
			k := begin(t, t.TempDir(), l, func(c *schema.Compiled) (*plan.Outcome, error) {
				if c.Commit == hash(1) {
					<-slow
				}
				return restarts(), nil
			})
			l.commit(k, 1)
			synctest.Wait()
			time.Sleep(time.Second)
			l.commit(k, 2)
			k.Converged(hash(2), time.Now())
			close(slow)
			synctest.Wait()
			if c := mustCommit(t, k, 2); c.State != history.Converged || c.Plan == nil {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// TestKeeperUnsettled: what has become of a commit that never converges is written while there are events of it.
func TestKeeperUnsettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, l := t.TempDir(), &log{}
		k := begin(t, dir, l, func(*schema.Compiled) (*plan.Outcome, error) { return restarts("u/web/0"), nil })
		l.commit(k, 1)
		l.add(updated("u/web/0", "m1", 1)...)
		time.Sleep(2 * time.Hour)
		if c := mustCommit(t, begin(t, dir, &log{}, nil), 1); c.State != history.Unsettled || c.Same != 1 || c.Different != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestKeeperEnds: of the commit that is planned when a master ends, and of that which waits, it is said why
// they have no plan.
func TestKeeperEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, l := t.TempDir(), &log{}
		k := history.New(history.Config{
			Dir: dir, Events: l.Since, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Plan: func(ctx context.Context, _ *schema.Compiled, _ func(io.Writer) error) (*plan.Outcome, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { k.Run(ctx) })
		for n := 1; n <= 2; n++ {
			l.commit(k, n)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		cancel()
		running.Wait()
		again := begin(t, dir, l, nil)
		for n := 1; n <= 2; n++ {
			if c := mustCommit(t, again, n); c.Unplanned != "the master ended before it was planned" {
				t.Errorf("commit %d: %+v", n, c)
			}
		}
	})
}

// TestKeeperDamage: a file that cannot be read hides no other, and what a crash has left goes.
func TestKeeperDamage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, l := t.TempDir(), &log{}
		k := begin(t, dir, l, func(*schema.Compiled) (*plan.Outcome, error) { return restarts(), nil })
		for n := 1; n <= 2; n++ {
			l.commit(k, n)
			time.Sleep(time.Second)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Fatalf("%d files, %v", len(entries), err)
		}
		second := filepath.Join(dir, entries[1].Name())
		if err := errors.Join(os.WriteFile(second, []byte("half"), 0o600), os.WriteFile(second+".123.new", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		again := begin(t, dir, l, nil)
		list, err := again.List(9)
		if err != nil || len(list) != 2 || list[0].Commit != hash(2) || list[0].State != history.Unread || list[0].Seen.IsZero() || list[1].State != history.Superseded {
			t.Errorf("list %+v, %v", list, err)
		}
		if c, err := again.Commit(hash(2)); err == nil {
			t.Errorf("half a commit: %+v", c)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("%d files, %v", len(entries), err)
		}
	})
}

// TestChild: the process that plans gets the cell and the commit as they are, and says what a
// plan of them says.
func TestChild(t *testing.T) {
	t.Parallel()
	job := schema.Job{
		Name: "web", User: "search", Cell: "c", Kind: schema.Service, Priority: 200, Tasks: 2,
		Task: schema.TaskSpec{
			Process: schema.Process{Command: []string{"serve"}}, Env: map[string]string{"A": "1"},
			Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 1000, RAMBytes: 1 << 30, DiskBytes: 1 << 30}},
		},
		Update: schema.UpdatePolicy{MaxParallel: 1},
	}
	commit := func(n int, jobs ...schema.Job) schema.Compiled {
		p := &schema.Package{Dir: "cells", Origins: map[schema.ObjectKey]schema.Position{}}
		p.Objects.Cells, p.Objects.Jobs = []schema.Cell{{Name: "c", Quota: "off"}}, jobs
		return schema.Compiled{
			Commit: hash(n), Trailers: schema.Trailers{AllowPrune: 100, Promote: []string{"x"}},
			Packages: []schema.CompiledPackage{{Dir: p.Dir, Package: p, Digest: schema.DigestOf(p)}},
		}
	}
	m, err := reconciler.NewMaster(reconciler.MasterConfig{Cell: "c"}, nil, at)
	if err != nil {
		t.Fatal(err)
	}
	carryOut := func() {
		for ready, more := m.Ready(at); more; ready, more = m.Ready(at) {
			for _, batch := range model.Batches(ready.Writes) {
				if err := m.Stored(batch); err != nil {
					t.Fatal(err)
				}
			}
			m.Advance(at)
		}
	}
	carryOut()
	info := schema.MachineInfo{Name: "m1", Boot: "b", Ports: schema.PortRange{First: 20000, Last: 20099}, Capacity: schema.Resources{CPUMilli: 8000, RAMBytes: 8 << 30, DiskBytes: 8 << 30}}
	epoch, err := m.Join(info, at)
	carryOut()
	if err == nil {
		err = m.Report("m1", epoch, schema.Report{Machine: info}, at)
	}
	if err != nil {
		t.Fatal(err)
	}
	two := commit(2, job)
	var in, out bytes.Buffer
	line, err := json.Marshal(two)
	if err != nil {
		t.Fatal(err)
	}
	var back schema.Compiled
	if err := json.Unmarshal(line, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(two, back); diff != "" {
		t.Errorf("the commit is another one:\n%s", diff)
	}
	in.Write(append(line, '\n'))
	now := m.Snapshot(at)
	if err := checkpoint.Write(&in, checkpoint.HeaderOf(now.State, now.Observed, now.Head, now.Now), now.State, now.Observed); err != nil {
		t.Fatal(err)
	}
	if err := history.Child(&in, &out); err != nil {
		t.Fatal(err)
	}
	var said plan.Outcome
	if err := json.Unmarshal(out.Bytes(), &said); err != nil {
		t.Fatal(err)
	}
	want := []plan.Task{{Name: "search/web/0", Fate: plan.Starts, To: "m1"}, {Name: "search/web/1", Fate: plan.Starts, To: "m1"}}
	if diff := cmp.Diff(want, said.Tasks); diff != "" || said.Ending != plan.Settled || len(said.Steps) > 0 {
		t.Errorf("%s, %d steps\n%s", said.Ending, len(said.Steps), diff)
	}
	if err := history.Child(strings.NewReader("{"), io.Discard); err == nil {
		t.Error("half a commit is planned")
	}
}
