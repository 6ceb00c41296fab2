package image

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestEnsure pulls an image, and has it without a network from then on.
func TestEnsure(t *testing.T) {
	t.Parallel()
	for name, pack := range map[string]func([]byte) []byte{"gzip": gzipped, "zstd": zstded, "tar": func(b []byte) []byte { return b }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			b := g.image(t, pack, tarOf(t, dir("bin"), reg("bin/app", "one")), tarOf(t, dir("bin"), reg("bin/app", "two"), reg("etc", "")))
			at := filepath.Join(t.TempDir(), "images")
			insecure := func(c *Config) { c.Insecure = []string{g.host()} }
			s := openStore(t, at, insecure)
			img, err := s.Ensure(t.Context(), b.ref)
			if err != nil {
				t.Fatal(err)
			}
			if len(img.Layers) != 2 || !slices.Equal(img.Settings.Entrypoint, []string{"/bin/app"}) || !slices.Equal(img.Settings.ExposedPorts, []string{"443/tcp", "80/tcp"}) {
				t.Fatalf("%+v", img)
			}
			for i, want := range []string{"one", "two"} {
				if got, err := os.ReadFile(filepath.Join(img.Layers[i], "bin/app")); err != nil || string(got) != want {
					t.Errorf("layer %d has %q (%v)", i, got, err)
				}
			}
			g.Close()
			for range 2 {
				if again, err := s.Ensure(t.Context(), b.ref); err != nil || !slices.Equal(again.Layers, img.Layers) {
					t.Errorf("without a network: %+v %v", again, err)
				}
				s = openStore(t, at, insecure)
			}
			if got := s.Layers(); !slices.Equal(got, slices.Sorted(slices.Values(b.diffs))) {
				t.Errorf("layers %v, want %v", got, b.diffs)
			}
		})
	}
}
