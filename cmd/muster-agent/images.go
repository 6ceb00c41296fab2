package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/schema"
)

// imagesDir is where the state directory has the images.
const imagesDir = "images"

// What becomes of images that no task needs: they go when they have not been used for a
// while, or from the oldest on while the disk is fuller than it should be. The shares are
// those of kubelet.
const (
	collectEvery  = time.Minute
	diskFull      = 85 // percent of the disk above which images go,
	diskFullUntil = 80 // until no more is in use
)

// images are those of the machine and its packages, in the words of the loop and of the
// runtime.
type images struct {
	store *image.Store
	dir   string
	age   time.Duration // that one may have since its last use
	log   *slog.Logger
	// open opens what is sealed for this machine; nil: it can hold no secrets. It is set
	// before the first call of Bring.
	open func(sealed string) ([]byte, error)

	mu   sync.Mutex        // guards kept
	kept map[string]func() // what lets one go, by its name
}

// imageFlags are about images.
type imageFlags struct {
	mirrors  []string
	insecure []string
	authFile string // "": none
	age      time.Duration
	listen   string // "": nothing is given to other machines
}

// logins reads the file of logins. It is read for each registry that asks for a user, so
// that a password can be exchanged at any time.
func (f *imageFlags) logins() (*image.Logins, error) {
	info, err := os.Stat(f.authFile)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: others may read or change it (mode %04o): chmod 600 %[1]s", f.authFile, info.Mode().Perm())
	}
	return image.ReadLogins(f.authFile)
}

// openImages opens the images of the state directory dir. peers may be nil.
func openImages(dir string, f *imageFlags, peers image.Peers, log *slog.Logger) (*images, error) {
	cfg := image.Config{
		Dir: filepath.Join(dir, imagesDir), Platform: image.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}, Log: log,
		Insecure: f.insecure, InsecureLoopback: true, Mirrors: map[string][]string{}, Peers: peers, Share: f.listen != "",
	}
	for _, m := range f.mirrors {
		registry, mirror, _ := strings.Cut(m, "=")
		cfg.Mirrors[registry] = append(cfg.Mirrors[registry], mirror)
	}
	if f.authFile != "" {
		cfg.Credentials = func(registry string) (user, password string, ok bool) {
			l, err := f.logins()
			if err != nil {
				log.Warn("cannot read the logins for registries", "err", err)
				return "", "", false
			}
			return l.Of(registry)
		}
	}
	store, err := image.Open(cfg)
	if err != nil {
		return nil, err
	}
	return &images{store: store, dir: cfg.Dir, age: f.age, log: log, kept: map[string]func(){}}, nil
}

// Find returns an image that is here as a whole.
func (i *images) Find(name string) (image.Image, bool) {
	ref, err := image.ParseReference(name)
	if err != nil {
		return image.Image{}, false
	}
	return i.store.Find(ref)
}

// FindPackage returns the directory of a package that is here as a whole.
func (i *images) FindPackage(source string) (dir string, ok bool) {
	_, sum, ok := schema.SplitSource(source)
	if !ok {
		return "", false
	}
	archive, ok := i.store.FindArchive(sum)
	return archive.Dir, ok
}

// Bring returns when an image or a package is here.
func (i *images) Bring(ctx context.Context, name string, from nodeagent.Sources) (after time.Time, err error) {
	by := i.access(from)
	if url, sum, ok := schema.SplitSource(name); ok {
		_, err = i.store.EnsureArchiveBy(ctx, url, sum, by)
	} else {
		var ref schema.ImageRef
		if ref, err = image.ParseReference(name); err != nil {
			return time.Time{}, err
		}
		_, err = i.store.EnsureBy(ctx, ref, by)
	}
	after, _ = image.After(err)
	return after, err
}

// content returns what is reported of what the machine holds.
func (i *images) content() []schema.Digest { return i.store.Content(schema.MaxContent) }

