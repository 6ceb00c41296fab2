package link

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/thread"
)

// TestWhoServes: an agent that is root takes the word of a master that is not, if nobody
// but that master's user and root can have put its socket there.
func TestWhoServes(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a second user")
	}
	const master, other = 990, 70001
	top, err := os.MkdirTemp("/var/lib", "muster-test-") // nobody else may write above it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	for name, c := range map[string]struct {
		owner int
		mode  os.FileMode
		as    int
		want  string
	}{
		"its directory":         {master, 0o700, master, ""},
		"root's directory":      {0, 0o755, master, ""},
		"another's directory":   {other, 0o700, master, "others than that user and root can write to "},
		"whose anybody's is":    {master, 0o777, master, "others than that user and root can write to "},
		"a sticky one":          {0, 0o777 | os.ModeSticky, master, "others than that user and root can write to "},
		"a task in the machine": {master, 0o700, other, "others than that user and root can write to "},
	} {
		dir := filepath.Join(top, strings.ReplaceAll(name, " ", "-"))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "s")
		stop := listenAs(t, c.as, path)
		if err := os.Chown(dir, c.owner, c.owner); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		conn, err := connectUnix(t.Context(), path)
		switch {
		case err == nil:
			_ = conn.Close()
			if c.want != "" {
				t.Errorf("%s: connected", name)
			}
		case c.want == "" || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		stop()
	}
}

// listenAs listens on path as a user, until stop is called.
func listenAs(t *testing.T, uid int, path string) (stop func()) {
	t.Helper()
	var fd int
	err := thread.Run(func() (err error) {
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			return err
		}
		// Of this thread alone, which package syscall would not do.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			return errno
		}
		return unix.Listen(fd, 1) // from now on the kernel names that user
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = unix.Close(fd) }
}

// TestAddressTowards: a machine is reached where it connects to the master from.
func TestAddressTowards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		master string
		tcp    bool
		want   string
	}{
		{"/run/muster/agent.sock", false, "127.0.0.1"},
		{"127.0.0.7:7421", true, "127.0.0.1"},
		{"[::1]:7421", true, "::1"},
		{"127.0.0.1", true, ""}, // without a port, as one that cannot be looked up
	} {
		if got := addressTowards(t.Context(), c.master, c.tcp); got != c.want {
			t.Errorf("towards %s: %q, want %q", c.master, got, c.want)
		}
	}
}
