package readme

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const page = "text\n```sh test=a\none\n```\n```go\nx\n```\n````sh test=a fails=2\n```\ntwo\n````\n" +
		"```sh test=a terminal=cell\nthree\n```\n```sh by=make-check\nfour\n```\n" +
		"```text shows\nfive\n six …\n```\n```text\nseven\n```\n"
	want := []block{
		{line: 2, tour: "a", text: "one\n"},
		{line: 8, tour: "a", fails: 2, text: "```\ntwo\n"},
		{line: 12, tour: "a", terminal: "cell", text: "three\n"},
		{line: 15, by: "make-check", text: "four\n", shows: []string{"five", " six …"}},
	}
	got, err := parse(page)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(block{})); d != "" {
		t.Errorf("blocks (-want +got):\n%s", d)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ page, want string }{
		"shows nothing":   {"```text shows\nx\n```\n", "line 1: no block of commands is before it"},
		"nothing runs it": {"```sh\nx\n```\n", "line 1: a shell block says neither"},
		"unknown word":    {"\n```sh tset=a\nx\n```\n", "line 2: \"tset=a\" is not known"},
		"no value":        {"```sh test\nx\n```\n", "has no value"},
		"by nobody":       {"```sh by=hand\nx\n```\n", "by=hand is not known"},
		"status":          {"```sh test=a fails=yes\nx\n```\n", "invalid syntax"},
		"open":            {"```sh test=a\nx\n", "not closed"},
		"silent shell":    {"```sh test=a silent=yes\nx\n```\n", "silent= is for terminals"},
		"silent no":       {"```sh test=a terminal=b silent=no\nx\n```\n", "\"silent=no\" is not known"},
		"terminal fails":  {"```sh test=a terminal=b fails=1\nx\n```\n", "means nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(tt.page)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// serve is a terminal that prints an address and ends well on SIGINT.
const serve = "trap 'exit 0' INT\necho cell at unix:/7\nwhile :; do sleep 0.05; done\n"

func TestRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		blocks []block
		want   string // part of the error, "" for none
	}{
		"state is kept": {blocks: []block{
			{text: "mkdir sub; cd sub; export WORD='a b'\n"},
			{text: "[ \"$(basename \"$PWD\")\" = sub ]; [ \"$WORD\" = 'a b' ]\n"},
		}},
		"home is its own":         {blocks: []block{{text: "[ \"$(ls -A ~)\" = '' ]\n"}}},
		"a command fails":         {blocks: []block{{text: "true\n"}, {line: 9, text: "echo why; false; true\n"}}, want: "line 9: exit status 1, want 0 (exit status 1)\nwhy"},
		"it has to fail":          {blocks: []block{{fails: 2, text: "exit 2\n"}}},
		"it shows":                {blocks: []block{{text: "echo a; echo 'b  .  d'; echo c >&2\n", shows: []string{"a", "b . …", "c"}}}},
		"it shows something else": {blocks: []block{{line: 7, text: "echo a; echo b.\n", shows: []string{"b.", "a"}}}, want: `line 7: it does not show "a"`},
		"it does not fail":        {blocks: []block{{line: 3, fails: 2, text: "true\n"}}, want: "line 3: exit status 0, want 2"},
		"a terminal": {blocks: []block{
			{text: "export WORD=x\n"},
			{terminal: "cell", text: "[ \"$WORD\" = x ]\n" + serve},
			{text: "[ ADDRESS = unix:/7 ]\n"},
		}},
		"a terminal's command is interrupted": {blocks: []block{
			{terminal: "cell", text: "sh -c \"" + strings.ReplaceAll(serve, "exit 0", "sleep 0.2; exit 0") + "\"\n"},
		}},
		"a terminal's command ends in disorder": {blocks: []block{
			{line: 8, terminal: "cell", text: "sh -c \"" + strings.ReplaceAll(serve, "exit 0", "sleep 0.2; exit 4") + "\"\n"},
		}, want: "line 8: ended with exit status 4"},
		"a silent terminal": {blocks: []block{{terminal: "agent", silent: true, text: strings.Replace(serve, "echo", "touch $HOME/ready; true", 1)}, {text: "until test -e $HOME/ready; do sleep 0.01; done\n"}}},
		"a silent terminal's program does not know SIGINT": {blocks: []block{{terminal: "registry", silent: true, text: "touch $HOME/ready; sh -c 'kill -INT $$'\n"}, {text: "until test -e $HOME/ready; do sleep 0.01; done\n"}}},
		"a terminal's program does not know SIGINT":        {blocks: []block{{line: 6, terminal: "cell", text: "echo cell at unix:/7; sh -c 'kill -INT $$'\n"}}, want: "line 6: ended with exit status 130"},
		"a terminal says nothing":                          {blocks: []block{{line: 5, terminal: "cell", text: "echo broken >&2\n"}}, want: "line 5: its first line is \"\""},
		"a terminal ends in disorder":                      {blocks: []block{{line: 5, terminal: "cell", text: "trap 'exit 3' INT\n" + strings.TrimPrefix(serve, "trap 'exit 0' INT\n")}}, want: "line 5: ended with exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := (&tour{dir: t.TempDir(), home: t.TempDir()}).run(t.Context(), tt.blocks)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// root is the module's directory.
const root = "../../.."

// TestBlocks holds that each block of the README is run by something.
func TestBlocks(t *testing.T) {
	t.Parallel()
	blocks := readme(t)
	for _, b := range blocks {
		if b.by != "make-check" {
			continue
		}
		makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
		if err != nil {
			t.Fatal(err)
		}
		_, check, _ := strings.Cut(string(makefile), "\ncheck:")
		check, _, _ = strings.Cut(check, "; do")
		for line := range strings.Lines(b.text) {
			if f := strings.Fields(line); len(f) < 2 || f[0] != "make" || !strings.Contains(check, f[1]) {
				t.Errorf("README.md:%d: make check does not run %q", b.line, strings.TrimSpace(line))
			}
		}
	}
}

// readme returns the shell blocks of the README.
func readme(t *testing.T) []block {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parse(string(b))
	if err != nil {
		t.Fatalf("README.md: %v", err)
	}
	return blocks
}

// TestCancel ends a tour in the middle: its terminals are interrupted all the
// same, since a cell that is killed would leave its tasks behind.
func TestCancel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for t.Context().Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "under-way")); err == nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	err := (&tour{dir: dir, home: t.TempDir()}).run(ctx, []block{
		{terminal: "cell", text: strings.Replace(serve, "exit 0", "touch interrupted; exit 0", 1)},
		{line: 4, text: "touch under-way; sleep 600\n"},
	})
	if err == nil || !strings.Contains(err.Error(), "line 4: context canceled") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "interrupted")); err != nil {
		t.Error(err)
	}
}
