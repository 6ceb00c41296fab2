package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/cmd/internal/binaries"
)

// editor is a client of muster lsp.
type editor struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

// edit starts muster lsp with flags.
func edit(t *testing.T, dir string, flags ...string) *editor {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries.Dir(t), "muster"), append([]string{"lsp"}, flags...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // of a test that failed it was killed
	})
	return &editor{t: t, in: in, out: bufio.NewReader(out)}
}

func (e *editor) send(method string, id int, params any) {
	e.t.Helper()
	m := map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
	if id > 0 {
		m["id"] = id
	}
	b, err := json.Marshal(m)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(e.in, "Content-Length: %d\r\n\r\n%s", len(b), b); err != nil {
		e.t.Fatal(err)
	}
}

// received is a message of the server.
type received struct {
	ID     json.RawMessage
	Method string
	Result json.RawMessage
	Error  json.RawMessage
	Params struct {
		URI         string
		Diagnostics []struct {
			Range    struct{ Start struct{ Line, Character int } }
			Message  string
			Severity int
			Code     string
		}
	}
}

// await returns the next message that want accepts.
func (e *editor) await(want func(*received) bool) *received {
	e.t.Helper()
	for {
		header, err := textproto.NewReader(e.out).ReadMIMEHeader()
		if err != nil {
			e.t.Fatalf("the server has ended: %v", err)
		}
		n, err := strconv.Atoi(header.Get("Content-Length"))
		if err != nil {
			e.t.Fatal(err)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(e.out, b); err != nil {
			e.t.Fatal(err)
		}
		m := &received{}
		if err := json.Unmarshal(b, m); err != nil && strings.Contains(string(b), "publishDiagnostics") {
			e.t.Fatalf("%v: %s", err, b)
		}
		if want(m) {
			return m
		}
	}
}

// mistakes returns what is published next of a file.
func (e *editor) mistakes(uri string) string {
	e.t.Helper()
	m := e.await(func(m *received) bool { return m.Method == "textDocument/publishDiagnostics" && m.Params.URI == uri })
	var b strings.Builder
	for _, d := range m.Params.Diagnostics {
		fmt.Fprintf(&b, "%d:%d %s: %s\n", d.Range.Start.Line, d.Range.Start.Character, d.Code, d.Message)
	}
	return b.String()
}

// typeMistakes opens a file, types a mistake, takes it back and ends.
func typeMistakes(e *editor, dir string) {
	e.t.Helper()
	name := filepath.Join(dir, "teams", "example", "hello.cue")
	uri := "file://" + name
	text, err := os.ReadFile(name)
	if err != nil {
		e.t.Fatal(err)
	}
	e.send("initialized", 0, map[string]any{})
	doc := map[string]any{"uri": uri, "languageId": "cue", "version": 1, "text": string(text)}
	e.send("textDocument/didOpen", 0, map[string]any{"textDocument": doc})
	change := func(version int, from, to string) {
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if at := strings.Index(line, "tasks: 3"); at >= 0 {
				r := map[string]any{"start": map[string]any{"line": i, "character": at}, "end": map[string]any{"line": i, "character": at + len(from)}}
				e.send("textDocument/didChange", 0, map[string]any{
					"textDocument": map[string]any{"uri": uri, "version": version}, "contentChanges": []any{map[string]any{"range": r, "text": to}},
				})
				return
			}
		}
		e.t.Fatal("no such line")
	}
	change(2, "tasks", "taks")
	got := e.mistakes(uri)
	if !strings.Contains(got, "11:1 unknown-field: ") || !strings.Contains(got, "did you mean tasks?") || strings.Count(got, "unknown-field") != 1 {
		e.t.Errorf("typed: %s", got)
	}
	change(3, "taks", "tasks")
	if got := e.mistakes(uri); got != "" {
		e.t.Errorf("taken back: %s", got)
	}
}

func (e *editor) end() {
	e.t.Helper()
	e.send("shutdown", 99, nil)
	e.await(func(m *received) bool { return string(m.ID) == "99" })
	e.send("exit", 0, nil)
	if _, err := io.Copy(io.Discard, e.out); err != nil {
		e.t.Error(err)
	}
}

