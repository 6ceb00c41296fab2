package compile

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/schema"
)

// batch is the evaluation of what one tree has and the cache has not. Several
// workers share it.
type batch struct {
	c       *Compiler
	p       *planner
	dir     string // where children run: empty, and stays so
	pace    pace
	among   []string // if hurried, directories: of the others nothing is evaluated; nil for all
	further bool     // a part of the same tree came before
	queue   chan *unit

	heavy  *schema.Diagnostic // why no package can be evaluated that policies are for; nil if they can
	owners owners
	turns  map[string][]*unit // of all units of the commit, by owner

	mu     sync.Mutex               // guards what follows, and c.cache and c.crashed
	deaths map[string]int           // of children, by owner
	used   map[string]usage         // by owner
	held   int                      // bytes of data of the tree's packages in memory
	later  map[*unit]bool           // what takes long, or may
	put    map[string]int           // how many of these are new, by owner
	took   map[string]time.Duration // processor time of packages that are done, by owner
	blamed blamed                   // policies that are too much
	wasted time.Duration            // and of those that are left, of all owners
	others bool                     // several owners have something to evaluate
}

// maxPasses bounds how often evaluate looks for what is still to be evaluated: once for
// what is new, once for what was skipped for a package that is less by now, and for what
// had no room before the largest were refused; more only where children hang meanwhile.
const maxPasses = 6

// evaluate fills the cache with the outcomes of units: first of those with policies, then of those that say who owns
// what, then of the others. It returns which are not to be taken, and why. Each of the
// others has an entry that is not lacking, unless children give another answer each time.
func (b *batch) evaluate(ctx context.Context, units []*unit) (map[*unit]schema.Diagnostic, error) {
	c := b.c
	todo := b.todo(units)
	for _, now := range []func(*unit) bool{b.hasPolicies, func(u *unit) bool { return !b.hasPolicies(u) && !b.heldUp(u) }} {
		if err := b.run(ctx, slices.DeleteFunc(slices.Clone(todo), func(u *unit) bool { return !first(u.dir) || !now(u) })); err != nil {
			return nil, err
		}
		b.heavy = b.heavyPolicies(units)
	}
	b.owners = ownersOf(c.cache, units)
	b.turns = b.owners.turns(units)
	b.countSlow()
	b.blame(units)
	todo = slices.DeleteFunc(todo, func(u *unit) bool { return first(u.dir) || c.cache[u.key] == nil || b.heldUp(u) }) // those to retry
	var refused map[*unit]schema.Diagnostic
	for range maxPasses {
		b.count(units)
		refused = b.refusals()
		b.drop(refused)
		for _, u := range units {
			if _, no := refused[u]; !no && u.node != nil && c.cache[u.key].lacking() && !b.later[u] && !b.heldUp(u) {
				todo = append(todo, u)
			}
		}
		if len(todo) == 0 {
			return refused, nil
		}
		if err := b.run(ctx, b.order(todo)); err != nil {
			return nil, err
		}
		todo = nil
	}
	b.count(units)
	return b.refusals(), nil
}

// order returns units in turns over their owners, after those that are being evaluated
// already; those of directories that took little at last come first, those that a child died of before last.
func (b *batch) order(todo []*unit) []*unit {
	b.others = slices.ContainsFunc(todo, func(u *unit) bool { return u.owner != todo[0].owner })
	todo = interleave(b.turns, todo)
	slices.SortStableFunc(todo, func(x, y *unit) int {
		return cmp.Or(cmp.Compare(rank(b.c.flights[y.key] != nil), rank(b.c.flights[x.key] != nil)), cmp.Compare(rank(b.c.crashed[x.dir]), rank(b.c.crashed[y.dir])),
			cmp.Compare(b.expected(x.dir), b.expected(y.dir)))
	})
	return todo
}

