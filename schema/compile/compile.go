package compile

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/musterhq/muster/schema"
)

// Config says how a Compiler works.
type Config struct {
	// Exe and Args start a child: a program that calls Child with its stdin
	// and stdout. Exe is an absolute path.
	Exe  string
	Args []string
	// Workers is how many children may work at once; 0 means 2.
	Workers int
	Limits  Limits
	Log     *slog.Logger // nil for none
}

// Compiler compiles trees and remembers what it has compiled. One goroutine
// uses it at a time.
type Compiler struct {
	cfg     Config
	headers map[string]header // by file hash
	cache   map[string]*entry // by unit key
	feared  map[string]bool   // directories that a child died of: compiled last
	round   int               // counts the calls of Compile
}

// entry is a compiled package in the cache.
type entry struct {
	pkg   schema.CompiledPackage
	round int  // of its last use
	again bool // the outcome may have been bad luck: do not use it twice
}

// keepRounds is for how many further trees a package is remembered that they
// do not have: enough for a commit and its revert.
const keepRounds = 8

// New returns a Compiler.
func New(cfg Config) *Compiler {
	if cfg.Workers <= 0 {
		cfg.Workers = 2
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	return &Compiler{cfg: cfg, headers: map[string]header{}, cache: map[string]*entry{}, feared: map[string]bool{}}
}

// Compile compiles a tree: each package to its data or to what is wrong with
// it. It errs when ctx is done or a child cannot be started, never because of
// what the tree holds.
func (c *Compiler) Compile(ctx context.Context, tree schema.Tree) (schema.Compiled, error) {
	c.round++
	out := schema.Compiled{Commit: tree.Commit}
	units, diags := plan(tree, c.headers, c.cfg.Limits)
	out.Diagnostics = slices.Concat(tree.Diagnostics, diags)
	var todo []*unit
	for _, u := range units {
		if len(u.diags) > 0 {
			continue
		}
		if e, ok := c.cache[u.key]; ok && !e.again {
			e.round = c.round
		} else {
			todo = append(todo, u)
		}
	}
	slices.SortStableFunc(todo, func(a, b *unit) int {
		return cmp.Compare(rank(c.feared[a.dir]), rank(c.feared[b.dir]))
	})
	if err := c.evaluate(ctx, tree, todo); err != nil {
		return schema.Compiled{}, err
	}
	for _, u := range units {
		if len(u.diags) > 0 {
			out.Packages = append(out.Packages, schema.CompiledPackage{Dir: u.dir, Diagnostics: u.diags})
		} else {
			out.Packages = append(out.Packages, c.cache[u.key].pkg)
		}
	}
	blameOnce(out.Packages)
	nameImports(out.Packages, tree)
	c.forget(tree)
	return out, nil
}

// rank sorts false before true.
func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// evaluate fills the cache with the outcomes of todo.
func (c *Compiler) evaluate(ctx context.Context, tree schema.Tree, todo []*unit) error {
	if len(todo) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "muster-compile-")
	if err != nil {
		return fmt.Errorf("make a directory for compile children: %w", err)
	}
	defer func() { _ = os.Remove(dir) }() // empty, and stays so
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan *unit)
	var mu sync.Mutex // guards c.cache and c.feared
	var wg sync.WaitGroup
	for range min(c.cfg.Workers, len(todo)) {
		wg.Go(func() {
			err := c.work(ctx, dir, tree, queue, func(u *unit, e *entry, died bool) {
				mu.Lock()
				defer mu.Unlock()
				e.round = c.round
				c.cache[u.key] = e
				if died {
					c.feared[u.dir] = true
				} else {
					delete(c.feared, u.dir)
				}
			})
			if err != nil {
				cancel(err)
			}
		})
	}
	for _, u := range todo {
		select {
		case queue <- u:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	wg.Wait()
	return context.Cause(ctx)
}

// work compiles units from queue, in children of its own, one after another.
func (c *Compiler) work(ctx context.Context, dir string, tree schema.Tree, queue <-chan *unit, done func(u *unit, e *entry, died bool)) error {
	var w *worker
	defer func() {
		if w != nil {
			w.close()
		}
	}()
	for u := range queue {
		if w == nil {
			var err error
			if w, err = startWorker(ctx, c.cfg.Exe, c.cfg.Args, dir); err != nil {
				return err
			}
		}
		resp, died, err := w.do(ctx, c.request(tree, u))
		switch {
		case err != nil:
			w = nil
			return err
		case died != nil:
			w = nil
			c.cfg.Log.Warn("compile child ended", "package", u.dir, "why", died.why)
			d := firstOf(u.own, died.why)
			d.Hint = died.hint
			p := schema.CompiledPackage{Dir: u.dir, Diagnostics: []schema.Diagnostic{d}}
			done(u, &entry{pkg: p, again: !died.certain}, true)
		default:
			done(u, &entry{pkg: accept(u, resp)}, false)
			if resp.Heap > recycleHeap {
				w.close()
				w = nil
			}
		}
	}
	return nil
}

func (c *Compiler) request(tree schema.Tree, u *unit) request {
	req := request{Dir: u.dir, Parent: u.parent, Limits: c.cfg.Limits, Files: make(map[string][]byte, len(u.files))}
	for _, name := range u.files {
		req.Files[name] = tree.Files[name].Data
	}
	return req
}

// forget drops what no recent tree had.
func (c *Compiler) forget(tree schema.Tree) {
	for k, e := range c.cache {
		if c.round-e.round > keepRounds {
			delete(c.cache, k)
		}
	}
	if len(c.headers) <= 4*len(tree.Files)+1000 {
		return
	}
	kept := map[string]header{}
	for name, f := range tree.Files {
		if h, ok := c.headers[f.Hash]; ok && strings.HasSuffix(name, ".cue") {
			kept[f.Hash] = h
		}
	}
	c.headers = kept
}

// blameOnce removes from each package the mistakes that lie in another one and
// are reported there; a package that has no other says what it waits for.
func blameOnce(packages []schema.CompiledPackage) {
	reported := map[schema.Position]bool{} // by the package they lie in
	for _, p := range packages {
		for _, d := range p.Diagnostics {
			if isError(d) && dirOf(d) == p.Dir {
				reported[d.Position] = true
			}
		}
	}
	for i := range packages {
		p := &packages[i]
		elsewhere := func(d schema.Diagnostic) bool { return dirOf(d) != p.Dir && reported[d.Position] }
		at := slices.IndexFunc(p.Diagnostics, elsewhere)
		if at < 0 {
			continue
		}
		first := p.Diagnostics[at]
		// The slice is the cache's: it must not be changed.
		p.Diagnostics = slices.DeleteFunc(slices.Clone(p.Diagnostics), elsewhere)
		if len(p.Diagnostics) == 0 {
			first.Message = fmt.Sprintf("depends on %s, which does not compile: %s", dirOf(first), first.Message)
			p.Diagnostics, p.Awaits = []schema.Diagnostic{first}, dirOf(first)
		}
	}
}
