package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/musterhq/muster/schema"
)

// until waits for something that happens soon.
func until(t *testing.T, wrong func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := wrong()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // a poll
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	until(t, func() error {
		if !ok() {
			return errors.New("it does not happen")
		}
		return nil
	})
}

// TestShared has callers of one image, and images of one layer, pull it once.
func TestShared(t *testing.T) {
	t.Parallel()
	g := newRegistry(t)
	common := tarOf(t, reg("x", "common"))
	one, two := g.image(t, gzipped, common, tarOf(t, reg("y", "1"))), g.image(t, gzipped, common, tarOf(t, reg("y", "2")))
	var mu sync.Mutex
	arrived := 0
	release := make(chan struct{})
	g.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, one.layers[0].String()) {
			mu.Lock()
			arrived++
			mu.Unlock()
			<-release
		}
		return false
	})
	s := newStore(t, g, nil)
	const each = 4
	errs := make(chan error)
	for range each {
		for _, b := range []built{one, two} {
			go func() { _, err := s.Ensure(t.Context(), b.ref); errs <- err }()
		}
	}
	waiting := func(n int) bool {
		s.pulls.mu.Lock()
		defer s.pulls.mu.Unlock()
		all := 0
		for _, f := range s.pulls.running {
			all += f.waiting
		}
		return all == n
	}
	waitFor(t, func() bool { return waiting(2 * each) })
	waitFor(t, func() bool {
		s.unpack.mu.Lock()
		defer s.unpack.mu.Unlock()
		f := s.unpack.running[one.diffs[0].String()]
		return f != nil && f.waiting == 2
	})
	close(release)
	for range 2 * each {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for d := range g.blobs {
		if n := g.asked(d.String()); n != 1 {
			t.Errorf("%s was asked for %d times", d, n)
		}
	}
	if u := s.Usage(); u.Layers != 3 || u.Images != 2 {
		t.Errorf("usage %+v", u)
	}
}

// TestLimits refuses images that are larger than the configuration says, as soon as
// they are, and leaves nothing of them.
func TestLimits(t *testing.T) {
	t.Parallel()
	var many []file
	for i := range 100 {
		many = append(many, reg(fmt.Sprint(i), "x"))
	}
	zeros := tarOf(t, reg("zeros", strings.Repeat("\x00", 1<<20)))
	tests := []struct {
		name   string
		tars   [][]byte
		pack   func([]byte) []byte
		change func(c *Config)
		want   error
	}{
		{"a bomb", [][]byte{zeros}, gzipped, func(c *Config) { c.MaxImageBytes = 1 << 19 }, ErrInvalid},
		{"a bomb after the end of the tar", [][]byte{append(tarOf(t, reg("x", "")), make([]byte, 1<<20)...)}, zstded, func(c *Config) { c.MaxImageBytes = 1 << 19 }, ErrInvalid},
		{"entries", [][]byte{tarOf(t, many...)}, gzipped, func(c *Config) { c.MaxEntries = 99 }, ErrInvalid},
		{"directories without entries", [][]byte{tarOf(t, reg(strings.Repeat("d/", 100)+"x", ""))}, gzipped, func(c *Config) { c.MaxEntries = 99 }, ErrInvalid},
		{"bytes of all layers", [][]byte{zeros, tarOf(t, reg("ones", strings.Repeat("1", 1<<20)))}, gzipped, func(c *Config) { c.MaxImageBytes = 3 << 19 }, ErrInvalid},
		{"layers", [][]byte{zeros, zeros}, gzipped, func(c *Config) { c.MaxLayers = 1 }, ErrInvalid},
		{"the store", [][]byte{zeros}, gzipped, func(c *Config) { c.MaxBytes = 1 << 19 }, ErrNoSpace},
		{"no tar", [][]byte{[]byte("no tar at all, and longer than a header is: " + strings.Repeat("x", 600))}, gzipped, nil, ErrInvalid},
		{"no gzip", [][]byte{zeros}, func(b []byte) []byte { return append(slices.Clone(gzipMagic), b...) }, nil, ErrInvalid},
		{"gzip with something behind", [][]byte{zeros}, func(b []byte) []byte { return append(gzipped(b), "x"...) }, nil, ErrInvalid},
		{"a tar cut short", [][]byte{zeros[:700]}, gzipped, nil, ErrInvalid},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			s := newStore(t, g, test.change)
			if _, err := s.Ensure(t.Context(), g.image(t, test.pack, test.tars...).ref); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			// Layers that were pulled at the same time end after Ensure does.
			until(t, func() error {
				s.mu.Lock()
				whole := int64(0)
				for _, l := range s.layers {
					whole += l.record.Bytes
				}
				s.mu.Unlock()
				left, err := os.ReadDir(s.path(tempDir))
				if err != nil {
					return err
				}
				if u := s.Usage(); len(left) != 0 || u.Bytes != whole || u.Images != 0 {
					return fmt.Errorf("left behind: %v; usage %+v, layers have %d", left, u, whole)
				}
				return nil
			})
		})
	}
}

