package intent

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// Adoption is what becomes of a commit.
type Adoption struct {
	Writes []model.Write
	Events []schema.Event // in the order of what they are about
	// Promoted are the events of rollouts that the commit lets go on: they come after
	// the events of the head.
	Promoted []schema.Event
	Head     schema.Head
	// Next is what the head declares; nil if that is what the head before did, or the
	// head is as it was.
	Next *Desired
}

// Adopt takes a compiled commit into the desired data. A package applies whole
// or not at all: one that does not compile, that declares what its path may
// not, or that another already holds, keeps its last good version and is stale;
// everything else of the commit goes ahead. A commit of which nothing can be
// read (no module, say) leaves every package as it is. One that empties the
// repository removes all there is, so a guard holds it, however little that is.
// While the cell is suspended no commit changes anything. desired is Of s.
//
// The writes put packages first, then flip the head, then delete what it no
// longer refers to.
//
// Rollouts that commits promote go on: see promote.
//
// The first part of a commit is taken but for what belongs together with packages of the
// second, and that of which these may change the meaning not at all: see parting.
func Adopt(s *model.State, desired *Desired, c schema.Compiled, now time.Time) Adoption {
	if s.Suspended() {
		return Adoption{}
	}
	c = carried(s, c)
	c.Trailers = owed(s.Head.Rest, c.Trailers)
	out, a := adopt(s, desired, c, now)
	if a.waits.all {
		return Adoption{}
	}
	c.Promote, _ = a.waits.divide(c.Promote)
	writes, events := promote(s, c, a.brings, now)
	out.Writes, out.Promoted = slices.Concat(versionKey(s, c), writes, out.Writes), events
	return out
}

// adopt is Adopt but for rollouts that go on. It also returns what it has found on the way.
func adopt(s *model.State, desired *Desired, c schema.Compiled, now time.Time) (Adoption, adoption) {
	a := newAdoption(desired.packages(s))
	a.desired = desired
	if c.Commit != s.Head.Commit && holds(s, c) {
		head := schema.Head{Commit: c.Commit, By: c.By, Others: c.Others, Packages: s.Head.Packages, Warnings: warnings(packagesOf(c), c, nil)}
		return Adoption{Writes: []model.Write{s.Document(model.KeyHead, head)}, Events: []schema.Event{applied(head, now)}, Head: head}, a
	}
	if hasError(c.Diagnostics) && !emptied(s, c) {
		maps.Copy(a.packages, a.held)
		a.unread = c.Diagnostics
	} else {
		a.settle(sinceHead(s, a.held, c.Packages))
		a.part(s)
		a.check()
	}
	if a.waits.all {
		return Adoption{}, a
	}
	return a.result(s, c, now), a
}

// emptied reports whether c takes everything from a cell that has something, or
// leaves it as empty as it was made before. A new cell's empty repository is a
// mistake like any other.
func emptied(s *model.State, c schema.Compiled) bool {
	h := &s.Head
	return c.Empty && (len(h.Packages) > 0 || h.Held != nil || h.Commit != "" && len(h.Stale)+len(h.Unread) == 0)
}

// adoption is the packages of the next head while it is being found.
type adoption struct {
	held     map[string]*schema.Package // of the head so far
	desired  *Desired                   // of the head so far
	packages map[string]*schema.Package // of the next, as far as is known
	digests  map[string]schema.Digest   // of the compiled ones
	stale    map[string][]schema.Diagnostic
	refused  map[string]*schema.Package             // not taken; nil for what did not compile
	twice    map[schema.Diagnostic]schema.ObjectKey // of those in stale that say that a name is declared twice: which
	unread   []schema.Diagnostic                    // why nothing of the commit could be read
	brings   []string                               // jobs that the commit both changes and promotes
	waits    parting
}

// newAdoption begins with the packages of the head so far, by directory; nil for
// a cell that holds nothing.
func newAdoption(held map[string]*schema.Package) adoption {
	return adoption{
		held: held, packages: map[string]*schema.Package{}, digests: map[string]schema.Digest{},
		stale: map[string][]schema.Diagnostic{}, twice: map[schema.Diagnostic]schema.ObjectKey{}, refused: map[string]*schema.Package{},
	}
}

// take finds the next head's packages. Ownership goes before duplicates: who
// may not declare an object does not get into its holder's way. The packages
// that say who owns what are settled first, since a tenant of one that is not
// taken must not judge the rest.
func (a *adoption) take(compiled []schema.CompiledPackage) {
	a.settle(compiled)
	a.check()
}

