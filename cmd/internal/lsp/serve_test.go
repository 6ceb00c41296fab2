package lsp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

const otherArg = "other-server"

// TestMain makes the test also the other server: it answers each request with its method,
// publishes a mistake of whatever is opened, and ends when it is asked to.
func TestMain(m *testing.M) {
	if len(os.Args) != 2 || os.Args[1] != otherArg {
		os.Exit(m.Run())
	}
	in, out := bufio.NewReader(os.Stdin), &writer{out: os.Stdout}
	for {
		m, err := readMessage(in)
		if err != nil || m.Method == "die" {
			os.Exit(0)
		}
		switch {
		case m.Method == "stall":
			time.Sleep(time.Hour) // until it is killed
		case m.Method == "textDocument/didOpen":
			var p struct{ TextDocument json.RawMessage }
			_ = json.Unmarshal(m.Params, &p)
			var d struct{ URI string }
			_ = json.Unmarshal(p.TextDocument, &d)
			_ = out.send(map[string]any{"method": "textDocument/publishDiagnostics", "params": map[string]any{"uri": d.URI, "diagnostics": []string{"of CUE"}}})
		case len(m.ID) > 0:
			_ = out.send(map[string]any{"id": m.ID, "result": "other " + m.Method})
		}
	}
}

// client is an editor.
type client struct {
	t   *testing.T
	out *writer
	got chan *message
}

// connect starts a server whose Check finds the word bad, and returns an editor for it.
func connect(t *testing.T, other []string) *client {
	t.Helper()
	fromEditor, toServer := io.Pipe()
	fromServer, toEditor := io.Pipe()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		done <- Serve(ctx, Config{In: fromEditor, Out: toEditor, Log: io.Discard, Other: other, Version: "test", Read: readAll, Check: findBad})
		_ = toEditor.Close()
	}()
	c := &client{t: t, out: &writer{out: toServer}, got: make(chan *message, 100)}
	go func() {
		defer close(c.got)
		in := bufio.NewReader(fromServer)
		for {
			m, err := readMessage(in)
			if err != nil {
				return
			}
			c.got <- m
		}
	}()
	t.Cleanup(func() {
		c.send("exit", nil, 0)
		_ = toServer.Close()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the server does not end")
		}
		cancel()
	})
	return c
}

func readAll(dir string) (schema.Tree, error) {
	tree := schema.Tree{Files: map[string]schema.File{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.cue"))
	for _, name := range names {
		b, _ := os.ReadFile(name)
		tree.Files[filepath.Base(name)] = schema.File{Data: b}
	}
	return tree, err
}

// findBad is a Check: what has the word heavy takes as long as anybody waits.
func findBad(ctx context.Context, r Repository, publish func([]schema.Diagnostic)) (left bool, _ error) {
	var out []schema.Diagnostic
	for name, f := range r.Tree.Files {
		if left = strings.Contains(string(f.Data), "heavy"); left && r.Full {
			<-ctx.Done()
			return false, ctx.Err()
		} else if left {
			defer func() { left = true }()
		}
		for i, line := range strings.Split(string(f.Data), "\n") {
			if at := strings.Index(line, "bad"); at >= 0 {
				out = append(out, schema.Diagnostic{
					Severity: schema.Error, Rule: schema.RuleInvalidValue, Position: schema.Position{Path: name, Line: i + 1, Column: at + 1},
					Field: "job.web", Message: "is bad", Expected: "good", Hint: "be good",
				})
			}
			if at := strings.Index(line, "former"); at >= 0 {
				out = append(out, schema.Diagnostic{Severity: schema.Warning, Rule: schema.RuleDeprecated, Position: schema.Position{Path: name, Line: i + 1, Column: at + 1}, Message: "use now"})
			}
		}
	}
	publish(out)
	return left, nil
}

func (c *client) send(method string, params any, id int) {
	c.t.Helper()
	m := map[string]any{"method": method, "params": params}
	if id != 0 {
		m["id"] = id
	}
	_ = c.out.send(m) // the server may have ended
}

// await returns the next message that want accepts.
func (c *client) await(what string, want func(*message) bool) *message {
	c.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case m, ok := <-c.got:
			if !ok {
				c.t.Fatalf("%s: the server has ended", what)
			}
			if want(m) {
				return m
			}
		case <-timeout:
			c.t.Fatalf("%s: no such message", what)
		}
	}
}

