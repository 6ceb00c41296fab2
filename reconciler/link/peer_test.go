package link

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/thread"
)

// socket returns where a socket may be: the path is not too long for one.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "link")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := local.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestPeers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		peer uint32
		uid  int
		ok   bool
	}{{0, 0, true}, {1000, 1000, true}, {0, 1000, true}, {1000, 0, false}, {1001, 1000, false}} {
		err := allowed(tc.peer, tc.uid)
		if (err == nil) != tc.ok {
			t.Errorf("peer %d, we %d: %v", tc.peer, tc.uid, err)
		}
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	p := &peers{refusals: newRefusals(slog.New(slog.DiscardHandler), nil)}
	if _, _, err := p.ServerHandshake(a); err == nil || !strings.Contains(err.Error(), "this master has no certificate") {
		t.Errorf("no unix socket: %v", err)
	}
}

// TestForeignPeer connects as another user, where a mistake left the socket
// open to all.
func TestForeignPeer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	path := socket(t)
	l := listen(t, path)
	dir := filepath.Dir(path)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	err := thread.Run(func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 {
			return errno
		}
		c, err := net.Dial("unix", path)
		if err == nil {
			defer c.Close()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var said bytes.Buffer
	var events []schema.Event
	p := &peers{refusals: newRefusals(slog.New(slog.NewTextHandler(&said, nil)), func(e schema.Event) { events = append(events, e) })}
	if _, _, err := p.ServerHandshake(c); err == nil || !strings.Contains(err.Error(), "uid 65534: want uid 0 or root") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(said.String(), `msg="agent refused" reason=user`) {
		t.Errorf("said %q", said.String())
	}
	if len(events) != 1 || events[0].Kind != schema.EventRefuse || events[0].Message != "agent refused (user): peer is of uid 65534: want uid 0 or root" {
		t.Errorf("events %+v", events)
	}
}
