package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/trash"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// Config is what a Store needs. Dir, Platform and Log must be set.
type Config struct {
	// Dir is the store's, made with mode 0700 if it is not there. It must be on a file
	// system that overlayfs takes as a lower one, and of the user that runs the agent,
	// since it has device nodes and setuid programs of images. One Store at a time
	// may have it.
	Dir      string
	Platform Platform
	Log      *slog.Logger

	// Transport is how registries are reached; http.DefaultTransport if nil.
	Transport http.RoundTripper
	// Mirrors are hosts that are asked before a registry, in this order, by registry.
	Mirrors map[string][]string
	// Insecure are the registries and mirrors that may be reached by http.
	Insecure []string
	// InsecureLoopback says the same of all on a loopback address.
	InsecureLoopback bool
	// Credentials returns what a registry or mirror is given that asks for a user.
	// Nil: none.
	Credentials func(registry string) (user, password string, ok bool)

	// Peers are other machines that may have what is to be pulled; nil: none. Share says that
	// they may have what is pulled here: a copy of it is kept as it came, for Copy.
	Peers Peers
	Share bool

	// Limits; zero is the default.
	MaxImageBytes int64         // of one image, unpacked; 32 GiB
	MaxEntries    int64         // of one image: files, directories, …; 2,000,000
	MaxLayers     int           // of one image; 127
	MaxBytes      int64         // of the whole store; zero: as much as the disk has
	Parallel      int           // layers of one image that are pulled at once; 3
	Stall         time.Duration // a connection that brings nothing for as long is slow; 30 s
	Floor         int64         // bytes a second; a connection that brings less for Window is slow; 1 KiB
	Window        time.Duration // 30 s

	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// The defaults of limits.
const (
	defaultImageBytes = 32 << 30
	defaultEntries    = 2_000_000
	defaultLayers     = 127 // what Docker takes
	defaultParallel   = 3
	defaultStall      = 30 * time.Second
)

// Store is a content-addressed store of images on one machine. Its methods may be
// called from any goroutine.
type Store struct {
	cfg       Config
	client    *client
	bin       *trash.Bin
	docs      durable.Documents
	pulls     flights[Image]
	fetch     flights[Archive]
	unpack    flights[*staged]
	bytes     atomic.Int64 // of layers, with those that are being unpacked
	copies    copies
	fromPeers atomic.Int64 // bytes of blobs that other machines have sent

	mu     sync.Mutex // guards what follows; what is done meanwhile takes a rename and the sync of a directory at most
	images map[digest.Digest]*kept
	layers map[string]*layer
	holds  map[digest.Digest]int
	// content is what Content returned last, nil if that is no longer so.
	content []schema.Digest
}

// kept is an image of the store.
type kept struct {
	record imageRecord
	used   time.Time
}

// layer is a layer of the store.
type layer struct {
	record layerRecord
	pins   int // pulls that are about to use it
	used   time.Time
}

// Directories of a store.
const (
	layersDir = "layers"
	imagesDir = "images"
	copiesDir = "blobs"
	tempDir   = "unpacking" // what is here is not whole
	trashDir  = "trash"
)

// rootName and recordName are what a layer's directory holds.
const (
	rootName   = "fs"
	recordName = "layer.json"
)

// imageRecord is the document of an image, in a file named after the digest by which
// it was asked for.
type imageRecord struct {
	Digest   digest.Digest `json:"digest"`
	Manifest digest.Digest `json:"manifest"`
	From     string        `json:"from"` // registry and name
	Settings Settings      `json:"settings"`
	Root     attributes    `json:"root"`
	Layers   []string      `json:"layers"` // names, lowest first, as overlayfs takes them
	Bytes    int64         `json:"bytes"`
	Pulled   time.Time     `json:"pulled"`
	Archive  bool          `json:"archive,omitempty"` // it is one directory, and no image
}

// layerRecord is the document of a layer, beside its directory.
type layerRecord struct {
	Name    string        `json:"name"`
	Diff    digest.Digest `json:"diff,omitempty"` // of the tar; "": an archive
	Entries int64         `json:"entries"`
	Bytes   int64         `json:"bytes"`
	Opaque  bool          `json:"opaque,omitempty"` // it hides all that is below it
	Root    *attributes   `json:"root,omitempty"`
}

// Open opens a store, or makes one. What was not whole when the last process that had
// it ended, however it did, is removed; layers that were are used by the next pull.
func Open(cfg Config) (*Store, error) {
	if cfg.Dir == "" || cfg.Log == nil || cfg.Platform.OS == "" || cfg.Platform.Architecture == "" {
		return nil, errors.New("image store: Dir, Log and Platform must be set")
	}
	cfg.MaxImageBytes = cmp.Or(cfg.MaxImageBytes, defaultImageBytes)
	cfg.MaxEntries = cmp.Or(cfg.MaxEntries, defaultEntries)
	cfg.MaxLayers = cmp.Or(cfg.MaxLayers, defaultLayers)
	cfg.Parallel = cmp.Or(cfg.Parallel, defaultParallel)
	cfg.Platform = cfg.Platform.plain()
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, images: map[digest.Digest]*kept{}, layers: map[string]*layer{}, holds: map[digest.Digest]int{}}
	s.unpack.drop = s.discard
	s.docs.Report = func(d durable.Damage) {
		cfg.Log.Warn("a document of the image store is damaged", "file", d.File, "why", d.Why)
	}
	s.client = newClient(&cfg)
	if err := s.directories(); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	return s, nil
}

