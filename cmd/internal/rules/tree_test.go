package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the path of this module; a rule never has to guess it.
const module = "github.com/musterhq/muster"

// root is this module's directory, seen from this package's.
const root = "../../.."

// tree is the module's source: what the rules are checked against.
type tree struct {
	fset  *token.FileSet
	files []*file
	top   []string // names in the root directory, without dotfiles and ignored ones
	gomod string
	deps  string            // dependencyPage
	arch  string            // architecturePage
	pages map[string]string // what users read beside messages, by path
}

// file is one Go file of the tree.
type file struct {
	path      string // relative to the root, with slashes
	dir       string // of path; "." for the root
	test      bool
	generated bool
	lines     int
	ast       *ast.File
}

// fault is one violation of a rule.
type fault struct {
	at   string // path or path:line
	text string
}

func (f fault) String() string { return f.at + ": " + f.text }

// fault returns a fault at the position of n.
func (t *tree) fault(n ast.Node, format string, args ...any) fault {
	p := t.fset.Position(n.Pos())
	return fault{fmt.Sprintf("%s:%d", p.Filename, p.Line), fmt.Sprintf(format, args...)}
}

// sources are the files of a tree before they are parsed, by path.
type sources map[string]string

// read returns the module's sources. It leaves out what the go command leaves
// out: testdata, and names that begin with a dot or an underscore.
func read(t *testing.T) sources {
	t.Helper()
	src := sources{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		hidden := rel != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_"))
		switch {
		case d.IsDir() && (hidden || d.Name() == "testdata" || rel == "bin"):
			return fs.SkipDir
		case d.IsDir() || hidden:
			return nil
		case strings.HasSuffix(rel, ".go") || rel == "go.mod" || rel == dependencyPage || isPage(rel):
			b, err := os.ReadFile(p)
			src[rel] = string(b)
			return err
		}
		src[rel] = "" // its name may matter, its content does not
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// parsed keeps what was parsed, so that a tree with one file planted in it
// costs one file.
var parsed = struct {
	sync.Mutex
	fset  *token.FileSet
	files map[[2]string]*file
}{fset: token.NewFileSet(), files: map[[2]string]*file{}}

// parse returns the tree of src.
func parse(t *testing.T, src sources) *tree {
	t.Helper()
	parsed.Lock()
	defer parsed.Unlock()
	out := &tree{fset: parsed.fset, gomod: src["go.mod"], deps: src[dependencyPage], arch: src[architecturePage], pages: map[string]string{}}
	top := map[string]bool{}
	for p, text := range src {
		name, _, _ := strings.Cut(p, "/")
		top[name] = true
		if isPage(p) {
			out.pages[p] = text
		}
		if !strings.HasSuffix(p, ".go") {
			continue
		}
		f := parsed.files[[2]string{p, text}]
		if f == nil {
			a, err := parser.ParseFile(parsed.fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			f = &file{
				path: p, dir: path.Dir(p), ast: a,
				test:      strings.HasSuffix(p, "_test.go"),
				generated: ast.IsGenerated(a),
				lines:     strings.Count(text, "\n"),
			}
			parsed.files[[2]string{p, text}] = f
		}
		out.files = append(out.files, f)
	}
	slices.SortFunc(out.files, func(a, b *file) int { return strings.Compare(a.path, b.path) })
	for name := range top {
		out.top = append(out.top, name)
	}
	slices.Sort(out.top)
	return out
}

// packages returns the files of each directory, test files included.
func (t *tree) packages() map[string][]*file {
	out := map[string][]*file{}
	for _, f := range t.files {
		out[f.dir] = append(out[f.dir], f)
	}
	return out
}

// imported returns the path that s imports.
func imported(s *ast.ImportSpec) string {
	p, err := strconv.Unquote(s.Path.Value)
	if err != nil {
		panic(err) // the parser took it
	}
	return p
}

// ours cuts the module path off p and reports whether p is of this module.
func ours(p string) (dir string, ok bool) {
	if p == module {
		return ".", true
	}
	return strings.CutPrefix(p, module+"/")
}

// standard reports whether p is of the standard library: its first element has
// no dot.
func standard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}

// matches reports whether p is one of the patterns: a path, or a path and
// "/...", which matches the path itself and what lies below it.
func matches(p string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pat string) bool {
		base, below := strings.CutSuffix(pat, "/...")
		return p == base || below && strings.HasPrefix(p, base+"/") || pat == "..."
	})
}
