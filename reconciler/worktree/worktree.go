package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/reconciler/look"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

const (
	// quiet is the silence after an event that ends a burst, and burst how long
	// one is waited for: an editor's save is a handful of events within a
	// millisecond, a checkout of another branch thousands within a second.
	quiet = 30 * time.Millisecond
	burst = 300 * time.Millisecond
	// unwatched is the time between two looks at a directory that cannot be
	// watched.
	unwatched   = time.Second
	defaultPoll = 30 * time.Second
	// maxDirs is how many directories are watched: more is a mistake, such as a
	// home directory, and watches are the whole machine's.
	maxDirs = 10_000
	// attempts is how often a directory is read that changes meanwhile.
	attempts = 3
	settle   = 10 * time.Millisecond
)

// Config is what Open needs.
type Config struct {
	Dir string
	// Read returns what matters of a directory, without a commit.
	Read func(dir string) (schema.Tree, error)
	// Poll is the time between two looks when no change is seen, for file systems without
	// notifications; default 30 s.
	Poll time.Duration
	Log  *slog.Logger
}

// Dir is a directory with a config repository's files.
type Dir struct {
	cfg   Config
	looks *look.Requests
	add   func(w *watcher, dir string) error // watches one

	mu   sync.Mutex // guards all below
	tree schema.Tree
	past schema.Tree // before tree: it may be asked for while the newer one is reported
	at   time.Time   // when tree was last known to be what is there
}

// Open prepares the source. It errs when cfg.Dir is not a directory.
func Open(cfg Config) (*Dir, error) {
	abs, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Dir = abs
	if cfg.Poll <= 0 {
		cfg.Poll = defaultPoll
	}
	d := &Dir{cfg: cfg, looks: look.New(), add: (*watcher).addOne}
	if _, err := d.root(); err != nil {
		return nil, err
	}
	return d, nil
}

// root returns the directory that Dir is or, as a symbolic link, points at.
func (d *Dir) root() (string, error) {
	root, err := filepath.EvalSymlinks(d.cfg.Dir)
	if err != nil {
		return "", schema.Hintf("name the directory of a config repository", "work tree %s: %w", d.cfg.Dir, err)
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return "", schema.Hintf("name the directory of a config repository", "work tree %s is not a directory", d.cfg.Dir)
	}
	return root, nil
}

// Name returns the path of the directory.
func (d *Dir) Name() string { return d.cfg.Dir }

// Poke has Run look now.
func (d *Dir) Poke() { d.looks.Poke() }

// Look has Run look now, and returns what it found, after Run has reported it to its
// caller. A look that began earlier does not count. It waits while Run does not run.
func (d *Dir) Look(ctx context.Context) (model.Seen, error) { return d.looks.Look(ctx) }

// Head reads the directory now and returns the name of what is there.
func (d *Dir) Head(ctx context.Context) (string, error) {
	s := d.look(ctx)
	if s.Trouble != nil {
		return "", s.Trouble
	}
	return s.Commit, nil
}

// Standing says that no commit stands anywhere: there is none.
func (d *Dir) Standing(_ context.Context, head, name string) status.Standing {
	return status.Standing{Name: name, Head: head, Is: status.StandsElsewhere, Message: "the cell follows the files of a work tree, and no commits"}
}

// Tree returns what Head or Run named last, or before that. The result is shared
// and must not be changed.
func (d *Dir) Tree(_ context.Context, commit string) (schema.Tree, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range []schema.Tree{d.tree, d.past} {
		if commit != "" && t.Commit == commit {
			return t, nil
		}
	}
	return schema.Tree{}, fmt.Errorf("work tree %s: it is not as it was at %s any more", d.cfg.Dir, commit)
}

// Trailers allows every removal: there is no commit to say it in, and what runs
// from a work tree is its author's own. It promotes nothing: a canary that waits
// for a commit goes on when the work tree says promote: "auto".
func (d *Dir) Trailers(context.Context, string, string) (schema.Trailers, error) {
	return schema.Trailers{AllowPrune: math.MaxInt}, nil
}

// Run calls back on the goroutine that called it after each look, the first at
// once. It returns ctx's error when that ends.
func (d *Dir) Run(ctx context.Context, seen func(model.Seen)) error {
	w := d.watch()
	defer w.close()
	last := ""
	for {
		end := d.looks.Begin()
		w.update() // before looking, so that no change falls between
		s := d.look(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		s.Notes = w.notes()
		if now := text(s.Trouble); now != last {
			last = now
			if s.Trouble != nil {
				message, hint := schema.HintOf(s.Trouble)
				d.cfg.Log.Warn("the work tree cannot be read", "commit", s.Commit, "err", message, "hint", hint)
			}
		}
		seen(s)
		end(s)
		d.wait(ctx, w)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// wait returns when it is time to look: after a poke or a poll, or when a burst
// of changes is over.
func (d *Dir) wait(ctx context.Context, w *watcher) {
	pause := d.cfg.Poll
	if w.blind != nil {
		pause = min(unwatched, pause)
	}
	poll := time.NewTimer(pause)
	defer poll.Stop()
	select {
	case <-ctx.Done():
		return
	case <-poll.C:
		return
	case <-d.looks.Asked():
		return
	case <-w.changes():
	}
	over := time.NewTimer(burst)
	defer over.Stop()
	calm := time.NewTimer(quiet)
	defer calm.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case <-calm.C:
			return
		case <-d.looks.Asked():
			return
		case <-w.changes():
			calm.Reset(quiet)
		}
	}
}

// look reads the directory and remembers what it found if it could.
func (d *Dir) look(ctx context.Context) model.Seen {
	tree, err := d.read(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.at = time.Now()
		if tree.Commit != d.tree.Commit {
			d.tree, d.past = tree, d.tree
		}
	}
	return model.Seen{Commit: d.tree.Commit, Trouble: err, At: d.at}
}

// read reads the directory, again if it changes meanwhile.
func (d *Dir) read(ctx context.Context) (tree schema.Tree, err error) {
	for range attempts {
		var root string
		if root, err = d.root(); err != nil {
			return schema.Tree{}, err
		}
		if tree, err = d.cfg.Read(root); err == nil {
			tree.Commit = name(tree)
			return tree, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		select {
		case <-ctx.Done():
			return schema.Tree{}, ctx.Err()
		case <-time.After(settle):
		}
	}
	return schema.Tree{}, schema.Hintf("make all that is below it readable for the master, or name a directory that holds the config alone", "%w", err)
}

// name returns the name of a tree, which is a function of its files.
func name(t schema.Tree) string {
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(t.Files)) {
		fmt.Fprintf(sum, "%s\x00%s\x00", path, t.Files[path].Hash)
	}
	return "worktree-" + hex.EncodeToString(sum.Sum(nil)[:6])
}
