package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// follows is for how long after its plan ends a cell is followed that is not as desired: what
// happens later is not the commit's doing.
const follows = time.Hour

// endedBefore is why there is no plan of what a master was still to plan.
const endedBefore = "the master ended before it was planned"

// Config is what a Keeper needs; all of it.
type Config struct {
	Dir string // in which the commits are kept
	// Events returns records of the cell's history.
	Events func(schema.EventQuery) ([]schema.EventRecord, error)
	// Plan plans: see Planner.
	Plan func(ctx context.Context, commit *schema.Compiled, write func(io.Writer) error) (*plan.Outcome, error)
	Now  func() time.Time
	Log  *slog.Logger
}

// Keeper keeps the history of commits.
type Keeper struct {
	cfg     Config
	files   files
	begun   chan *beginning // holds the newest that waits to be planned
	waiting chan struct{}   // holds one while converged has something new

	mu        sync.Mutex           // guards what follows
	current   Entry                // of the newest commit; zero before the first
	converged map[string]time.Time // of commits whose files do not say so yet
}

// Moment is a cell just before a commit.
type Moment struct {
	Cell    string
	At      time.Time
	Applied string // commit that is in force
	// Stopping are the generations of tasks that are being stopped.
	Stopping []uint64
	// Write writes it as a checkpoint, with values.
	Write func(io.Writer) error
}

// beginning is a commit that is to be planned.
type beginning struct {
	entry  Entry
	commit *schema.Compiled
	write  func(io.Writer) error
}

// New returns a Keeper that waits for Run.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg, files: files{cfg.Dir}, begun: make(chan *beginning, 1), waiting: make(chan struct{}, 1), converged: map[string]time.Time{}}
	if err := k.files.sweep(); err != nil {
		cfg.Log.Warn("what was left of writing the history of commits stays", "err", err)
	}
	return k
}

// Begin takes a commit that the master is about to take, with the cell as it is. The newest of
// those that come while one is planned is planned next; of one that gives its place to it, Begin writes
// that down.
func (k *Keeper) Begin(commit schema.Compiled, m Moment) {
	b := &beginning{commit: &commit, write: m.Write, entry: Entry{
		Version: Version, Cell: m.Cell, Commit: commit.Commit, By: commit.By, Base: m.Applied, Seen: m.At, State: Open, After: k.newest(), Stopping: m.Stopping,
		Late: late(&commit),
	}}
	k.mu.Lock()
	k.current = b.entry
	k.mu.Unlock()
	for {
		select {
		case k.begun <- b:
			return
		default:
		}
		select {
		case left := <-k.begun:
			if left.entry.Commit == commit.Commit {
				continue
			}
			left.entry.Unplanned = "the next commit came before it was planned"
			left.entry.State, left.entry.Until = Superseded, m.At
			k.save(&Comparison{Entry: left.entry})
		default:
		}
	}
}

// late returns how many directories of a commit are still being compiled.
func late(c *schema.Compiled) (n int) {
	for i := range c.Packages {
		if p := &c.Packages[i]; p.Package == nil && schema.Pending(p.Diagnostics) {
			n++
		}
	}
	return n
}

// newest returns the id of the newest event.
func (k *Keeper) newest() uint64 {
	records, err := k.cfg.Events(schema.EventQuery{Newest: true, Limit: 1})
	if err != nil || len(records) == 0 {
		return 0
	}
	return records[0].ID
}

// Converged says that the cell has converged with a commit at a time.
func (k *Keeper) Converged(commit string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.converged[commit] = at
	select {
	case k.waiting <- struct{}{}:
	default:
	}
}

// Run plans commits until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var over <-chan time.Time // when the newest commit is followed no more
	for {
		select {
		case <-ctx.Done():
			select {
			case b := <-k.begun:
				b.entry.Unplanned = endedBefore
				k.save(&Comparison{Entry: b.entry})
			default:
			}
			return
		case b := <-k.begun:
			k.settle(b.entry.Commit)
			k.replace(&b.entry)
			end := k.plan(ctx, b)
			k.keepConverged()
			over = time.After(end.Sub(k.cfg.Now()) + time.Second)
		case <-over:
			k.settle("") // while there are its events
		case <-k.waiting:
			k.keepConverged()
		}
	}
}

// keepConverged writes which commits have converged.
func (k *Keeper) keepConverged() {
	k.mu.Lock()
	commits := slices.Collect(maps.Keys(k.converged))
	k.mu.Unlock()
	for _, commit := range commits {
		begun, waits, err := k.stands(commit)
		if waits {
			continue // it is written when it is planned, and looked at again then
		}
		var c *Comparison
		if begun && err == nil {
			c, err = k.Commit(commit)
		}
		if err != nil {
			k.cfg.Log.Error("history of a commit", "commit", commit, "err", err)
		} else if c != nil {
			k.save(c)
		}
		k.mu.Lock()
		delete(k.converged, commit)
		k.mu.Unlock()
	}
}

// stands reports whether a commit has a file, and whether it waits to be planned, and has none of that.
func (k *Keeper) stands(commit string) (begun, waits bool, err error) {
	c, err := k.files.find(commit)
	k.mu.Lock()
	defer k.mu.Unlock()
	return c != nil, err == nil && k.current.Commit == commit && (c == nil || c.Seen.Before(k.current.Seen)), err
}

