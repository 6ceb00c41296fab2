package image

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/musterhq/muster/schema"
)

// TestOddLayers holds what is made of layers that no builder makes, and some do.
func TestOddLayers(t *testing.T) {
	t.Parallel()
	capable := reg("bin/ping", "x")
	capable.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}
	long := strings.Repeat("n", 255)
	path := strings.Repeat(long+"/", 15) + "x"
	for name, c := range map[string]struct {
		layers [][]file
		want   []string
	}{
		"an absolute link is followed by a higher layer": {
			[][]file{{dir("usr/lib"), symlink("lib", "/usr/lib")}, {reg("lib/a", "")}},
			[]string{"lib", "usr", "usr/lib", "usr/lib/a"},
		},
		"links of lower layers are followed within the root": {
			[][]file{
				{
					dir("usr/lib"), reg("usr/lib/old", ""), symlink("usr/lib/n", "/opt"), symlink("lib", "usr/lib"), symlink("up", "../../../usr"),
					symlink("dangling", "none/x"), symlink("replaced", "usr/lib"), symlink("root", "/"), symlink("removed", "usr/lib"),
				},
				{reg(".wh.removed", "")},
				{
					reg("lib/a", "1"), reg("usr/lib/a", "22"), reg("up/c", ""), reg("dangling/d", ""), reg("lib/n/e", ""), reg("lib/.wh.old", ""), hardlink("hard", "lib/a"),
					dir("replaced"), reg("replaced/z", ""), reg("root/q", ""), reg("removed/r", ""),
				},
			},
			[]string{
				"dangling", "hard", "lib", "none", "none/x", "none/x/d", "opt", "opt/e", "q", "removed", "removed/r", "replaced", "replaced/z", "root",
				"up", "usr", "usr/c", "usr/lib", "usr/lib/a", "usr/lib/n",
			},
		},
		"a layer that hides all follows no links": {
			[][]file{{dir("usr/lib"), symlink("lib", "usr/lib")}, {reg(".wh..wh..opq", ""), reg("lib/a", "")}},
			[]string{"lib", "lib/a"},
		},
		"a hard link to a path that a link replaced": {
			[][]file{{reg("a", "1"), symlink("b", "/etc/passwd"), hardlink("c", "a")}, {symlink("a", "/etc/passwd"), hardlink("d", "a")}},
			[]string{"a", "b", "c", "d"},
		},
		"opaque before what it keeps": {
			[][]file{{reg("d/old", "")}, {reg("d/.wh..wh..opq", ""), reg("d/new", ""), dir("d/sub")}},
			[]string{"d", "d/new", "d/sub"},
		},
		"the same entry three times": {
			[][]file{{reg("a", "1"), reg("a", "22"), dir("d"), reg("d/x", ""), dir("d"), reg("a", "333")}},
			[]string{"a", "d", "d/x"},
		},
		"a path as long as there can be":      {[][]file{{reg(path, "")}}, nil},
		"a name with a newline and an escape": {[][]file{{reg("a\nb\x1b[2K", "")}}, []string{"a\nb\x1b[2K"}},
		"capabilities of a file":              {[][]file{{capable}}, []string{"bin", "bin/ping"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tars [][]byte
			for _, l := range c.layers {
				tars = append(tars, tarOf(t, l...))
			}
			g := newRegistry(t)
			img, err := newStore(t, g, nil).Ensure(t.Context(), g.image(t, gzipped, tars...).ref)
			if err != nil {
				t.Fatal(err)
			}
			at := mount(t, img)
			if c.want == nil {
				if _, err := os.Lstat(at + "/" + long); err != nil {
					t.Error(err)
				}
				return
			}
			if d := cmp.Diff(c.want, names(t, at)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if name == "capabilities of a file" && !strings.Contains(look(t, at)["bin/ping"], "security.capability") {
				t.Errorf("bin/ping is %q", look(t, at)["bin/ping"])
			}
		})
	}
}

// TestFollowedOnce: a layer that is unpacked again because of a link comes from the copy that is here, counts once,
// and is another layer over another one.
func TestFollowedOnce(t *testing.T) {
	t.Parallel()
	g := newRegistry(t)
	linked, other := tarOf(t, dir("usr/lib"), symlink("lib", "usr/lib")), tarOf(t, dir("lib"))
	upper := tarOf(t, reg("lib/a", strings.Repeat("x", 64<<10)))
	s := newStore(t, g, func(c *Config) { c.Share, c.MaxImageBytes = true, 128<<10 })
	for i, c := range []struct {
		lower []byte
		want  string
	}{{linked, "usr/lib/a"}, {other, "lib/a"}} {
		img, err := s.Ensure(t.Context(), g.image(t, gzipped, c.lower, upper).ref)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Lstat(mount(t, img) + "/" + c.want); err != nil || st.Size() != 64<<10 {
			t.Errorf("%s: %v", c.want, err)
		}
		if n := g.asked(digest.FromBytes(gzipped(upper)).Encoded()); n != i+1 {
			t.Errorf("%s: the layer was asked for %d times", c.want, n)
		}
		left, err := os.ReadDir(s.path(tempDir))
		if err != nil || len(left) > 0 {
			t.Errorf("in the directory of what comes: %v, %v", left, err)
		}
	}
}

