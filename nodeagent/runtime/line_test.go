package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLine: what a task writes to its status file is read, and nothing that it
// puts in its place.
func TestLine(t *testing.T) {
	t.Parallel()
	testLine(t, newMachine(t))
}

func testLine(t *testing.T, m *machine) {
	t.Helper()
	p, dir := m.start(shell(0, `echo "$MUSTER_STATUS_FILE"; echo starting > "$MUSTER_STATUS_FILE"; echo said; exec sleep 100`))
	says(t, dir, "said")
	file := filepath.Join(filepath.Dir(dir), "work", filepath.Base(strings.Fields(said(t, dir))[0]))
	if got := p.Line(); got != "starting\n" {
		t.Fatalf("says %q", got)
	}
	owner, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	own := func(name string) {
		t.Helper()
		if err := os.Lchown(name, int(owner.Sys().(*syscall.Stat_t).Uid), -1); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(filepath.Dir(file), "other")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	own(secret)
	for name, tt := range map[string]struct {
		make func() error
		want string
	}{
		"nothing":        {func() error { return nil }, ""},
		"empty":          {func() error { return os.WriteFile(file, nil, 0o600) }, ""},
		"a line":         {func() error { return os.WriteFile(file, []byte("fine"), 0o600) }, "fine"},
		"very long":      {func() error { return os.WriteFile(file, make([]byte, 1<<20), 0o600) }, strings.Repeat("\x00", 1024)},
		"symbolic link":  {func() error { return os.Symlink(secret, file) }, ""},
		"hard link":      {func() error { return os.Link(secret, file) }, ""},
		"fifo":           {func() error { return syscall.Mkfifo(file, 0o600) }, ""},
		"directory":      {func() error { return os.Mkdir(file, 0o700) }, ""},
		"device of none": {func() error { return os.Symlink("/dev/tty", file) }, ""},
	} {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		if err := tt.make(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := os.Lstat(file); err == nil {
			own(file)
		}
		if got := p.Line(); got != tt.want {
			t.Errorf("%s: says %.40q, want %.40q", name, got, tt.want)
		}
	}
	if err := errorsOf(os.RemoveAll(file), os.WriteFile(file, []byte("of the last one"), 0o600), os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour))); err != nil {
		t.Fatal(err)
	}
	own(file)
	if got := p.Line(); got != "" {
		t.Errorf("what an earlier incarnation said is reported: %q", got)
	}
	if os.Geteuid() == 0 {
		if err := errorsOf(os.RemoveAll(file), os.WriteFile(file, []byte("not its own"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if got := p.Line(); got != "" {
			t.Errorf("a file of another user is reported: %q", got)
		}
	}
}

func errorsOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}