func initialized(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r")
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries.Dir(t), "muster"), "init", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// TestLSP: an editor sees a mistake while it is typed, and no more when it is taken back.
func TestLSP(t *testing.T) {
	t.Parallel()
	dir := initialized(t)
	e := edit(t, dir, "--cue", "")
	e.send("initialize", 1, map[string]any{"rootUri": "file://" + dir, "capabilities": map[string]any{}})
	if m := e.await(func(m *received) bool { return string(m.ID) == "1" }); !strings.Contains(string(m.Result), "textDocumentSync") {
		t.Errorf("initialize: %s %s", m.Result, m.Error)
	}
	typeMistakes(e, dir)
	// Tests are run, too.
	uri := "file://" + filepath.Join(dir, "teams", "example", "hello_test.cue")
	e.send("textDocument/didOpen", 0, map[string]any{"textDocument": map[string]any{
		"uri": uri, "languageId": "cue", "version": 1, "text": "package example\n\ntest: few: want: job: hello: tasks: 2\n",
	}})
	if got := e.mistakes(uri); !strings.Contains(got, "2:36 test: ") || !strings.Contains(got, `test "few": is 3: want 2`) {
		t.Errorf("a test: %s", got)
	}
	e.end()
}

// TestLSPHeavy: while a package that takes long is typed, a mistake in another one is shown at once, and so is
// one in its own place when it is corrected.
func TestLSPHeavy(t *testing.T) {
	t.Parallel()
	dir := initialized(t)
	e := edit(t, dir, "--cue", "")
	e.send("initialize", 1, map[string]any{"rootUri": "file://" + dir, "capabilities": map[string]any{}})
	open := func(name string) (uri, text string) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		uri = "file://" + filepath.Join(dir, name)
		e.send("textDocument/didOpen", 0, map[string]any{"textDocument": map[string]any{"uri": uri, "languageId": "cue", "version": 1, "text": string(b)}})
		return uri, string(b)
	}
	change := func(uri, text string) {
		e.send("textDocument/didChange", 0, map[string]any{"textDocument": map[string]any{"uri": uri, "version": 2}, "contentChanges": []any{map[string]any{"text": text}}})
	}
	hello, light := open("teams/example/hello.cue")
	clock, right := open("teams/reports/clock.cue")
	heavy := strings.Replace(light, "import (", "import (\n\t\"list\"", 1) +
		"\n_r: list.Range(0, 3000, 1)\njob: hello: labels: z: \"\\(len([for a in _r for b in _r for c in _r if a*b*c == 7 {a}]))\"\n"
	change(hello, heavy)
	if got := e.mistakes(hello); !strings.Contains(got, " pending: ") {
		t.Errorf("heavy: %s", got)
	}
	change(clock, strings.Replace(right, "tasks: 1", "taks: 1", 1))
	if got := e.mistakes(clock); !strings.Contains(got, "did you mean tasks?") {
		t.Errorf("beside it: %s", got)
	}
	change(hello, strings.Replace(light, "tasks: 3", "taks: 3", 1))
	got := e.mistakes(hello)
	for strings.Contains(got, " pending: ") { // by a check from before
		got = e.mistakes(hello)
	}
	if !strings.Contains(got, "did you mean tasks?") {
		t.Errorf("in its place: %s", got)
	}
	e.end()
}

// TestLSPBesideCUE: the same, and what cue lsp can do beside it.
func TestLSPBesideCUE(t *testing.T) {
	t.Parallel()
	cue, err := exec.LookPath("cue")
	if err != nil {
		t.Skip("needs cue (go install cuelang.org/go/cmd/cue@v0.17.1)")
	}
	dir := initialized(t)
	e := edit(t, dir, "--cue", cue)
	e.send("initialize", 1, map[string]any{
		"rootUri": "file://" + dir, "capabilities": map[string]any{}, "workspaceFolders": []any{map[string]any{"uri": "file://" + dir, "name": "r"}},
	})
	m := e.await(func(m *received) bool { return string(m.ID) == "1" && m.Method == "" })
	if !strings.Contains(string(m.Result), "hoverProvider") || !strings.Contains(string(m.Result), "definitionProvider") {
		t.Errorf("initialize: %s %s", m.Result, m.Error)
	}
	typeMistakes(e, dir)
	e.send("textDocument/documentSymbol", 2, map[string]any{"textDocument": map[string]any{"uri": "file://" + filepath.Join(dir, "teams", "example", "hello.cue")}})
	e.await(func(m *received) bool { return string(m.ID) == "2" && m.Method == "" })
	e.end()
}