// Run removes from the disk what was collected, until ctx ends. It is called once.
func (s *Store) Run(ctx context.Context) { s.bin.Run(ctx) }

// directories makes those of the store, and checks whose it is.
func (s *Store) directories() error {
	if err := os.MkdirAll(filepath.Dir(s.cfg.Dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(s.cfg.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(s.cfg.Dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s must be a directory of the user with id %d: others could change what images hold", s.cfg.Dir, os.Geteuid())
	}
	if err := os.Chmod(s.cfg.Dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{layersDir, imagesDir, tempDir} {
		if err := os.Mkdir(s.path(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if !s.cfg.Share {
		if err := os.RemoveAll(s.path(copiesDir)); err != nil { // of an agent that did
			return err
		}
	} else {
		s.copies.dir, s.copies.temp = s.path(copiesDir), s.path(tempDir)
		if err := s.copies.open(); err != nil {
			return err
		}
	}
	s.bin, err = trash.Open(trash.Config{Dir: s.path(trashDir), Log: s.cfg.Log, Emptied: func() {}})
	return err
}

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.cfg.Dir}, elem...)...)
}

// load reads what the store has, and discards what is not whole.
func (s *Store) load() error {
	left, err := os.ReadDir(s.path(tempDir))
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := s.bin.Put(s.path(tempDir, e.Name())); err != nil {
			return err
		}
	}
	if err := s.loadLayers(); err != nil {
		return err
	}
	return s.loadImages()
}

func (s *Store) loadLayers() error {
	entries, err := os.ReadDir(s.path(layersDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := s.path(layersDir, e.Name())
		var r layerRecord
		err := s.docs.Read(filepath.Join(at, recordName), layerDocument(e.Name()), &r)
		if err == nil {
			_, err = os.Stat(filepath.Join(at, rootName))
		}
		if err != nil {
			s.cfg.Log.Warn("a layer is damaged; it is pulled again when it is needed", "layer", e.Name(), "err", err)
			if err := s.bin.Put(at); err != nil {
				return err
			}
			continue
		}
		l := &layer{record: r}
		if info, err := e.Info(); err == nil {
			l.used = info.ModTime()
		}
		s.layers[e.Name()] = l
		s.bytes.Add(r.Bytes)
	}
	return nil
}

func layerDocument(name string) string { return "layer " + name }

func imageDocument(d digest.Digest) string { return "image " + d.String() }

const recordSuffix = ".json"

func (s *Store) loadImages() error {
	entries, err := os.ReadDir(s.path(imagesDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := s.path(imagesDir, e.Name())
		hex, ok := strings.CutSuffix(e.Name(), recordSuffix)
		sum := digest.NewDigestFromEncoded(digest.SHA256, hex)
		var r imageRecord
		if !ok { // one that was being written
			if err := s.bin.Put(name); err != nil {
				return err
			}
			continue
		}
		if err := s.docs.Read(name, imageDocument(sum), &r); err != nil || !s.whole(r) {
			s.cfg.Log.Warn("the record of an image is damaged, or one of its layers; it is pulled again when it is needed", "file", name)
			if err := s.bin.Put(name); err != nil {
				return err
			}
			continue
		}
		k := &kept{record: r}
		if info, err := e.Info(); err == nil {
			k.used = info.ModTime()
		}
		s.images[sum] = k
	}
	return nil
}

// whole reports whether all layers of an image are there.
func (s *Store) whole(r imageRecord) bool {
	for _, name := range r.Layers {
		if s.layers[name] == nil {
			return false
		}
	}
	return true
}

// imageFile is the file of an image's record.
func (s *Store) imageFile(d digest.Digest) string {
	return s.path(imagesDir, d.Encoded()+recordSuffix)
}

// writeImage writes the record of an image, which is in the store from then on.
func (s *Store) writeImage(r imageRecord) error {
	if err := s.docs.Write(s.imageFile(r.Digest), imageDocument(r.Digest), r); err != nil {
		return disk("image "+r.Digest.String(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[r.Digest] = &kept{record: r}
	s.content = nil
	s.use(s.images[r.Digest])
	return nil
}

// keepLayer moves an unpacked layer, which the disk has, to its place.
func (s *Store) keepLayer(temp string, r layerRecord) error {
	of := "layer " + r.Name
	if err := s.docs.Write(filepath.Join(temp, recordName), layerDocument(r.Name), r); err != nil {
		return disk(of, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.layers[r.Name] != nil { // another pull was first
		s.bytes.Add(-r.Bytes)
		return s.bin.Put(temp)
	}
	if err := os.Rename(temp, s.path(layersDir, r.Name)); err != nil {
		return disk(of, err)
	}
	if err := atomicfile.SyncDir(s.path(layersDir)); err != nil {
		return disk(of, err)
	}
	s.layers[r.Name] = &layer{record: r, used: s.cfg.Now()}
	return nil
}

// block is what the smallest file and a directory take on most file systems, in bytes.
const block = 4096

// budget is what one image may still take. It may be used from any goroutine: its
// layers are unpacked at the same time.
type budget struct {
	of      string
	bytes   atomic.Int64 // what is left
	entries atomic.Int64
	store   *atomic.Int64 // what the store has in all
	most    int64         // what the store may have; 0: any
}

// budget returns that of an image or an archive.
func (s *Store) budget(of string) *budget {
	b := &budget{of: of, store: &s.bytes, most: s.cfg.MaxBytes}
	b.bytes.Store(s.cfg.MaxImageBytes)
	b.entries.Store(s.cfg.MaxEntries)
	return b
}

// rounded returns what a file of that size takes, in bytes.
func rounded(size int64) int64 { return (size + block - 1) / block * block }

// take notes one more entry, and what it takes, before it is made. Errors are
// ErrInvalid and ErrNoSpace; what was taken stays taken.
func (b *budget) take(n int64) error {
	if err := b.grow(n); err != nil {
		return err
	}
	if b.entries.Add(-1) < 0 {
		return fail(ErrInvalid, b.of, "it has more entries than Config.MaxEntries")
	}
	return nil
}

// giveBack takes back what was taken for something that is not kept.
func (b *budget) giveBack(bytes, entries int64) {
	b.store.Add(-bytes)
	b.bytes.Add(bytes)
	b.entries.Add(entries)
}

// grow notes bytes.
func (b *budget) grow(n int64) error {
	all := b.store.Add(n)
	if b.bytes.Add(-n) < 0 {
		return fail(ErrInvalid, b.of, "it is larger unpacked than Config.MaxImageBytes")
	}
	if all > b.most && b.most > 0 {
		return fail(ErrNoSpace, b.of, "the store would have more than Config.MaxBytes, %d bytes", b.most)
	}
	return nil
}
