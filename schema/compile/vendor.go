package compile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/vendored"
)

// CUE finds what is in cue.mod/pkg on a disk and not in an fs.FS, where it does find modules
// that others are replaced by. So a child is sent a file that replaces each vendored module
// by its directory, and its file system has these elsewhere: in cue.mod/pkg CUE would find
// them a second time.

// vendor is what the repository has of other modules.
type vendor struct {
	modules []library           // by path
	fault   *schema.Diagnostic  // of the lock file: none of the modules can be used
	diags   []schema.Diagnostic // of all modules, at most one of each
}

// library is one of these modules.
type library struct {
	vendored.Module
	language string             // version of CUE's language that it is written in
	fault    *schema.Diagnostic // that it is not what the lock file says
}

// readVendored reads the lock file, and holds the files of the modules against it.
func (p *planner) readVendored() {
	f, ok := p.tree.Files[vendored.File]
	if !ok {
		return
	}
	v := &p.vendor
	lock, fault := vendored.Parse(f.Data)
	if fault == nil && p.replaces() {
		fault = &schema.Diagnostic{
			Severity: schema.Error, Rule: schema.RuleVendored, Position: schema.Position{Path: localModuleFile, Line: 1, Column: 1},
			Message: "modules are vendored in cue.mod/pkg and replaced here: both in one repository are not supported", Hint: "vendor the replaced modules too: muster vendor DIR",
		}
	}
	if fault != nil {
		v.fault, v.diags = fault, []schema.Diagnostic{*fault}
		return
	}
	for _, m := range lock.Modules {
		lib := library{Module: m}
		if what := p.checkVendored(&lib); what != nil {
			lib.fault = &schema.Diagnostic{
				Severity: schema.Error, Rule: schema.RuleVendored, Position: vendored.Place(f.Data, m.Module),
				Message: what.message, Expected: what.want, Hint: what.hint,
			}
			v.diags = append(v.diags, *lib.fault)
		}
		v.modules = append(v.modules, lib)
	}
}

// wrong is what is wrong with a module.
type wrong struct{ message, want, hint string }

// checkVendored returns what is wrong with the files of a module, nil if nothing is.
func (p *planner) checkVendored(lib *library) *wrong {
	if _, ours := importDir(p.module, lib.Path()); ours {
		return &wrong{message: fmt.Sprintf("%s lies within the module of this repository", lib.Path()), hint: "import the directory of the repository, and take it out of " + vendored.File}
	}
	files := map[string][]byte{}
	for _, name := range p.below(lib.Dir()) {
		files[strings.TrimPrefix(name, lib.Dir()+"/")] = p.tree.Files[name].Data
	}
	if len(files) == 0 {
		return &wrong{message: fmt.Sprintf("%s is not there: %s has no files", lib.Called(), lib.Dir()), hint: "muster vendor restores it; commit cue.mod/pkg, too"}
	}
	if sum := vendored.Sum(lib.Module.Module, files); sum != lib.Sum {
		return &wrong{
			message: fmt.Sprintf("the files in %s are not those of %s: their sum is %s", lib.Dir(), lib.Called(), sum),
			want:    lib.Sum, hint: "muster vendor restores them; change the module where it is from, and vendor it again",
		}
	}
	m := parseModule(files[moduleFile], p.limits.FileBytes)
	if m.err != nil {
		return &wrong{message: fmt.Sprintf("%s has no %s that can be read: %s", lib.Called(), moduleFile, m.err.Message), hint: "vendor another version of it"}
	}
	if m.qualified != lib.Module.Module {
		return &wrong{message: fmt.Sprintf("%s is the module %s", lib.Dir(), m.qualified), want: lib.Module.Module, hint: "muster vendor restores it"}
	}
	lib.language = m.language
	return nil
}

// library returns the module that a directory of the tree or an import path lies in, nil if
// none does.
func (v *vendor) library(dir string) *library {
	dir = strings.TrimPrefix(dir, vendored.Dir+"/")
	at := slices.IndexFunc(v.modules, func(l library) bool { return below(dir, l.Path()) })
	if at < 0 {
		return nil
	}
	return &v.modules[at]
}

// dir returns the directory of the tree that an import path means in a vendored module, ""
// if it lies in none.
func (v *vendor) dir(importPath string) string {
	if v.library(importPath) == nil {
		return ""
	}
	return path.Join(vendored.Dir, importPath)
}

// rules returns what of the modules CUE gets beside their files.
func (v *vendor) rules() (parts []string) {
	for _, l := range v.modules {
		parts = append(parts, l.Module.Module, l.language)
	}
	return parts
}

// files returns the files that say to CUE where the modules are.
func (v *vendor) files() map[string][]byte {
	var deps, replaced strings.Builder
	for _, l := range v.modules {
		dep := fmt.Sprintf("deps: %q: {v: %q, default: true", l.Module.Module, l.Major()+".0.0")
		fmt.Fprintln(&deps, dep+"}")
		fmt.Fprintf(&replaced, "%s, replaceWith: %q}\n", dep, "./"+elsewhere(l.Dir()))
	}
	out := map[string][]byte{localModuleFile: []byte(replaced.String())}
	for _, l := range v.modules {
		out[l.Dir()+"/"+moduleFile] = fmt.Appendf(nil, "module: %q\nlanguage: version: %q\n%s", l.Module.Module, l.language, v.others(l, deps.String()))
	}
	return out
}

// others returns the lines of deps that are of other modules than l.
func (v *vendor) others(l library, deps string) string {
	var b strings.Builder
	for line := range strings.Lines(deps) {
		if !strings.HasPrefix(line, fmt.Sprintf("deps: %q:", l.Module.Module)) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// faultOf returns why a package that an import path means cannot be used though it is
// vendored, nil if nothing is wrong with its module, or it is not vendored.
func (p *planner) faultOf(importPath string) *schema.Diagnostic {
	target := ast.ParseImportPath(importPath).Path
	if lib := p.vendor.library(target); lib != nil {
		return lib.fault
	}
	if p.vendor.fault != nil && proper(target) && len(p.below(path.Join(vendored.Dir, target))) > 0 {
		return p.vendor.fault
	}
	return nil
}

// spoiled reports whether faultOf has something to say.
func (p *planner) spoiled(importPath string) bool { return p.faultOf(importPath) != nil }

// awaiting makes of what is wrong with a module what is wrong with a package that needs it.
func awaiting(u *unit, fault *schema.Diagnostic) {
	d := *fault
	d.Rule, d.Message = schema.RuleDependency, "depends on what is vendored: "+fault.Message
	u.awaits, u.diags = dirOf(d), []schema.Diagnostic{d}
}
