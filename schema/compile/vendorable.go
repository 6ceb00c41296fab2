package compile

import (
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/vendored"
)

// Vendorable is what another repository takes of the module in a tree.
type Vendorable struct {
	Module string            // its path with its major version
	Files  map[string][]byte // by their paths in it
	Needs  []string          // import paths of packages that are in none of its files, sorted
	// Lock and Others are what it has vendored itself: Others are the files by module.
	Lock   vendored.Lock
	Others map[string]map[string][]byte
}

// Limits of a module that is vendored: a library is far below, and all of it is part of every
// commit.
const (
	maxVendoredFiles = 2000
	maxVendoredBytes = 16 << 20
)

// NewVendorable returns what of a tree is vendored: its module file and its CUE files, but no
// tests and tools and no modules within, and, if one of them embeds others, what it may
// embed. Symbolic links and submodules are refused, as is what is too much.
func NewVendorable(tree schema.Tree) (*Vendorable, error) {
	for _, d := range tree.Diagnostics {
		return nil, schema.Hintf("take it out of the module: it is not vendored without all that it has", "%s: %s", d.Path, d.Message)
	}
	file, ok := tree.Files[moduleFile]
	if !ok {
		return nil, schema.Hintf("name the root of a CUE module", "there is no %s", moduleFile)
	}
	m := parseModule(file.Data, Limits{}.withDefaults().FileBytes)
	if m.err != nil {
		return nil, schema.Hintf(hostPath, "%s: %s", m.err.Position, m.err.Message)
	}
	if what := vendored.BadPath(m.qualified); what != "" {
		return nil, schema.Hintf(hostPath, "%s: %s", moduleFile, what)
	}
	v := &Vendorable{Module: m.qualified, Files: map[string][]byte{}}
	if err := v.readLock(tree); err != nil {
		return nil, err
	}
	return v, v.take(tree, m.path)
}

const hostPath = "a module that others use has a path that begins with a host, such as example.com/lib"

// ModulePath returns the path of the module in a tree, without its major version.
func ModulePath(tree schema.Tree) (string, error) {
	m := parseModule(tree.Files[moduleFile].Data, Limits{}.withDefaults().FileBytes)
	if m.err != nil {
		return "", m.err
	}
	return m.path, nil
}

// readLock takes what the module has vendored itself.
func (v *Vendorable) readLock(tree schema.Tree) error {
	f, ok := tree.Files[vendored.File]
	if !ok {
		return nil
	}
	lock, fault := vendored.Parse(f.Data)
	if fault != nil {
		return fault
	}
	v.Lock, v.Others = lock, map[string]map[string][]byte{}
	for i := range lock.Modules {
		m := &lock.Modules[i]
		files := map[string][]byte{}
		for name, f := range tree.Files {
			if rest, ok := strings.CutPrefix(name, m.Dir()+"/"); ok {
				files[rest] = f.Data
			}
		}
		if vendored.Sum(m.Module, files) != m.Sum {
			return schema.Hintf("muster vendor in that repository restores it", "the files in %s are not those of %s", m.Dir(), m.Called())
		}
		v.Others[m.Module] = files
	}
	return nil
}

// take takes the files of the module, whose path is given.
func (v *Vendorable) take(tree schema.Tree, module string) error {
	var within, embedding []string // directories
	for name, f := range tree.Files {
		if dir, ok := strings.CutSuffix(name, "/"+moduleFile); ok {
			within = append(within, dir)
		}
		if strings.HasSuffix(name, ".cue") && !ignored(name) && schema.Embeds(f.Data) {
			embedding = append(embedding, path.Dir(name))
		}
	}
	bytes := 0
	needs := map[string]bool{}
	for name, f := range tree.Files {
		isCUE := strings.HasSuffix(name, ".cue")
		in := func(dir string) bool { return below(name, dir) }
		switch {
		case name == moduleFile:
		case strings.HasPrefix(name, "cue.mod/"), slices.ContainsFunc(within, in):
			continue
		case isCUE && ignored(name), !isCUE && !slices.ContainsFunc(embedding, in):
			continue
		}
		if _, what := badPath(name); what != "" {
			return schema.Hintf("rename it", "%s: %s", schema.Printable(name), what)
		}
		if bytes += len(f.Data); bytes > maxVendoredBytes || len(v.Files) == maxVendoredFiles {
			return schema.Hintf("vendor a module that is a library alone", "the module has more than %d files or %d MiB", maxVendoredFiles, maxVendoredBytes>>20)
		}
		v.Files[name] = f.Data
		if isCUE && name != moduleFile {
			if err := needed(needs, name, f.Data, module); err != nil {
				return err
			}
		}
	}
	if a, b := sameButCase(slices.Sorted(maps.Keys(v.Files))); a != "" {
		return schema.Hintf("rename one of them", "%s and %s differ in case alone, so that not every disk can have both", schema.Printable(a), schema.Printable(b))
	}
	for target := range needs {
		v.Needs = append(v.Needs, target)
	}
	slices.Sort(v.Needs)
	return nil
}

// sameButCase returns two files or directories, of those that sorted paths name, whose names differ
// in case alone; "" if there are none.
func sameButCase(names []string) (a, b string) {
	known := map[string]string{}
	for _, name := range names {
		for at := name; at != "."; at = path.Dir(at) {
			lower := strings.ToLower(at)
			if was, ok := known[lower]; ok && was != at {
				return was, at
			}
			known[lower] = at
		}
	}
	return "", ""
}

// needed notes the import paths of a file that lie in other modules.
func needed(needs map[string]bool, name string, data []byte, module string) error {
	limit := Limits{}.withDefaults().FileBytes
	if d := scanText(data, limit); d != nil {
		return schema.Hintf(d.Hint, "%s: %s", name, d.Message)
	}
	for _, spec := range scan(data, limit).imports { // what else is wrong is said where it is imported
		target := ast.ParseImportPath(spec.path).Path
		host, _, _ := strings.Cut(target, "/")
		if _, ours := importDir(module, target); !ours && strings.Contains(host, ".") {
			if !proper(target) {
				return schema.Hintf("imports begin with the path of a module", "%s:%d:%d: import path %q is relative or absolute", name, spec.line, spec.column, clip(spec.path))
			}
			needs[path.Clean(target)] = true
		}
	}
	return nil
}
