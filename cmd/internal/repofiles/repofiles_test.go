package repofiles_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/cmd/internal/repofiles"
)

var files = map[string]repofiles.File{
	"a":        {Data: []byte("one"), Mode: 0o644},
	"b/c":      {Data: []byte("two"), Mode: 0o755},
	"b/d/e":    {Data: []byte("three"), Mode: 0o644},
	".f/g.yml": {Data: []byte("four"), Mode: 0o644},
}

// listing is all that is below dir: files with content, directories with a
// slash, links with their target.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			out[rel+"/"] = ""
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			out[rel] = "-> " + to
			return err
		default:
			b, err := os.ReadFile(name)
			out[rel] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var whole = map[string]string{"a": "one", "b/": "", "b/c": "two", "b/d/": "", "b/d/e": "three", ".f/": "", ".f/g.yml": "four"}

func put(t *testing.T, dir string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := cutLink(text); ok {
			err = os.Symlink(to, p)
		} else {
			err = os.WriteFile(p, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func cutLink(text string) (string, bool) {
	if len(text) > 3 && text[:3] == "-> " {
		return text[3:], true
	}
	return "", false
}

func TestAdd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		dir   string
		there map[string]string
	}{
		"a new directory":            {dir: "x/y/z"},
		"an empty one":               {dir: "."},
		"one with other things":      {dir: ".", there: map[string]string{"b/other": "o"}},
		"one that was begun":         {dir: ".", there: map[string]string{"b/c": "two"}},
		"one with a stage left over": {dir: ".", there: map[string]string{".muster-init/a": "on"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put(t, root, tt.there)
			dir := filepath.Join(root, tt.dir)
			if way, err := repofiles.InTheWay(dir, files); err != nil || len(way) > 0 {
				t.Fatalf("in the way: %v, %v", way, err)
			}
			finished := ""
			if err := repofiles.Add(dir, files, func(at string) error { finished = at; return nil }); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for _, m := range []map[string]string{whole, tt.there} {
				for k, v := range m {
					want[k] = v
				}
			}
			delete(want, ".muster-init/a")
			if d := cmp.Diff(want, listing(t, dir)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if info, err := os.Stat(filepath.Join(dir, "b/c")); err != nil || tt.there["b/c"] == "" && info.Mode()&0o100 == 0 {
				t.Errorf("b/c cannot be executed: %v, %v", info, err)
			}
			if finished == "" {
				t.Error("finish was not called")
			}
		})
	}
}

// TestAddFails leaves what there was, whatever goes wrong.
func TestAddFails(t *testing.T) {
	t.Parallel()
	failing := errors.New("no")
	for name, tt := range map[string]struct {
		there map[string]string
		dir   string
		way   []string // nil: finish fails
	}{
		"finish, new":            {dir: "x/y"},
		"finish, there":          {dir: ".", there: map[string]string{"b/other": "o", "b/c": "two"}},
		"files":                  {dir: ".", there: map[string]string{"a": "mine", "b/d/e": "mine"}, way: []string{"a", "b/d/e"}},
		"a file for a directory": {dir: ".", there: map[string]string{"b": "mine"}, way: []string{"b"}},
		"a directory for a file": {dir: ".", there: map[string]string{"a/x": "mine"}, way: []string{"a"}},
		"links":                  {dir: ".", there: map[string]string{"a": "-> nowhere", "b": "-> /tmp"}, way: []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put(t, root, tt.there)
			before := listing(t, root)
			dir := filepath.Join(root, tt.dir)
			way, err := repofiles.InTheWay(dir, files)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.way, way); d != "" {
				t.Errorf("in the way (-want +got):\n%s", d)
			}
			if _, link := tt.there["b"]; link && tt.way != nil && len(tt.way) == 2 {
				return // InTheWay is what protects against links to directories
			}
			err = repofiles.Add(dir, files, func(string) error { return failing })
			if err == nil || tt.way == nil && !errors.Is(err, failing) {
				t.Errorf("error %v", err)
			}
			if d := cmp.Diff(before, listing(t, root)); d != "" {
				t.Errorf("it left (-before +after):\n%s", d)
			}
		})
	}
}

func TestInTheWayOfDirectory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, map[string]string{"file": "x"})
	if _, err := repofiles.InTheWay(filepath.Join(root, "file"), files); err == nil {
		t.Error("a file is taken for a directory")
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"a": "old", "b": "old", "c": "old", "a.muster-new": "left over"})
	for range 2 { // the second time there is nothing left to do
		if err := repofiles.Replace(dir, map[string][]byte{"a": []byte("new"), "b": nil, "d/e": []byte("new")}, nil); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(map[string]string{"a": "new", "c": "old", "d/": "", "d/e": "new"}, listing(t, dir)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its permissions are %v, %v", info.Mode(), err)
	}
	put(t, dir, map[string]string{"link": "-> c"})
	if err := repofiles.Replace(dir, map[string][]byte{"link": []byte("new")}, nil); err == nil {
		t.Error("it writes through a link")
	}
}

// TestReplaceAllOrNone: when a file cannot be written, all are as they were, and the error
// names it.
func TestReplaceAllOrNone(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"a": []byte("new"), "b": nil, "c": []byte("new"), "d/e": []byte("new"), "f": []byte("new")}
	full := func(from, to string) error {
		if filepath.Base(to) == "f" {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.ENOSPC}
		}
		return os.Rename(from, to)
	}
	for name, tt := range map[string]struct {
		extra map[string]string // beside a, b, c and f
		was   map[string][]byte
		do    func(dir string) error
		want  string
		is    error
	}{
		"in its place":           {do: func(dir string) error { return repofiles.ReplaceWith(dir, files, full) }, want: "f cannot be written: ", is: syscall.ENOSPC},
		"a directory in the way": {extra: map[string]string{"c.muster-new/x": "1"}, want: "c cannot be written: ", is: syscall.ENOTEMPTY},
		"a file for a directory": {extra: map[string]string{"d": "1"}, want: "d/e cannot be written: ", is: syscall.ENOTDIR},
		"changed meanwhile":      {was: map[string][]byte{"a": []byte("old"), "c": []byte("read")}, want: "c: it has changed", is: repofiles.ErrChanged},
		"gone meanwhile":         {was: map[string][]byte{"g": []byte("old")}, want: "g: it has changed", is: repofiles.ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, map[string]string{"a": "old", "b": "old", "c": "old", "f": "old"})
			put(t, dir, tt.extra)
			before := listing(t, dir)
			if tt.do == nil {
				tt.do = func(dir string) error { return repofiles.Replace(dir, files, tt.was) }
			}
			err := tt.do(dir)
			if !errors.Is(err, tt.is) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%v, want %s…", err, tt.want)
			}
			if d := cmp.Diff(before, listing(t, dir)); d != "" {
				t.Errorf("-before +after:\n%s", d)
			}
		})
	}
}
