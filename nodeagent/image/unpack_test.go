package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMerged holds what overlayfs shows of layers against what they say together.
func TestMerged(t *testing.T) {
	t.Parallel()
	owned := func(f file, uid int) file { f.Uid, f.Gid = uid, uid; return f }
	tests := []struct {
		name   string
		layers [][]file
		want   []string
	}{
		{
			"a removed file",
			[][]file{{reg("a/x", "1"), reg("a/y", "1")}, {dir("a"), reg("a/.wh.x", "")}},
			[]string{"a", "a/y"},
		},
		{
			"a removed directory",
			[][]file{{dir("a"), reg("a/x", ""), reg("b", "")}, {reg(".wh.a", "")}},
			[]string{"b"},
		},
		{
			"a file removed and made again in one layer in both orders",
			[][]file{
				{reg("a", "1"), reg("b", "1")},
				{reg(".wh.a", ""), reg("a", "2"), reg("b", "2"), reg(".wh.b", "")},
			},
			[]string{"a", "b"},
		},
		{
			"a directory removed and made again hides what is below",
			[][]file{
				{dir("a"), reg("a/old", ""), dir("b"), reg("b/old", ""), reg("c/old", ""), reg("d/old", "")},
				{reg(".wh.a", ""), dir("a"), reg("a/new", ""), dir("b"), reg("b/new", ""), reg(".wh.b", ""), reg("c/new", ""), reg(".wh.c", ""), reg(".wh.d", ""), reg("d/new", "")},
			},
			[]string{"a", "a/new", "b", "b/new", "c", "c/new", "d", "d/new"},
		},
		{
			"an opaque directory",
			[][]file{{reg("a/old", ""), reg("a/b/old", "")}, {dir("a"), reg("a/new", ""), reg("a/.wh..wh..opq", "")}},
			[]string{"a", "a/new"},
		},
		{
			"an opaque root",
			[][]file{{reg("a", "")}, {reg("b", "")}, {reg(".wh..wh..opq", ""), reg("c", "")}, {reg("d", "")}},
			[]string{"c", "d"},
		},
		{
			"a file in the place of a directory and back",
			[][]file{{reg("a/x", ""), reg("b", "")}, {reg("a", ""), reg("b/x", "")}, {dir("a"), reg("a/y", "")}},
			[]string{"a", "a/y", "b", "b/x"},
		},
		{
			"a file replaced by a directory in one layer hides that of a lower one",
			[][]file{{reg("a/x", "")}, {reg("a", ""), dir("a"), reg("a/y", "")}},
			[]string{"a", "a/y"},
		},
		{
			"the leftovers of AUFS",
			[][]file{{reg("a", "")}, {dir(".wh..wh.plnk"), reg(".wh..wh.aufs", "")}},
			[]string{"a"},
		},
		{
			"the same layer twice",
			[][]file{{reg("a", "1")}, {reg(".wh.a", "")}, {reg("a", "1")}},
			[]string{"a"},
		},
		{
			"a removed name that no lower layer has in a new directory",
			[][]file{{reg("z", "")}, {dir("n"), reg("n/.wh.x", ""), reg("n/y", "")}},
			[]string{"n", "n/y", "z"},
		},
		{
			"a link in the way is followed within the layer",
			[][]file{{dir("usr/lib"), symlink("lib", "usr/lib"), reg("lib/a", ""), symlink("abs", "/usr/lib"), reg("abs/b", "")}},
			[]string{"abs", "lib", "usr", "usr/lib", "usr/lib/a", "usr/lib/b"},
		},
		{
			"hard links over layers",
			[][]file{{owned(reg("bin/a", "1"), 7)}, {hardlink("bin/b", "bin/a")}, {hardlink("c", "/bin/b")}},
			[]string{"bin", "bin/a", "bin/b", "c"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			var tars [][]byte
			for _, l := range test.layers {
				tars = append(tars, tarOf(t, l...))
			}
			img, err := newStore(t, g, nil).Ensure(t.Context(), g.image(t, gzipped, tars...).ref)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(test.want, names(t, mount(t, img))); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestInherited holds what a layer takes from those below it, which are other ones in
// another image.
func TestInherited(t *testing.T) {
	t.Parallel()
	g := newRegistry(t)
	s := newStore(t, g, nil)
	top := tarOf(t, reg("home/me/.profile", "x"), hardlink("sh", "bin/sh"))
	for uid := 10; uid < 12; uid++ {
		home, me := dir("home/"), dir("home/me")
		me.Uid, me.Gid, me.Mode, me.ModTime = uid, uid, 0o1750, time.Unix(int64(uid), 0)
		me.PAXRecords = map[string]string{"SCHILY.xattr.user.x": "y"}
		img, err := s.Ensure(t.Context(), g.image(t, gzipped, tarOf(t, home, me, reg("bin/sh", string(rune(uid)))), top).ref)
		if err != nil {
			t.Fatal(err)
		}
		at := mount(t, img)
		all := look(t, at)
		want := look(t, img.Layers[0])["home/me"]
		if all["home/me"] != want || !strings.Contains(want, "user.x=79") || !strings.Contains(want, "1750") {
			t.Errorf("home/me is %q, below %q", all["home/me"], want)
		}
		if b, err := os.ReadFile(filepath.Join(at, "sh")); err != nil || string(b) != string(rune(uid)) {
			t.Errorf("sh has %q (%v)", b, err)
		}
	}
	if got := s.Usage().Layers; got != 4 {
		t.Errorf("%d layers, want two of each", got)
	}
}

// TestHostile refuses layers that would reach out of their directory, or that are no
// layers.
func TestHostile(t *testing.T) {
	t.Parallel()
	xattr := func(name string) file {
		f := reg("x", "")
		f.PAXRecords = map[string]string{"SCHILY.xattr." + name: "y"}
		return f
	}
	typed := func(kind byte, name string) file {
		return file{tar.Header{Name: name, Typeflag: kind, Mode: 0o644}, ""}
	}
	tests := map[string][]file{
		"upwards":                          {reg("../x", "")},
		"upwards in the middle":            {reg("a/../../x", "")},
		"a hard link upwards":              {hardlink("x", "../../etc/passwd")},
		"a hard link to what is not there": {hardlink("x", "etc/passwd")},
		"a hard link to a directory":       {dir("d"), hardlink("x", "d")},
		"a hard link to a removed file":    {reg(".wh.d", ""), hardlink("x", "d")},
		"below a file":                     {reg("a", ""), reg("a/b", "")},
		"a loop of links":                  {symlink("a", "b"), symlink("b", "a"), reg("a/c", "")},
		"the root as a file":               {symlink(".", "x")},
		"what overlayfs reads":             {xattr("trusted.overlay.redirect")},
		"what overlayfs reads of users":    {xattr("user.overlay.opaque")},
		"a whiteout as a device":           {typed(tar.TypeChar, "x")},
		"a whiteout of nothing":            {reg(".wh.", "")},
		"a whiteout of a parent":           {reg("a/.wh...", "")},
		"an unknown type":                  {typed('Z', "x")},
		"too deep":                         {reg(strings.Repeat("d/", 300)+"x", "")},
		"a name too long":                  {reg(strings.Repeat("n", 256), "")},
		"a user that is none":              {{tar.Header{Name: "x", Typeflag: tar.TypeReg, Uid: 1<<32 - 1}, ""}},
	}
	for name, files := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			s := newStore(t, g, nil)
			outside := names(t, filepath.Dir(s.cfg.Dir))
			_, err := s.Ensure(t.Context(), g.image(t, gzipped, tarOf(t, files...)).ref)
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v", err)
			}
			if got := s.Usage(); got.Bytes != 0 || got.Layers != 0 {
				t.Errorf("usage %+v", got)
			}
			got := slices.DeleteFunc(names(t, filepath.Dir(s.cfg.Dir)), func(p string) bool { return strings.HasPrefix(p, "images/trash/") })
			if d := cmp.Diff(outside, got); d != "" {
				t.Errorf("left behind (-before +after):\n%s", d)
			}
		})
	}
}

