package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/errors"
	"cuelang.org/go/mod/modfile"

	"github.com/musterhq/muster/schema"
	schemacue "github.com/musterhq/muster/schema/cue"
)

const (
	moduleFile = "cue.mod/module.cue"
	// localModuleFile replaces modules by directories.
	localModuleFile = "cue.mod/local-module.cue"
	// SchemaDir is where a repository keeps its copy of the definitions.
	SchemaDir = "muster"
	// resultVersion changes whenever the same files give another result.
	resultVersion = "1"
)

// unit is one directory of the tree: what is compiled, cached and blamed.
type unit struct {
	dir    string
	parent string   // nearest ancestor directory with files of the same package, "" for none
	own    []string // paths of its files
	files  []string // paths of all files that the outcome depends on, sorted
	key    string
	diags  []schema.Diagnostic // what is wrong before anything is evaluated
}

// node is a package in a directory.
type node struct{ dir, pkg string }

// planner finds the units of one tree.
type planner struct {
	tree    schema.Tree
	headers map[string]header // by file hash
	limits  Limits
	module  string
	paths   []string // all, sorted
	dirs    map[string][]string
	nodes   map[node][]string
	direct  map[node]*dependencies
}

// dependencies are what one node needs of the tree, without what its imports
// need in turn.
type dependencies struct {
	files []string
	nodes []node
}

// plan returns the units of a tree by directory, or what is wrong with the
// repository as a whole.
func plan(tree schema.Tree, headers map[string]header, limits Limits) ([]*unit, []schema.Diagnostic) {
	p := &planner{
		tree: tree, headers: headers, limits: limits,
		dirs: map[string][]string{}, nodes: map[node][]string{}, direct: map[node]*dependencies{},
	}
	if d := p.readModule(); d != nil {
		return nil, []schema.Diagnostic{*d}
	}
	units := p.sortFiles()
	version := hashSchema()
	for _, dir := range slices.Sorted(maps.Keys(p.dirs)) {
		u := p.unit(dir)
		if len(u.diags) == 0 {
			u.key = p.key(version, u)
		}
		units = append(units, u)
	}
	units = oneEach(units)
	var diags []schema.Diagnostic
	if len(units) == 0 {
		diags = append(diags, schema.Diagnostic{
			Severity: schema.Warning, Position: schema.Position{Path: moduleFile, Line: 1, Column: 1},
			Message: "the repository has no CUE files, so it declares nothing",
		})
	}
	return units, diags
}

// oneEach sorts units and joins those of the same directory: a refused one has
// priority over the rest of its directory.
func oneEach(units []*unit) []*unit {
	slices.SortStableFunc(units, func(a, b *unit) int { return strings.Compare(a.dir, b.dir) })
	var out []*unit
	for _, u := range units {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].dir != u.dir:
			out = append(out, u)
		case len(u.diags) > 0:
			out[last].diags = append(out[last].diags, u.diags...)
		}
	}
	return out
}

func isError(d schema.Diagnostic) bool { return d.Severity == schema.Error }

// readModule finds the module's path.
func (p *planner) readModule() *schema.Diagnostic {
	d := &schema.Diagnostic{
		Severity: schema.Error, Position: schema.Position{Path: moduleFile},
		Hint: "muster init writes a repository to begin with",
	}
	if len(p.tree.Files) == 0 {
		d.Message = "the repository is empty"
		return d
	}
	f, ok := p.tree.Files[moduleFile]
	if !ok {
		d.Message, d.Expected = "the repository is not a CUE module: the file does not exist", "a file that names the module"
		return d
	}
	if len(f.Data) > p.limits.FileBytes {
		d.Message = fmt.Sprintf("the file has %d bytes, more than %d", len(f.Data), p.limits.FileBytes)
		return d
	}
	m, err := modfile.Parse(f.Data, moduleFile)
	if err != nil {
		e := errors.Errors(err)[0]
		d.Position.Line, d.Position.Column, d.Hint = 1, 1, ""
		if pos := errors.Positions(e); len(pos) > 0 && pos[0].Filename() == moduleFile {
			d.Position.Line, d.Position.Column = pos[0].Line(), pos[0].Column()
		}
		d.Message = "invalid module file: " + errorText(e)
		d.Expected = `module: "example.com/config@v0" and language: version: "v0.17.0"`
		return d
	}
	p.module = m.ModuleRootPath()
	return nil
}

// badUnit is a directory with a file whose path is at fault: only that is
// refused, since every team can commit such a file.
func badUnit(name, what string) *unit {
	name = strings.ToValidUTF8(name, "\uFFFD")
	d := schema.Diagnostic{
		Severity: schema.Error, Position: schema.Position{Path: name, Line: 1, Column: 1}, Message: what, Hint: "rename it",
	}
	return &unit{dir: path.Dir(name), own: []string{name}, diags: []schema.Diagnostic{d}}
}

// sortFiles groups the CUE files by directory and by package, and returns the
// units that are refused for the paths of their files.
func (p *planner) sortFiles() (units []*unit) {
	p.paths = slices.Sorted(maps.Keys(p.tree.Files))
	for _, name := range p.paths {
		if !strings.HasSuffix(name, ".cue") {
			continue
		}
		if what := badPath(name); what != "" {
			units = append(units, badUnit(name, what))
			continue
		}
		if ignored(name) {
			continue
		}
		dir := path.Dir(name)
		p.dirs[dir] = append(p.dirs[dir], name)
		if h := p.header(name); h.err == nil && h.pkg != "" {
			n := node{dir, h.pkg}
			p.nodes[n] = append(p.nodes[n], name)
		}
	}
	return units
}

