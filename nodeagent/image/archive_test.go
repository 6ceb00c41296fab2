package image

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// TestArchive unpacks archives from a web server and from a registry.
func TestArchive(t *testing.T) {
	t.Parallel()
	g := newRegistry(t)
	packed := zstded(tarOf(t, reg("bin/tool", "1"), reg("bin/.wh.x", ""), hardlink("tool", "bin/tool")))
	sum := g.add(packed)
	at := filepath.Join(t.TempDir(), "images")
	insecure := func(c *Config) { c.Insecure = []string{g.host()} }
	for _, from := range []string{g.URL + "/files/" + sum.String(), "oci://" + g.host() + "/tools"} {
		s := newStore(t, g, nil)
		a, err := s.EnsureArchive(t.Context(), from, schema.Digest(sum))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"bin", "bin/.wh.x", "bin/tool", "tool"}, names(t, a.Dir)); d != "" {
			t.Errorf("%s: -want +got:\n%s", from, d)
		}
	}
	s := openStore(t, at, insecure)
	first := g.URL + "/files/" + sum.String()
	g.answer(func(w http.ResponseWriter, r *http.Request) bool { // without a length, and cut short
		if r.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(packed[:20])
		panic(http.ErrAbortHandler)
	})
	if _, err := s.EnsureArchive(t.Context(), first, schema.Digest(sum)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("longer than it is: %v", err)
	}
	g.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = w.Write(packed[:20])
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(packed[20:])
		return true
	})
	if _, err := s.EnsureArchive(t.Context(), first, schema.Digest(sum)); err != nil {
		t.Errorf("without a length: %v", err)
	}
	g.Close()
	for range 2 {
		a, err := s.EnsureArchive(t.Context(), first, schema.Digest(sum))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(a.Dir, "tool")); err != nil || string(b) != "1" {
			t.Errorf("tool has %q (%v)", b, err)
		}
		s = openStore(t, at, insecure)
	}
	if len(s.Layers()) != 0 || len(s.Images()) != 1 {
		t.Errorf("layers %v, images %v", s.Layers(), s.Images())
	}
	release := s.Hold(schema.Digest(sum))
	defer release()
	if c, err := s.Collect(noon.AddDate(10, 0, 0), Limits{Age: 1}); err != nil || len(c.Images) != 0 {
		t.Errorf("%+v %v", c, err)
	}
}

// TestArchiveRefused says what is wrong with where an archive comes from.
func TestArchiveRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil, nil)
	for from, why := range map[string]string{
		"http://example.com/x":           "only https",
		"ftp://example.com/x":            "only https",
		"https:///x":                     "neither",
		"x":                              "neither",
		"https://me:secret@example.com/": "has a user",
		"oci://tools":                    "no registry",
		"oci://example.com/A":            "upper-case",
	} {
		_, err := s.EnsureArchive(t.Context(), from, schema.Digest(someDigest))
		if !errors.Is(err, ErrReference) || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", from, err, why)
		}
	}
	if _, err := s.EnsureArchive(t.Context(), "https://example.com/x", "md5:1"); !errors.Is(err, ErrReference) {
		t.Error(err)
	}
}
