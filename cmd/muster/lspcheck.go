package main

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/musterhq/muster/cmd/internal/lsp"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// editorChecks check repositories for an editor, by directory.
type editorChecks map[string]*editorCheck

// editorCheck checks one repository again and again.
type editorCheck struct {
	compiler *compile.Compiler
	found    []schema.Diagnostic // by the last check, but for its tests
	tests    []schema.Diagnostic // of tests that fail, by the last that were run
}

// check is what lsp.Config wants.
func (e editorChecks) check(ctx context.Context, r lsp.Repository, publish func([]schema.Diagnostic)) (left bool, err error) {
	c := e[r.Dir]
	if c == nil {
		compiler, err := newCompiler(openCache(r.Dir))
		if err != nil {
			return false, err
		}
		c = &editorCheck{compiler: compiler}
		e[r.Dir] = c
	}
	if r.Full {
		return false, c.full(ctx, r, publish)
	}
	return c.quick(ctx, r, publish)
}

// quick checks what takes little: first what was edited, then all packages, then the tests.
func (e *editorCheck) quick(ctx context.Context, r lsp.Repository, publish func([]schema.Diagnostic)) (left bool, err error) {
	if len(r.Edited) > 0 {
		compiled, err := e.compiler.Urgent(ctx, r.Tree, r.Edited)
		if err != nil {
			return false, err
		}
		c := e.judge(r, compiled)
		publish(forEditor(keepPending(c.diagnostics, e.found), e.tests))
	}
	compiled, err := e.compiler.Quick(ctx, r.Tree)
	if err != nil {
		return false, err
	}
	c := e.judge(r, compiled)
	e.found = c.diagnostics
	publish(forEditor(e.found, e.tests))
	results, leftTests, err := e.compiler.QuickTest(ctx, r.Tree)
	if err != nil {
		return false, err
	}
	e.judgeTests(c, results)
	publish(forEditor(e.found, e.tests))
	return compiled.Partial || leftTests, nil
}

// full checks all.
func (e *editorCheck) full(ctx context.Context, r lsp.Repository, publish func([]schema.Diagnostic)) error {
	compiled, err := e.compiler.Compile(ctx, r.Tree)
	if err != nil {
		return err
	}
	c := e.judge(r, compiled)
	e.found = c.diagnostics
	publish(forEditor(e.found, e.tests))
	results, err := e.compiler.Test(ctx, r.Tree, func(string) bool { return true })
	if err != nil {
		return err
	}
	e.judgeTests(c, results)
	publish(forEditor(e.found, e.tests))
	return nil
}

// judge returns what is wrong with a repository, but for its tests.
func (e *editorCheck) judge(r lsp.Repository, compiled schema.Compiled) *compiledRepo {
	c := &compiledRepo{dir: r.Dir, tree: r.Tree, compiled: compiled}
	c.objects, c.diagnostics = reconciler.Check(compiled, time.Now())
	c.diagnostics = append(c.diagnostics, staleDefinitions(r.Dir, r.Tree.Files)...)
	return c
}

func (e *editorCheck) judgeTests(c *compiledRepo, results []compile.TestResult) {
	c.addTests(results)
	e.tests = c.diagnostics[len(e.found):]
}

// forEditor returns what is shown of lists of mistakes; of what takes long, that it is not checked yet.
func forEditor(lists ...[]schema.Diagnostic) []schema.Diagnostic {
	out := slices.Concat(lists...)
	for i := range out {
		if out[i].Rule == schema.RulePending {
			out[i].Message, out[i].Expected, out[i].Field = "this takes long to evaluate, and is not checked yet", "", ""
			out[i].Hint = "it is checked when nothing is typed for a while, and when a file is saved"
		}
	}
	return out
}

// keepPending returns what is wrong now, and for packages that are not compiled yet what was before.
func keepPending(now, before []schema.Diagnostic) (out []schema.Diagnostic) {
	pending := map[string]bool{} // directories
	for _, d := range now {
		if d.Rule == schema.RulePending {
			pending[path.Dir(d.Path)] = true
		} else {
			out = append(out, d)
		}
	}
	for _, d := range before {
		if pending[path.Dir(d.Path)] && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}
