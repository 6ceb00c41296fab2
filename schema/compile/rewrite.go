package compile

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/edit"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/valid"
)

// Rewriting is what Rewrite does to a tree.
type Rewriting struct {
	Files []Change // by path, without lines
	// Left are names that stay as they are, though fields of objects had them formerly:
	// nothing is made from these, or they are in a vendored module.
	Left []schema.Position
	// Remaining are former names of fields of objects that stay, for the user to change: those in
	// files that cannot be changed with certainty, and in files of data whose labels something else reads. They
	// are warnings.
	Remaining []schema.Diagnostic
	// Refused says what would be different; then there are no Files.
	Refused []schema.Diagnostic
}

// rewriteRounds bounds how often a tree is compiled to find what has former names yet: a
// file may show its own only when another has been changed.
const rewriteRounds = 4

// Rewrite changes the former names of fields in the CUE files of a tree, and in files of data that packages
// embed, whose definitions must be current. The data of all packages, and what its tests say, is the same after it:
// that is compiled to make sure of it, so the tree must be free of errors before. It errs as
// Compile does.
func (c *Compiler) Rewrite(ctx context.Context, tree schema.Tree) (Rewriting, error) {
	w := &rewriting{c: c, tree: tree, certain: map[schema.Position]bool{}, data: map[string][]schema.Position{}}
	var err error
	if w.before, err = c.Compile(ctx, tree); err != nil {
		return Rewriting{}, err
	}
	if bad := errorsOf(w.before); len(bad) > 0 {
		return Rewriting{Refused: bad}, nil
	}
	after, refused, err := w.try(ctx)
	if err == nil && len(refused) > 0 && len(w.data) > 0 { // perhaps what reads the files of data wants the names that they have
		w.noData = true
		after, refused, err = w.try(ctx)
	}
	if err != nil || len(refused) > 0 {
		return Rewriting{Refused: refused}, err
	}
	return Rewriting{Files: w.files, Left: w.left, Remaining: w.remaining(after)}, nil
}

// rewriting is one call of Rewrite.
type rewriting struct {
	c       *Compiler
	tree    schema.Tree
	before  schema.Compiled
	certain map[schema.Position]bool     // lines with fields of objects, which stay where they are
	data    map[string][]schema.Position // labels of fields of objects in files of data, by path
	noData  bool                         // files of data stay as they are
	files   []Change
	left    []schema.Position
	failed  map[string]string // why files stay as they are, by path
}

// try changes all that it can, and says what would be different then.
func (w *rewriting) try(ctx context.Context) (after schema.Compiled, refused []schema.Diagnostic, err error) {
	after = w.before
	for round := 0; ; round++ {
		fresh := w.learn(after)
		if round > 0 && fresh == 0 || round == rewriteRounds {
			break
		}
		w.rename()
		if after, err = w.c.Compile(ctx, w.changed()); err != nil {
			return after, nil, err
		}
	}
	if refused = w.different(after); len(refused) == 0 {
		refused, err = w.tests(ctx)
	}
	return after, refused, err
}

// learn notes which names are fields of objects, and returns how many are new.
func (w *rewriting) learn(c schema.Compiled) (fresh int) {
	for _, d := range Diagnostics(c) {
		line := schema.Position{Path: d.Path, Line: d.Line}
		switch {
		case d.Rule != schema.RuleDeprecated || inPkg(d.Path):
		case !strings.HasSuffix(d.Path, ".cue"):
			if !slices.Contains(w.data[d.Path], d.Position) {
				w.data[d.Path] = append(w.data[d.Path], d.Position)
				fresh++
			}
		case !w.certain[line]:
			w.certain[line] = true
			fresh++
		}
	}
	return fresh
}

