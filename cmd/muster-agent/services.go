package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/services/kernel"
	"github.com/musterhq/muster/schema"
)

// servicesLocks is the directory of the locks of those who program services: of the agents of
// cells with one name in one network namespace, one does. It is empty after a restart of the
// machine, as the kernel's tables are.
const servicesLocks = "/run/muster-agent"

// claimEvery is how often a lock that another agent has is asked for.
const claimEvery = 5 * time.Second

// programs is a kernel.Follower.
type programs interface {
	Begin(found *naming.Snapshot)
	Update(now *naming.Snapshot, touched []naming.Name, done func())
	Withdraw()
	Run(ctx context.Context)
}

// services has the kernel send connections to services of the cell to their endpoints.
type services struct {
	cell string
	log  *slog.Logger
	// locks is the directory of the locks.
	locks    string
	follower programs // nil: the machine cannot do it
	note     string   // says why not
	there    bool     // an agent before this one has programmed services

	mu     sync.Mutex // guards what follows
	lock   io.Closer
	missed func() // gives follower the newest; nil, but while another agent has the lock
	held   string // why it was not given the lock, if missed is not nil
}

// openServices finds out whether this machine can do it.
func openServices(cell, machine, locks string, log *slog.Logger) *services {
	s := &services{cell: cell, log: log, locks: locks}
	if os.Geteuid() != 0 {
		s.note = servicesMark + "the agent is not root, so connections from this machine to virtual addresses are not sent on"
		return s
	}
	there, err := kernel.Present(cell)
	if err == nil && !there {
		err = tried(kernel.Supported)
	}
	if err != nil {
		s.note = fmt.Sprintf(servicesMark+"connections from this machine to virtual addresses are not sent on: %v", err)
		return s
	}
	s.there, s.follower = there, kernel.NewFollower(cell, machine, log)
	return s
}

// servicesMark begins the note that says why a machine does not send to services.
const servicesMark = "services: "

// describe says of the machine whether it sends to services, and if not, why. It replaces what was said before.
func (s *services) describe(info *schema.MachineInfo) {
	info.Notes = slices.DeleteFunc(slices.Clone(info.Notes), func(n string) bool { return strings.HasPrefix(n, servicesMark) })
	note := s.note
	if s.follower != nil {
		s.mu.Lock()
		if s.missed != nil {
			note = servicesMark + s.held
		}
		s.mu.Unlock()
		info.Attributes[schema.HasServices] = strconv.FormatBool(note == "")
	}
	if note != "" {
		info.Notes = append(info.Notes, note)
	}
}

// rests says that the machine has no use for a directory without services.
func (s *services) rests() bool { return !s.there }

// begin gives it what was known when the agent before this one ended.
func (s *services) begin(found *naming.Snapshot) {
	if s.follower == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	give := func() { s.follower.Begin(found) }
	if s.claim(found, give) {
		give()
	}
}

// follow is a directory.Follower.
func (s *services) follow(now *naming.Snapshot, touched naming.Touched, done func()) {
	if s.follower == nil || !s.update(now, touched.Services, done) {
		done() // there is nothing that this agent could do
	}
}

// update gives the follower a snapshot, and reports whether it has: then done is called later.
func (s *services) update(now *naming.Snapshot, touched []naming.Name, done func()) bool {
	s.mu.Lock() // so that no older one comes after it
	defer s.mu.Unlock()
	if !s.claim(now, func() { s.follower.Update(now, nil, nil) }) {
		return false
	}
	s.follower.Update(now, touched, done)
	return true
}

// claim takes the lock, if there is anything to be programmed, and reports whether this agent has it. If
// another has, give is called once that has ended. The caller has s.mu.
func (s *services) claim(now *naming.Snapshot, give func()) bool {
	if s.lock != nil {
		return true
	}
	if !s.there && !now.HasAnyService() {
		s.missed = nil
		return false
	}
	if err := s.take(); err != nil {
		if s.missed == nil {
			s.log.Warn("services: this agent does not program them until it has the lock", "err", err)
		}
		s.missed, s.held = give, err.Error()
		return false
	}
	return true
}

// take takes the lock. The caller has s.mu.
func (s *services) take() error {
	lock, err := kernel.Lock(s.locks, s.cell)
	if err == nil {
		s.lock, s.missed = lock, nil
	}
	return err
}

// retry takes the lock if another agent has had it so far, and does what was missed.
func (s *services) retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if give := s.missed; give != nil && s.take() == nil {
		give()
	}
}

// withdraw has what is programmed be removed at the end.
func (s *services) withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock != nil {
		s.follower.Withdraw()
	}
}

// run programs until ctx ends, in the network namespace of its thread.
func (s *services) run(ctx context.Context) error {
	if s.follower == nil {
		<-ctx.Done()
		return nil
	}
	var running sync.WaitGroup
	running.Go(func() { s.followLock(ctx) })
	s.follower.Run(ctx)
	running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// followLock takes the lock once another agent has given it back, until ctx ends.
func (s *services) followLock(ctx context.Context) {
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.retry()
		case <-ctx.Done():
			return
		}
	}
}
