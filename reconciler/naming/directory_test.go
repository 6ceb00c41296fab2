package naming

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// source is a cell whose snapshots a test publishes.
type source struct {
	mu    sync.Mutex
	is    *status.Snapshot
	newer chan struct{}
}

func (c *source) snapshot(context.Context) (*status.Snapshot, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.is, c.newer, nil
}

func (c *source) publish(s *status.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newer != nil {
		close(c.newer)
	}
	c.is, c.newer = s, make(chan struct{})
}

// TestUnlisted: the machine of a task that stops learns that when all readers act by it, or have
// gone, or after a while.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	up := []status.MachineStatus{machine("m1", "up"), machine("m2", "up")}
	stopping := task("ann/web/0", "m1")
	stopping.State = status.TaskStopping
	for name, tt := range map[string]struct {
		settle time.Duration
		other  func(r *Reader, u schema.DirectoryUpdate) // what the reader of m2 does with the stop
		want   time.Duration
	}{
		"acknowledged": {0, func(r *Reader, u schema.DirectoryUpdate) { r.Next(u.Version) }, 0},
		"gone":         {0, func(r *Reader, _ schema.DirectoryUpdate) { r.Close() }, ackWithin},
		"gone, and back": {0, func(r *Reader, _ schema.DirectoryUpdate) {
			r.Close()
			back := r.d.Read(r.machine, new(schema.DirectoryDigests), false)
			u, _ := back.Next(0)
			back.Next(u.Version)
		}, 0},
		"silent":              {0, func(*Reader, schema.DirectoryUpdate) {}, ackWithin},
		"settles":             {time.Second, func(r *Reader, u schema.DirectoryUpdate) { r.Next(u.Version) }, time.Second},
		"silent, and settles": {time.Second, func(*Reader, schema.DirectoryUpdate) {}, ackWithin},
		"says too much":       {0, func(r *Reader, u schema.DirectoryUpdate) { r.Next(u.Version + 1) }, ackWithin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cells := &source{}
				cells.publish(cell(up, task("ann/web/0", "m1"), task("ann/web/1", "m2")))
				d := New(Config{Cell: cells.snapshot, Settle: tt.settle})
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { d.Run(ctx) })
				a, b := d.Read("m1", new(schema.DirectoryDigests), false), d.Read("m2", new(schema.DirectoryDigests), false)
				synctest.Wait()
				for _, r := range []*Reader{a, b} {
					u, _ := r.Next(0)
					if u.Version != 1 || len(u.Shards) == 0 || len(u.Set) != 3 {
						t.Fatalf("it begins with %d entries of version %d, shards %v", len(u.Set), u.Version, u.Shards)
					}
					r.Next(1)
				}
				time.Sleep(takeEvery)
				cells.publish(cell(up, stopping, task("ann/web/1", "m2")))
				synctest.Wait()
				ua, _ := a.Next(1)
				ub, _ := b.Next(1)
				if ua.Version != 2 || ub.Version != 2 || len(ua.Shards) > 0 || len(ua.Set) != 1 {
					t.Fatalf("of the stop: versions %d and %d, %d entries, shards %v", ua.Version, ub.Version, len(ua.Set), ua.Shards)
				}
				if u, news := a.Next(2); news {
					t.Fatalf("before the other knows: %v", u)
				}
				for len(a.Wake()) > 0 {
					<-a.Wake()
				}
				began := time.Now()
				tt.other(b, ub)
				<-a.Wake()
				if took := time.Since(began); took != tt.want {
					t.Errorf("after %v, want %v", took, tt.want)
				}
				if u, _ := a.Next(2); !slices.Equal(u.Unlisted, of7("ann/web/0")) || u.Version != 0 {
					t.Errorf("unlisted %v, version %d", u.Unlisted, u.Version)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

// follow runs the directory of a cell, until end is called, with readers that have all of it.
func (c *source) follow(settle time.Duration, machines ...string) (d *Directory, readers []*Reader, end func()) {
	d = New(Config{Cell: c.snapshot, Settle: settle})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	for _, m := range machines {
		readers = append(readers, d.Read(m, new(schema.DirectoryDigests), false))
	}
	synctest.Wait()
	for _, r := range readers {
		r.Next(0)
		r.Next(1)
	}
	time.Sleep(takeEvery)
	return d, readers, func() {
		cancel()
		running.Wait()
	}
}

// TestUnlistedBack: a machine whose agent is started again while others come to know that its task stops
// learns of it all the same, but not of one that was stopped long ago: the task may be another by then.
func TestUnlistedBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		alone bool // it is the last to go
		after time.Duration
		want  []schema.UnlistedTask
	}{
		"soon":             {false, ackWithin, of7("ann/web/0")},
		"an hour later":    {false, time.Hour, nil},
		"soon, to nobody":  {true, ackWithin, of7("ann/web/0")},
		"later, to nobody": {true, time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				up := []status.MachineStatus{machine("m1", "up"), machine("m2", "up")}
				cells := &source{}
				cells.publish(cell(up, task("ann/web/0", "m1")))
				d, readers, end := cells.follow(0, "m1", "m2")
				defer end()
				stopping := task("ann/web/0", "m1")
				stopping.State = status.TaskStopping
				if tt.alone {
					cells.publish(cell(up, stopping))
					synctest.Wait()
				}
				readers[0].Close()
				if !tt.alone {
					cells.publish(cell(up, stopping))
					synctest.Wait()
				}
				u, _ := readers[1].Next(1)
				readers[1].Next(u.Version)
				time.Sleep(tt.after)
				synctest.Wait()
				if tt.alone {
					readers[1].Close()
				}
				back := d.Read("m1", new(schema.DirectoryDigests), false)
				if u, _ := back.Next(0); !slices.Equal(u.Unlisted, tt.want) {
					t.Errorf("unlisted %v, want %v", u.Unlisted, tt.want)
				}
			})
		})
	}
}