// answer returns the answer to a request.
func (c *client) answer(id int) *message {
	c.t.Helper()
	return c.await("answer", func(m *message) bool { return string(m.ID) == fmt.Sprint(id) })
}

// mistakes returns what is published next of a file, as lines.
func (c *client) mistakes(uri string) string {
	c.t.Helper()
	var p struct {
		URI         string
		Diagnostics []diagnostic
	}
	c.await("mistakes of "+uri, func(m *message) bool {
		if m.Method != "textDocument/publishDiagnostics" {
			return false
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			c.t.Fatalf("%v: %s", err, m.Params)
		}
		return p.URI == uri
	})
	var b strings.Builder
	for _, d := range p.Diagnostics {
		if len(d.Tags) > 0 {
			fmt.Fprintf(&b, "%v ", d.Tags)
		}
		fmt.Fprintf(&b, "%d:%d-%d:%d %s\n", d.Range.Start.Line, d.Range.Start.Character, d.Range.End.Line, d.Range.End.Character, d.Message)
	}
	return b.String()
}

// repo makes a repository with files, and returns the directory.
func repo(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["cue.mod/module.cue"], files["muster/job.cue"] = "module: \"a.b\"\n", "package muster\n"
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func document(uri string) map[string]any { return map[string]any{"uri": uri, "version": 1} }

// TestMistakes: what is typed is checked, before it is saved, and what is in other files;
// positions are in UTF-16.
func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := repo(t, map[string]string{"a.cue": "good\n", "b.cue": "x: bad\n"})
	a, b := uriOf(filepath.Join(dir, "a.cue")), uriOf(filepath.Join(dir, "b.cue"))
	c := connect(t, nil)
	c.send("initialize", map[string]any{}, 1)
	if m := c.answer(1); !strings.Contains(string(m.Result), `"change":2`) {
		t.Errorf("initialize: %s", m.Result)
	}
	c.send("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": a, "text": "good\n\"😀é\" bad, x\n"}}, 0)
	const says = " job.web: is bad: want good\nhint: be good\n"
	if got, want := c.mistakes(a), "1:6-1:9"+says; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := c.mistakes(b), "0:3-0:6"+says; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// In part: bad becomes good.
	c.send("textDocument/didChange", map[string]any{"textDocument": document(a), "contentChanges": []any{
		map[string]any{"range": span{place{1, 6}, place{1, 9}}, "text": "go"}, map[string]any{"range": span{place{1, 8}, place{1, 8}}, "text": "od"},
	}}, 0)
	if got := c.mistakes(a); got != "" {
		t.Errorf("after the correction: %q", got)
	}
	c.send("textDocument/didChange", map[string]any{"textDocument": document(a), "contentChanges": []any{map[string]any{"text": "bad"}}}, 0)
	if got, want := c.mistakes(a), "0:0-0:3"+says; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Closed without being saved: what is on the disk counts.
	c.send("textDocument/didClose", map[string]any{"textDocument": document(a)}, 0)
	if got := c.mistakes(a); got != "" {
		t.Errorf("after it is closed: %q", got)
	}
	c.send("textDocument/hover", map[string]any{}, 2)
	if m := c.answer(2); !strings.Contains(string(m.Error), "install cue") {
		t.Errorf("hover: %s %s", m.Result, m.Error)
	}
	c.send("shutdown", nil, 3)
	if m := c.answer(3); string(m.Result) != "null" {
		t.Errorf("shutdown: %s", m.Result)
	}
}