// settle takes the packages that compile, and finds which of those that say who owns what
// are not to be taken.
func (a *adoption) settle(compiled []schema.CompiledPackage) {
	for _, p := range compiled {
		if p.Package == nil {
			a.reject(p.Dir, p.Diagnostics)
			for dir := range a.held {
				if p.Below && covers(p.Dir, dir) {
					a.reject(dir, p.Diagnostics)
				}
			}
		} else {
			a.packages[p.Dir], a.digests[p.Dir] = p.Package, p.Digest
		}
	}
	for a.rejectViolations(declaresPolicy) || a.rejectDuplicates(declaresPolicy) {
	}
}

// check finds which packages are not to be taken.
func (a *adoption) check() {
	all := func(*schema.Package) bool { return true }
	for a.rejectViolations(all) || a.rejectDuplicates(all) {
	}
}

// declaresPolicy reports whether p declares tenants or cells, which apply to other packages.
func declaresPolicy(p *schema.Package) bool { return len(p.Objects.Tenants)+len(p.Objects.Cells) > 0 }

// rejectViolations finds the packages among those wanted that declare what
// they may not. It reports whether one was rejected.
func (a *adoption) rejectViolations(wanted func(*schema.Package) bool) bool {
	fresh := a.fresh(wanted)
	if len(fresh) == 0 {
		return false
	}
	t := TenantsOf(a.packages)
	cells, volumes, l := a.cells(), volumesOf(a.packages), loginsOf(a.packages, a.held)
	found := false
	for _, dir := range fresh {
		p := a.packages[dir]
		if ds := slices.Concat(t.violations(p, volumes), unknownCells(p, cells), volumes.violations(p), l.violations(p), sharedNames(p)); len(ds) > 0 {
			a.reject(dir, ds)
			found = true
		}
	}
	return found
}

