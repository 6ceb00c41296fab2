package compile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/cases"
)

// TestResult is what came of one test of a repository.
type TestResult struct {
	Dir  string `json:"dir"`
	Name string `json:"name"` // "" of what is no test, or keeps those of Dir from being run
	schema.Position
	Passed bool `json:"passed"`
	// Diagnostics say why it failed; warnings may stand beside.
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
	// Uses are the directories of the packages that the test is made from.
	Uses []string `json:"-"`
}

// Test runs the tests of a tree, those in files _test.cue, whose name match returns true
// for: "DIR: NAME". Each is evaluated in a child, in the package of its directory, within the
// limits of a package. The results are sorted by directory and position; what keeps tests from
// being run is a failure. It errs as Compile does.
func (c *Compiler) Test(ctx context.Context, tree schema.Tree, match func(string) bool) ([]TestResult, error) {
	return c.test(ctx, tree, match, &batch{})
}

// QuickTest runs all tests of a tree as Test does, but gives each a twentieth of the processor time of a
// package, 1 s by default. One that needs more fails with a diagnostic that says so, and no further ones of
// its package are run. It reports whether there are any of these.
func (c *Compiler) QuickTest(ctx context.Context, tree schema.Tree) (results []TestResult, left bool, err error) {
	results, err = c.test(ctx, tree, func(string) bool { return true }, &batch{pace: quickPace(c.cfg.Limits)})
	return results, slices.ContainsFunc(results, func(r TestResult) bool { return schema.Pending(r.Diagnostics) }), err
}

