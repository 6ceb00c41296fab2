package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
)

const (
	// DefaultSaveEvery is how long a change waits until it is on disk, at the most: as long as a
	// restarted agent may be behind while it finds no master. During a rollout of a large cell all shards
	// change all the time, and each has 200 KB at 100,000 tasks.
	DefaultSaveEvery = 15 * time.Second
	// saveShare is which part of the time may pass with writing, so that a change of a small cell is on disk
	// in a moment. saveSoon is what a change waits at least: others come with it.
	saveShare = 50
	saveSoon  = 100 * time.Millisecond
)

// Config is where a directory is on disk.
type Config struct {
	Cell string
	Dir  string // of the files; made when there is something to write
	// SaveEvery is how long a change waits until it is written, at the most; 0 is DefaultSaveEvery.
	SaveEvery time.Duration
	// Damaged, if set, is called for files that were damaged.
	Damaged func(durable.Damage)
	Log     *slog.Logger
}

// disk is the files of a directory.
type disk struct {
	Config
	documents durable.Documents
}

// file is a shard on disk.
type file struct {
	Entries []schema.DirectoryEntry `json:"entries"`
}

// Open returns the directory that is on a machine's disk. Files that are damaged are left out: what
// they had comes from the next master.
func Open(cfg Config, followers ...Follower) (*Directory, error) {
	if cfg.SaveEvery == 0 {
		cfg.SaveEvery = DefaultSaveEvery
	}
	d := New(followers...)
	d.disk = disk{cfg, durable.Documents{Report: cfg.Damaged}}
	for shard := range schema.DirectoryShards {
		var f file
		err := d.disk.documents.Read(d.disk.path(shard), d.disk.id(shard), &f)
		damage := (*durable.Damage)(nil)
		switch {
		case err == nil:
			d.holds.Apply(schema.DirectoryChange{Shards: []int{shard}, Set: f.Entries})
		case errors.Is(err, fs.ErrNotExist), errors.As(err, &damage):
		default:
			return nil, fmt.Errorf("directory of the cell: %w", err)
		}
	}
	d.now.Store(d.holds.Snapshot())
	return d, nil
}

func (k *disk) path(shard int) string {
	return filepath.Join(k.Dir, fmt.Sprintf("%02d.json", shard))
}

func (k *disk) id(shard int) string {
	return fmt.Sprintf("shard %d of the directory of cell %s", shard, k.Cell)
}

// Run writes what changes to the disk of a directory that was opened until ctx ends, and then what is left to write. It returns nil: a disk that
// refuses is tried again, and what is not on it comes from the next master.
func (d *Directory) Run(ctx context.Context) error {
	took := time.Duration(0) // the last time
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
		case <-d.changed:
			wait := time.NewTimer(pause(took, d.disk.SaveEvery))
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
			wait.Stop()
		}
		ended = ctx.Err() != nil
		began := time.Now()
		failed := !d.trySave()
		if took = time.Since(began); failed {
			took = d.disk.SaveEvery
		}
	}
	return nil
}

// pause returns how long a change waits that comes after the last write, which took so long.
func pause(took, most time.Duration) time.Duration { return min(most, max(saveSoon, saveShare*took)) }

// trySave is save, which is tried again later if it fails. It reports whether it did not.
func (d *Directory) trySave() bool {
	err := d.save()
	if err != nil {
		d.disk.Log.Warn("what is known of the cell is not on disk", "error", err)
		d.wake()
	}
	return err == nil
}

// save writes the shards that have changed.
func (d *Directory) save() error {
	var all []error
	for shard := range schema.DirectoryShards {
		d.mu.Lock()
		_, unsaved := d.unsaved[shard]
		var f file
		if unsaved {
			f.Entries = d.holds.Entries(shard)
			delete(d.unsaved, shard)
		}
		d.mu.Unlock()
		if !unsaved {
			continue
		}
		err := os.MkdirAll(d.disk.Dir, 0o700)
		if err == nil {
			err = d.disk.documents.Write(d.disk.path(shard), d.disk.id(shard), f)
		}
		if err != nil {
			all = append(all, err)
			d.mu.Lock()
			d.unsaved[shard] = struct{}{}
			d.mu.Unlock()
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("directory of the cell: %d files: %w", len(all), all[0])
}
