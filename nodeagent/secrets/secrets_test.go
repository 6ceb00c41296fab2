package secrets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
)

func open(t *testing.T, dir string) *Machine {
	t.Helper()
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(m.Root()) })
	return m
}

// seal seals text for m.
func seal(t *testing.T, m *Machine, text string) string {
	t.Helper()
	to, err := sealed.ParseRecipient(m.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	out, err := sealed.Seal([]byte(text), []sealed.Recipient{to}, "")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestIdentity: a machine's key is drawn once, and nobody else can read it.
func TestIdentity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := open(t, dir)
	again, other := open(t, dir), open(t, t.TempDir())
	if again.Recipient() != m.Recipient() || again.Root() != m.Root() {
		t.Error("another key, or another place, of the same directory")
	}
	if other.Recipient() == m.Recipient() || other.Root() == m.Root() {
		t.Error("the same key, or the same place, of two directories")
	}
	info, err := os.Stat(filepath.Join(dir, identityFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, identityFile), []byte("AGE-SECRET-KEY-1DAMAGED\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), identityFile) || strings.Contains(err.Error(), "DAMAGED") {
		t.Errorf("a damaged key: %v", err)
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir())
	other := open(t, t.TempDir())
	for name, c := range map[string]struct {
		secret schema.TaskSecret
		sealed string
		want   string
	}{
		"another machine's":      {sealed: seal(t, other, "x"), want: "cannot be opened by this machine: it was sealed for another key"},
		"damaged":                {sealed: "-----BEGIN AGE ENCRYPTED FILE-----\nx", want: "cannot be opened by this machine"},
		"not sent":               {want: "the master has not sent it"},
		"out of its directory":   {schema.TaskSecret{File: "../x"}, seal(t, m, "x"), "no path in a directory"},
		"the directory itself":   {schema.TaskSecret{File: "."}, seal(t, m, "x"), "no path in a directory"},
		"a mode that is none":    {schema.TaskSecret{Mode: "4755"}, seal(t, m, "x"), "no mode of a file"},
		"no text for a variable": {schema.TaskSecret{Env: "X"}, seal(t, m, "x\x00y"), "X cannot hold"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.secret.Sealed = &schema.SealedSecret{Version: "v"}
			a := &schema.Assignment{Job: &schema.Job{Task: schema.TaskSpec{Secrets: map[string]schema.TaskSecret{"key": c.secret}}}, Secrets: map[string]string{"v": c.sealed}}
			_, err := m.Of(a, []string{"key"}, nil)
			if err == nil || !strings.HasPrefix(err.Error(), "secret key: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestMemory: what is given is there, is changed in place, and is gone when it is removed.
func TestMemory(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir())
	given := &Given{
		Files: []File{{"a", 0o400, []byte("one")}, {"b/c", 0o444, []byte("two")}}, Env: map[string][]byte{"E": []byte("three")},
	}
	if err := m.Put("/gen/1", given); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	of := m.Dir("/gen/1")
	if got := read(Files(of)+"/a") + read(Files(of)+"/b/c") + read(Env(of)+"/E"); got != "onetwothree" {
		t.Errorf("given %q", got)
	}
	given.Files = []File{{"b/c", 0o444, []byte("four")}}
	if err := m.Change("/gen/1", given); err != nil {
		t.Fatal(err)
	}
	if got := read(Files(of) + "/b/c"); got != "four" {
		t.Errorf("changed to %q", got)
	}
	if err := m.Put("/gen/2", &Given{Files: []File{{"a", 0o400, make([]byte, MaxBytes+1)}}}); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("too much: %v", err)
	}
	if err := m.Put("/gen/2", &Given{Files: []File{{"a", 0o400, nil}, {"a/b", 0o400, nil}}}); err == nil {
		t.Error("a file in a file")
	}
	if err := m.Keep([]string{"/gen/1"}); err != nil || read(Files(of)+"/a") != "one" {
		t.Errorf("Keep: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("Close while it is used: %v", err)
	}
	if err := m.Remove("/gen/1"); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(m.Root()); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(m.Root()); err == nil {
		t.Error("the directory is left")
	}
}

// TestNoMemory: without a file system in memory of one's own there is none, and the error
// says why.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if inMemory(disk) == nil {
		disk = "/" // where tests run in memory
	}
	if _, err := openMachine(t.TempDir(), []string{disk}); err == nil || !strings.Contains(err.Error(), "is not in memory") {
		t.Errorf("on a disk: %v", err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "muster-test-")
	if err != nil {
		t.Skip("NOT TESTED: needs /dev/shm")
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Symlink("/", filepath.Join(dir, "name")); err != nil {
		t.Fatal(err)
	}
	if _, err := openMemory([]string{dir}, "name"); err == nil || !strings.Contains(err.Error(), "no directory of this user") {
		t.Errorf("a link in its place: %v", err)
	}
}

// TestFull: a place that is full says so, and keeps nothing of what did not fit.
func TestFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("NOT TESTED: needs root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	m, err := openMemory([]string{dir}, "name")
	if err != nil {
		t.Fatal(err)
	}
	err = m.Put("/gen/1", &Given{Files: []File{{"a", 0o400, make([]byte, 128<<10)}}})
	if err == nil || !strings.Contains(err.Error(), dir+" has no room for its secrets") {
		t.Errorf("full: %v", err)
	}
	if list, err := os.ReadDir(m.Root()); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}