// TestUnlistedNotAgain: a machine does not learn that nothing is sent to a task that has become ready again, however late
// another machine acknowledges that it was not: of its stop it learns when all know of that.
func TestUnlistedNotAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := []status.MachineStatus{machine("m1", "up"), machine("m2", "up")}
		is := func(state status.TaskState, health schema.HealthState) *status.Snapshot {
			x := task("ann/web/0", "m1")
			x.State, x.Health = state, health
			return cell(up, x)
		}
		cells := &source{}
		cells.publish(is(status.TaskRunning, schema.Healthy))
		_, readers, end := cells.follow(0, "m1", "m2")
		defer end()
		a, b := readers[0], readers[1]
		for _, s := range []*status.Snapshot{is(status.TaskRunning, schema.Unhealthy), is(status.TaskRunning, schema.Healthy), is(status.TaskStopping, schema.Healthy)} {
			cells.publish(s)
			synctest.Wait()
			u, _ := a.Next(1)
			a.Next(u.Version)
			time.Sleep(takeEvery)
		}
		synctest.Wait()
		behind, _ := b.Next(1) // all three
		if again := behind.Version; again != 4 {
			t.Fatalf("it is sent version %d", again)
		}
		for v := uint64(2); v < 4; v++ { // it says what it was never sent
			b.Next(v)
		}
		time.Sleep(ackWithin - 3*takeEvery)
		synctest.Wait()
		if u, _ := a.Next(4); len(u.Unlisted) > 0 {
			t.Errorf("unlisted %v before all know of the stop", u.Unlisted)
		}
		b.Next(4)
		if u, _ := a.Next(4); !slices.Equal(u.Unlisted, of7("ann/web/0")) {
			t.Errorf("unlisted %v", u.Unlisted)
		}
	})
}

// TestBehind: of machines that have not acknowledged what was sent to them are those that may lack what is asked for.
func TestBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := []status.MachineStatus{machine("m1", "up"), machine("m2", "up")}
		cells := &source{}
		cells.publish(cell(up, task("ann/web/0", "m1")))
		d, readers, end := cells.follow(0, "m1", "m2")
		defer end()
		behind := func(key string) []string {
			return slices.Sorted(maps.Keys(d.Behind(func(k string) bool { return k == key })))
		}
		both := []string{"m1", "m2"}
		d.Read("m3", new(schema.DirectoryDigests), false).Next(0)
		if is := behind("service/ann/front"); !slices.Equal(is, []string{"m3"}) {
			t.Errorf("of one that has just begun: %v", is)
		}
		cells.publish(cell(up, task("ann/web/0", "m2")))
		synctest.Wait()
		for _, r := range readers {
			r.Next(1)
		}
		if is := behind("tasks/ann/web/0"); !slices.Equal(is, append(both, "m3")) {
			t.Errorf("of the task that has changed: %v", is)
		}
		if is := behind("tasks/ann/other/0"); !slices.Equal(is, []string{"m3"}) {
			t.Errorf("of another: %v", is)
		}
		readers[0].Next(2)
		if is := behind("tasks/ann/web/0"); !slices.Equal(is, []string{"m2", "m3"}) {
			t.Errorf("of those that have not acknowledged it: %v", is)
		}
	})
}

// TestUnlistedIdle: a task that stops without having been ready waits for nobody.
func TestUnlistedIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := []status.MachineStatus{machine("m1", "up")}
		starting := task("ann/web/0", "m1")
		starting.State = status.TaskStarting
		cells := &source{}
		cells.publish(cell(up, starting))
		_, readers, end := cells.follow(time.Second, "m1")
		defer end()
		stopping := starting
		stopping.State = status.TaskStopping
		cells.publish(cell(up, stopping))
		synctest.Wait()
		if u, _ := readers[0].Next(1); !slices.Equal(u.Unlisted, of7("ann/web/0")) {
			t.Errorf("unlisted %v", u.Unlisted)
		}
	})
}

// TestReadAgain: a reader that comes with what it has is sent what differs, and nothing if
// nothing does; and one that is slow has one version at a time on its way.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := []status.MachineStatus{machine("m1", "up")}
		cells := &source{}
		cells.publish(cell(up, task("ann/web/0", "m1")))
		d := New(Config{Cell: cells.snapshot})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		var have schema.DirectoryDigests
		first := d.Read("m1", &schema.DirectoryDigests{}, false)
		synctest.Wait()
		u, _ := first.Next(0)
		for _, text := range u.Set {
			e := map[string][]byte{}
			apply(e, schema.DirectoryUpdate{Set: [][]byte{text}})
			for key := range e {
				i := schema.DirectoryShard(key)
				have[i] = have[i].Plus(schema.DirectoryDigestOf(text))
			}
		}
		again := d.Read("m1", &have, false)
		if u, news := again.Next(0); !news || u.Version != 1 || len(u.Shards)+len(u.Set)+len(u.Removed) > 0 {
			t.Errorf("of what it has already: %v", u)
		}
		cells.publish(cell(up, task("ann/web/1", "m1")))
		time.Sleep(takeEvery)
		synctest.Wait()
		if u, news := first.Next(0); news {
			t.Errorf("before it has acknowledged version 1: %v", u)
		}
		if u, _ := first.Next(1); u.Version != 2 {
			t.Errorf("then version %d, want 2", u.Version)
		}
		first.Close()
		again.Close()
		cancel()
		running.Wait()
	})
}