// plan plans a commit, and saves that. It returns until when the commit is followed.
func (k *Keeper) plan(ctx context.Context, b *beginning) time.Time {
	c := &Comparison{Entry: b.entry}
	began := k.cfg.Now()
	o, err := k.cfg.Plan(ctx, b.commit, b.write)
	if err != nil && ctx.Err() != nil {
		err = errors.New(endedBefore)
	}
	if err != nil {
		c.Unplanned = err.Error()
		k.cfg.Log.Warn("commit not planned", "cell", c.Cell, "commit", c.Commit, "err", err)
	} else {
		c.Plan, c.Ending, c.Seconds, c.Tasks = o, o.Ending, o.Seconds, len(o.Tasks)
		k.cfg.Log.Info("commit planned", "cell", c.Cell, "commit", c.Commit, "took", k.cfg.Now().Sub(began).Round(time.Millisecond))
	}
	k.save(c)
	return c.end()
}

func (k *Keeper) save(c *Comparison) {
	if err := k.files.write(c); err != nil {
		k.cfg.Log.Error("history of a commit not kept", "cell", c.Cell, "commit", c.Commit, "err", err)
	}
}

// settle writes what has become of the newest commit but the next, whose events go in time.
func (k *Keeper) settle(next string) {
	names, err := k.files.names()
	for _, n := range names {
		commit, _ := commitOf(n.Name())
		if commit == next {
			continue
		}
		var c *Comparison
		if c, err = k.Commit(commit); err == nil && c != nil && c.State != Open {
			k.save(c)
		}
		break
	}
	if err != nil {
		k.cfg.Log.Error("history of the commit before", "err", err)
	}
}

// replace removes what was written of a part of a commit of which nothing was applied, so that the
// commit begins again.
func (k *Keeper) replace(next *Entry) {
	newest, err := k.files.list(1)
	if err == nil && len(newest) > 0 && newest[0].Late > 0 && newest[0].Commit == next.Commit && newest[0].Base == next.Base && newest[0].Seen.Before(next.Seen) {
		err = k.files.remove(&newest[0])
	}
	if err != nil {
		k.cfg.Log.Error("history of the first part of a commit", "commit", next.Commit, "err", err)
	}
}

// List returns the newest commits, the newest first, at most so many.
func (k *Keeper) List(most int) ([]Entry, error) {
	list, err := k.files.list(most)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].State != Open {
			continue
		}
		c, err := k.Commit(list[i].Commit)
		if err != nil {
			return nil, err
		}
		if c != nil {
			list[i] = c.Entry
		}
	}
	return list, nil
}

// Commit returns what is known of the newest commit whose hash begins so; nil if it is not known.
func (k *Keeper) Commit(name string) (*Comparison, error) {
	c, err := k.files.find(name)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	if strings.HasPrefix(k.current.Commit, name) && (c == nil || c.Seen.Before(k.current.Seen)) {
		c = &Comparison{Entry: k.current}
	}
	k.mu.Unlock()
	if c == nil {
		return k.unknown(name)
	}
	if c.State == Open {
		if err := k.look(c); err != nil {
			return nil, err
		}
	}
	c.note()
	return c, nil
}

// unknown returns what the events say of a commit of which there is no file: one from before, or
// that another master took.
func (k *Keeper) unknown(name string) (*Comparison, error) {
	applied, err := k.cfg.Events(schema.EventQuery{Kind: schema.EventApply})
	if err != nil {
		return nil, err
	}
	for i := len(applied) - 1; i >= 0; i-- {
		r := &applied[i]
		if r.Commit == "" || !strings.HasPrefix(r.Commit, name) {
			continue
		}
		c := &Comparison{Entry: Entry{Version: Version, Commit: r.Commit, Seen: r.At, State: Open, After: r.ID, Unplanned: "this master did not take it: it is from before, or another one did"}}
		c.note()
		return c, k.look(c)
	}
	return nil, nil
}

// look reads what has happened with a commit so far.
func (k *Keeper) look(c *Comparison) error {
	records, err := k.cfg.Events(schema.EventQuery{After: c.After})
	if err != nil {
		return fmt.Errorf("events since commit %s: %w", c.Commit, err)
	}
	end := c.end()
	if k.cfg.Now().After(end) {
		c.State, c.Until = Unsettled, end
	}
	for i := range records {
		if r := &records[i]; r.Kind == schema.EventApply && r.Commit != c.Commit && !r.At.After(end) {
			c.State, c.Until = Superseded, r.At
			break
		}
	}
	k.mu.Lock()
	if at, ok := k.converged[c.Commit]; ok {
		c.State, c.Until = Converged, at
	}
	k.mu.Unlock()
	o := c.Plan
	if o == nil {
		o = new(plan.Outcome)
	}
	c.Result = Compare(o, Window{records, c.Until, c.State == Open, c.Stopping})
	if c.Plan == nil { // there is nothing that it could be different from
		c.Result.Differences, c.Result.Reasons, c.Result.Same = []Difference{}, []Reason{}, 0
	}
	c.Same, c.Different = c.Result.Same, len(c.Result.Differences)
	return nil
}

// end returns until when a commit is followed.
func (c *Comparison) end() time.Time {
	return c.Seen.Add(time.Duration(c.Seconds*float64(time.Second)) + follows)
}

// note says what is not known.
func (c *Comparison) note() {
	c.Notes = []string{}
	switch {
	case c.Unplanned != "":
		c.Notes = append(c.Notes, "there is no plan: "+c.Unplanned)
	case c.Plan == nil:
		c.Notes = append(c.Notes, "it is being planned")
	case c.Late > 0:
		c.Notes = append(c.Notes, fmt.Sprintf("the plan is without %d %s that took longer to compile, and without what is applied with them", c.Late, schema.Verb(c.Late, "directory", "directories")))
	}
}
