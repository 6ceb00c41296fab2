package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/directory"
	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/services/kernel"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/thread"
)

// inNamespace runs f on a thread with a network namespace of its own, which goes with it.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	err := thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		f()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestServicesLock: of two agents whose cells have one name, one programs services; the other takes over
// when that has ended, and is not waited for before.
func TestServicesLock(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for nftables")
	}
	inNamespace(t, func() {
		locks, log := t.TempDir(), slog.New(slog.DiscardHandler)
		front := schema.DirectoryEntry{Service: &schema.DirectoryService{
			ServiceSpec: schema.ServiceSpec{User: "ann", Name: "front", Ports: map[string]schema.ServicePort{"http": {Port: 80}}},
			Addresses:   []netip.Addr{netip.MustParseAddr("10.80.0.1")},
		}}
		first, second := openServices("one", "m1", locks, log), openServices("one", "m2", locks, log)
		if first.follower == nil || !first.rests() {
			t.Errorf("%q; rests: %v", first.note, first.rests())
			return
		}
		apply := func(s *services) (done chan struct{}) {
			done = make(chan struct{})
			directory.New(s.follow).Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{front}}, func() { close(done) })
			return done
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := apply(first)
		<-apply(second) // which does nothing
		if second.lock != nil || second.missed == nil {
			t.Error("two have the lock")
		}
		select {
		case <-done:
			t.Error("the kernel is not programmed yet")
		default:
		}
		go func() { <-done; cancel() }()
		if err := first.run(ctx); err != nil {
			t.Error(err)
		}
		<-done
		if third := openServices("one", "m3", locks, log); third.rests() {
			t.Error("one that finds services in the kernel has no use for a directory")
		}
		if left, err := os.ReadDir(locks); err != nil || len(left) > 0 {
			t.Errorf("left in the directory of locks: %v, %v", left, err)
		}
		second.retry()
		if second.lock == nil {
			t.Error("the lock was not taken over")
		}
	})
}

// TestServicesMissing: a machine that cannot send connections on says why, and is waited for by nobody.
func TestServicesMissing(t *testing.T) {
	t.Parallel()
	s := &services{note: "services: nftables is missing"}
	info := schema.MachineInfo{Attributes: map[string]string{}}
	s.describe(&info)
	if _, has := info.Attributes[schema.HasServices]; has || !slices.Equal(info.Notes, []string{s.note}) {
		t.Errorf("%v %q", info.Attributes, info.Notes)
	}
	acknowledged := false
	directory.New(s.follow).Apply(schema.DirectoryChange{}, func() { acknowledged = true })
	if !acknowledged || !s.rests() {
		t.Errorf("acknowledged: %v, rests: %v", acknowledged, s.rests())
	}
}

// noted is a follower that notes what it is given.
type noted struct {
	mu    sync.Mutex
	given []string // "begin" or "update", with how many services there are
}

func (n *noted) note(what string, is *naming.Snapshot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for range is.Services() {
		count++
	}
	n.given = append(n.given, fmt.Sprint(what, " ", count))
}

func (n *noted) Begin(found *naming.Snapshot)                           { n.note("begin", found) }
func (n *noted) Update(now *naming.Snapshot, _ []naming.Name, _ func()) { n.note("update", now) }
func (*noted) Withdraw()                                                {}
func (*noted) Run(context.Context)                                      {}

// snapshotOf returns a cell with so many services.
func snapshotOf(services int) *naming.Snapshot {
	var set []schema.DirectoryEntry
	for i := range services {
		set = append(set, schema.DirectoryEntry{Service: &schema.DirectoryService{ServiceSpec: schema.ServiceSpec{User: "ann", Name: fmt.Sprint("s", i)}}})
	}
	d := naming.New()
	d.Apply(schema.DirectoryChange{Set: set})
	return d.Snapshot()
}

// TestServicesMissed: an agent that gets the lock late gives the kernel what is newest, and what was found on disk
// as such.
func TestServicesMissed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		missed func(s *services)
		want   []string
	}{
		"what was found":     {func(s *services) { s.begin(snapshotOf(1)) }, []string{"begin 1"}},
		"what came after it": {func(s *services) { s.begin(snapshotOf(1)); s.update(snapshotOf(2), nil, nil) }, []string{"update 2"}},
		"the newest":         {func(s *services) { s.update(snapshotOf(1), nil, nil); s.update(snapshotOf(3), nil, nil) }, []string{"update 3"}},
		"nothing any more":   {func(s *services) { s.update(snapshotOf(1), nil, nil); s.update(snapshotOf(0), nil, nil) }, nil},
		"that there is nothing": {func(s *services) {
			s.there = true
			s.update(snapshotOf(1), nil, nil)
			s.update(snapshotOf(0), nil, nil)
		}, []string{"update 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks, follower := t.TempDir(), &noted{}
			s := &services{cell: "one", locks: locks, log: slog.New(slog.DiscardHandler), follower: follower}
			other, err := kernel.Lock(locks, "one")
			if err != nil {
				t.Fatal(err)
			}
			info := schema.MachineInfo{Attributes: map[string]string{}, Notes: []string{"another"}}
			says := func(can string, notes int) {
				t.Helper()
				s.describe(&info)
				if info.Attributes[schema.HasServices] != can || len(info.Notes) != notes || info.Notes[0] != "another" {
					t.Errorf("%s: %v; notes %q", schema.HasServices, info.Attributes, info.Notes)
				}
			}
			says("true", 1)
			tt.missed(s)
			if s.retry(); tt.want != nil {
				says("false", 2)
			}
			if len(follower.given) > 0 {
				t.Errorf("while another has the lock: %q", follower.given)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			s.retry()
			says("true", 1)
			if !slices.Equal(follower.given, tt.want) {
				t.Errorf("given %q, want %q", follower.given, tt.want)
			}
			if s.lock != nil {
				if err := s.lock.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestServicesMissedOrder: what is newer is given last, also if it comes while what was missed is given.
func TestServicesMissedOrder(t *testing.T) {
	t.Parallel()
	locks := t.TempDir()
	for range 500 {
		follower := &noted{}
		s := &services{cell: "one", locks: locks, log: slog.New(slog.DiscardHandler), follower: follower}
		s.missed = func() { follower.Update(snapshotOf(1), nil, nil) }
		var both sync.WaitGroup
		both.Go(s.retry)
		both.Go(func() { s.update(snapshotOf(2), nil, nil) })
		both.Wait()
		if last := follower.given[len(follower.given)-1]; last != "update 2" {
			t.Fatalf("given %q", follower.given)
		}
		if err := s.lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
