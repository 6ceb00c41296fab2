package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/musterhq/muster/schema"
	schemacue "github.com/musterhq/muster/schema/cue"
)

// resultVersion changes whenever the same files give another result.
const resultVersion = "8"

// node is a package in a directory, as one that imports it sees it: with the
// files of the same package in the directories above, and with what all these
// import. Its digest is made of theirs, so that what many packages import is
// looked at once.
type node struct {
	dir, pkg string
	files    []source // its own, and those of its directory that have no package
	embedded []string // paths of files that its own may embed
	up       *node    // the nearest directory above with files of pkg
	imports  []*node

	digest  string
	fault   *schema.Diagnostic // of a vendored module that it, or what it depends on, imports
	state   progress
	inCycle bool // it imports itself, or something that does
}

// progress says how far the digest of a node is.
type progress int

const (
	unseen progress = iota
	begun
	done
)

// link makes the nodes of the tree and finds what they depend on.
func (p *planner) link() {
	for _, f := range p.folders {
		p.split(f)
	}
	for _, f := range p.folders {
		for _, n := range f.nodes {
			p.connect(n)
		}
	}
	for _, f := range p.folders {
		for _, n := range f.nodes {
			n.find(p.tree)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(p.folders)) {
		for _, n := range p.folders[dir].nodes { // more than one is a mistake, for which no policy is left out
			if first(dir) && slices.ContainsFunc(n.files, func(s source) bool { return s.policy != nil }) {
				p.policies = append(p.policies, n)
			}
		}
	}
}

// split makes the nodes of a folder. Files without a header that can be read
// belong to each.
func (p *planner) split(f *folder) {
	var without []source
	for i := range f.files {
		s := &f.files[i]
		s.header = p.header(s)
		if s.pkg == "" {
			without = append(without, *s)
			continue
		}
		at := slices.IndexFunc(f.nodes, func(n *node) bool { return n.pkg == s.pkg })
		if at < 0 {
			if len(f.nodes) >= maxDiagnostics {
				continue // it is refused anyway
			}
			at = len(f.nodes)
			f.nodes = append(f.nodes, &node{dir: f.dir, pkg: s.pkg})
		}
		f.nodes[at].files = append(f.nodes[at].files, *s)
	}
	if len(f.nodes) == 0 {
		f.nodes = []*node{{dir: f.dir}}
	}
	for _, n := range f.nodes {
		n.files = append(n.files, without...)
	}
}

func (p *planner) header(s *source) *header {
	h, ok := p.known.headers[s.hash]
	if !ok {
		h = scan(p.tree.Files[s.path].Data, p.limits.FileBytes)
		p.known.headers[s.hash] = h
	}
	return h
}

// connect finds what a node depends on.
func (p *planner) connect(n *node) {
	top := "."
	if lib := p.vendor.library(n.dir); lib != nil && inPkg(n.dir) {
		top = lib.Dir()
	}
	for dir := n.dir; dir != top && n.up == nil && n.pkg != ""; {
		dir = path.Dir(dir)
		if f := p.folders[dir]; f != nil {
			if at := slices.IndexFunc(f.nodes, func(o *node) bool { return o.pkg == n.pkg }); at >= 0 {
				n.up = f.nodes[at]
			}
		}
	}
	embeds := false
	seen := map[*folder]bool{}
	for _, s := range n.files {
		embeds = embeds || s.embeds
		for _, spec := range s.imports {
			if f := p.target(spec.path); f != nil && !seen[f] {
				seen[f] = true
				n.imports = append(n.imports, f.nodes...)
			}
			n.fault = cmp.Or(n.fault, p.faultOf(spec.path))
		}
	}
	if embeds {
		n.embedded = p.below(n.dir)
	}
}

// below returns the paths of all files in dir and below it.
func (p *planner) below(dir string) []string {
	if p.paths == nil {
		p.paths = make([]string, 0, len(p.tree.Files))
		for name := range p.tree.Files {
			p.paths = append(p.paths, name)
		}
		slices.Sort(p.paths)
	}
	if dir == "." {
		return p.paths
	}
	from, _ := slices.BinarySearch(p.paths, dir+"/")
	to, _ := slices.BinarySearch(p.paths, dir+"0") // '0' follows '/'
	return p.paths[from:to]
}

// find computes the digest of n, and of all that it depends on.
func (n *node) find(tree schema.Tree) {
	if n.state != unseen {
		n.inCycle = n.inCycle || n.state == begun
		return
	}
	n.state = begun
	h := sha256.New()
	add(h, n.dir, n.pkg)
	for _, s := range n.files {
		add(h, s.path, s.hash)
	}
	add(h, "embedded")
	for _, name := range n.embedded {
		add(h, name, tree.Files[name].Hash)
	}
	add(h, "up")
	if n.up == nil {
		add(h, "")
	}
	for _, o := range n.needs() {
		o.find(tree)
		n.inCycle = n.inCycle || o.inCycle
		n.fault = cmp.Or(n.fault, o.fault)
		add(h, o.digest)
	}
	n.digest = hex.EncodeToString(h.Sum(nil))
	n.state = done
}

// needs returns what n directly depends on.
func (n *node) needs() []*node {
	if n.up == nil {
		return n.imports
	}
	return append([]*node{n.up}, n.imports...)
}

// add hashes parts so that no two lists of parts give the same bytes.
func add(h hash.Hash, parts ...string) {
	for _, s := range parts {
		_, _ = io.WriteString(h, s) // a hash never errs
		_, _ = h.Write([]byte{0})
	}
}

// uses returns the directories of the packages that one is made from, its own among them, sorted.
func (n *node) uses() (dirs []string) {
	seen := map[*node]bool{}
	var visit func(*node)
	visit = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		dirs = append(dirs, n.dir)
		for _, m := range n.needs() {
			visit(m)
		}
	}
	visit(n)
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// key identifies all that the outcome of n depends on.
func (n *node) key(rules string) string {
	h := sha256.New()
	add(h, rules, n.digest)
	return hex.EncodeToString(h.Sum(nil))
}

// rules identifies what of the outcome lies in this binary, the limits and the
// module, not in the files of packages.
func (p *planner) rules() string {
	h := sha256.New()
	add(h, resultVersion, definitionsDigest(), fmt.Sprint(p.limits))
	names := []string{moduleFile}
	if p.replaces() {
		names = p.below(".")
	}
	for _, name := range names {
		add(h, name, p.tree.Files[name].Hash)
	}
	add(h, p.vendor.rules()...)
	for _, n := range p.policies {
		add(h, n.digest)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// definitionsDigest identifies the definitions of this binary.
var definitionsDigest = sync.OnceValue(func() string { return string(schema.DigestOf(schemacue.Files())) })

// replaces reports whether the repository replaces modules by directories of
// its own: then an import may mean any of them.
func (p *planner) replaces() bool {
	_, ok := p.tree.Files[localModuleFile]
	return ok
}

// maxEdges bounds the walk through the imports of one package.
const maxEdges = 100_000

// files returns the paths of all files that the outcome of n depends on, false
// if they are more than a package may have.
func (p *planner) files(n *node) (files map[string][]byte, ok bool) {
	size := 0
	files = map[string][]byte{}
	take := func(name string) {
		if _, again := files[name]; !again {
			files[name] = p.tree.Files[name].Data
			size += len(files[name])
		}
	}
	take(moduleFile)
	if p.replaces() {
		for _, name := range p.below(".") {
			take(name)
		}
	}
	seen := map[*node]bool{}
	todo := append([]*node{n}, p.policies...)
	for _, n := range todo {
		seen[n] = true
	}
	foreign := false
	for edges := 0; len(todo) > 0; {
		n := todo[len(todo)-1]
		foreign = foreign || inPkg(n.dir)
		todo = todo[:len(todo)-1]
		for _, s := range n.files {
			take(s.path)
		}
		for _, name := range n.embedded {
			take(name)
		}
		for _, o := range n.needs() {
			if edges++; !seen[o] {
				seen[o] = true
				todo = append(todo, o)
			}
		}
		if len(files) > p.limits.Files || size > p.limits.TreeBytes || edges > maxEdges {
			return nil, false
		}
	}
	if foreign {
		maps.Copy(files, p.vendor.files())
	}
	return files, true
}
