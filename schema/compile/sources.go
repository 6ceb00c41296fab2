package compile

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Sources returns where the values of an object of a tree come from: of the field at a data
// path, or of all for "". It compiles the package of the object alone; the package must
// be free of errors. It errs with ErrNoField.
func (c *Compiler) Sources(ctx context.Context, tree schema.Tree, dir string, key schema.ObjectKey, field string) ([]FieldSource, error) {
	resp, err := c.ask(ctx, tree, dir, question{Kind: key.Kind, Name: key.Declared(), Field: field})
	if err == nil && len(resp.Sources) == 0 {
		err = ErrNoField
	}
	return resp.Sources, err
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
	w, err := startWorker(ctx, c.cfg.Exe, c.cfg.Args, empty)
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
	w.close()
	if len(resp.Diagnostics) > 0 {
		return response{}, resp.Diagnostics[0]
	}
	return resp, nil
}
