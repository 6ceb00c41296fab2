package cell

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/schema/atomicfile"
)

// checkpoints writes the cell down that a term leads.
type checkpoints struct {
	term    *term
	release string
}

// Checkpoint returns what writes a checkpoint of this moment.
func (c checkpoints) Checkpoint(ctx context.Context, values bool) (func(io.Writer) error, error) {
	in, err := with(c.term, func(l *loop.Loop) (loop.Moment, error) { return l.Moment(ctx) })
	if err != nil {
		return nil, err
	}
	h := checkpoint.HeaderOf(in.State, in.Observed, in.Head, in.Now)
	h.Release, h.LastEvent = c.release, in.LastEvent
	if !values {
		h.Redaction = rand.Text()
	}
	return func(w io.Writer) error { return checkpoint.Write(w, h, in.State, in.Observed) }, nil
}

// checkpointSuffix ends the names of checkpoints that a master has saved by itself; their
// times, before it, sort.
const (
	checkpointSuffix = ".checkpoint"
	checkpointTime   = "20060102T150405Z"
)

// keepCheckpoints saves a checkpoint, without values, every so often while this master leads,
// until ctx ends. What goes wrong is logged, and tried again the next time.
func (m *master) keepCheckpoints(ctx context.Context) {
	if m.cfg.CheckpointEvery <= 0 {
		return
	}
	tick := time.NewTicker(m.cfg.CheckpointEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if err := m.saveCheckpoint(ctx, now); err != nil && ctx.Err() == nil {
				m.cfg.Log.Error("checkpoint failed", "cell", m.cell, "err", err)
			}
		}
	}
}

// saveCheckpoint saves the cell, and removes the oldest checkpoints beyond those that are kept.
func (m *master) saveCheckpoint(ctx context.Context, now time.Time) error {
	dir := filepath.Join(m.cfg.DataDir, "checkpoints")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	write, err := checkpoints{m.term, m.cfg.Release}.Checkpoint(ctx, false)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, m.cell+"-"+now.UTC().Format(checkpointTime)+checkpointSuffix)
	if err := atomicfile.WriteFrom(name, 0o600, func(w io.Writer) error {
		to := bufio.NewWriterSize(w, 1<<20)
		return errors.Join(write(to), to.Flush())
	}); err != nil {
		return fmt.Errorf("save a checkpoint to %s: %w", name, err)
	}
	m.cfg.Log.Info("checkpoint", "cell", m.cell, "what", name)
	return removeOldest(dir, m.cell+"-", m.cfg.CheckpointKeep)
}

// removeOldest removes all but the newest checkpoints of a directory whose names begin so.
func removeOldest(dir, prefix string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), prefix)
		at, ends := strings.CutSuffix(rest, checkpointSuffix)
		if _, err := time.Parse(checkpointTime, at); ours && ends && err == nil {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, name := range names[:max(0, len(names)-keep)] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
