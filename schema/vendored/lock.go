package vendored

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

const (
	// File is the path of the lock file in a repository.
	File = "cue.mod/vendor.json"
	// Dir is the directory that holds the files of the modules, by their paths.
	Dir = "cue.mod/pkg"
	// current is the version of the lock file that this release writes and reads.
	current = 1
	// maxModules bounds a lock file; maxLock is its size, in bytes.
	maxModules = 100
	maxLock    = 1 << 20
)

// Lock is a lock file.
type Lock struct {
	Version int      `json:"version"` // of its form: 1
	Modules []Module `json:"modules"` // sorted by path
}

// Module is one module that a repository holds.
type Module struct {
	// Module is its path with its major version, as its module.cue has it: example.com/lib@v0.
	Module string `json:"module"`
	// Source is a directory, relative to the root of the repository or absolute, or the URL
	// of a git repository.
	Source string `json:"source"`
	// Version is the tag, branch or commit that was asked for; "" for a directory as it is.
	Version string `json:"version,omitempty"`
	// Commit is what Version was.
	Commit string `json:"commit,omitempty"`
	// Sum is what Sum gives of its files.
	Sum string `json:"sum"`
}

var modulePath = lazyregexp.New(`^[a-z0-9][a-z0-9-]*(\.[a-z0-9-]+)+(/[a-zA-Z0-9_~-][a-zA-Z0-9._~-]*)*@v(0|[1-9][0-9]{0,3})$`)

// Path returns the path of the module without its major version.
func (m *Module) Path() string {
	path, _, _ := strings.Cut(m.Module, "@")
	return path
}

// Major returns the major version: v0.
func (m *Module) Major() string {
	_, major, _ := strings.Cut(m.Module, "@")
	return major
}

// Dir returns the directory of its files in a repository.
func (m *Module) Dir() string { return Dir + "/" + m.Path() }

// Called returns the module as messages name it: with its version, if it has one.
func (m *Module) Called() string {
	if m.Version == "" {
		return m.Path()
	}
	return m.Path() + " " + schema.Printable(m.Version)
}

// Parse reads a lock file. The diagnostic, if there is one, has the place and no data is
// returned.
func Parse(data []byte) (Lock, *schema.Diagnostic) {
	var l Lock
	if len(data) > maxLock {
		return Lock{}, fault(1, fmt.Sprintf("the file has %d bytes, more than %d", len(data), maxLock))
	}
	if err := json.Unmarshal(data, &l); err != nil {
		line := 1
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
			line += bytes.Count(data[:min(int(bad.Offset), len(data))], []byte("\n"))
		}
		return Lock{}, fault(line, "is not the JSON that muster vendor writes: "+schema.Printable(err.Error()))
	}
	switch {
	case l.Version != current:
		d := fault(1, fmt.Sprintf("is of version %d, and this version of muster knows version %d", l.Version, current))
		d.Hint = "use the muster that wrote it, or a newer one"
		return Lock{}, d
	case len(l.Modules) > maxModules:
		return Lock{}, fault(1, fmt.Sprintf("lists %d modules, more than %d", len(l.Modules), maxModules))
	}
	for i := range l.Modules {
		m := &l.Modules[i]
		if what := l.wrong(m, l.Modules[:i]); what != "" {
			d := fault(1, what)
			d.Position = Place(data, m.Module)
			return Lock{}, d
		}
	}
	return l, nil
}

// wrong says what is wrong with a module beside those before it, "" if nothing is.
func (l *Lock) wrong(m *Module, before []Module) string {
	if what := BadPath(m.Module); what != "" {
		return what
	}
	if !strings.HasPrefix(m.Sum, sumPrefix) || m.Source == "" {
		return fmt.Sprintf("%s has no source, or no sum", m.Module)
	}
	for i := range before {
		// Paths are compared as a disk does that knows no case.
		if a, b := strings.ToLower(m.Dir()+"/"), strings.ToLower(before[i].Dir()+"/"); strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
			return fmt.Sprintf("%s and %s are at the same place, or within each other: not supported", before[i].Module, m.Module)
		}
	}
	return ""
}

// BadPath says what is wrong with the path of a module, "" if nothing is.
func BadPath(module string) string {
	if len(module) > 200 || !modulePath.MatchString(module) {
		return fmt.Sprintf("%q is not the path of a module, such as example.com/lib@v0", schema.Printable(module[:min(len(module), 200)]))
	}
	return ""
}

func fault(line int, message string) *schema.Diagnostic {
	return &schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleVendored, Position: schema.Position{Path: File, Line: line, Column: 1}, Message: message,
		Hint: "restore it from git, or remove it and run muster vendor for each module",
	}
}

// Place returns where the lock file names a module; its first line if it does not.
func Place(data []byte, module string) schema.Position {
	out := schema.Position{Path: File, Line: 1, Column: 1}
	quoted, err := json.Marshal(module)
	if at := bytes.Index(data, quoted); err == nil && at >= 0 {
		out.Line, out.Column = 1+bytes.Count(data[:at], []byte("\n")), at-bytes.LastIndexByte(data[:at], '\n')
	}
	return out
}

// Put puts a module into the lock, in the place of one with the same path.
func (l *Lock) Put(m Module) {
	l.Version = current
	l.Modules = slices.DeleteFunc(l.Modules, func(o Module) bool { return o.Path() == m.Path() })
	l.Modules = append(l.Modules, m)
	slices.SortFunc(l.Modules, func(a, b Module) int { return strings.Compare(a.Path(), b.Path()) })
}

// Find returns the module that an import path lies in, nil if the lock has none.
func (l *Lock) Find(importPath string) *Module {
	for i := range l.Modules {
		if m := &l.Modules[i]; importPath == m.Path() || strings.HasPrefix(importPath, m.Path()+"/") {
			return m
		}
	}
	return nil
}

// Encode returns the bytes of the lock file. It errs never for what Parse gives.
func (l *Lock) Encode() ([]byte, error) {
	b, err := json.MarshalIndent(l, "", "  ")
	return append(b, '\n'), err
}
