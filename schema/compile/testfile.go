package compile

import (
	"path"
	"slices"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"github.com/musterhq/muster/schema/compile/cases"
)

// testsOf returns the files of tests of the request's directory, sorted.
func testsOf(req request) (out []string) {
	for name := range req.Files {
		if cases.IsTest(name) && path.Dir(name) == req.Dir {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// withTest returns a function that parses a file as parse does, and leaves in files of tests
// only one.
func withTest(name string, parse func(string, any, parser.Config) (*ast.File, error)) func(string, any, parser.Config) (*ast.File, error) {
	if parse == nil {
		parse = func(file string, src any, cfg parser.Config) (*ast.File, error) {
			return parser.ParseFile(file, src, cfg)
		}
	}
	return func(file string, src any, cfg parser.Config) (*ast.File, error) {
		f, err := parse(file, src, cfg)
		if err == nil && cases.IsTest(file) {
			cases.Select(f, name)
		}
		return f, err
	}
}
