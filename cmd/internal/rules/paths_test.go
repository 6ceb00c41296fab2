package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// quotedPath matches a path in backquotes that begins with a directory of sources. What has a dot and a name in upper
// case at its end is what a package declares.
var (
	quotedPath = regexp.MustCompile("`(?:\\./)?((?:cmd|docs|examples|nodeagent|placement|reconciler|schema)/[\\w./-]+)`")
	declares   = regexp.MustCompile(`\.[A-Z]\w*$`)
	fenced     = regexp.MustCompile("(?s)```.*?```")
)

// missingPaths returns the paths of a page that there are not.
func missingPaths(page string, there func(string) bool) (out []string) {
	for _, m := range quotedPath.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		p := strings.TrimSuffix(m[1], "/")
		if !declares.MatchString(p) && !strings.Contains(p, "NAME") && !strings.Contains(p, "...") && !there(p) {
			out = append(out, p)
		}
	}
	return out
}

// TestPaths: what the documentation names of the source by its path is there. Decisions are of their time.
func TestPaths(t *testing.T) {
	t.Parallel()
	there := func(p string) bool {
		_, err := os.Stat(filepath.Join(root, p))
		return err == nil
	}
	pages := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "decisions" {
			return fs.SkipDir
		}
		if name, rel := filepath.Rel(root, p); rel == nil && strings.HasSuffix(name, ".md") {
			pages = append(pages, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range missingPaths(string(text), there) {
			t.Errorf("%s names %s, which is not there", page, p)
		}
	}
	page := "`cmd/muster` `docs/` `./schema/a.go` `schema/b.go` `schema.Job` `schema/valid.Names` `reconciler/web/NAME.go` `./schema/...` `.ci/run`\n```sh\n`docs/no`\n```\n"
	if got, want := missingPaths(page, func(p string) bool { return p != "schema/b.go" && p != "docs/no" }), []string{"schema/b.go"}; !slices.Equal(got, want) {
		t.Errorf("of a page %q are missing, want %q", got, want)
	}
}
