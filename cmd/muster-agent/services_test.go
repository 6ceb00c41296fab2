package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/directory"
	"github.com/musterhq/muster/nodeagent/thread"
	"github.com/musterhq/muster/schema"
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
