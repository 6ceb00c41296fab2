package runtime_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/archive"
)

// copied is what became of a copy.
type copied struct {
	output []byte
	said   string
	exit   schema.Exit
}

// beside runs a request beside a task to its end.
func beside(t *testing.T, p *runtime.Process, r schema.ExecRequest, input []byte) copied {
	t.Helper()
	c := newCaller()
	ended := make(chan error, 1)
	go func() { ended <- p.Exec(t.Context(), r, c) }()
	go func() {
		for len(input) > 0 {
			n := min(len(input), schema.MaxExecFrame)
			_, _ = c.typed.Write(schema.AppendExecFrame(nil, schema.ExecInput, input[:n]))
			input = input[n:]
		}
		_, _ = c.typed.Write(schema.AppendExecFrame(nil, schema.ExecEOF, nil))
	}()
	var was copied
	for {
		kind, data, err := c.frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case schema.ExecStdout:
			was.output = append(was.output, data...)
		case schema.ExecStderr:
			was.said += string(data)
		case schema.ExecFailure:
			t.Fatalf("%s", data)
		case schema.ExecExit:
			if was.exit, err = schema.DecodeExecExit(data); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			_ = c.typed.Close() // as the connection is
			return was
		}
	}
}

// copyOut returns the content of a file of a task.
func copyOut(t *testing.T, p *runtime.Process, path string) (content string, was copied) {
	t.Helper()
	was = beside(t, p, schema.ExecRequest{Copy: &schema.ExecCopy{Direction: schema.CopyOut, Path: path}}, nil)
	if was.exit.Code != 0 {
		return "", was
	}
	to := filepath.Join(t.TempDir(), "f")
	if err := archive.Unpack(bytes.NewReader(was.output), archive.Target{Path: to}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), was
}

// copyIn copies a file with that content to a path of a task.
func copyIn(t *testing.T, p *runtime.Process, content, path string) copied {
	t.Helper()
	from := filepath.Join(t.TempDir(), "name")
	if err := os.WriteFile(from, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := archive.Pack(&b, from, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	return beside(t, p, schema.ExecRequest{Copy: &schema.ExecCopy{Direction: schema.CopyIn, Path: path, Name: "name"}}, b.Bytes())
}

func TestCopy(t *testing.T) {
	t.Parallel()
	testCopy(t, newMachine(t))
}

// testCopy: files are copied by who is as any command beside the task is, and links of the
// task lead nowhere but in what the task sees.
func testCopy(t *testing.T, m *machine) {
	t.Helper()
	outside := t.TempDir() // the task does not see it
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, dir := m.start(assignment(0, "sh", "-c", "ln -s "+outside+" out; ln -s /proc/1/root"+outside+" root; echo up; exec sleep 1000"))
	says(t, dir, "up\n")
	if was := copyIn(t, p, strings.Repeat("content", 9000), "./"); was.exit.Code != 0 {
		t.Fatalf("%+v", was)
	}
	got, was := copyOut(t, p, "name")
	if got != strings.Repeat("content", 9000) {
		t.Errorf("it came back with %d bytes: %v %s", len(got), was.exit, was.said)
	}
	command := func(script string) string {
		return string(beside(t, p, schema.ExecRequest{Command: []string{"sh", "-c", script}}, nil).output)
	}
	if got := command("stat -c '%a %u' name; echo 640 $(id -u)"); len(strings.Fields(got)) != 4 || got[:len(got)/2] != got[len(got)/2:] {
		t.Errorf("mode and owner, as they are and should be:\n%s", got)
	}
	// Everything that says what a process may do.
	rights := func(status string) string {
		var b strings.Builder
		for line := range strings.Lines(status) {
			for _, name := range []string{"Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp"} {
				if strings.HasPrefix(line, name) {
					b.WriteString(line)
				}
			}
		}
		return b.String()
	}
	status, _ := copyOut(t, p, "/proc/self/status")
	if theirs, ours := rights(command("cat /proc/self/status")), rights(status); theirs != ours || ours == "" {
		t.Errorf("what copies has\n%s, a command has\n%s", ours, theirs)
	}
	if env, was := copyOut(t, p, "/proc/self/environ"); strings.Contains(env, "MUSTER_JOB") || !strings.Contains(env, "GOMAXPROCS") {
		t.Errorf("its environment is %q, %s", env, was.said)
	}
	for _, path := range []string{"out/secret", "root/secret", "/proc/1/root" + outside + "/secret", "none"} {
		if got, was := copyOut(t, p, path); was.exit.Code != archive.NotCopied || was.said == "" {
			t.Errorf("%s: %q, %v %s", path, got, was.exit, was.said)
		}
	}
	for _, path := range []string{"out/new", "root/new", "/proc/1/new", "none/new"} {
		if was := copyIn(t, p, "x", path); was.exit.Code != archive.NotCopied || was.said == "" {
			t.Errorf("into %s: %v %s", path, was.exit, was.said)
		}
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 1 {
		t.Errorf("outside is %v, %v", list, err)
	}
	if err := p.Signal(true); err != nil {
		t.Fatal(err)
	}
	wait(t, p)
}

// TestCopyBare: an image needs no program for it.
func TestCopyBare(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("NOT TESTED: needs busybox")
	}
	layer := t.TempDir()
	if err := errors.Join(os.Chmod(layer, 0o755), copyProgram(program, filepath.Join(layer, "sleep"))); err != nil {
		t.Fatal(err)
	}
	m := newContainerMachine(t, func(c *config) {
		c.Images.(images)["test/bare"] = image.Image{Layers: []string{layer}, Root: image.Root{Mode: 0o755}}
	})
	a := assignment(0, "unused")
	a.Job.Task.Process, a.Job.Task.Container = schema.Process{}, &schema.Container{Image: "test/bare", Command: []string{"/sleep", "1000"}, User: "0"}
	p, _ := m.start(a)
	if was := copyIn(t, p, "content", "/etc-of-its-own"); was.exit.Code != 0 {
		t.Fatalf("%+v", was)
	}
	if got, was := copyOut(t, p, "/etc-of-its-own"); got != "content" {
		t.Errorf("%q, %+v", got, was)
	}
	if err := p.Signal(true); err != nil {
		t.Fatal(err)
	}
	wait(t, p)
}
