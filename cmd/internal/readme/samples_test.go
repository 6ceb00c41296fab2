package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/cmd/internal/binaries"
)

// sample is a fenced block of CUE, in=DIR or in=FILE, and the blocks of data after it, in=FILE.
type sample struct {
	line int    // of the fence, counted from 1
	file string // path in the repository
	text string
	data []sample
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
	var text *string               // of the sample
	for i, line := range strings.Split(markdown, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && fenced:
			inside, fenced = false, false
		case fence:
			fenced = true
			word, rest, _ := strings.Cut(info, " ")
			file, ok := strings.CutPrefix(rest, "in=")
			switch {
			case word == "cue" && (!ok || file == ""):
				return nil, fmt.Errorf("line %d: a block of CUE does not say in=DIR: nothing would compile it", i+1)
			case word == "cue" && path.Ext(file) != ".cue":
				file = path.Join(file, "sample.cue")
			case word != "cue" && !ok:
				continue
			}
			s := sample{line: i + 1, file: file}
			if inside = true; word == "cue" {
				out = append(out, s)
				text = &out[len(out)-1].text
			} else if len(out) > 0 {
				last := &out[len(out)-1]
				last.data = append(last.data, s)
				text = &last.data[len(last.data)-1].text
			} else {
				return nil, fmt.Errorf("line %d: a file without a block of CUE before it", i+1)
			}
		case inside:
			*text += line + "\n"
		case !fenced && loose.MatchString(line):
			return nil, fmt.Errorf("line %d: CUE outside of a fenced block: nothing would compile it", i+1)
		}
	}
	return out, nil
}

func TestSamplesOf(t *testing.T) {
	t.Parallel()
	got, err := samples("a\n```cue in=teams/x\nb: 1\n\nc: 2\n```\n```yaml in=teams/x/d.yaml\nd: 3\n```\n```sh test=a\n    job: d\n```\n    Key: e\n```cue in=lib/a_test.cue\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []sample{
		{line: 2, file: "teams/x/sample.cue", text: "b: 1\n\nc: 2\n", data: []sample{{line: 7, file: "teams/x/d.yaml", text: "d: 3\n"}}},
		{line: 14, file: "lib/a_test.cue"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	for page, want := range map[string]string{
		"```cue\njob: x\n```\n":        "line 1: a block of CUE does not say in=DIR",
		"text:\n\n    job: x: y\n":     "line 3: CUE outside of a fenced block",
		"```yaml in=a.yaml\nb: 1\n```": "line 1: a file without a block of CUE before it",
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
		"unknown field": {file: "teams/search/sample.cue", text: "job: x: muster.#Job & {user: \"search\", cell: \"local\", colour: 1}"},
		"no such owner": {file: "teams/search/sample.cue", text: "job: x: muster.#Job & {user: \"nobody\", cell: \"local\", task: process: command: [\"/bin/true\"]}"},
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
	for _, d := range append([]sample{*s}, s.data...) {
		name := filepath.Join(repo, d.file)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return "", err
		}
		text := d.text
		if path.Ext(name) == ".cue" && !strings.Contains("\n"+text, "\npackage ") {
			head := "package " + packageOf(filepath.Dir(name)) + "\n\n"
			if strings.Contains(text, "muster.#") {
				head += "import \"example.com/config/muster\"\n\n"
			}
			text = head + text
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", err
		}
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