// TestManifests takes each form of a manifest that is known, and says what is wrong
// with the others.
func TestManifests(t *testing.T) {
	t.Parallel()
	layer := func(m map[string]any) map[string]any { return m["layers"].([]any)[0].(map[string]any) }
	index := func(platforms ...string) func(t *testing.T, g *registry, m map[string]any) any {
		return func(t *testing.T, g *registry, m map[string]any) any {
			d, n := g.addJSON(t, m)
			i := v1.Index{MediaType: typeDockerList}
			i.SchemaVersion = 2
			for _, p := range platforms {
				os, rest, _ := strings.Cut(p, "/")
				arch, variant, _ := strings.Cut(rest, "/")
				one := v1.Descriptor{MediaType: typeManifest, Digest: digest.FromString(p), Size: n, Platform: &v1.Platform{OS: os, Architecture: arch, Variant: variant}}
				if p == "linux/amd64" || p == "linux/amd64/v1" {
					one.Digest = d
				}
				i.Manifests = append(i.Manifests, one)
			}
			return i
		}
	}
	set := func(f func(m map[string]any)) func(t *testing.T, g *registry, m map[string]any) any {
		return func(_ *testing.T, _ *registry, m map[string]any) any { f(m); return m }
	}
	tests := []struct {
		name   string
		change func(t *testing.T, g *registry, m map[string]any) any
		want   error
	}{
		{"OCI", set(func(map[string]any) {}), nil},
		{"without a media type", set(func(m map[string]any) { delete(m, "mediaType") }), nil},
		{"Docker", set(func(m map[string]any) {
			m["mediaType"] = typeDockerManifest
			m["config"].(map[string]any)["mediaType"] = typeDockerConfig
			layer(m)["mediaType"] = "application/vnd.docker.image.rootfs.diff.tar.gzip"
		}), nil},
		{"an index", index("unknown/unknown", "linux/amd64/v3", "linux/arm64/v8", "linux/amd64"), nil},
		{"an index with a variant that all have", index("linux/amd64/v3", "linux/amd64/v1"), nil},
		{"an index without this platform", index("linux/arm64/v8", "windows/amd64", "linux/amd64/v3"), ErrPlatform},
		{"an empty index", index(), ErrPlatform},
		{"an index within an index", func(t *testing.T, g *registry, m map[string]any) any {
			return index("linux/amd64")(t, g, map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []any{}})
		}, ErrInvalid},
		{"index and manifest at once", set(func(m map[string]any) { m["manifests"] = []any{} }), ErrInvalid},
		{"schema 1", set(func(m map[string]any) { m["schemaVersion"] = 1 }), ErrMediaType},
		{"another type", set(func(m map[string]any) { m["mediaType"] = "text/plain" }), ErrMediaType},
		{"an artifact", set(func(m map[string]any) {
			m["config"].(map[string]any)["mediaType"] = "application/vnd.oci.empty.v1+json"
		}), ErrMediaType},
		{"another layer", set(func(m map[string]any) { layer(m)["mediaType"] = "application/zip" }), ErrMediaType},
		{"a layer of another digest", set(func(m map[string]any) { layer(m)["digest"] = "md5:x" }), ErrInvalid},
		{"a layer of another size", set(func(m map[string]any) { layer(m)["size"] = 10 }), ErrDigest},
		{"a layer without end", set(func(m map[string]any) { layer(m)["size"] = 1 << 40 }), ErrUnavailable},
		{"a layer of negative size", set(func(m map[string]any) { layer(m)["size"] = -1 }), ErrInvalid},
		{"fewer layers than the configuration", set(func(m map[string]any) { m["layers"] = []any{} }), ErrInvalid},
		{"a configuration too large", set(func(m map[string]any) { m["config"].(map[string]any)["size"] = 1 << 30 }), ErrInvalid},
		{"a layer that is not there", set(func(m map[string]any) { layer(m)["digest"] = someDigest }), ErrNotFound},
		{"no object", func(*testing.T, *registry, map[string]any) any { return []int{1} }, ErrInvalid},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			b := g.image(t, gzipped, tarOf(t, reg("x", "")))
			var m map[string]any
			if err := json.Unmarshal(g.blobs[b.sum()], &m); err != nil {
				t.Fatal(err)
			}
			ref := b.ref
			sum, _ := g.addJSON(t, test.change(t, g, m))
			ref.Digest = schema.Digest(sum)
			s := newStore(t, g, nil)
			img, err := s.Ensure(t.Context(), ref)
			if !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if err == nil && (len(img.Layers) != 1 || img.Digest != sum) {
				t.Errorf("%+v", img)
			}
			if err == nil {
				g.Close() // both digests of an index are known from now on
				ref.Digest = schema.Digest(img.Manifest)
				if _, err := s.Ensure(t.Context(), ref); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("another diff id", func(t *testing.T) {
		t.Parallel()
		g := newRegistry(t)
		b := g.image(t, gzipped, tarOf(t, reg("x", "")))
		config := strings.Replace(string(g.blobs[b.config]), b.diffs[0].String(), someDigest, 1)
		m := strings.Replace(string(g.blobs[b.sum()]), b.config.String(), g.add([]byte(config)).String(), 1)
		ref := b.ref
		ref.Digest = schema.Digest(g.add([]byte(m)))
		if _, err := newStore(t, g, nil).Ensure(t.Context(), ref); !errors.Is(err, ErrDigest) {
			t.Errorf("error %v", err)
		}
	})
}

// TestCollect removes what was used least recently, and nothing that is held or used.
func TestCollect(t *testing.T) {
	t.Parallel()
	g := newRegistry(t)
	now := noon
	at := filepath.Join(t.TempDir(), "images")
	set := func(c *Config) { c.Insecure, c.Now = []string{g.host()}, func() time.Time { return now } }
	s := openStore(t, at, set)
	base := tarOf(t, reg("base", strings.Repeat("b", 100_000)))
	var images []built
	for i := range 4 {
		images = append(images, g.image(t, gzipped, base, tarOf(t, reg("own", strings.Repeat(fmt.Sprint(i), 100_000)))))
		now = now.Add(time.Hour)
		if _, err := s.Ensure(t.Context(), images[i].ref); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Hour)
	if _, err := s.Ensure(t.Context(), images[0].ref); err != nil { // used last
		t.Fatal(err)
	}
	s.Hold(images[2].ref.Digest)
	s = openStore(t, at, set) // what was used when outlasts the process, holds do not
	release := s.Hold(images[1].ref.Digest)

	left := func(want ...int) {
		t.Helper()
		var digests []digest.Digest
		for _, i := range want {
			digests = append(digests, images[i].sum())
		}
		slices.Sort(digests)
		if d := cmp.Diff(digests, s.Images()); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		u := s.Usage()
		layers := len(want)
		if layers > 0 {
			layers++
		}
		dirs, err := os.ReadDir(s.path(layersDir))
		if err != nil || len(dirs) != layers || u.Layers != layers {
			t.Errorf("%d directories of layers (%v), usage %+v, want %d", len(dirs), err, u, layers)
		}
	}
	collect := func(l Limits) Collected {
		t.Helper()
		c, err := s.Collect(now, l)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	left(0, 1, 2, 3)
	collect(Limits{Bytes: s.Usage().Bytes, Age: 24 * time.Hour})
	left(0, 1, 2, 3)
	if c := collect(Limits{Bytes: s.Usage().Bytes - 1}); c.Layers != 1 || len(c.Images) != 1 || c.Bytes < 100_000 {
		t.Errorf("%+v", c)
	}
	left(0, 1, 3)
	collect(Limits{Age: 30 * time.Minute})
	left(0, 1)
	collect(Limits{Bytes: 1})
	left(1)
	release()
	release()
	now = now.Add(time.Hour)
	collect(Limits{Age: time.Hour})
	left(1) // used when it was released
	now = now.Add(time.Minute)
	collect(Limits{Age: time.Hour})
	left()
	if u := s.Usage(); u.Bytes != 0 {
		t.Errorf("usage %+v", u)
	}
	left()
}

// childEnv has a child of these tests pull an image: the store's directory, the
// reference, and how often, each but the last time being collected.
const childEnv = "MUSTER_TEST_PULL"

func TestMain(m *testing.M) {
	if v := os.Getenv(childEnv); v != "" {
		os.Exit(pullAsChild(v))
	}
	os.Exit(m.Run())
}

func pullAsChild(v string) int {
	args := strings.Split(v, "|")
	ref, err := ParseReference(args[1])
	if err != nil {
		return 2
	}
	rounds, err := strconv.Atoi(args[2])
	if err != nil {
		return 2
	}
	s, err := Open(Config{
		Dir: args[0], Platform: Platform{OS: "linux", Architecture: "amd64"}, Log: slog.New(slog.DiscardHandler),
		Insecure: []string{ref.Registry}, Transport: &http.Transport{},
	})
	if err != nil {
		return 3
	}
	for i := range rounds {
		if _, err := s.Ensure(context.Background(), ref); err != nil {
			return 4
		}
		if i == rounds-1 {
			break
		}
		if _, err := s.Collect(time.Now().Add(time.Hour), Limits{Age: time.Minute}); err != nil {
			return 5
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 6
	}
	_, _ = os.Stdout.Write(status)
	return 0
}

// TestDamaged pulls again what is not whole any more.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(s *Store, b built) error{
		"the record of the image": func(s *Store, b built) error { return os.WriteFile(s.imageFile(b.sum()), []byte("{}"), 0o600) },
		"the record of a layer": func(s *Store, b built) error {
			return os.Truncate(s.path(layersDir, independentName(b.diffs[0]), recordName), 20)
		},
		"a layer that is gone":   func(s *Store, b built) error { return os.RemoveAll(s.path(layersDir, independentName(b.diffs[0]))) },
		"a file without meaning": func(s *Store, _ built) error { return os.WriteFile(s.path(layersDir, "x"), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			b := g.image(t, gzipped, tarOf(t, reg("x", "1")))
			at := filepath.Join(t.TempDir(), "images")
			insecure := func(c *Config) { c.Insecure = []string{g.host()} }
			s := openStore(t, at, insecure)
			if _, err := s.Ensure(t.Context(), b.ref); err != nil {
				t.Fatal(err)
			}
			if err := damage(s, b); err != nil {
				t.Fatal(err)
			}
			img, err := openStore(t, at, insecure).Ensure(t.Context(), b.ref)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(img.Layers[0], "x")); err != nil || string(got) != "1" {
				t.Errorf("x has %q (%v)", got, err)
			}
		})
	}
}
