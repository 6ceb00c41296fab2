package keeper

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// execIn runs a shell script in a session of the task in dir, with input as its
// standard input.
func execIn(t *testing.T, dir, script string, input *os.File) (*Session, *os.File) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	defer w.Close()
	s, err := StartExec(t.Context(), exe, dir, Exec{Command: []string{"sh", "-c", script}, Env: []string{"TERM=dumb"}, Stdio: [3]*os.File{input, w, w}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, r
}

func null(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func said(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestExec: a session has the task's environment and directory, reports how its
// command ended, and leaves nothing behind.
func TestExec(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := start(t, dir, testSpec(t, "sleep 1000"))
	s, r := execIn(t, dir, `echo $TERM; pwd; ( setsid sleep 1000 & ) ; echo $MARK; exit 7`, null(t))
	want := "dumb\n" + h.Spec.Dir + "\n" + strings.TrimPrefix(h.Spec.Mark, "MARK=") + "\n"
	if got := said(t, r); got != want { // until the sleep is dead
		t.Errorf("it said %q, want %q", got, want)
	}
	if exit, err := s.Wait(); err != nil || exit.Code != 7 {
		t.Errorf("exit %+v, %v, want status 7", exit, err)
	}
	s, _ = execIn(t, dir, `exec sleep 1000`, null(t))
	s.Signal(unix.SIGTERM)
	if exit, err := s.Wait(); err != nil || exit.Signal != "SIGTERM" {
		t.Errorf("exit %+v, %v, want SIGTERM", exit, err)
	}
}

// TestExecGivenUp: a session whose asker has gone by the time it starts has
// ended, with what it ran, when StartExec returns.
func TestExecGivenUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir, testSpec(t, "sleep 1000"))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = StartExec(ctx, exe, dir, Exec{Command: []string{"sh", "-c", "sleep 1000 & sleep 1000"}, Stdio: [3]*os.File{null(t), w, w}})
	_ = w.Close()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("something of it still has its output: %v", err)
	}
}

// TestExecEnds: a session ends with who asked for it, though it ignores SIGHUP,
// and with its task.
func TestExecEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := start(t, dir, testSpec(t, "sleep 1000"))
	s, r := execIn(t, dir, `trap '' HUP TERM; echo up; while :; do sleep 1000; done`, null(t))
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	other, o := execIn(t, dir, `echo up; sleep 1000`, null(t))
	if _, err := io.ReadFull(o, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	_ = said(t, r) // to its end: nothing has it open any more
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = said(t, o)
	if exit, err := other.Wait(); err != nil || !strings.Contains(exit.Message, "the task has ended") {
		t.Errorf("exit %+v, %v, want the end of the task", exit, err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, err = StartExec(t.Context(), exe, dir, Exec{Command: []string{"true"}, Stdio: [3]*os.File{null(t), null(t), null(t)}})
	if err == nil || !strings.Contains(err.Error(), "the task has ended") {
		t.Errorf("a session of a task that has ended: %v", err)
	}
}

func TestExecCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir, testSpec(t, "sleep 1000"))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"no-such-command", filepath.Join(dir, "none"), dir} {
		begin := time.Now()
		_, err := StartExec(t.Context(), exe, dir, Exec{Command: []string{command}, Stdio: [3]*os.File{null(t), null(t), null(t)}})
		if !errors.Is(err, ErrCommand) {
			t.Errorf("%s: %v after %v, want ErrCommand", command, err, time.Since(begin))
		}
	}
}