// TestOutOfDate: what takes long keeps no mistake from being shown, neither in what lies beside it nor,
// when it is corrected, in its place.
func TestOutOfDate(t *testing.T) {
	t.Parallel()
	dir := repo(t, map[string]string{"a.cue": "good\n", "b.cue": "good\n"})
	a, b := uriOf(filepath.Join(dir, "a.cue")), uriOf(filepath.Join(dir, "b.cue"))
	c := connect(t, nil)
	open := func(uri, text string) {
		c.send("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": uri, "text": text}}, 0)
	}
	change := func(uri, text string) {
		c.send("textDocument/didChange", map[string]any{"textDocument": document(uri), "contentChanges": []any{map[string]any{"text": text}}}, 0)
	}
	const says = "0:0-0:3 job.web: is bad: want good\nhint: be good\n"
	open(a, "heavy")
	open(b, "bad")
	if got := c.mistakes(b); got != says {
		t.Errorf("beside it: %q", got)
	}
	change(b, "good")
	if got := c.mistakes(b); got != "" {
		t.Errorf("corrected beside it: %q", got)
	}
	c.send("textDocument/didSave", map[string]any{"textDocument": document(a)}, 0)
	change(b, "bad")
	if got := c.mistakes(b); got != says {
		t.Errorf("while all is checked: %q", got)
	}
	change(a, "bad")
	if got := c.mistakes(a); got != says {
		t.Errorf("in its place: %q", got)
	}
}

// TestDeprecated: a former name has the tag by which editors strike it through.
func TestDeprecated(t *testing.T) {
	t.Parallel()
	dir := repo(t, map[string]string{"a.cue": "x: former\n"})
	a := uriOf(filepath.Join(dir, "a.cue"))
	c := connect(t, nil)
	c.send("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": a, "text": "x: former\n"}}, 0)
	if got, want := c.mistakes(a), "[2] 0:3-0:9 use now\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// withOther returns an editor with another server, and the document of a repository.
func withOther(t *testing.T) (c *client, uri string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := repo(t, map[string]string{"a.cue": "good\n"})
	return connect(t, []string{exe, otherArg}), uriOf(filepath.Join(dir, "a.cue"))
}

// TestOther: requests go to the other server, and its mistakes of a config repository are
// left out; when it ends, its requests are refused and mistakes are still found.
func TestOther(t *testing.T) {
	t.Parallel()
	c, a := withOther(t)
	c.send("initialize", map[string]any{}, 1)
	if m := c.answer(1); string(m.Result) != `"other initialize"` {
		t.Errorf("initialize: %s", m.Result)
	}
	c.send("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": "file:///elsewhere.cue", "text": ""}}, 0)
	m := c.await("mistakes elsewhere", func(m *message) bool { return m.Method == "textDocument/publishDiagnostics" })
	if !bytes.Contains(m.Params, []byte("of CUE")) {
		t.Errorf("elsewhere: %s", m.Params)
	}
	c.send("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": a, "text": "bad"}}, 0)
	if got := c.mistakes(a); !strings.Contains(got, "is bad") {
		t.Errorf("%q", got)
	}
	c.send("die", nil, 2)
	if m := c.answer(2); !strings.Contains(string(m.Error), "has ended") {
		t.Errorf("after its end: %s %s", m.Result, m.Error)
	}
	c.send("textDocument/didChange", map[string]any{"textDocument": document(a), "contentChanges": []any{map[string]any{"text": "good"}}}, 0)
	if got := c.mistakes(a); got != "" {
		t.Errorf("%q", got)
	}
}

// TestOtherBusy: while the other server writes long answers and so reads nothing, these are
// taken from it, whatever the editor asks meanwhile.
func TestOtherBusy(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const asked = 50
	c := connect(t, []string{exe, otherArg})
	long := strings.Repeat("x", 200<<10) // more than a pipe holds
	for id := 1; id <= asked; id++ {
		c.send(long, nil, id)
	}
	for id := 1; id <= asked; id++ {
		if m := c.answer(id); string(m.Result) != `"other `+long+`"` {
			t.Fatalf("%d: %d bytes", id, len(m.Result))
		}
	}
}

