package compile

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Sources returns where the values of an object of a tree come from: of the field at a data
// path, or of all for "". It compiles the package of the object alone. In a package with errors
// it is what can be said in spite of them. A child is kept for further questions, until the next tree
// is compiled or Close. It errs with ErrNoField, ErrNoObject, ErrUnread or
// ErrHidden.
func (c *Compiler) Sources(ctx context.Context, tree schema.Tree, dir string, key schema.ObjectKey, field string) (Explanation, error) {
	resp, err := c.ask(ctx, tree, dir, question{Kind: key.Kind, Name: key.Declared(), Field: field})
	out := Explanation{Fields: resp.Sources, User: resp.User, Diagnostics: resp.Diagnostics}
	switch {
	case err != nil:
	case resp.Unasked != "":
		err = unasked[resp.Unasked]
	case len(out.Fields) == 0 && slices.ContainsFunc(resp.Diagnostics, func(d schema.Diagnostic) bool { return d.Rule == schema.RuleInternal }):
		err = resp.Diagnostics[0]
	case len(out.Fields) == 0:
		err = ErrNoField
	}
	return out, err
}

// ask has a child answer a question of a package.
func (c *Compiler) ask(ctx context.Context, tree schema.Tree, dir string, q question) (response, error) {
	p, units, _ := plan(tree, c.known, c.cfg.Limits)
	at := slices.IndexFunc(units, func(u *unit) bool { return u.dir == dir && u.node != nil })
	if at < 0 {
		return response{}, fmt.Errorf("package %s: does not compile", dir)
	}
	b := &batch{c: c, p: p, deaths: map[string]int{}}
	req, trouble := b.request(units[at])
	if trouble != nil {
		return response{}, trouble
	}
	req.Ask = &q
	empty, err := os.MkdirTemp("", "muster-compile-")
	if err != nil {
		return response{}, fmt.Errorf("make a directory for a compile child: %w", err)
	}
	defer func() { _ = os.Remove(empty) }()
	w, err := c.spares.child(func() (*worker, error) { return startWorker(ctx, c.cfg.Exe, c.cfg.Args, empty) })
	if err != nil {
		return response{}, err
	}
	resp, died, err := w.do(ctx, req)
	switch {
	case err != nil:
		return response{}, err
	case died != nil:
		return response{}, fmt.Errorf("package %s: %s", dir, died.why)
	}
	if resp.Heap > recycleHeap {
		w.close()
	} else {
		c.spares.put(w)
	}
	return resp, nil
}