// rename changes the files of the tree as it was. One that cannot be changed stays as it is.
func (w *rewriting) rename() {
	var names []edit.Name
	for _, former := range slices.Sorted(maps.Keys(valid.Formers())) {
		f := valid.Formers()[former]
		names = append(names, edit.Name{In: f.In, From: former, To: f.Name})
	}
	w.files, w.left, w.failed = nil, nil, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(w.tree.Files)) {
		old := w.tree.Files[name].Data
		mentions := slices.ContainsFunc(names, func(n edit.Name) bool { return bytes.Contains(old, []byte(n.From)) })
		if at := w.data[name]; len(at) > 0 && !w.noData {
			text, err := edit.RenameData(name, old, at, names)
			w.take(name, text, err)
			continue
		}
		isDefinition := lax.IsDir(path.Dir(name)) && lax.IsEmbedded(path.Base(name))
		if !mentions || !strings.HasSuffix(name, ".cue") || isDefinition || strings.HasPrefix(name, "cue.mod/") {
			continue
		}
		text, left, err := edit.Rename(name, old, names, func(at schema.Position) bool { return w.certain[schema.Position{Path: at.Path, Line: at.Line}] })
		w.left = append(w.left, left...)
		w.take(name, text, err)
	}
}

// take notes what becomes of a file.
func (w *rewriting) take(name string, text []byte, err error) {
	old := w.tree.Files[name].Data
	switch {
	case err != nil:
		w.failed[name], _ = schema.HintOf(err)
	case !bytes.Equal(old, text):
		w.files = append(w.files, Change{Position: schema.Position{Path: name}, Old: old, New: text})
	}
}

// changed returns the tree with the changes.
func (w *rewriting) changed() schema.Tree {
	tree := w.tree
	tree.Files = maps.Clone(tree.Files)
	for _, f := range w.files {
		tree.Files[f.Path] = schema.File{Hash: string(schema.DigestBytes(f.New)), Data: f.New}
	}
	return tree
}

// different says what the changes have not kept: the data.
func (w *rewriting) different(after schema.Compiled) (out []schema.Diagnostic) {
	const hint = "change the former names in what it is made of yourself, and run it again"
	if bad := errorsOf(after); len(bad) > 0 {
		for i := range bad {
			bad[i].Hint = "with the new names this would be wrong: " + hint
		}
		return bad
	}
	digests := map[string]schema.Digest{}
	for _, p := range after.Packages {
		digests[p.Dir] = p.Digest
	}
	for _, p := range w.before.Packages {
		if p.Digest != digests[p.Dir] {
			out = append(out, withHint(firstOf(p.Dir, schema.RuleDeprecated, "with the new names the data of this package would be another"), hint))
		}
	}
	for _, d := range Diagnostics(after) {
		if d.Rule == schema.RuleDeprecated && inPkg(d.Path) {
			w.left = append(w.left, d.Position)
		}
	}
	return out
}

// remaining returns the former names, outside of vendored modules, that are there after the changes.
func (w *rewriting) remaining(after schema.Compiled) (out []schema.Diagnostic) {
	for _, d := range Diagnostics(after) {
		if d.Rule != schema.RuleDeprecated || inPkg(d.Path) {
			continue
		}
		switch why := w.failed[d.Path]; {
		case why != "":
			d.Hint = "the file is not rewritten: " + why + "; change it yourself"
		case !strings.HasSuffix(d.Path, ".cue"):
			d.Hint = "the file is not rewritten, since something else reads this name: change both yourself"
		default:
			d.Hint = "this place cannot be changed with certainty: change it yourself"
		}
		out = append(out, d)
	}
	return out
}

// tests returns the tests that pass before the changes and fail after.
func (w *rewriting) tests(ctx context.Context) (out []schema.Diagnostic, err error) {
	all := func(string) bool { return true }
	before, err := w.c.Test(ctx, w.tree, all)
	if err != nil || len(before) == 0 {
		return nil, err
	}
	after, err := w.c.Test(ctx, w.changed(), all)
	if err != nil {
		return nil, err
	}
	passed := map[string]bool{}
	for _, r := range before {
		passed[r.Dir+": "+r.Name] = r.Passed
	}
	for _, r := range after {
		if !r.Passed && passed[r.Dir+": "+r.Name] {
			d := schema.Diagnostic{Severity: schema.Error, Rule: schema.RuleDeprecated, Position: r.Position, Message: fmt.Sprintf("with the new names the test %q would fail", r.Name)}
			out = append(out, withHint(d, "change the former names in what it tests yourself, and run it again"))
		}
	}
	return out, nil
}

// errorsOf returns the errors of a tree.
func errorsOf(c schema.Compiled) []schema.Diagnostic {
	return slices.DeleteFunc(Diagnostics(c), func(d schema.Diagnostic) bool { return !isError(d) })
}