func (p *planner) header(name string) header {
	f := p.tree.Files[name]
	h, ok := p.headers[f.Hash]
	if !ok {
		h = scan(f.Data, p.limits.FileBytes)
		p.headers[f.Hash] = h
	}
	return h
}

func (p *planner) unit(dir string) *unit {
	u := &unit{dir: dir, own: p.dirs[dir]}
	u.diags = p.check(dir)
	if len(u.diags) > 0 {
		return u
	}
	n := node{dir, p.packageOf(u.own)}
	for a := dir; a != "." && u.parent == ""; {
		a = path.Dir(a)
		if len(p.nodes[node{a, n.pkg}]) > 0 {
			u.parent = a
		}
	}
	u.files = p.closure(n)
	size := 0
	for _, name := range u.files {
		size += len(p.tree.Files[name].Data)
	}
	if len(u.files) > p.limits.Files || size > p.limits.TreeBytes {
		u.diags = append(u.diags, firstOf(u.own, fmt.Sprintf(
			"the package and what it imports are %d files of %d bytes together, more than %d files or %d bytes",
			len(u.files), size, p.limits.Files, p.limits.TreeBytes)))
	}
	return u
}

// packageOf returns the package of files; "" when no header could be read: the
// child then says what is wrong with them.
func (p *planner) packageOf(files []string) string {
	for _, name := range files {
		if pkg := p.header(name).pkg; pkg != "" {
			return pkg
		}
	}
	return ""
}

// check returns what is wrong with the files of a directory as such.
func (p *planner) check(dir string) (diags []schema.Diagnostic) {
	first := ""
	for _, name := range p.dirs[dir] {
		h := p.header(name)
		switch {
		case h.err != nil:
			d := *h.err
			d.Path = name
			d.Hint = strings.ReplaceAll(d.Hint, packageHint, packageFor(dir))
			diags = append(diags, d)
		case h.pkg == "": // no header: the child will say why
		case first == "":
			first = name
		case h.pkg != p.header(first).pkg:
			diags = append(diags, schema.Diagnostic{
				Severity: schema.Error, Position: schema.Position{Path: name, Line: 1, Column: 1},
				Message:  fmt.Sprintf("package %s, but %s in the same directory is package %s", h.pkg, first, p.header(first).pkg),
				Expected: "one package in a directory", Hint: "move one of them to a directory of its own",
			})
		}
	}
	for d := dir; d != "."; d = path.Dir(d) {
		if _, ok := p.tree.Files[path.Join(d, moduleFile)]; ok {
			diags = append(diags, firstOf(p.dirs[dir], fmt.Sprintf("%s makes this a module of its own, which muster does not read", path.Join(d, moduleFile))))
			break
		}
	}
	return diags
}

// packageFor returns a package name that suits a directory.
func packageFor(dir string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, path.Base(dir))
	if name == "" || name[0] <= '9' {
		return "config"
	}
	return name
}

// firstOf is an error of a package as a whole.
func firstOf(files []string, message string) schema.Diagnostic {
	return schema.Diagnostic{Severity: schema.Error, Position: schema.Position{Path: files[0], Line: 1, Column: 1}, Message: message}
}

// closure returns the paths of all files that n depends on, sorted.
func (p *planner) closure(n node) []string {
	if _, ok := p.tree.Files[localModuleFile]; ok {
		return p.paths // an import may mean any directory
	}
	files := map[string]bool{moduleFile: true}
	seen := map[node]bool{}
	todo := []node{n}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[n] {
			continue
		}
		seen[n] = true
		d := p.dependencies(n)
		for _, f := range d.files {
			files[f] = true
		}
		todo = append(todo, d.nodes...)
	}
	return slices.Sorted(maps.Keys(files))
}

// dependencies returns the files of n, of the same package in the directories
// above (CUE unifies them), what they embed, and the packages they import.
func (p *planner) dependencies(n node) *dependencies {
	if d, ok := p.direct[n]; ok {
		return d
	}
	d := &dependencies{}
	for dir := n.dir; ; dir = path.Dir(dir) {
		d.add(p, node{dir, n.pkg})
		if dir == n.dir {
			for _, name := range p.dirs[dir] { // those without a header that could be read
				if p.header(name).pkg == "" {
					d.files = append(d.files, name)
				}
			}
		}
		if dir == "." {
			break
		}
	}
	p.direct[n] = d
	return d
}

func (d *dependencies) add(p *planner, n node) {
	for _, name := range p.nodes[n] {
		d.files = append(d.files, name)
		h := p.header(name)
		if h.embeds {
			d.files = append(d.files, p.below(n.dir)...)
		}
		for _, imp := range h.imports {
			dir, ok := importDir(p.module, imp)
			if !ok {
				continue
			}
			for _, file := range p.dirs[dir] {
				d.nodes = append(d.nodes, node{dir, p.header(file).pkg})
			}
		}
	}
}

// below returns all files in dir and below it.
func (p *planner) below(dir string) []string {
	if dir == "." {
		return p.paths
	}
	from, _ := slices.BinarySearch(p.paths, dir+"/")
	to, _ := slices.BinarySearch(p.paths, dir+"0") // '0' follows '/'
	return p.paths[from:to]
}

// key identifies all that the outcome of u depends on.
func (p *planner) key(version string, u *unit) string {
	h := sha256.New()
	line := func(parts ...string) {
		for _, s := range parts {
			_, _ = io.WriteString(h, s) // a hash never errs
			_, _ = h.Write([]byte{0})
		}
	}
	line(version, u.dir, u.parent, fmt.Sprint(p.limits))
	for _, name := range u.files {
		line(name, p.tree.Files[name].Hash)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// hashSchema identifies the rules of this binary.
func hashSchema() string {
	return resultVersion + " " + string(schema.DigestOf(schemacue.Files()))
}