// TestOtherStalls: the other server reads nothing more, and mistakes are found all the same.
func TestOtherStalls(t *testing.T) {
	t.Parallel()
	c, a := withOther(t)
	c.send("stall", nil, 1)
	long := strings.Repeat("// more than a pipe holds\n", 10_000)
	c.send("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": a, "text": long}}, 0)
	c.send("textDocument/didChange", map[string]any{"textDocument": document(a), "contentChanges": []any{map[string]any{"text": "bad"}}}, 0)
	if got := c.mistakes(a); !strings.Contains(got, "is bad") {
		t.Errorf("%q", got)
	}
}

func TestWord(t *testing.T) {
	t.Parallel()
	text := []byte("a: \"x, \\\" y\" // z\nb: é\n")
	for _, tt := range []struct {
		line, column int
		want         span
	}{
		{1, 1, span{place{0, 0}, place{0, 1}}},
		{1, 4, span{place{0, 3}, place{0, 12}}},
		{1, 2, span{place{0, 1}, place{0, 2}}},
		{2, 4, span{place{1, 3}, place{1, 4}}},
		{2, 90, span{place{1, 4}, place{1, 4}}},
		{0, 0, span{place{0, 0}, place{0, 1}}},
		{9, 9, span{place{8, 0}, place{8, 0}}},
	} {
		if diff := cmp.Diff(tt.want, word(text, tt.line, tt.column)); diff != "" {
			t.Errorf("%d:%d (-want +got):\n%s", tt.line, tt.column, diff)
		}
	}
}

// TestDocuments: messages out of order, ends of lines and characters of two units lose nothing, and what was edited is
// edited until it was checked, also when it was closed.
func TestDocuments(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"cue.mod", "muster", "a", "b"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "cue.mod", "module.cue"), []byte("module: \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDocuments()
	note := func(method, file string, rest string) {
		uri, err := json.Marshal("file://" + filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		d.note(&message{Method: "textDocument/" + method, Params: json.RawMessage(fmt.Sprintf(`{"textDocument": {"uri": %s, "text": "a: \"😀b\"\r\nc: 1\r\n"}%s}`, uri, rest))})
	}
	change := func(file string, line, from, to int) {
		note("didChange", file, fmt.Sprintf(`, "contentChanges": [{"range": {"start": {"line": %d, "character": %d}, "end": {"line": %d, "character": %d}}, "text": "x"}]`, line, from, line, to))
	}
	change("a/never.cue", 0, 0, 0)
	note("didOpen", "a/open.cue", "")
	change("a/open.cue", 0, 6, 7)   // the b after two units
	change("a/open.cue", 1, 99, 99) // the end of a line
	note("didOpen", "b/closed.cue", "")
	note("didClose", "b/closed.cue", "")
	change("b/closed.cue", 0, 0, 0)
	s := &server{docs: d, cfg: Config{Read: func(string) (schema.Tree, error) { return schema.Tree{Files: map[string]schema.File{}}, nil }}}
	for _, what := range []string{"first", "after it was cancelled"} {
		now := d.now()
		r, err := s.read(target{root: root, open: now})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(r.Tree.Files["a/open.cue"].Data), "a: \"😀x\"\r\nc: 1x\r\n"; got != want || len(r.Tree.Files) != 1 {
			t.Errorf("%s: %d files, a/open.cue is %q, want one, %q", what, len(r.Tree.Files), got, want)
		}
		if want := []string{"a", "b"}; !slices.Equal(r.Edited, want) {
			t.Errorf("%s: edited are %q, want %q", what, r.Edited, want)
		}
		d.again(now.edited)
	}
	d.now()
	if now := d.now(); len(now.edited) > 0 {
		t.Errorf("after a check %v are edited", now.edited)
	}
}
