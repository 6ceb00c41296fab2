package runtime_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// caller is the other end of a session.
type caller struct {
	*io.PipeReader // what is typed
	typed          *io.PipeWriter
	said           *io.PipeWriter
	frames         *schema.ExecFrames
}

func (c *caller) Write(p []byte) (int, error) { return c.said.Write(p) }

func newCaller() *caller {
	in, typed := io.Pipe()
	out, said := io.Pipe()
	return &caller{in, typed, said, schema.NewExecFrames(out)}
}

func (c *caller) send(t *testing.T, kind schema.ExecKind, data string) {
	t.Helper()
	if _, err := c.typed.Write(schema.AppendExecFrame(nil, kind, []byte(data))); err != nil {
		t.Fatal(err)
	}
}

// until returns what came on stdout until it ends in want.
func (c *caller) until(t *testing.T, want string) string {
	t.Helper()
	var b bytes.Buffer
	for !strings.HasSuffix(b.String(), want) {
		kind, data, err := c.frames.Next()
		if err != nil || kind == schema.ExecExit {
			t.Fatalf("frame %q %s, %v after %q, want %q", kind, data, err, b.String(), want)
		}
		if kind == schema.ExecStdout {
			b.Write(data)
		}
	}
	return b.String()
}

// end returns how the command ended.
func (c *caller) end(t *testing.T) schema.Exit {
	t.Helper()
	for {
		kind, data, err := c.frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		if kind == schema.ExecExit {
			exit, err := schema.DecodeExecExit(data)
			if err != nil {
				t.Fatal(err)
			}
			return exit
		}
	}
}

// TestExecTerminal: a command has a terminal of the size that was asked for and
// sees it change; ^C is typed, and ends the command in the foreground.
func TestExecTerminal(t *testing.T) {
	t.Parallel()
	testExecTerminal(t, newMachine(t))
}

func testExecTerminal(t *testing.T, m *machine) {
	t.Helper()
	p, _ := m.start(assignment(0, "sleep", "1000"))
	c := newCaller()
	ended := make(chan error, 1)
	go func() {
		ended <- p.Exec(t.Context(), schema.ExecRequest{Command: []string{"sh"}, TTY: true, Rows: 33, Columns: 99, Term: "vt100"}, c)
	}()
	c.send(t, schema.ExecInput, "stty -echo; PS1=; stty size; echo $TERM\n")
	c.until(t, "33 99\r\nvt100\r\n")
	c.send(t, schema.ExecWindow, string(schema.EncodeExecWindow(12, 34)))
	c.send(t, schema.ExecInput, "stty size; sh -c 'echo up; exec sleep 1000'\n")
	c.until(t, "12 34\r\nup\r\n")
	c.send(t, schema.ExecInput, "\x03echo ended $?\n")
	c.until(t, "ended 130\r\n")
	c.send(t, schema.ExecInput, "exit 5\n")
	if exit := c.end(t); exit.Code != 5 {
		t.Errorf("exit %+v, want status 5", exit)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestExecInGroup: a command is in its task's cgroup and namespaces, has no more
// rights than the task, and is killed with it.
func TestExecInGroup(t *testing.T) {
	t.Parallel()
	testExecInGroup(t, newMachine(t))
}

func testExecInGroup(t *testing.T, m *machine) {
	t.Helper()
	script := `id -u; for n in pid mnt ipc uts user; do readlink /proc/self/ns/$n; done; grep -E "Cap|NoNewPrivs|Seccomp:" /proc/self/status`
	p, dir := m.start(assignment(0, "sh", "-c", script+"; echo; sleep 1000"))
	task := ""
	for end := time.Now().Add(patience); !strings.HasSuffix(task, "\n\n"); time.Sleep(time.Millisecond) {
		if task = said(t, dir); time.Now().After(end) {
			t.Fatalf("the task said %q", task)
		}
	}
	c := newCaller()
	ended := make(chan error, 1)
	go func() {
		ended <- p.Exec(t.Context(), schema.ExecRequest{Command: []string{"sh", "-c", script + "; cat /proc/self/cgroup; echo end; sleep 1000"}}, c)
	}()
	got := c.until(t, "end\n")
	if !strings.HasPrefix(got+"\n", strings.TrimSuffix(task, "\n")) {
		t.Errorf("the command is\n%s, its task is\n%s", got, task)
	}
	for _, group := range p.Cgroups() {
		if name := group[strings.LastIndexByte(group, '/'):]; !strings.Contains(got, name) {
			t.Errorf("the command is not in %s:\n%s", group, got)
		}
	}
	if err := p.Signal(true); err != nil {
		t.Fatal(err)
	}
	c.end(t)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wait(t, p)
}

// TestExecFlood: neither end holds much while the other does not take it, and
// the end of the caller is the end of the command though it takes no input.
func TestExecFlood(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p, _ := m.start(assignment(0, "sleep", "1000"))
	c := newCaller()
	ended := make(chan error, 1)
	go func() {
		ended <- p.Exec(t.Context(), schema.ExecRequest{Command: []string{"sleep", "1000"}}, c)
	}()
	piece := strings.Repeat("x", schema.MaxExecFrame)
	for range schema.ExecInputRoom / schema.MaxExecFrame {
		c.send(t, schema.ExecInput, piece)
	}
	if err := c.typed.Close(); err != nil {
		t.Fatal(err)
	}
	if exit := c.end(t); exit.Code != -1 {
		t.Errorf("exit %+v, want none", exit)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