// fresh returns the directories of the packages among those wanted that are not as the head has
// them, sorted: only these can be rejected.
func (a *adoption) fresh(wanted func(*schema.Package) bool) (dirs []string) {
	for dir, p := range a.packages {
		if p != a.held[dir] && wanted(p) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// reject gives a directory its last good version back, if it has any.
func (a *adoption) reject(dir string, why []schema.Diagnostic) {
	a.stale[dir], a.refused[dir] = why, a.packages[dir]
	delete(a.packages, dir)
	if p := a.held[dir]; p != nil {
		a.packages[dir] = p
	}
}

// rejectDuplicates finds the objects that several packages declare. The one
// that held the object keeps it; where none did, none gets it. It reports
// whether one of the packages wanted was rejected, which may bring back older
// objects.
func (a *adoption) rejectDuplicates(wanted func(*schema.Package) bool) bool {
	again := map[string][]schema.Diagnostic{}
	for key, dirs := range a.declaring(wanted) {
		if len(dirs) < 2 {
			continue
		}
		slices.Sort(dirs)
		holder := slices.IndexFunc(dirs, func(dir string) bool {
			h := a.held[dir]
			if h == nil {
				return false
			}
			_, ok := declaredAs(h, key)
			return ok
		})
		for i, dir := range dirs {
			if i == holder || a.packages[dir] == a.held[dir] {
				continue
			}
			other := dirs[(i+1)%len(dirs)]
			if holder >= 0 {
				other = dirs[holder]
			}
			d := duplicate(key, a.packages[dir], a.packages[other])
			a.twice[d] = key
			again[dir] = append(again[dir], d)
		}
	}
	for dir, ds := range again {
		slices.SortFunc(ds, schema.Diagnostic.Compare)
		a.reject(dir, ds)
	}
	return len(again) > 0
}

// declaring returns the directories of the packages wanted that declare what a fresh one among them
// does, by the key that they share. Unchanged packages have been compared with each other before.
func (a *adoption) declaring(wanted func(*schema.Package) bool) map[schema.ObjectKey][]string {
	declared := map[schema.ObjectKey][]string{}
	for _, dir := range a.fresh(wanted) {
		for key := range a.packages[dir].Origins {
			declared[shared(key)] = nil
		}
	}
	for dir, p := range a.packages {
		if len(declared) == 0 || !wanted(p) {
			continue
		}
		for key := range p.Origins {
			if dirs, ok := declared[shared(key)]; ok {
				declared[shared(key)] = append(dirs, dir)
			}
		}
	}
	return declared
}

// shared returns the key under which an object's name is looked up: jobs and
// alloc sets share theirs.
func shared(key schema.ObjectKey) schema.ObjectKey {
	if key.Kind == schema.KindAllocSet {
		key.Kind = schema.KindJob
	}
	return key
}

// declaredAs returns the key of the object that p declares under a shared key.
func declaredAs(p *schema.Package, key schema.ObjectKey) (schema.ObjectKey, bool) {
	if _, ok := p.Origins[key]; ok || key.Kind != schema.KindJob {
		return key, ok
	}
	key.Kind = schema.KindAllocSet
	_, ok := p.Origins[key]
	return key, ok
}

// sharedNames returns a diagnostic for each alloc set of p that has the name of
// a job of p.
func sharedNames(p *schema.Package) []schema.Diagnostic {
	var out []schema.Diagnostic
	for i := range p.Objects.AllocSets {
		set := schema.ObjectKey{Kind: schema.KindAllocSet, Name: p.Objects.AllocSets[i].ID().String()}
		if at, ok := p.Origins[shared(set)]; ok {
			out = append(out, schema.Diagnostic{
				Severity: schema.Error, Rule: schema.RuleDuplicate, Position: p.Origins[set], Field: set.Field(),
				Message:  fmt.Sprintf("%s has the name of a job, declared at %s", set, at),
				Expected: "another name: tasks and allocs are addressed alike", Hint: "rename one of them",
			})
		}
	}
	return out
}

// duplicate reports an object of a package whose name, the given one, another
// package has given to one of its own.
func duplicate(name schema.ObjectKey, here, other *schema.Package) schema.Diagnostic {
	key, _ := declaredAs(here, name)
	twin, _ := declaredAs(other, name)
	there := other.Origins[twin]
	d := schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleDuplicate, Position: here.Origins[key], Field: key.Field(),
		Message:  fmt.Sprintf("%s is declared by two packages, here and at %s", key, there),
		Expected: "one package that declares it",
		Hint:     "rename one of them, or remove it",
	}
	if key.Kind != twin.Kind {
		d.Message = fmt.Sprintf("name %s is declared by two packages, here as %s and as %s at %s", key.Name, key.Kind, twin.Kind, there)
		d.Expected = "one of them: tasks and allocs are addressed alike"
	}
	return d
}

// duplicatesOnce leaves out the first place of each name that several packages
// declare: the others name it, and the mistake is one.
func (a *adoption) duplicatesOnce(ds []schema.Diagnostic) []schema.Diagnostic {
	seen := map[schema.ObjectKey]bool{}
	return slices.DeleteFunc(ds, func(d schema.Diagnostic) bool {
		name, twice := a.twice[d]
		first := twice && !seen[name]
		seen[name] = seen[name] || twice
		return first
	})
}

// cells returns the names of the declared cells.
func (a *adoption) cells() map[string]bool {
	out := map[string]bool{}
	for _, p := range a.packages {
		for _, c := range p.Objects.Cells {
			out[c.Name] = true
		}
	}
	return out
}

// unknownCells returns a diagnostic for each cell that is not declared, when any
// is, and that objects of p name.
func unknownCells(p *schema.Package, cells map[string]bool) []schema.Diagnostic {
	if len(cells) == 0 {
		return nil
	}
	var found Findings
	names := slices.Sorted(maps.Keys(cells))
	report := func(key schema.ObjectKey, cell string) {
		hint := "correct the name, or declare the cell in cells/"
		if near := valid.Nearest(cell, names); near != "" {
			hint = fmt.Sprintf("did you mean %q? Else declare the cell in cells/", near)
		}
		found.Add(cell, key, schema.Diagnostic{
			Rule: schema.RuleUndefined, Position: p.Place(key, "cell"), Field: key.Field() + ".cell",
			Message: fmt.Sprintf("no cell %q is declared", cell), Expected: "one of " + strings.Join(names, ", "), Hint: hint,
		})
	}
	for i := range p.Objects.Jobs {
		if j := &p.Objects.Jobs[i]; !cells[j.Cell] { // of many jobs, their names alone take long to make
			report(schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()}, j.Cell)
		}
	}
	for i := range p.Objects.AllocSets {
		if set := &p.Objects.AllocSets[i]; !cells[set.Cell] {
			report(schema.ObjectKey{Kind: schema.KindAllocSet, Name: set.ID().String()}, set.Cell)
		}
	}
	for i := range p.Objects.Secrets {
		if s := &p.Objects.Secrets[i]; !cells[s.Cell] {
			report(secretKey(s), s.Cell)
		}
	}
	for i := range p.Objects.Services {
		if s := &p.Objects.Services[i]; !cells[s.Cell] {
			report(schema.ObjectKey{Kind: schema.KindService, Name: s.ID()}, s.Cell)
		}
	}
	for _, q := range p.Objects.Quotas {
		if !cells[q.Cell] {
			report(schema.ObjectKey{Kind: schema.KindQuota, Name: q.Name}, q.Cell)
		}
	}
	for _, m := range p.Objects.Machines {
		if !cells[m.Cell] {
			report(schema.ObjectKey{Kind: schema.KindMachine, Name: m.Cell + "/" + m.Name}, m.Cell)
		}
	}
	return found.Fold()
}

