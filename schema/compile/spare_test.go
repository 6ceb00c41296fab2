package compile_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/schema/compile"
)

// counted is a compiler whose children leave their process ids in a file.
type counted struct {
	*compile.Compiler
	t     *testing.T
	pids  string
	trees int
}

func newCounted(t *testing.T, idle time.Duration) *counted {
	dir := t.TempDir()
	c := &counted{t: t, pids: filepath.Join(dir, "pids")}
	exe := filepath.Join(dir, "exe")
	script := fmt.Sprintf("#!/bin/sh\necho $$ >>%s\nexec %s \"$@\"\n", c.pids, self(t))
	// Another process writes it: what this one has open a child that another test starts has for a
	// moment, and what is open for writing cannot be executed (ETXTBSY).
	write := exec.CommandContext(t.Context(), "/bin/sh", "-c", `cat >"$0" && chmod 700 "$0"`, exe)
	write.Stdin = strings.NewReader(script)
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.Compiler = compile.New(compile.Config{Exe: exe, Args: []string{childArg}, Workers: 1, Idle: idle})
	t.Cleanup(c.Close)
	return c
}

// another compiles a tree that the one before differs from.
func (c *counted) another() {
	c.t.Helper()
	c.trees++
	out, err := c.Compile(c.t.Context(), tree(shared(map[string]string{"teams/a/good/p.cue": sized("a", "good", c.trees)})))
	if err != nil {
		c.t.Fatal(err)
	}
	if ds := compile.Diagnostics(out); len(ds) > 0 {
		c.t.Fatal(ds)
	}
}

// began returns the process ids of the children that were started.
func (c *counted) began() (pids []int) {
	c.t.Helper()
	b, err := os.ReadFile(c.pids)
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			c.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// soon waits until f holds.
func (c *counted) soon(what string, f func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for !f() {
		select {
		case <-ctx.Done():
			c.t.Fatalf("not within a minute: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func there(pid int) bool { return syscall.Kill(pid, 0) == nil }

// TestSpareChild: a child is kept for the next tree for as long as the compiler is to, and one
// that has ended meanwhile is no mistake of a package.
func TestSpareChild(t *testing.T) {
	t.Parallel()
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		c := newCounted(t, time.Hour)
		c.another()
		c.another()
		pids := c.began()
		if len(pids) != 1 || !there(pids[0]) {
			t.Fatalf("children %v, want one", pids)
		}
		if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		c.another()
		if pids = c.began(); len(pids) != 2 {
			t.Fatalf("children %v, want one more", pids)
		}
		c.Close()
		if there(pids[1]) {
			t.Error("the child is there after Close")
		}
		c.another()
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		c := newCounted(t, 0)
		c.another()
		pids := c.began()
		if len(pids) != 1 || there(pids[0]) { // of all that is in the tree
			t.Errorf("children %v, want one, ended", pids)
		}
	})
	t.Run("for a while", func(t *testing.T) {
		t.Parallel()
		c := newCounted(t, time.Millisecond)
		c.another()
		c.soon("the child has ended", func() bool { return !there(c.began()[0]) })
	})
}
