package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/cmd/internal/binaries"
)

// sample is a fenced block of CUE.
type sample struct {
	line int    // of the fence, counted from 1
	dir  string // of the repository that it is a file of
	text string
}

// searchTenant is beside what muster init writes in the repository of samples.
const searchTenant = `
tenant: search: muster.#Tenant & {paths: ["teams/search"], users: ["search"]}
`

// loose is CUE that no fence says anything of.
var loose = regexp.MustCompile(`^(    |\t)(allocset|cell|job|machine|priority|quota|service|tenant): `)

// samples returns the CUE of a Markdown file. It errs when some of it would be
// compiled by nothing.
func samples(markdown string) ([]sample, error) {
	var out []sample
	inside, fenced := false, false // a sample, any block
	for i, line := range strings.Split(markdown, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && fenced:
			inside, fenced = false, false
		case fence:
			fenced = true
			word, rest, _ := strings.Cut(info, " ")
			if word != "cue" {
				continue
			}
			dir, ok := strings.CutPrefix(rest, "in=")
			if !ok || dir == "" {
				return nil, fmt.Errorf("line %d: a block of CUE does not say in=DIR: nothing would compile it", i+1)
			}
			inside = true
			out = append(out, sample{line: i + 1, dir: dir})
		case inside:
			out[len(out)-1].text += line + "\n"
		case !fenced && loose.MatchString(line):
			return nil, fmt.Errorf("line %d: CUE outside of a fenced block: nothing would compile it", i+1)
		}
	}
	return out, nil
}

func TestSamplesOf(t *testing.T) {
	t.Parallel()
	got, err := samples("a\n```cue in=teams/x\nb: 1\n\nc: 2\n```\n```sh test=a\n    job: d\n```\n    Key: e\n```cue in=.\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []sample{{line: 2, dir: "teams/x", text: "b: 1\n\nc: 2\n"}, {line: 11, dir: "."}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	for page, want := range map[string]string{
		"```cue\njob: x\n```\n":        "line 1: a block of CUE does not say in=DIR",
		"text:\n\n    job: x: y\n":     "line 3: CUE outside of a fenced block",
		"```cue in=\ncell: local\n```": "line 1: a block of CUE does not say in=DIR",
	} {
		if _, err := samples(page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("samples of %q: %v, want %q", page, err, want)
		}
	}
}

// TestSamples compiles and admits the CUE of the pages in docs: each block alone,
// in a repository as muster init writes it with the tenant search beside.
func TestSamples(t *testing.T) {
	t.Parallel()
	bin := binaries.Dir(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		list, err := samples(string(b))
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		for _, s := range list {
			n++
			if out, err := s.validate(bin, t.TempDir()); err != nil {
				t.Errorf("%s:%d: %v\n%s", page, s.line, err, out)
			}
		}
	}
	if n < 10 {
		t.Errorf("there are %d samples, want 10 or more", n)
	}
	for name, s := range map[string]sample{
		"unknown field": {dir: "teams/search", text: "job: x: muster.#Job & {user: \"search\", cell: \"local\", colour: 1}"},
		"no such owner": {dir: "teams/search", text: "job: x: muster.#Job & {user: \"nobody\", cell: \"local\", task: process: command: [\"/bin/true\"]}"},
	} {
		if out, err := s.validate(bin, t.TempDir()); err == nil {
			t.Errorf("%s: a wrong sample passes\n%s", name, out)
		}
	}
}

// validate holds s to be right, in a repository that it makes in work.
func (s *sample) validate(bin, work string) (out string, err error) {
	run := func(args ...string) error {
		c := exec.Command(filepath.Join(bin, "muster"), args...)
		c.Dir = work
		b, err := c.CombinedOutput()
		if out = string(b); err != nil {
			return fmt.Errorf("muster %s: %w", args[0], err)
		}
		return nil
	}
	repo := filepath.Join(work, "fleet")
	if err := run("init", "--cell", "local", repo); err != nil {
		return out, err
	}
	f, err := os.OpenFile(filepath.Join(repo, "tenants.cue"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	if _, err := f.WriteString(searchTenant); err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	dir := filepath.Join(repo, s.dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	text := "package " + packageOf(dir) + "\n\n"
	if strings.Contains(s.text, "muster.#") {
		text += "import \"example.com/config/muster\"\n\n"
	}
	text += s.text
	if err := os.WriteFile(filepath.Join(dir, "sample.cue"), []byte(text), 0o600); err != nil {
		return "", err
	}
	return out, run("validate", repo)
}

// packageOf returns the name of the package that is in dir, or may be.
func packageOf(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.cue")) // the pattern is a good one
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "package "); ok {
				return strings.TrimSpace(name)
			}
		}
	}
	return filepath.Base(dir)
}