// result returns what makes the adoption the state's head.
func (a *adoption) result(s *model.State, c schema.Compiled, now time.Time) Adoption {
	head := schema.Head{Commit: c.Commit, By: c.By, Others: c.Others, Packages: map[string]schema.Digest{}}
	if c.Commit == s.Head.Commit { // then the commits before it were not read
		head.Others, head.Promote = s.Head.Others, s.Head.Promote
	}
	if len(a.stale) > 0 {
		head.Stale = shortened(a.stale)
	}
	if len(a.unread) > 0 {
		const all = "" // no directory
		head.Unread = shortened(map[string][]schema.Diagnostic{all: a.unread})[all]
		head.Warnings = s.Head.Warnings
	} else {
		head.Warnings = warnings(model.InOrder(a.packages), c, a.stale)
	}
	var puts, deletes []model.Write
	used := map[schema.Digest]bool{}
	for _, dir := range slices.Sorted(maps.Keys(a.packages)) {
		digest := a.digests[dir]
		if a.packages[dir] == a.held[dir] {
			digest = s.Head.Packages[dir]
		}
		head.Packages[dir] = digest
		if !used[digest] && s.Packages[digest] == nil {
			puts = append(puts, s.Document(model.KeyPackage+string(digest), a.packages[dir]))
		}
		used[digest] = true
	}
	for digest := range s.Packages {
		if !used[digest] {
			deletes = append(deletes, model.Write{Key: model.KeyPackage + string(digest)})
		}
	}
	slices.SortFunc(deletes, func(a, b model.Write) int { return strings.Compare(a.Key, b.Key) })
	var gone []schema.Guard
	var next *Desired // nil: that of the head so far
	switch same := maps.Equal(head.Packages, s.Head.Packages); {
	case same && (s.Head.Held == nil || head.Commit == s.Head.Commit):
		head.Held = s.Head.Held
	default:
		b := a.desired.base.next(s.Cell, a.packages, func(_ *schema.Package, _ int, j *schema.Job) schema.Digest { return digestIfReturned(s, j) })
		head.Held, gone = a.guard(s, &b.declared, c, a.hides(s, c, head.Stale))
		next = b.laid(s, head.Held)
		promoted, _ := a.waits.divide(c.PromoteNew)
		a.brings = changed(s, next, promoted)
		head.Promote = slices.Compact(slices.Sorted(slices.Values(slices.Concat(head.Promote, a.brings))))
	}
	head.Rest = a.rest(s, c, head.Stale, gone)
	if head.Commit == s.Head.Commit && bytes.Equal(s.Document(model.KeyHead, headWithoutRules(head)).Value, s.Document(model.KeyHead, headWithoutRules(s.Head)).Value) {
		return Adoption{}
	}
	flip := s.Document(model.KeyHead, head)
	return Adoption{Writes: slices.Concat(puts, []model.Write{flip}, deletes), Events: a.events(s, head, next, now), Head: head, Next: next}
}

// headWithoutRules returns a head to compare with another. A release may know a
// mistake by another rule than the one that has stored it, or the first to know
// rules at all: that alone is no news.
func headWithoutRules(h schema.Head) schema.Head {
	stale := make(map[string][]schema.Diagnostic, len(h.Stale))
	for dir, ds := range h.Stale {
		stale[dir] = withoutRules(ds)
	}
	h.Unread, h.Stale, h.Warnings = withoutRules(h.Unread), stale, withoutRules(h.Warnings)
	return h
}

func withoutRules(ds []schema.Diagnostic) []schema.Diagnostic {
	out := slices.Clone(ds)
	for i := range out {
		out[i].Rule = ""
	}
	return out
}

// digestIfReturned is the digest of a job that runs its last healthy version in place
// of another, since admission then asks which one is desired; "" of others.
func digestIfReturned(s *model.State, j *schema.Job) schema.Digest {
	if r := s.Jobs[j.ID()]; r == nil || r.Rollout == nil || r.Rollout.Returned == "" {
		return ""
	}
	return schema.DigestOf(j)
}