// TestLinksOut writes through links that lead out of the directory: they lead into it.
func TestLinksOut(t *testing.T) {
	t.Parallel()
	g := newRegistry(t)
	s := newStore(t, g, nil)
	outside := t.TempDir()
	img, err := s.Ensure(t.Context(), g.image(t, gzipped, tarOf(t,
		symlink("abs", outside), reg("abs/one", ""),
		symlink("up", "../../../../../../../../../../.."+outside), reg("up/two", ""),
		dir("swap"), reg("swap/x", ""), symlink("swap", outside), reg("swap/three", ""),
		symlink("last", outside+"/four"), reg("last", "four"),
		symlink("target", outside+"/five"), hardlink("linked", "target"), reg("linked", "five"),
	)).ref)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, outside); len(got) != 0 {
		t.Errorf("outside has %v", got)
	}
	inside := names(t, filepath.Join(img.Layers[0], outside))
	if d := cmp.Diff([]string{"one", "three", "two"}, inside); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// FuzzUnpack has nothing ever made, changed or removed outside of the directory,
// whatever a tar says, and what is unpacked counted as it is.
func FuzzUnpack(f *testing.F) {
	for _, files := range [][]file{
		{dir("a"), reg("a/b", "x"), symlink("a/c", "../../outside"), reg("a/c/d", ""), hardlink("e", "a/b")},
		{symlink("o", "/outside"), reg("o/x", ""), reg(".wh.o", ""), hardlink("p", "o/secret"), reg("o", "")},
		{symlink("o", "../outside"), dir("o"), reg(".wh..wh..opq", ""), reg("q/.wh.r", ""), reg("q/r/s", "")},
		{reg("../outside/x", ""), reg("/outside/y", ""), hardlink("z", "../outside/secret"), reg("z", "changed")},
		{reg("a/b/c", ""), reg("a", ""), dir("a"), hardlink("l", "lower"), hardlink("m", "l"), reg("l/x", "")},
	} {
		f.Add(tarOf(f, files...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if os.Geteuid() != 0 {
			t.Skip("needs root, as each file of an image has an owner")
		}
		base := t.TempDir()
		for _, d := range []string{"outside", "root", "lower"} {
			if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"outside/secret", "lower/lower"} {
			if err := os.WriteFile(filepath.Join(base, name), []byte("s"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		outside := func() map[string]string {
			all := look(t, base)
			for p := range all {
				if strings.HasPrefix(p, "root") || p == "lower/lower" { // which may have more names
					delete(all, p)
				}
			}
			return all
		}
		before := outside()
		var all atomic.Int64
		budget := &budget{of: "fuzz", store: &all}
		budget.bytes.Store(1 << 20)
		budget.entries.Store(200)
		u := newUnpacker("fuzz", budget)
		tree, err := openTree(filepath.Join(base, "root"))
		if err != nil {
			t.Fatal(err)
		}
		defer tree.close()
		u.on(tree)
		if err = u.unpack(t.Context(), bytes.NewReader(b)); err == nil {
			if err = u.resolve([]string{filepath.Join(base, "lower")}); err == nil {
				err = u.settle()
			}
		}
		var known *failure
		if err != nil && !errors.As(err, &known) {
			t.Errorf("an error of no kind: %v", err)
		}
		if all.Load() != u.bytes {
			t.Errorf("%d bytes are counted in the store and %d here", all.Load(), u.bytes)
		}
		if d := cmp.Diff(before, outside()); d != "" {
			t.Fatalf("changed outside (-before +after):\n%s", d)
		}
		if b, err := os.ReadFile(filepath.Join(base, "lower/lower")); err != nil || string(b) != "s" {
			t.Errorf("the lower layer's file has %q (%v)", b, err)
		}
	})
}