// raw is a header with what archive/tar does not write.
func raw(t *testing.T, name string, change func(b []byte), content string) []byte {
	t.Helper()
	b := tarOf(t, reg(name, content))
	change(b[:512])
	sum := 0
	copy(b[148:156], "        ")
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// pax is an archive whose first entry says things of the next one.
func pax(t *testing.T, records ...string) []byte {
	t.Helper()
	var text string
	for _, r := range records {
		n := len(r) + 3
		for len(fmt.Sprint(n))+len(r)+2 != n {
			n++
		}
		text += fmt.Sprintf("%d %s\n", n, r)
	}
	h := raw(t, "PaxHeaders/x", func(b []byte) { b[156] = 'x' }, text)
	return append(h[:512+(len(text)+511)/512*512], tarOf(t, reg("x", "content"))...)
}

// TestOddBytes refuses archives that are none, or lie of themselves, with one error of a kind, and
// leaves nothing.
func TestOddBytes(t *testing.T) {
	t.Parallel()
	sparse := tarOf(t, reg("x", "content"))
	for name, b := range map[string][]byte{
		"a zip":                       append([]byte("PK\x03\x04\x14\x00"), make([]byte, 600)...),
		"text":                        []byte(strings.Repeat("no archive\n", 100)),
		"a negative size":             pax(t, "size=-1"),
		"a size that is none":         pax(t, "size=9223372036854775808"),
		"a size beyond the archive":   pax(t, "size=1099511627776"),
		"a record that lies":          raw(t, "PaxHeaders/x", func(b []byte) { b[156] = 'x' }, "999999 path=x\n"),
		"holes of no sense":           pax(t, "GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=10", "GNU.sparse.name=x"),
		"holes behind the end":        pax(t, "GNU.sparse.map=0,100,-5,7", "GNU.sparse.size=50", "GNU.sparse.numblocks=2"),
		"a name with a zero byte":     pax(t, "path=a\x00b"),
		"a link with a zero byte":     pax(t, "linkpath=a\x00b", "path=../../x"),
		"a time that is none":         pax(t, "mtime=1e400"),
		"an owner that is none":       pax(t, "uid=-2"),
		"a wrong sum":                 func() []byte { c := bytes.Clone(sparse); c[0] = 'y'; return c }(),
		"cut in the middle of a file": sparse[:515],
		"cut in a header":             sparse[:300],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			s := newStore(t, g, nil)
			_, err := s.Ensure(t.Context(), g.image(t, gzipped, b).ref)
			var known *failure
			if !errors.As(err, &known) || !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v", err)
			}
			if got := s.Usage(); got.Bytes != 0 || got.Layers != 0 {
				t.Errorf("usage %+v", got)
			}
		})
	}
}

// TestHoles: a file that is nearly all hole is taken for as large as it is.
func TestHoles(t *testing.T) {
	t.Parallel()
	g := newRegistry(t)
	s := newStore(t, g, func(c *Config) { c.MaxImageBytes = 1 << 20 })
	b := pax(t, "GNU.sparse.map=0,7", "GNU.sparse.size=1099511627776", "GNU.sparse.numblocks=1", "GNU.sparse.name=x")
	if _, err := s.Ensure(t.Context(), g.image(t, gzipped, b).ref); !errors.Is(err, ErrInvalid) || s.Usage().Bytes != 0 {
		t.Errorf("error %v, usage %+v", err, s.Usage())
	}
}