// access returns how registries are reached as the master says.
func (i *images) access(from nodeagent.Sources) image.Access {
	by := image.Access{Mirrors: map[string][]string{}, Logins: map[string][]image.Login{}}
	for _, s := range from {
		by.Mirrors[s.Name] = s.Mirrors
		for _, l := range s.Logins {
			login, err := i.login(&l, s.Name)
			login.Of, login.Err = "secret "+l.Secret, err
			by.Logins[s.Name] = append(by.Logins[s.Name], login)
		}
	}
	return by
}

// login opens a login for a registry.
func (i *images) login(l *nodeagent.Login, registry string) (image.Login, error) {
	switch {
	case l.Sealed == "":
		return image.Login{}, errors.New(l.Trouble)
	case i.open == nil:
		return image.Login{}, errors.New("this machine can hold no secrets")
	}
	plain, err := i.open(l.Sealed)
	if err != nil {
		return image.Login{}, err
	}
	defer clear(plain)
	return image.ParseLogin(plain, registry)
}

// Keep says which images and packages must stay.
func (i *images) Keep(names []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, name := range names {
		if sum := schema.Content(name); i.kept[name] == nil && sum != "" {
			i.kept[name] = i.store.Hold(sum)
		}
	}
	for name, release := range i.kept {
		if _, keep := slices.BinarySearch(names, name); !keep {
			release()
			delete(i.kept, name)
		}
	}
}

// run removes what is not needed, until ctx ends.
func (i *images) run(ctx context.Context) error {
	var removing sync.WaitGroup
	removing.Go(func() { i.store.Run(ctx) })
	defer removing.Wait()
	ticker := time.NewTicker(collectEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			i.collect(now)
		}
	}
}

// collect removes images that have not been used for long, or that the disk has no room for.
func (i *images) collect(now time.Time) {
	limits := image.Limits{Age: i.age}
	var disk unix.Statfs_t
	if err := unix.Statfs(i.dir, &disk); err == nil && disk.Blocks > 0 {
		block := disk.Bsize
		total, used := int64(disk.Blocks)*block, int64(disk.Blocks-disk.Bavail)*block
		if used > total/100*diskFull {
			limits.Bytes = max(1, i.store.Usage().Bytes-(used-total/100*diskFullUntil)) // 0 is no limit
		}
	}
	out, err := i.store.Collect(now, limits)
	if err != nil {
		i.log.Warn("cannot remove images", "err", err)
	}
	if len(out.Images) > 0 || out.Layers > 0 {
		i.log.Info("removed images that no task needs", "images", len(out.Images), "layers", out.Layers, "bytes", out.Bytes)
	}
}

// check errs with a usageError for what cannot be.
func (f *imageFlags) check() error {
	for _, m := range f.mirrors {
		if registry, mirror, ok := strings.Cut(m, "="); !ok || registry == "" || mirror == "" {
			return usageError{fmt.Errorf("--registry-mirror %q: want REGISTRY=HOST[:PORT]", m), "such as --registry-mirror docker.io=mirror.example.com"}
		}
	}
	if f.authFile != "" {
		if _, err := f.logins(); err != nil {
			return usageError{fmt.Errorf("--registry-auth-file: %w", err), "it has the form that docker login and podman login write: {\"auths\": {\"registry.example.com\": {\"auth\": \"…\"}}}"}
		}
	}
	if f.listen != "" {
		host, port, err := net.SplitHostPort(f.listen)
		n, portErr := strconv.ParseUint(port, 10, 16)
		if _, ipErr := netip.ParseAddr(host); err != nil || portErr != nil || n == 0 || host != "" && ipErr != nil {
			return usageError{fmt.Errorf("--peer-listen %q: want IP:PORT or :PORT", f.listen), "such as --peer-listen :7423"}
		}
	}
	if f.age <= 0 {
		return usageError{fmt.Errorf("--image-age %s: want a time above 0", f.age), "such as --image-age 168h"}
	}
	return nil
}
