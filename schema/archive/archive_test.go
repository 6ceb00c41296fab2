package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tree describes what is below dir: name, mode, time, and content or where a link leads.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v", name, info.Mode())
		switch {
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " " + to
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %v %d %.30q", info.ModTime().UTC().Format(time.RFC3339Nano), len(b), b)
		default:
			line += " " + info.ModTime().UTC().Format(time.RFC3339Nano)
		}
		list = append(list, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// grow makes a tree with what trees have.
func grow(t testing.TB, dir string) {
	t.Helper()
	long := strings.Repeat("long", 60)
	for _, d := range []string{"empty", "a/b/c/" + long + "/" + long, "closed", "öde \n"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, size := range map[string]int{"none": 0, "a/one": 1, "a/b/edge": small, "a/b/over": small + 1, "a/b/c/" + long + "/" + long + "/f": 3*small + 7, "closed/f": 9, "raw\xff\x01": 3} {
		b := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"up": "../../../etc/passwd", "abs": "/etc/shadow", "a/gone": strings.Repeat("x", 300), "here": "a"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]fs.FileMode{"a/one": 0o4751, "none": 0, "closed": 0o500, "empty": 0o1777} {
		if err := os.Chmod(filepath.Join(dir, name), mode.Perm()); err != nil { // no set-user-ID: it would not come back
			t.Fatal(err)
		}
	}
	at := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	for _, name := range []string{"a/one", "a/b", "closed", "."} {
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "closed"), 0o700) })
}

// pack returns the archive of a path, of which everything can be read.
func pack(t testing.TB, path string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Pack(&b, path, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpack unpacks without anything to report.
func unpack(t testing.TB, b []byte, to Target) {
	t.Helper()
	if err := Unpack(bytes.NewReader(b), to); err != nil {
		t.Fatal(err)
	}
}

// TestTree: a tree arrives as it was, also where it was before.
func TestTree(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	grow(t, from)
	b := pack(t, from)
	unpack(t, b, Target{Path: filepath.Join(to, "new")})
	if d := cmp.Diff(tree(t, from), tree(t, filepath.Join(to, "new"))); d != "" {
		t.Error(d)
	}
	if os.Geteuid() != 0 { // who may not write to a directory cannot copy into it
		return
	}
	unpack(t, b, Target{Path: filepath.Join(to, "new")})
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "new", "closed"), 0o700) })
	// Times of directories are those of the first copy: the second has written to them.
	dirs := func(list []string) []string {
		for i, line := range list {
			if f := strings.Fields(line); strings.HasPrefix(f[len(f)-2], "d") {
				list[i] = strings.Join(f[:len(f)-1], " ")
			}
		}
		return list
	}
	if d := cmp.Diff(dirs(tree(t, from)), dirs(tree(t, filepath.Join(to, "new")))); d != "" {
		t.Error(d)
	}
}

// TestPlaces: what is copied goes where a user of cp expects it.
func TestPlaces(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(from, "d"), 0o750), os.WriteFile(filepath.Join(from, "d", "f"), []byte("x"), 0o640)); err != nil {
		t.Fatal(err)
	}
	file, dir := pack(t, filepath.Join(from, "d", "f")), pack(t, filepath.Join(from, "d"))
	for _, c := range []struct {
		what       []byte
		path, name string
		want       string // path of f, or an error
	}{
		{file, "new", "f", "new"},
		{file, "there", "f", "there/f"},
		{file, "there/", "f", "there/f"},
		{file, "old", "f", "old"},
		{file, "new/", "f", "there is no such directory"},
		{file, "new/f", "f", "no such file or directory"},
		{file, "old/f", "f", "not a directory"},
		{file, "there", "sub", "it is there, and a directory"},
		{dir, "new", "d", "new/f"},
		{dir, "new/", "d", "new/f"},
		{dir, "there", "d", "there/d/f"},
		{dir, "there", "", "there/f"},
		{dir, "there", "sub", "there/sub/f"},
		{dir, "new", "", "new/f"},
		{dir, "old", "d", "it is no directory"},
		{dir, "there", "link", "it is there, and no directory"},
		{dir, "new/new", "d", "no such file or directory"},
	} {
		to := t.TempDir()
		err := errors.Join(os.MkdirAll(filepath.Join(to, "there", "sub"), 0o755), os.WriteFile(filepath.Join(to, "old"), nil, 0o600),
			os.Symlink("sub", filepath.Join(to, "there", "link")))
		if err != nil {
			t.Fatal(err)
		}
		err = Unpack(bytes.NewReader(c.what), Target{Path: to + "/" + c.path, Name: c.name, Mask: 0o027})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q as %q: %v, want %s", c.path, c.name, err, c.want)
			}
			continue
		}
		if info, err := os.Lstat(filepath.Join(to, c.want)); err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o640 {
			t.Errorf("%q as %q: %v %v, want it at %s", c.path, c.name, info, err, c.want)
		}
	}
}

