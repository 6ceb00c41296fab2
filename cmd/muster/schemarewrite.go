package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/scaffold"
)

// rewrittenFile is a file in which fields get the names that they have now.
type rewrittenFile struct {
	Path string `json:"path"`
	Diff string `json:"diff"`
}

// rewrite finds the former names of fields in the repository, as it is with the definitions
// of this version. It prints where a change is not certain.
func (u *schemaUpdate) rewrite(ctx context.Context, std stdio) error {
	tree, err := readWorkTree(u.Dir)
	if err != nil {
		return err
	}
	for name, data := range scaffold.Apply(u.changes) {
		if data == nil {
			delete(tree.Files, name)
		} else {
			tree.Files[name] = schema.File{Hash: string(schema.DigestBytes(data)), Data: data}
		}
	}
	compiler, done, err := withCache(u.Dir)
	if err != nil {
		return err
	}
	defer done()
	r, err := compiler.Rewrite(ctx, tree)
	if err != nil {
		return err
	}
	if len(r.Refused) > 0 {
		printDiagnostics(std.err, screen.Painter(isTerminal(std.err)), r.Refused, tree.Files)
		return &failure{code: exitDiffers, err: fmt.Errorf("former names of fields cannot be changed because of %s; nothing was written", schema.Count(len(r.Refused), "error")), hint: "correct these places first"}
	}
	for _, c := range r.Files {
		if now, err := os.ReadFile(filepath.Join(u.Dir, filepath.FromSlash(c.Path))); err != nil || !bytes.Equal(now, c.Old) {
			return &failure{code: exitCouldNot, err: fmt.Errorf("%s has changed since it was read", c.Path), hint: "run it again"}
		}
		u.Rewritten = append(u.Rewritten, rewrittenFile{Path: c.Path, Diff: diffOf(scaffold.Change{Path: c.Path, Old: c.Old, New: c.New})})
	}
	u.rewrites, u.Left, u.Remaining = r.Files, r.Left, r.Remaining
	return nil
}

// printRewrites shows what is changed beside the definitions.
func (u *schemaUpdate) printRewrites(std stdio, p screen.Painter) {
	for _, f := range u.Rewritten {
		printDiff(std.out, p, f.Diff)
	}
	for _, at := range u.Left {
		screen.Printf(std.out, "%s: a former name of a field stays: nothing that is declared has it from there\n", at)
	}
	printDiagnostics(std.out, p, u.Remaining, nil)
	if len(u.Rewritten) > 0 {
		what := "have"
		if u.Written {
			what = "had"
		}
		screen.Printf(std.out, "%d files %s former names of fields\n", len(u.Rewritten), what)
	}
	if n := len(u.Remaining); n > 0 {
		screen.Printf(std.out, "%s left for you to change: they are valid until a later version\n", schema.Count(n, "former name"))
	}
}