// shortened returns the reasons of stale directories, so few of them that the
// head, which is stored and loaded whole, stays small whatever a commit holds.
func shortened(stale map[string][]schema.Diagnostic) map[string][]schema.Diagnostic {
	const most, mostOfAll = 20, 2000
	each := max(1, min(most, mostOfAll/len(stale)))
	out := make(map[string][]schema.Diagnostic, len(stale))
	for dir, ds := range stale {
		if more := len(ds) - each; more > 0 {
			last := ds[each-1]
			last.Message = fmt.Sprintf("%s (and %d more, which muster validate shows)", last.Message, more)
			ds = append(slices.Clone(ds[:each-1]), last)
		}
		out[dir] = ds
	}
	return out
}

// holds reports whether the head has just the packages of a commit, all of them
// good: then they have been taken together before, and would be again. Most
// commits of a large repository change few packages, and many none. What a crash
// has left behind is for the long way.
func holds(s *model.State, c schema.Compiled) bool {
	n := len(s.Head.Packages)
	if hasError(c.Diagnostics) || len(s.Head.Stale)+len(s.Head.Unread) > 0 || s.Head.Held != nil || len(c.Packages) != n || len(s.Packages) != n {
		return false
	}
	for i := range c.Packages {
		if p := &c.Packages[i]; p.Package == nil || p.Digest != s.Head.Packages[p.Dir] {
			return false
		}
	}
	return true
}

func applied(head schema.Head, now time.Time) schema.Event {
	if len(head.Unread) > 0 {
		return schema.Event{At: now, Kind: schema.EventStale, Commit: head.Commit, Message: Sentence("the commit could not be read: "+ReasonOf(head.Unread), head.Whose())}
	}
	late := lateDirs(&head)
	message := "applied"
	if n := len(head.Stale) - late; n > 0 {
		message += fmt.Sprintf(", %d %s stale", n, schema.Verb(n, "directory", "directories"))
	}
	if late > 0 {
		message += fmt.Sprintf(", %d %s to follow when all is compiled", late, schema.Verb(late, "directory", "directories"))
	}
	return schema.Event{At: now, Kind: schema.EventApply, Commit: head.Commit, Message: Sentence(message, head.Whose())}
}

// followed says what has become of the directories that have followed the first part of a commit.
func followed(was, is *schema.Head) string {
	stale := 0
	for dir := range is.Stale {
		if schema.Pending(was.Stale[dir]) {
			stale++
		}
	}
	if stale == 0 {
		return "what took long to compile is applied, too"
	}
	return fmt.Sprintf("what took long to compile is done, too, %d %s of it stale", stale, schema.Verb(stale, "directory", "directories"))
}

// events returns what the history says of the next head. next is what it
// declares; nil if that is what the head before did: then what is rejected was
// said with the commit that brought it.
func (a *adoption) events(s *model.State, head schema.Head, next *Desired, now time.Time) []schema.Event {
	var out []schema.Event
	switch late := lateDirs(&head); {
	case head.Commit != s.Head.Commit:
		out = append(out, applied(head, now))
	case late == 0 && lateDirs(&s.Head) > 0:
		out = append(out, schema.Event{At: now, Kind: schema.EventApply, Commit: head.Commit, Message: followed(&s.Head, &head)})
	}
	add := func(events ...schema.Event) {
		for _, e := range events {
			e.At, e.Commit = now, head.Commit
			out = append(out, e)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(a.stale)) {
		if head.Commit == s.Head.Commit && slices.Equal(withoutRules(head.Stale[dir]), withoutRules(s.Head.Stale[dir])) {
			continue // it was said when the rest of the commit was applied
		}
		if schema.Pending(a.stale[dir]) {
			continue // the event of the commit says how many
		}
		add(schema.Event{Kind: schema.EventStale, Message: dir + ": " + ReasonOf(a.stale[dir])})
	}
	if next != nil {
		add(holdEvents(s.Head.Held, head.Held)...)
		add(machineSpecEvents(s, a.desired, next)...)
	}
	return out
}

// ReasonOf says in one line what the first of ds says.
func ReasonOf(ds []schema.Diagnostic) string {
	if len(ds) == 0 {
		return "unknown"
	}
	msg := ds[0].Error()
	if len(ds) > 1 {
		msg += fmt.Sprintf(" (and %d more)", len(ds)-1)
	}
	return msg
}

func hasError(ds []schema.Diagnostic) bool {
	return slices.ContainsFunc(ds, func(d schema.Diagnostic) bool { return cmp.Or(d.Severity, schema.Error) == schema.Error })
}
