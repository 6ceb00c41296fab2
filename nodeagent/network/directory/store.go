package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

// DefaultSaveEvery is how long a change waits until it is on disk, at the most: as long as a
// restarted agent may be behind while it finds no master. During a rollout of a large cell all shards
// change all the time, and each has 200 KB at 100,000 tasks.
const DefaultSaveEvery = 15 * time.Second

// Config is what a store needs.
type Config struct {
	Cell string
	Dir  string // of the files; made when there is something to write
	// SaveEvery is the time between writes; 0 is DefaultSaveEvery.
	SaveEvery time.Duration
	// Damaged is called for files that were damaged; a nil one is not.
	Damaged func(durable.Damage)
	Log     *slog.Logger
}

// Store is the directory of a machine.
type Store struct {
	cfg       Config
	documents durable.Documents
	snapshot  atomic.Pointer[naming.Snapshot]
	changed   chan struct{} // holds a token while there is something to write

	mu        sync.Mutex // guards what follows
	known     *naming.Directory
	unsaved   map[int]struct{} // shards
	followers map[*Follower]struct{}
}

// file is a shard on disk.
type file struct {
	Entries []schema.DirectoryEntry `json:"entries"`
}

// Open reads the directory of a machine. Files that are damaged are left out: what they had comes from
// the next master.
func Open(cfg Config) (*Store, error) {
	if cfg.SaveEvery == 0 {
		cfg.SaveEvery = DefaultSaveEvery
	}
	s := &Store{
		cfg: cfg, documents: durable.Documents{Report: cfg.Damaged}, changed: make(chan struct{}, 1),
		known: naming.New(), unsaved: map[int]struct{}{}, followers: map[*Follower]struct{}{},
	}
	for shard := range schema.DirectoryShards {
		var f file
		err := s.documents.Read(s.path(shard), s.id(shard), &f)
		damage := (*durable.Damage)(nil)
		switch {
		case err == nil:
			s.known.Apply(schema.DirectoryChange{Shards: []int{shard}, Set: f.Entries})
		case errors.Is(err, fs.ErrNotExist), errors.As(err, &damage):
		default:
			return nil, fmt.Errorf("directory of the cell: %w", err)
		}
	}
	s.snapshot.Store(s.known.Snapshot())
	return s, nil
}

func (s *Store) path(shard int) string {
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("%02d.json", shard))
}

func (s *Store) id(shard int) string {
	return fmt.Sprintf("shard %d of the directory of cell %s", shard, s.cfg.Cell)
}

// Snapshot returns what is known now. It never waits.
func (s *Store) Snapshot() *naming.Snapshot { return s.snapshot.Load() }

// Digests returns the digests of what is known, for a master to compare.
func (s *Store) Digests() schema.DirectoryDigests {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.Digests()
}

// Apply takes in a change of the master's, whose entries are not the caller's any more. When it returns,
// snapshots have it, and followers are on their way.
func (s *Store) Apply(c schema.DirectoryChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	touched := s.known.Apply(c)
	if len(touched.Shards) == 0 {
		return
	}
	s.snapshot.Store(s.known.Snapshot())
	for f := range s.followers {
		f.add(touched)
	}
	for _, shard := range touched.Shards {
		s.unsaved[shard] = struct{}{}
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run writes what changes to disk until ctx ends, and then what is left to write. It returns nil: a disk that
// refuses is tried again, and what is not on it comes from the next master.
func (s *Store) Run(ctx context.Context) error {
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
		case <-s.changed:
			wait := time.NewTimer(s.cfg.SaveEvery)
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
			wait.Stop()
		}
		ended = ctx.Err() != nil
		s.trySave()
	}
	return nil
}

// trySave is save, which is tried again later if it fails.
func (s *Store) trySave() {
	err := s.save()
	if err == nil {
		return
	}
	s.cfg.Log.Warn("what is known of the cell is not on disk", "error", err)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// save writes the shards that have changed.
func (s *Store) save() error {
	var all []error
	for shard := range schema.DirectoryShards {
		s.mu.Lock()
		_, unsaved := s.unsaved[shard]
		var f file
		if unsaved {
			f.Entries = s.known.Entries(shard)
			delete(s.unsaved, shard)
		}
		s.mu.Unlock()
		if !unsaved {
			continue
		}
		err := os.MkdirAll(s.cfg.Dir, 0o700)
		if err == nil {
			err = s.documents.Write(s.path(shard), s.id(shard), f)
		}
		if err != nil {
			all = append(all, err)
			s.mu.Lock()
			s.unsaved[shard] = struct{}{}
			s.mu.Unlock()
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("directory of the cell: %d files: %w", len(all), all[0])
}

// Follower is one who acts on changes. One goroutine uses it.
type Follower struct {
	store *Store
	news  chan struct{} // holds a token when there is something to take

	mu       sync.Mutex // guards what follows
	machines map[string]struct{}
	services map[naming.Name]struct{}
}

// Follow returns a follower, and what is known now: it gets all that changes after that.
func (s *Store) Follow() (*Follower, *naming.Snapshot) {
	f := &Follower{store: s, news: make(chan struct{}, 1), machines: map[string]struct{}{}, services: map[naming.Name]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[f] = struct{}{}
	return f, s.snapshot.Load()
}

// Close ends it: nothing is gathered for it any more.
func (f *Follower) Close() {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	delete(f.store.followers, f)
}

func (f *Follower) add(t naming.Touched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range t.Machines {
		f.machines[m] = struct{}{}
	}
	for _, n := range t.Services {
		f.services[n] = struct{}{}
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// News holds a token when there is something to take.
func (f *Follower) News() <-chan struct{} { return f.news }

// Take returns which machines and services may differ from when it was last called, without shards,
// and a snapshot in which they do. It never waits.
func (f *Follower) Take() (*naming.Snapshot, naming.Touched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := naming.Touched{}
	for m := range f.machines {
		t.Machines = append(t.Machines, m)
	}
	for n := range f.services {
		t.Services = append(t.Services, n)
	}
	slices.Sort(t.Machines)
	slices.SortFunc(t.Services, naming.Name.Compare)
	clear(f.machines)
	clear(f.services)
	return f.store.snapshot.Load(), t
}