// TestOddManifests refuses manifests that lead nowhere.
func TestOddManifests(t *testing.T) {
	t.Parallel()
	platform := &v1.Platform{OS: "linux", Architecture: "amd64"}
	index := func(d ...v1.Descriptor) v1.Index {
		i := v1.Index{MediaType: typeIndex, Manifests: d}
		i.SchemaVersion = 2
		return i
	}
	for name, c := range map[string]struct {
		make func(t *testing.T, g *registry) digest.Digest
		want error
	}{
		"an index of an index": {func(t *testing.T, g *registry) digest.Digest {
			t.Helper()
			inner, n := g.addJSON(t, index())
			d, _ := g.addJSON(t, index(v1.Descriptor{MediaType: typeManifest, Digest: inner, Size: n, Platform: platform}))
			return d
		}, ErrInvalid},
		"an index that says it is one of indexes": {func(t *testing.T, g *registry) digest.Digest {
			t.Helper()
			inner, n := g.addJSON(t, index())
			d, _ := g.addJSON(t, index(v1.Descriptor{MediaType: typeIndex, Digest: inner, Size: n, Platform: platform}))
			return d
		}, ErrPlatform},
		"an index of what is not there": {func(t *testing.T, g *registry) digest.Digest {
			t.Helper()
			d, _ := g.addJSON(t, index(v1.Descriptor{MediaType: typeManifest, Digest: digest.FromString("x"), Size: 1, Platform: platform}))
			return d
		}, ErrNotFound},
		"an empty index": {func(t *testing.T, g *registry) digest.Digest {
			t.Helper()
			d, _ := g.addJSON(t, index())
			return d
		}, ErrPlatform},
		"a list": {func(t *testing.T, g *registry) digest.Digest {
			t.Helper()
			return g.add([]byte(`[]`))
		}, ErrInvalid},
		"a picture": {func(t *testing.T, g *registry) digest.Digest {
			t.Helper()
			return g.add([]byte(`{"schemaVersion":2,"mediaType":"image/png"}`))
		}, ErrMediaType},
		"a layer that is a picture": {func(t *testing.T, g *registry) digest.Digest {
			t.Helper()
			b := g.image(t, gzipped, tarOf(t, reg("x", "")))
			m := bytes.ReplaceAll(g.blobs[b.sum()], []byte(v1.MediaTypeImageLayerGzip), []byte("image/png"))
			return g.add(m)
		}, ErrMediaType},
		"a layer of a negative size": {func(t *testing.T, g *registry) digest.Digest {
			t.Helper()
			b := g.image(t, gzipped, tarOf(t, reg("x", "")))
			m := bytes.Replace(g.blobs[b.sum()], []byte(`"layers":[{`), []byte(`"layers":[{"size":-1,`), 1)
			m = m[:bytes.LastIndex(m, []byte(`,"size":`))]
			return g.add(append(m, "}]}"...))
		}, ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			s := newStore(t, g, nil)
			_, err := s.Ensure(t.Context(), schema.ImageRef{Registry: g.host(), Name: "team/app", Digest: schema.Digest(c.make(t, g))})
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

// TestOddRegistries: who redirects in circles or away from https, and a token server that never
// answers, get an error of a kind, and no credentials.
func TestOddRegistries(t *testing.T) {
	t.Parallel()
	password := func(string) (string, string, bool) { return "me", "secret", true }
	t.Run("a token server that stalls", func(t *testing.T) {
		t.Parallel()
		g := newRegistry(t)
		b := g.image(t, gzipped, tarOf(t, reg("x", "")))
		g.answer(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/token" {
				<-r.Context().Done()
				return true
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+g.URL+`/token"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		})
		s := newStore(t, g, func(c *Config) { c.Stall, c.Credentials = 100*time.Millisecond, password })
		if _, err := s.Ensure(t.Context(), b.ref); !errors.Is(err, ErrSlow) || !strings.Contains(err.Error(), "token server") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a token that trickles", func(t *testing.T) {
		t.Parallel()
		g := newRegistry(t)
		b := g.image(t, gzipped, tarOf(t, reg("x", "")))
		g.answer(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/token" {
				for r.Context().Err() == nil {
					_, _ = w.Write([]byte(" "))
					_ = http.NewResponseController(w).Flush()
					time.Sleep(5 * time.Millisecond)
				}
				return true
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+g.URL+`/token"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		})
		s := newStore(t, g, func(c *Config) { c.Floor, c.Window, c.Credentials = 1<<20, 200*time.Millisecond, password })
		if _, err := s.Ensure(t.Context(), b.ref); !errors.Is(err, ErrSlow) || !strings.Contains(err.Error(), "bytes a second") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("two hosts that redirect to each other", func(t *testing.T) {
		t.Parallel()
		var asked atomic.Int64
		g := newRegistry(t)
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1); r.Header.Get("Authorization") != "" {
				t.Error("another host gets credentials")
			}
			http.Redirect(w, r, g.URL+r.URL.Path, http.StatusTemporaryRedirect)
		}))
		t.Cleanup(other.Close)
		g.answer(func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		})
		s := newStore(t, g, func(c *Config) { c.Credentials = password })
		if _, err := s.Ensure(t.Context(), g.image(t, gzipped, tarOf(t, reg("x", ""))).ref); !errors.Is(err, ErrUnavailable) || asked.Load() > mostRedirects {
			t.Errorf("error %v after %d requests", err, asked.Load())
		}
	})
	t.Run("from https to http", func(t *testing.T) {
		t.Parallel()
		g := newRegistry(t)
		b := g.image(t, gzipped, tarOf(t, reg("x", "")))
		secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, g.URL+r.URL.Path, http.StatusTemporaryRedirect)
		}))
		t.Cleanup(secure.Close)
		b.ref.Registry = strings.TrimPrefix(secure.URL, "https://")
		s := newStore(t, nil, func(c *Config) { c.Transport = secure.Client().Transport })
		if _, err := s.Ensure(t.Context(), b.ref); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "not https") || g.asked("") != 0 {
			t.Errorf("error %v", err)
		}
	})
}
