package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// RestoreConfig is what Restore needs.
type RestoreConfig struct {
	Snapshot string // file
	// Dir becomes the data directory. It must not be there yet, or be empty.
	Dir     string
	Cell    string // whose snapshot it must be; "" for any
	Release string // of this program
	Log     *slog.Logger
	Now     time.Time
}

// Restore makes a data directory of a snapshot, whole or not at all, and says
// what of. A cell that is led from there gives no generation and no epoch that
// was given since the snapshot: see model.Restore.
func Restore(ctx context.Context, cfg RestoreConfig) (SnapshotInfo, error) {
	info, docs, err := ReadSnapshot(cfg.Snapshot)
	if err != nil {
		return info, err
	}
	if cfg.Cell != "" && cfg.Cell != info.Cell {
		return info, schema.Hintf("leave --cell out, or name another snapshot", "snapshot %s is of cell %q, not %q", cfg.Snapshot, info.Cell, cfg.Cell)
	}
	delete(docs, identityKey)
	state, err := model.Load(info.Cell, docs, nil)
	if err != nil {
		return info, fmt.Errorf("snapshot %s: %w", cfg.Snapshot, err)
	}
	if err := checkEmpty(cfg.Dir); err != nil {
		return info, err
	}
	// Beside it, and moved there at the end: nobody leads from half a store.
	work, err := os.MkdirTemp(filepath.Dir(filepath.Clean(cfg.Dir)), filepath.Base(cfg.Dir)+".restoring-")
	if err != nil {
		return info, fmt.Errorf("restore: %w", err)
	}
	err = fill(ctx, cfg, info, work, slices.Concat(writesOf(docs), model.Restore(state, info.At, cfg.Now)))
	if err == nil {
		err = os.Rename(work, filepath.Clean(cfg.Dir)) // over an empty directory, too
	}
	if err != nil {
		return info, fmt.Errorf("restore: %w", errors.Join(err, os.RemoveAll(work)))
	}
	return info, atomicfile.SyncDir(filepath.Dir(filepath.Clean(cfg.Dir)))
}

// checkEmpty errs unless path does not exist, or is an empty directory.
func checkEmpty(path string) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("restore to %s: %w", path, err)
	case len(entries) == 0:
		return nil
	}
	what := "is not empty"
	if cell, err := CellOf(path); err == nil {
		what = fmt.Sprintf("holds the state of cell %q", cell)
	}
	return schema.Hintf("stop its master and move the directory away, or name another one", "restore to %s: it %s, and nothing is overwritten", path, what)
}

func writesOf(docs map[string][]byte) []model.Write {
	writes := make([]model.Write, 0, len(docs))
	for _, key := range slices.Sorted(maps.Keys(docs)) {
		writes = append(writes, model.Write{Key: key, Value: docs[key]})
	}
	return writes
}

// fill writes documents into a new version directory.
func fill(ctx context.Context, cfg RestoreConfig, info SnapshotInfo, dir string, writes []model.Write) (err error) {
	s, err := OpenEmbedded(ctx, EmbeddedConfig{Dir: dir, Cell: info.Cell, Release: cfg.Release, Log: cfg.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Campaign(ctx, "restore"); err != nil {
		return err
	}
	for _, batch := range model.Batches(writes) {
		if err := s.Commit(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
