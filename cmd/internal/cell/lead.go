package cell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/reconciler/relay"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

const (
	retryStore    = time.Second     // between two tries while the store is down
	leaderWait    = 2 * time.Second // for an election, before the API serves
	resignTimeout = 2 * time.Second // a store that does not answer is left
)

// openStore opens the cell's store, and leads at once if it is ours alone: then
// what is wrong with it is an error of the start.
func (m *master) openStore(ctx context.Context, d *pki.Directory) (err error) {
	cfg := &m.cfg
	if len(cfg.Etcd.Endpoints) == 0 {
		m.store, err = store.OpenEmbedded(ctx, store.EmbeddedConfig{Dir: cfg.DataDir, Cell: m.cell, Release: cfg.Release, Log: cfg.Log})
		if err != nil {
			return err
		}
		return m.store.Campaign(ctx, m.candidate())
	}
	c := cfg.Etcd
	c.Dir, c.Cell, c.Release, c.Standby = cfg.DataDir, m.cell, cfg.Release, m.stands
	if c.Link, err = m.linkAddress(d); err != nil {
		return err
	}
	m.store, err = store.OpenCluster(c)
	return err
}

// candidate is how this master is known to others: by the address of its API.
func (m *master) candidate() string {
	if len(m.cfg.Etcd.Endpoints) == 0 {
		return fmt.Sprintf("pid %d", os.Getpid())
	}
	return m.url()
}

// stands takes who leads while this master waits. The agents that are connected to it stay:
// their reports go to the leader.
func (m *master) stands(l store.Leader) {
	m.cfg.Log.Info("standing by", "cell", m.cell, "leader", l.ID)
	m.term.standby(l.ID)
	switch {
	case l == store.Leader{}:
		m.shard.Wait()
	case l.Link == "": // of a release before
		_, why := m.term.leading()
		m.shard.Refuse(why)
	default:
		m.shard.Follow(l.Link, l.Term)
	}
}

// lead leads the cell whenever it can, until ctx ends. A store that cannot be reached ends
// a term and not the process: all state is read again when the store is back.
func (m *master) lead(ctx context.Context) error {
	for {
		err := m.leadOneTerm(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // what ended it is ctx
		}
		gone := errors.Is(err, store.ErrDown)
		if !gone && !errors.Is(err, store.ErrNotLeader) {
			return err
		}
		m.leadsNoMore(err)
		if gone {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(retryStore):
			}
		}
	}
}

// leadsNoMore records why this master no longer leads, if it may lead again.
func (m *master) leadsNoMore(err error) {
	a := status.Absence{Role: status.Starting, Since: time.Now(), Message: "this master lost its lease and no longer leads the cell"}
	switch {
	case errors.Is(err, store.ErrDown):
		a.Role, a.Message = status.NoStore, "the master cannot write to its store: "+err.Error()
	case !errors.Is(err, store.ErrNotLeader):
		return
	}
	_, before := m.term.leading()
	m.relay.Lead(nil)
	m.replicas.Lead(nil)
	m.leaveSessions()
	if m.authority != nil {
		m.authority.Unload()
	}
	if m.term.end(a) {
		m.cfg.Log.Warn("not leading: tasks run on", "cell", m.cell, "role", a.Role, "err", err)
		if before == nil { // else the history is that of the master that led: see replica.Copy
			m.events.Append([]schema.Event{{At: a.Since, Kind: schema.EventStore, Message: a.Message}})
		}
	}
}

// leaveSessions has the agents stay until it is known who leads next. Where that may be
// another master, they stay for a while only; with one that is followed already, for as
// long as that is reached.
func (m *master) leaveSessions() {
	switch {
	case len(m.cfg.Etcd.Endpoints) == 0:
		m.shard.Wait()
	case !m.shard.Following():
		m.shard.Lose()
	}
}

// leadOneTerm campaigns, and leads the cell until the term ends.
func (m *master) leadOneTerm(ctx context.Context) error {
	select {
	case <-m.store.Lost():
		if err := m.store.Campaign(ctx, m.candidate()); err != nil {
			return err
		}
	default: // since it was opened
	}
	lost := m.store.Lost()
	if m.authority != nil {
		if err := m.authority.Load(ctx); err != nil {
			return err
		}
	}
	hub := relay.NewHub(relay.HubConfig{Term: m.store.Term(), Admit: m.admit, Revision: m.revision})
	l := loop.New(loop.Config{
		Cell: m.cell, Store: countedStore{m.store, &m.term.writes}, Pusher: hub, Events: m.events, Now: time.Now, LostAfter: m.cfg.LostAfter, JoinWait: m.cfg.joinWait(), Workers: m.cfg.placementWorkers(),
		Settled: func(commit string, took time.Duration) {
			m.metrics.CommitRunning(took)
			m.history.Converged(commit, time.Now())
		},
	})
	hub.Begin(l)
	m.term.begin(l, hub)
	if len(m.cfg.Etcd.Endpoints) > 0 {
		m.events.Begin(m.store.Term())
	}
	m.replicas.Lead(l.Ended())
	m.relay.Lead(hub)
	m.shard.Lead(hub)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		hub.Run(ctx)
		return nil
	})
	var led error
	g.Go(func() error {
		led = l.Run(ctx)
		m.leadsNoMore(led) // at once: the rest may have to wait for the disk
		return led
	})
	g.Go(func() error {
		return m.follow(ctx, l)
	})
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return fmt.Errorf("cell %s: %w", m.cell, store.ErrNotLeader)
		}
	})
	g.Go(func() error {
		m.maintain(ctx)
		return nil
	})
	err := g.Wait()
	if led != nil {
		err = led // which knows more than that the store's term has ended
	}
	return err
}

// follow takes commits to the loop while this master leads.
func (m *master) follow(ctx context.Context, l *loop.Loop) error {
	defer m.compiler.Close()
	return loop.Follower{Source: m.repo, Compiler: m.compiler, Secrets: m.secrets, Loop: l, Before: m.beforeCommit, Log: m.cfg.Log}.Run(ctx)
}

// maintain takes care of the store, and saves checkpoints, until ctx ends.
func (m *master) maintain(ctx context.Context) {
	var saving sync.WaitGroup
	saving.Go(func() { m.keepCheckpoints(ctx) })
	m.store.Maintain(ctx, store.Upkeep{
		Dir: filepath.Join(m.cfg.DataDir, "snapshots"), Every: m.cfg.SnapshotEvery, Keep: m.cfg.SnapshotKeep, Note: m.upkeep,
	})
	saving.Wait()
}

// upkeep records a maintenance of the store: a snapshot or a defragmentation.
func (m *master) upkeep(what, message string, err error) {
	m.term.kept(what, err)
	if err != nil {
		m.cfg.Log.Error(what+" failed", "cell", m.cell, "err", err)
		message = "failed: " + err.Error()
	} else {
		m.cfg.Log.Info(what, "cell", m.cell, "what", message)
	}
	m.events.Append([]schema.Event{{At: time.Now(), Kind: schema.EventStore, Message: what + " " + message}})
}

// awaitLeader waits at most leaderWait until it is known whether this master leads, so that
// requests right after the start are answered.
func (m *master) awaitLeader(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-m.term.known:
	case <-time.After(leaderWait):
	}
}

// resign lets a standby take over at once, when this master shuts down.
func (m *master) resign() {
	if len(m.cfg.Etcd.Endpoints) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), resignTimeout)
	defer cancel()
	if err := m.store.Resign(ctx); err != nil {
		m.cfg.Log.Warn("the lease is left to end by itself", "err", err)
	}
}
