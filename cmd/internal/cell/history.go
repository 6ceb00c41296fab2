package cell

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/history"
	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// newHistory returns what keeps the history of the commits that this master takes.
func (m *master) newHistory() *history.Keeper {
	return history.New(history.Config{
		Dir: filepath.Join(m.cfg.DataDir, "history"), Events: m.events.Since, Now: time.Now, Log: m.cfg.Log,
		Plan: history.Planner{Exe: m.cfg.Exe, Args: []string{"plan-child"}, Timeout: m.cfg.PlanTimeout}.Plan,
	})
}

// commits answers what is asked about the history of commits.
type commits struct{ *history.Keeper }

// Answer returns what is known of a commit, or the newest of them.
func (c commits) Answer(commit string, most int) (any, error) {
	if commit == "" {
		return c.List(most)
	}
	if found, err := c.Commit(commit); err != nil || found != nil {
		return found, err
	}
	return nil, nil
}

// beforeCommit begins the history of a commit that the master is about to take: with the cell
// as it is, which nobody writes to. One that is in force already changes nothing.
func (m *master) beforeCommit(ctx context.Context, c schema.Compiled) {
	if m.cfg.PlanTimeout <= 0 {
		return
	}
	in, err := with(m.term, func(l *loop.Loop) (loop.Moment, error) { return l.Moment(ctx) })
	if err != nil || in.State.Head.Commit == c.Commit {
		return // it leads no more, which is said elsewhere
	}
	h := checkpoint.HeaderOf(in.State, in.Observed, in.Head, in.Now)
	h.Release, h.LastEvent = m.cfg.Release, in.LastEvent
	m.history.Begin(c, history.Moment{
		Cell: m.cell, At: in.Now, Applied: in.State.Head.Commit, Stopping: stopping(in.State),
		Write: func(w io.Writer) error { return checkpoint.Write(w, h, in.State, in.Observed) },
	})
}

// stopping returns the generations of tasks that are being stopped, sorted.
func stopping(s *model.State) []uint64 {
	var out []uint64
	for _, c := range s.Chunks {
		for i := range c.Tasks {
			if c.Tasks[i].Stop != nil {
				out = append(out, c.Tasks[i].Generation)
			}
		}
	}
	slices.Sort(out)
	return out
}