// test runs tests as b says.
func (c *Compiler) test(ctx context.Context, tree schema.Tree, match func(string) bool, b *batch) ([]TestResult, error) {
	p, units, diags := plan(tree, c.known, c.cfg.Limits)
	if slices.ContainsFunc(diags, isError) {
		return nil, nil // Compile says it
	}
	rules := p.rules()
	var todo []*unit
	for dir, files := range p.testFiles() {
		u := p.testUnit(dir, files, units)
		if u.node != nil {
			u.key = u.node.key(rules)
		}
		todo = append(todo, u)
	}
	slices.SortFunc(todo, func(a, b *unit) int { return strings.Compare(a.dir, b.dir) })
	empty, err := os.MkdirTemp("", "muster-compile-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for compile children: %w", err)
	}
	defer func() { _ = os.Remove(empty) }()
	b.c, b.p, b.dir, b.deaths, b.blamed = c, p, empty, map[string]int{}, blamed{}
	b.heavy = b.heavyPolicies(units)
	b.blame(units)
	outcomes := make([][]TestResult, len(todo))
	queue := make(chan int)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range min(c.cfg.Workers, len(todo)) {
		wg.Go(func() {
			t := tester{batch: b, match: match}
			defer t.close()
			for i := range queue {
				var err error
				if outcomes[i], err = t.run(ctx, todo[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range todo {
		select {
		case queue <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	wg.Wait()
	return slices.Concat(outcomes...), context.Cause(ctx)
}

// testFiles returns the paths of the files of tests by directory, sorted.
func (p *planner) testFiles() map[string][]string {
	out := map[string][]string{}
	for name := range p.tree.Files {
		dir := path.Dir(name)
		if _, what := badPath(name); cases.IsTest(name) && what == "" && !ignored(path.Join(dir, "x.cue")) {
			out[dir] = append(out[dir], name)
		}
	}
	for dir := range out {
		slices.Sort(out[dir])
	}
	return out
}

// testUnit returns the package of a directory together with its files of tests.
func (p *planner) testUnit(dir string, names []string, units []*unit) *unit {
	u := &unit{dir: dir, first: names[0]}
	f := &folder{dir: dir}
	if at := slices.IndexFunc(units, func(u *unit) bool { return u.dir == dir }); at >= 0 {
		u.diags = units[at].diags
		if units[at].node == nil {
			return u
		}
	}
	if own := p.folders[dir]; own != nil {
		f.files = slices.Clone(own.files)
	}
	for _, name := range names {
		f.files = append(f.files, source{path: name, hash: p.tree.Files[name].Hash})
	}
	p.split(f)
	u.diags = p.check(f)
	for _, n := range f.nodes {
		p.connect(n)
		n.find(p.tree)
		u.diags = append(u.diags, p.checkImports(n)...)
	}
	if !slices.ContainsFunc(u.diags, isError) {
		u.node = f.nodes[0]
	}
	return u
}

// tester runs the tests of packages, in children of its own.
type tester struct {
	*batch
	match  func(string) bool
	worker *worker
}

func (t *tester) close() {
	if t.worker != nil {
		t.worker.close()
	}
}

// passed is what a Store has of a test that passes, without a warning.
const passed = "passed"

// key identifies all that the outcome of a test depends on.
func (t *tester) key(u *unit, name string) string {
	h := sha256.New()
	add(h, "test", u.key, name)
	return hex.EncodeToString(h.Sum(nil))
}

// passed reports whether a test is known to pass.
func (t *tester) passed(key string) bool {
	return t.c.cfg.Store != nil && string(t.c.cfg.Store.Load(key)) == passed
}

// ready returns what a child needs to run the tests of u, or what is wrong with u.
func (t *tester) ready(u *unit) (req request, wrong []schema.Diagnostic) {
	if u.node == nil {
		return req, u.diags
	}
	if t.heldUp(u) {
		return req, []schema.Diagnostic{*t.heavy}
	}
	req, trouble := t.request(u)
	if trouble != nil {
		wrong = append(wrong, *trouble)
	}
	if t.pace.slice > 0 {
		req.Limits.CPU = min(req.Limits.CPU, t.pace.slice)
	}
	return req, wrong
}

// run runs the tests of a package.
func (t *tester) run(ctx context.Context, u *unit) ([]TestResult, error) {
	broken := func(ds ...schema.Diagnostic) []TestResult {
		return []TestResult{{Dir: u.dir, Position: schema.Position{Path: u.first, Line: 1, Column: 1}, Diagnostics: ds}}
	}
	req, wrong := t.ready(u)
	if len(wrong) > 0 {
		return broken(wrong...), nil
	}
	found, wrong := casesOf(req)
	out := []TestResult{}
	for _, r := range wrong {
		out = append(out, broken(r)...)
	}
	for _, c := range found {
		if !t.match(u.dir + ": " + c.Name) {
			continue
		}
		at := position(c.At)
		key := t.key(u, c.Name)
		if t.passed(key) {
			out = append(out, TestResult{Dir: u.dir, Name: c.Name, Position: at, Passed: true, Diagnostics: []schema.Diagnostic{}})
			continue
		}
		r := TestResult{Dir: u.dir, Name: c.Name, Position: at, Uses: u.node.uses()}
		req.Test = c.Name
		t.mu.Lock()
		req.Heavy, req.HeavyPart = t.blamed.heavy(u.dir)
		t.mu.Unlock()
		if err := t.evaluate(ctx, req, &r); err != nil {
			return nil, err
		}
		if r.Passed = !slices.ContainsFunc(r.Diagnostics, isError); r.Passed && len(r.Diagnostics) == 0 && t.c.cfg.Store != nil {
			t.c.cfg.Store.Save(key, []byte(passed))
		}
		out = append(out, r)
		if schema.Pending(r.Diagnostics) {
			break
		}
	}
	return sharedOnce(u.dir, out), nil
}

// sharedOnce returns the results of a package's tests with what several of them find wrong in a file of tests,
// which is in none of these tests then, once: as what is no test. The tests that nothing else is wrong with are not
// among the results, since they could not be run.
func sharedOnce(dir string, results []TestResult) (out []TestResult) {
	at := map[schema.Diagnostic]int{}
	for i := range results {
		for _, d := range results[i].Diagnostics {
			if isError(d) && cases.IsTest(d.Path) && results[i].Name != "" {
				at[d]++
			}
		}
	}
	var shared []TestResult
	for _, r := range results {
		kept := make([]schema.Diagnostic, 0, len(r.Diagnostics))
		for _, d := range r.Diagnostics {
			if at[d] < 2 {
				kept = append(kept, d)
				continue
			}
			if !slices.ContainsFunc(shared, func(s TestResult) bool { return s.Diagnostics[0] == d }) {
				shared = append(shared, TestResult{Dir: dir, Position: d.Position, Diagnostics: []schema.Diagnostic{d}})
			}
		}
		if r.Diagnostics = kept; r.Passed || slices.ContainsFunc(kept, isError) {
			out = append(out, r)
		}
	}
	return append(shared, out...)
}

// evaluate evaluates a test, and says in r what is wrong.
func (t *tester) evaluate(ctx context.Context, req request, r *TestResult) (err error) {
	if t.worker == nil {
		if t.worker, err = startWorker(ctx, t.c.cfg.Exe, t.c.cfg.Args, t.dir); err != nil {
			return err
		}
	}
	resp, died, err := t.worker.do(ctx, req)
	r.Diagnostics = append([]schema.Diagnostic{}, resp.Diagnostics...)
	switch {
	case err != nil:
		t.worker = nil
		return err
	case died != nil:
		t.worker = nil
		d := schema.Diagnostic{Severity: schema.Error, Rule: died.rule, Position: r.Position, Message: died.why, Hint: died.hint}
		if died.at != nil {
			d = heavyWith(died.at, died.why, died.hint)
			t.mu.Lock()
			t.blamed.add(died.at.Position, r.Dir)
			t.mu.Unlock()
		}
		if died.rule == schema.RuleLimit && req.Limits != t.c.cfg.Limits {
			d.Rule, d.Hint = schema.RulePending, ""
		}
		r.Diagnostics = []schema.Diagnostic{d}
	case resp.Heap > recycleHeap:
		t.close()
		t.worker = nil
	}
	return nil
}
