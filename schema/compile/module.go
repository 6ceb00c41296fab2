package compile

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/errors"
	"cuelang.org/go/mod/modfile"

	"github.com/musterhq/muster/schema"
)

// module is what a module file says.
type module struct {
	path      string
	qualified string // with its major version
	language  string // version of CUE's language that it is written in
	err       *schema.Diagnostic
}

func parseModule(data []byte, limit int) module {
	d := &schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleRepository, Position: schema.Position{Path: moduleFile, Line: 1, Column: 1},
		Expected: `module: "example.com/config@v0" and language: version: "v0.17.0"`,
	}
	if h := scanText(data, limit); h != nil {
		*d = *h
		d.Path = moduleFile
		return module{err: d}
	}
	m, err := modfile.Parse(data, moduleFile)
	if err == nil {
		out := module{path: m.ModuleRootPath(), qualified: m.QualifiedModule()}
		if m.Language != nil {
			out.language = m.Language.Version
		}
		return out
	}
	e := errors.Errors(err)[0]
	for _, other := range slices.Backward(errors.Errors(err)) {
		if strings.Contains(errorText(other), "empty disjunction") {
			continue // those within say more
		}
		for _, pos := range errors.Positions(other) {
			if pos.Filename() == moduleFile {
				e, d.Line, d.Column = other, pos.Line(), pos.Column()
			}
		}
	}
	d.Message = "invalid module file: " + errorText(e)
	return module{err: d}
}