// run evaluates units, in this order.
func (b *batch) run(ctx context.Context, todo []*unit) error {
	if len(todo) == 0 {
		return nil
	}
	c := b.c
	b.queue = make(chan *unit)
	var err error
	if b.dir, err = os.MkdirTemp("", "muster-compile-"); err != nil {
		return fmt.Errorf("make a directory for compile children: %w", err)
	}
	defer func() { _ = os.Remove(b.dir) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range min(c.cfg.Workers, len(todo)) {
		wg.Go(func() {
			if err := b.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	for _, u := range todo {
		select {
		case b.queue <- u:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(b.queue)
	wg.Wait()
	return context.Cause(ctx)
}

// todo returns the units to evaluate.
func (b *batch) todo(units []*unit) (todo []*unit) {
	c := b.c
	var doubtful []*unit
	for _, u := range units {
		if u.node == nil {
			continue
		}
		e, ok := c.cache[u.key]
		switch {
		case !ok && (b.tooSlow(u) || b.passedOver(u)):
			b.later[u] = true
			continue
		case !ok:
			todo = append(todo, u)
			continue
		case e.again && b.hurried(u):
			b.later[u] = true
		case e.again:
			doubtful = append(doubtful, u)
		}
		e.round = c.round
		b.held += e.held()
	}
	slices.SortStableFunc(doubtful, func(x, y *unit) int { return cmp.Compare(c.cache[x.key].tried, c.cache[y.key].tried) })
	return append(todo, doubtful[:min(len(doubtful), retries)]...)
}

// passedOver reports whether a unit is none of those that are wanted now.
func (b *batch) passedOver(u *unit) bool {
	return b.among != nil && !first(u.dir) && !slices.Contains(b.among, u.dir)
}

// rank sorts false before true.
func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// work evaluates units from the queue, in children of its own, one after
// another.
func (b *batch) work(ctx context.Context) error {
	h := hand{b: b}
	defer h.drop()
	for u := range b.queue {
		b.mu.Lock()
		leave := b.spent(u) != nil || b.exhausted(u)
		b.mu.Unlock()
		if leave {
			continue
		}
		f, trouble, err := h.try(ctx, u)
		if f != nil && f.inherited() {
			f, trouble, err = h.try(ctx, u)
		}
		switch {
		case err != nil:
			return err
		case trouble != nil:
			b.done(u, &entry{pkg: failed(u, *trouble)}, false)
			continue
		case f == nil:
			continue // it is left
		}
		b.settle(u, f)
		if h.w != nil && (f.resp.Heap > recycleHeap || h.w.yields) {
			h.w.close()
			h.w = nil
		}
	}
	return nil
}

// hand is one of those who share a batch. It has a child, or none.
type hand struct {
	b *batch
	w *worker
}

// drop gives the child away.
func (h *hand) drop() {
	if h.w != nil {
		h.b.c.spares.put(h.w)
		h.w = nil
	}
}

// try has a package evaluated, and waits for the outcome: nil if it was left, or cannot be evaluated, for
// trouble.
func (h *hand) try(ctx context.Context, u *unit) (f *flight, trouble *schema.Diagnostic, err error) {
	if f, trouble, err = h.begin(ctx, u); err != nil || trouble != nil {
		return nil, trouble, err
	}
	left, err := h.await(ctx, u, f)
	if left || err != nil {
		return nil, nil, err
	}
	return f, nil, nil
}

// begin has a package evaluated, unless that goes on already. Trouble is why it cannot be.
func (h *hand) begin(ctx context.Context, u *unit) (f *flight, trouble *schema.Diagnostic, err error) {
	if f := h.b.underWay(u); f != nil {
		h.drop()
		h.w = f.w
		return f, nil, nil
	}
	req, trouble := h.b.request(u)
	if trouble != nil {
		return nil, trouble, nil
	}
	if h.w == nil {
		cfg := &h.b.c.cfg
		if h.w, err = h.b.c.spares.child(func() (*worker, error) {
			return startWorker(ctx, cfg.Exe, cfg.Args, h.b.dir)
		}); err != nil {
			return nil, nil, err
		}
	}
	return takeOff(ctx, h.w, req), nil, nil
}

// await waits for the outcome, no longer than the pace says. When it does not wait on, or ctx is done, what takes long
// goes on without the hand, and has the child.
func (h *hand) await(ctx context.Context, u *unit, f *flight) (left bool, err error) {
	var look <-chan time.Time
	if h.b.hurried(u) {
		t := time.NewTicker(sliceEvery)
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case <-f.done:
			if f.err != nil || !f.usable() {
				h.w = nil
			}
			return false, f.err
		case <-ctx.Done():
			if h.w = nil; !h.b.goesOn(u, f) {
				f.drop()
			}
			return false, ctx.Err()
		case <-look:
		}
		if f.used() < h.b.pace.slice {
			continue
		}
		h.b.putOff(u)
		if h.w = nil; !h.b.goesOn(u, f) {
			f.drop()
		}
		return true, nil
	}
}

// underWay returns what a batch before has begun of a unit, and gives it away; nil for nothing.
func (b *batch) underWay(u *unit) *flight {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.c.flights[u.key]
	delete(b.c.flights, u.key)
	return f
}

// goesOn leaves an evaluation to further batches, if it has taken long and there are not too many of these, and
// reports whether it has.
func (b *batch) goesOn(u *unit, f *flight) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	used := max(f.used(), b.c.slow[u.key])
	if used < shortest(b.c.cfg.Limits) || len(b.c.flights) >= b.c.cfg.Workers {
		return false
	}
	f.w.yield()
	b.c.flights[u.key], b.c.slow[u.key] = f, used
	return true
}

// settle takes the outcome of an evaluation, or leaves the unit for later.
func (b *batch) settle(u *unit, f *flight) {
	died := f.died
	if died == nil {
		b.done(u, accept(u, f.resp), false)
		b.charge(u, f.resp.Used)
		return
	}
	if f.limits != b.c.cfg.Limits && b.hurried(u) {
		b.putOff(u)
		return
	}
	b.c.cfg.Log.Warn("compile child ended", "package", u.dir, "why", died.why)
	certain := died.certain && f.limits == b.c.cfg.Limits
	if died.at != nil {
		e := &entry{pkg: failed(u, heavyWith(died.at, died.why, died.hint)), again: !certain, policy: died.at.Position}
		e.cost.CPU = f.used()
		b.done(u, e, true)
		return
	}
	e := &entry{pkg: failed(u, b.tooMuch(u, died)), again: !certain, tooMuch: died.rule == schema.RuleLimit}
	if e.tooMuch {
		e.cost.CPU = f.limits.CPU // it says no more what it took
	}
	b.done(u, e, true)
}

// failed is a package with an error.
func failed(u *unit, d schema.Diagnostic) schema.CompiledPackage {
	return schema.CompiledPackage{Dir: u.dir, Diagnostics: []schema.Diagnostic{d}}
}

// request returns what a child needs to evaluate u, or that it is too much.
func (b *batch) request(u *unit) (request, *schema.Diagnostic) {
	limits := b.c.cfg.Limits
	files, ok := b.p.files(u.node)
	if !ok {
		d := firstOf(u.first, schema.RuleLimit, fmt.Sprintf("the package and what it imports or embeds are more than %d files, or more than %d MiB",
			limits.Files, limits.TreeBytes>>20))
		d.Hint = "import and embed less"
		return request{}, &d
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	limits.CPU = patience(limits.CPU, b.deaths[b.patient(u)])
	req := request{Dir: u.dir, Parent: u.parent(), Limits: limits, Files: files}
	for _, n := range b.p.policies {
		req.Policies = append(req.Policies, n.dir)
	}
	req.Policies = slices.Compact(req.Policies) // they are in order
	if b.c.cache[u.key] == nil {                // else it is given all when it is tried again
		req.Heavy, req.HeavyPart = b.blamed.heavy(cmp.Or(u.owner, u.dir))
	}
	return req, nil
}

// patient returns whose packages a package shares its patience with: where tenants are
// declared, no other tenant's trouble shortens it.
func (b *batch) patient(u *unit) string {
	if len(b.owners.tenants) == 0 {
		return ""
	}
	return u.owner
}

// patience returns the processor time that a package may take after so many
// others of the same owner have been too much for their child. One that is honest
// takes a small part of the limit; of those that are not there may be
// thousands, for which nobody's commit shall wait.
func patience(limit time.Duration, deaths int) time.Duration {
	const free = 4 // deaths that change nothing
	return max(limit/20, (limit * free / time.Duration(max(free, deaths))).Round(limit/100))
}

// done puts an outcome into the cache, without its data if the package is refused as far
// as is known, or there is no room for it before others are.
func (b *batch) done(u *unit, e *entry, died bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.round, e.tried = b.c.round, b.c.round
	if first(u.dir) && e.pkg.Package != nil {
		e.tenants = e.pkg.Package.Objects.Tenants
	}
	if old := b.c.cache[u.key]; old != nil {
		b.held -= old.held()
	}
	b.c.cache[u.key] = e
	if b.used != nil {
		b.use(u, e)
	}
	if b.held+e.held() > b.c.cfg.Limits.CommitBytes || b.spent(u) != nil {
		e.drop()
	}
	b.held += e.held()
	if died {
		if e.policy.Path == "" {
			b.deaths[b.patient(u)]++
		} else {
			b.blamed.add(e.policy, cmp.Or(u.owner, u.dir))
		}
		b.c.crashed[u.dir] = true
	} else {
		delete(b.c.crashed, u.dir)
	}
}

// blame counts for policies what the cache holds of units that they are too much with.
func (b *batch) blame(units []*unit) {
	for _, u := range units {
		if e := b.c.cache[u.key]; e != nil && e.policy.Path != "" {
			b.blamed.add(e.policy, cmp.Or(u.owner, u.dir))
		}
	}
}

// drop forgets the data of the packages that are refused.
func (b *batch) drop(refused map[*unit]schema.Diagnostic) {
	for u := range refused {
		if e := b.c.cache[u.key]; e != nil {
			b.held -= e.held()
			e.drop()
		}
	}
}

// Packages with policies are evaluated before those that the policies are for. Where that takes more than a
// package may, so would each of the others, and each of their tests: they are not evaluated, and it is
// reported once, where the policies are.

// heavyPolicies returns why no package can be evaluated that policies are for, since these take too much; nil if they
// can.
func (b *batch) heavyPolicies(units []*unit) *schema.Diagnostic {
	for _, u := range units {
		if e := b.c.cache[u.key]; u.node != nil && b.hasPolicies(u) && e != nil && e.tooMuch && len(e.pkg.Diagnostics) > 0 {
			return &e.pkg.Diagnostics[0]
		}
	}
	return nil
}

// heldUp reports whether a unit cannot be evaluated since policies of others take too much. What has objects of its own
// is not known before, so no package is excepted but the schema.
func (b *batch) heldUp(u *unit) bool {
	return b.heavy != nil && u.node != nil && !b.hasPolicies(u) && u.dir != SchemaDir
}

// awaiting is a unit's package that is held up.
func (b *batch) awaiting(u *unit) schema.CompiledPackage {
	d := *b.heavy
	d.Rule, d.Message = schema.RuleDependency, fmt.Sprintf("depends on %s, which does not compile: %s", dirOf(d), d.Message)
	return schema.CompiledPackage{Dir: u.dir, Diagnostics: []schema.Diagnostic{d}, Awaits: dirOf(d)}
}

// hasPolicies reports whether a unit's package declares policies.
func (b *batch) hasPolicies(u *unit) bool { return slices.Contains(b.p.policies, u.node) }

// tooMuch says of a unit that its evaluation took more than it may: where its policies are, if it has any.
func (b *batch) tooMuch(u *unit, died *death) schema.Diagnostic {
	d := withHint(firstOf(u.first, died.rule, died.why), died.hint)
	if died.rule != schema.RuleLimit || !b.hasPolicies(u) {
		return d
	}
	for _, s := range u.node.files {
		if s.policy != nil {
			d.Path, d.Line, d.Column = s.path, s.policy.Line, s.policy.Column
			d.Field, d.Message = policyField, "the package with these policies cannot be evaluated, and so no package that they are for: "+d.Message
			break
		}
	}
	return d
}
