package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/musterhq/muster/schema"
)

// registry is one that tests make answer as they like.
type registry struct {
	*httptest.Server

	mu       sync.Mutex
	blobs    map[digest.Digest][]byte // manifests as well
	requests []string
	// before, if it returns true, has answered.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func newRegistry(t testing.TB) *registry {
	t.Helper()
	g := &registry{blobs: map[digest.Digest][]byte{}}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *registry) host() string { return strings.TrimPrefix(g.URL, "http://") }

func (g *registry) add(b []byte) digest.Digest {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := digest.FromBytes(b)
	g.blobs[d] = b
	return d
}

func (g *registry) addJSON(t testing.TB, v any) (digest.Digest, int64) {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return g.add(b), int64(len(b))
}

// ServeHTTP implements http.Handler.
func (g *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.requests = append(g.requests, r.URL.Path)
	before := g.before
	b, ok := g.blobs[digest.Digest(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])]
	g.mu.Unlock()
	if before != nil && before(w, r) {
		return
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"errors":[{"code":"BLOB_UNKNOWN","message":"blob unknown to registry"}]}`)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}

// asked counts the requests whose path contains part.
func (g *registry) asked(part string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, r := range g.requests {
		if strings.Contains(r, part) {
			n++
		}
	}
	return n
}

// answer sets what answers first.
func (g *registry) answer(f func(w http.ResponseWriter, r *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = f
}

// file is a tar header with content.
type file struct {
	tar.Header

	content string
}

func reg(name, content string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content}
}

func dir(name string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, ""}
}

func symlink(name, target string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}, ""}
}

func hardlink(name, target string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target, Mode: 0o644}, ""}
}

// tarOf returns an archive of files.
func tarOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		f.Size = int64(len(f.content))
		if f.ModTime.IsZero() {
			f.ModTime = time.Unix(1_600_000_000, 0)
		}
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func zstded(b []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return w.EncodeAll(b, nil)
}

// built is an image in a registry.
type built struct {
	ref    schema.ImageRef
	config digest.Digest
	layers []digest.Digest // as they are in the registry
	diffs  []digest.Digest
}

// sum is the digest of its manifest.
func (b *built) sum() digest.Digest { return digest.Digest(b.ref.Digest) }

// image adds an image with layers of tars to g.
func (g *registry) image(t testing.TB, pack func([]byte) []byte, tars ...[]byte) built {
	t.Helper()
	var out built
	m := v1.Manifest{MediaType: typeManifest}
	m.SchemaVersion = 2
	c := v1.Image{Platform: v1.Platform{OS: "linux", Architecture: "amd64"}}
	c.RootFS.Type = "layers"
	c.Config.Entrypoint = []string{"/bin/app"}
	c.Config.Cmd = []string{"serve"}
	c.Config.Env = []string{"A=b"}
	c.Config.ExposedPorts = map[string]struct{}{"80/tcp": {}, "443/tcp": {}}
	for _, b := range tars {
		packed := pack(b)
		d := g.add(packed)
		out.layers = append(out.layers, d)
		out.diffs = append(out.diffs, digest.FromBytes(b))
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: v1.MediaTypeImageLayerGzip, Digest: d, Size: int64(len(packed))})
	}
	c.RootFS.DiffIDs = out.diffs
	d, n := g.addJSON(t, c)
	out.config = d
	m.Config = v1.Descriptor{MediaType: v1.MediaTypeImageConfig, Digest: d, Size: n}
	d, _ = g.addJSON(t, m)
	out.ref = schema.ImageRef{Registry: g.host(), Name: "team/app", Digest: schema.Digest(d)}
	return out
}

// newStore opens a store for the tests' registries in a new directory.
func newStore(t testing.TB, g *registry, change func(*Config)) *Store {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "images"), func(c *Config) {
		if g != nil {
			c.Insecure = []string{g.host()}
		}
		if change != nil {
			change(c)
		}
	})
}

func openStore(t testing.TB, at string, change func(*Config)) *Store {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, as each file of an image has an owner")
	}
	c := Config{
		Dir: at, Platform: Platform{OS: "linux", Architecture: "amd64"},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Transport: &http.Transport{DisableKeepAlives: true},
		Stall: 10 * time.Second,
	}
	if change != nil {
		change(&c)
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