// entry is one of an archive that a test makes.
type entry struct {
	name, link string
	kind       Kind
	content    string
	mode       fs.FileMode
}

func of(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, e := range entries {
		if err := w.Add(&Entry{Kind: e.kind, Name: e.name, Link: e.link, Mode: e.mode, Time: time.Unix(1, 2), Size: int64(len(e.content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var (
	topDir  = entry{name: "./", kind: Directory, mode: 0o755}
	hostile = map[string][]entry{
		"above":                        {topDir, {name: "../evil", kind: File, content: "x"}},
		"above, later":                 {topDir, {name: "a/../../evil", kind: File, content: "x"}},
		"absolute":                     {topDir, {name: "/tmp/evil", kind: File, content: "x"}},
		"through a link":               {topDir, {name: "l", link: "..", kind: Link}, {name: "l/evil", kind: File, content: "x"}},
		"through a link to a path":     {topDir, {name: "l", link: "/", kind: Link}, {name: "l/evil", kind: File, content: "x"}},
		"a directory at a link":        {topDir, {name: "l", link: "..", kind: Link}, {name: "l", kind: Directory}, {name: "l/evil", kind: File, content: "x"}},
		"through a link that is there": {topDir, {name: "out", kind: Directory}, {name: "out/evil", kind: File, content: "x"}},
		"a hard link":                  {topDir, {name: "h", link: "../secret", kind: HardLink}},
		"a device":                     {topDir, {name: "d", kind: 'c'}},
		"a fifo":                       {topDir, {name: "d", kind: 0}},
		"a link first":                 {{name: ".", link: "..", kind: Link}, {name: "evil", kind: File, content: "x"}},
		"a file first":                 {{name: ".", kind: File}, {name: "./evil", kind: File, content: "x"}},
		"two beginnings":               {{name: ".", kind: File}, topDir},
		"no beginning":                 {{name: "evil", kind: File, content: "x"}},
		"out of order":                 {topDir, {name: "a", kind: Directory}, {name: "b", kind: Directory}, {name: "a/evil", kind: File, content: "x"}},
		"nothing":                      {},
	}
)

// TestHostile: whatever an archive has in it, nothing is written outside, and what cannot
// come from Pack is an error.
func TestHostile(t *testing.T) {
	t.Parallel()
	for name, entries := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			above := t.TempDir()
			to := filepath.Join(above, "to")
			err := errors.Join(os.Mkdir(to, 0o755), os.Mkdir(filepath.Join(above, "outside"), 0o755),
				os.WriteFile(filepath.Join(above, "secret"), []byte("s"), 0o600), os.Symlink("../outside", filepath.Join(to, "out")))
			if err != nil {
				t.Fatal(err)
			}
			outside := func() []string {
				return slices.DeleteFunc(tree(t, above), func(s string) bool { return strings.HasPrefix(s, "to") })
			}
			before := outside()
			if err := Unpack(bytes.NewReader(of(t, entries)), Target{Path: to}); err == nil {
				t.Error("no error")
			} else {
				t.Log(err)
			}
			_ = Unpack(bytes.NewReader(of(t, entries)), Target{Path: to, Any: true})
			if d := cmp.Diff(before, outside()); d != "" {
				t.Error("outside:", d)
			}
		})
	}
}

// TestBits: what a task sends makes no program that others run as the user, and leaves
// nothing of a file that did not come whole.
func TestBits(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	b := of(t, []entry{topDir, {name: "s", kind: File, content: "x", mode: 0o7777}, {name: "f", kind: File, content: strings.Repeat("x", 5000), mode: 0o666}})
	unpack(t, b, Target{Path: to, Mask: 0o022})
	if info, err := os.Stat(filepath.Join(to, "s")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v %v, want -rwxr-xr-x", info.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(to, "f"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Unpack(bytes.NewReader(b[:len(b)-4000]), Target{Path: to})
	if err == nil || !strings.Contains(err.Error(), "ends in the middle") {
		t.Errorf("%v, want that it ends in the middle", err)
	}
	list, err := os.ReadDir(to)
	if old, _ := os.ReadFile(filepath.Join(to, "f")); err != nil || string(old) != "old" || len(list) != 2 {
		t.Errorf("f is %q beside %v, %v; want the old one, and nothing else", old, list, err)
	}
}

// TestAny: an archive of tar needs no directories, in no order.
func TestAny(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	b := of(t, []entry{
		{name: "a/b/f", kind: File, content: "x", mode: 0o600},
		{name: "a/h", link: "a/b/f", kind: HardLink},
		{name: "a", kind: Directory, mode: 0o755},
		{name: "./a/g", kind: File, content: "y"},
	})
	unpack(t, b, Target{Path: to, Any: true})
	for name, want := range map[string]string{"a/b/f": "x", "a/h": "x", "a/g": "y"} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := Unpack(bytes.NewReader(b), Target{Path: filepath.Join(to, "none"), Any: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into what is not there: %v", err)
	}
}

// TestUnreadable: what cannot be copied is reported, and all else is copied; a file of which
// the kernel does not say how long it is is read to its end.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	if err := errors.Join(syscall.Mkfifo(filepath.Join(from, "fifo"), 0o600), os.WriteFile(filepath.Join(from, "z"), []byte("z"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	var said []error
	if err := Pack(&b, from, func(err error) { said = append(said, err) }); err != nil {
		t.Fatal(err)
	}
	if len(said) != 1 || !errors.Is(said[0], ErrLeftOut) || !strings.Contains(said[0].Error(), "fifo") {
		t.Errorf("reported %v, want the fifo", said)
	}
	unpack(t, b.Bytes(), Target{Path: to})
	if _, err := os.Stat(filepath.Join(to, "z")); err != nil {
		t.Error(err)
	}
	unpack(t, pack(t, "/proc/self/status"), Target{Path: to, Name: "status"})
	if got, err := os.ReadFile(filepath.Join(to, "status")); err != nil || !strings.Contains(string(got), "Seccomp") {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{filepath.Join(from, "none"), filepath.Join(from, "fifo"), os.DevNull} {
		if err := Pack(io.Discard, path, func(err error) { t.Error(err) }); err == nil {
			t.Errorf("%s was copied", path)
		}
	}
}

// TestBroken: the end of who reads is an error, and not that of a file.
func TestBroken(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	grow(t, from)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer w.Close()
	if err := Pack(w, from, func(err error) { t.Error(err) }); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%v, want %v", err, syscall.EPIPE)
	}
}

// FuzzUnpack: nothing is written outside, whatever comes.
func FuzzUnpack(f *testing.F) {
	for _, entries := range hostile {
		f.Add(of(f, entries), false)
		f.Add(of(f, entries), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, anyone bool) {
		above := t.TempDir()
		to := filepath.Join(above, "to")
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = Unpack(io.LimitReader(bytes.NewReader(b), 1<<20), Target{Path: to, Name: "n", Any: anyone})
		if list, err := os.ReadDir(above); err != nil || len(list) != 1 {
			t.Errorf("%v beside it, %v", list, err)
		}
	})
}
