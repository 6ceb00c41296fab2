package reconciler_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

func tenant(name string, paths ...string) schema.Tenant {
	return schema.Tenant{Name: name, Paths: paths, Users: []string{name}}
}

// adopted prints what the head of a cell holds: for each directory its objects,
// and why it is stale.
func adopted(c *cell) []string {
	var out []string
	h := c.state.Head
	for _, dir := range slices.Sorted(maps.Keys(h.Packages)) {
		var keys []string
		for k := range c.state.Packages[h.Packages[dir]].Origins {
			keys = append(keys, k.String())
		}
		slices.Sort(keys)
		out = append(out, dir+": "+strings.Join(keys, ", "))
	}
	for _, d := range h.Unread {
		out = append(out, "unread: "+d.Error())
	}
	for _, dir := range slices.Sorted(maps.Keys(h.Stale)) {
		for _, d := range h.Stale[dir] {
			out = append(out, "stale "+dir+": "+d.Error())
		}
	}
	return out
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	root := pkg(".", schema.Cell{Name: "c", Quota: "on"}, tenant("a", "teams/a"), tenant("b", "teams/b"))
	web, api := service("a", "web", 1, "v"), service("a", "api", 1, "v")
	other := web
	other.Cell = "mars"
	steal := service("b", "web", 1, "v")
	tests := []struct {
		name    string
		commits []schema.Compiled
		want    []string
	}{
		{
			"what lies below a directory that was not read keeps its data too",
			[]schema.Compiled{
				compiled("1", good(root), good(pkg("teams/a/x", web)), good(pkg("teams/a/y", api)), good(pkg("teams/ab"))),
				compiled("2", good(root), schema.CompiledPackage{Dir: "teams/a", Below: true, Diagnostics: bad("teams/a").Diagnostics}),
			},
			[]string{
				".: cell c, tenant a, tenant b", "teams/a/x: job c/a/web", "teams/a/y: job c/a/api",
				"stale teams/a: teams/a/x.cue:7:3: expected label or ':'", "stale teams/a/x: teams/a/x.cue:7:3: expected label or ':'",
				"stale teams/a/y: teams/a/x.cue:7:3: expected label or ':'",
			},
		},
		{
			"a bad package keeps its last good version, a new bad one has none",
			[]schema.Compiled{
				compiled("1", good(root), good(pkg("teams/a", web))),
				compiled("2", good(root), bad("teams/a"), bad("teams/b")),
			},
			[]string{
				".: cell c, tenant a, tenant b", "teams/a: job c/a/web",
				"stale teams/a: teams/a/x.cue:7:3: expected label or ':'", "stale teams/b: teams/b/x.cue:7:3: expected label or ':'",
			},
		},
		{
			"nothing of a repository can be read, and then the root cannot",
			[]schema.Compiled{
				compiled("1", good(root), good(pkg("teams/a", web))),
				{Commit: "2", Diagnostics: []schema.Diagnostic{{Severity: schema.Error, Message: "no module", Position: schema.Position{Path: "cue.mod"}}}},
				compiled("3", bad("."), good(pkg("teams/a", web))),
			},
			[]string{".: cell c, tenant a, tenant b", "teams/a: job c/a/web", "stale .: ./x.cue:7:3: expected label or ':'"},
		},
		{
			"nothing of a repository can be read",
			[]schema.Compiled{
				compiled("1", good(root), good(pkg("teams/a", web))),
				{Commit: "2", Diagnostics: []schema.Diagnostic{{Severity: schema.Error, Message: "no module", Position: schema.Position{Path: "cue.mod"}}}},
			},
			[]string{".: cell c, tenant a, tenant b", "teams/a: job c/a/web", "unread: cue.mod: no module"},
		},
		{
			"a directory that is gone is gone, and so is its staleness",
			[]schema.Compiled{
				compiled("1", good(root), good(pkg("teams/a", web))),
				compiled("2", good(root), bad("teams/a")),
				compiled("3", good(root)),
			},
			[]string{".: cell c, tenant a, tenant b"},
		},
		{
			"a job moves to another directory",
			[]schema.Compiled{
				compiled("1", good(root), good(pkg("teams/a", web))),
				compiled("2", good(root), good(pkg("teams/a/x", web))),
			},
			[]string{".: cell c, tenant a, tenant b", "teams/a/x: job c/a/web"},
		},
		{
			"a job moves out of a package that does not compile: the holder keeps it",
			[]schema.Compiled{
				compiled("1", good(root), good(pkg("teams/a", web))),
				compiled("2", good(root), bad("teams/a"), good(pkg("teams/a/x", web, api))),
			},
			[]string{
				".: cell c, tenant a, tenant b", "teams/a: job c/a/web",
				"stale teams/a: teams/a/x.cue:7:3: expected label or ':'",
				"stale teams/a/x: teams/a/x/x.cue:1:1: job.web: job c/a/web is declared by two packages, here and at teams/a/x.cue:1:1: want one package that declares it",
			},
		},
		{
			"two new packages declare a job: neither gets it",
			[]schema.Compiled{compiled("1", good(root), good(pkg("teams/a/x", web)), good(pkg("teams/a/y", web, api)))},
			[]string{
				".: cell c, tenant a, tenant b",
				"stale teams/a/x: teams/a/x/x.cue:1:1: job.web: job c/a/web is declared by two packages, here and at teams/a/y/x.cue:1:1: want one package that declares it",
				"stale teams/a/y: teams/a/y/x.cue:1:1: job.web: job c/a/web is declared by two packages, here and at teams/a/x/x.cue:1:1: want one package that declares it",
			},
		},
		{
			"ownership goes before duplicates: a thief does not hurt the owner",
			[]schema.Compiled{compiled("1", good(root), good(pkg("teams/a", web)), good(pkg("teams/b", web, steal)))},
			[]string{
				".: cell c, tenant a, tenant b", "teams/a: job c/a/web",
				`stale teams/b: teams/b/x.cue:1:1: job.web.user: directory teams/b belongs to tenant "b", whose jobs may not name the user "a": want one of b`,
			},
		},
		{
			"a directory of nobody, and a cell that is not declared",
			[]schema.Compiled{compiled("1", good(root), good(pkg("x", web)), good(pkg("teams/a", other)))},
			[]string{
				".: cell c, tenant a, tenant b",
				`stale teams/a: teams/a/x.cue:1:1: job.web.cell: no cell "mars" is declared: want one of c`,
				"stale x: x/x.cue:1:1: job.web: directory x belongs to no tenant, so no job may be declared in it: want a directory below the paths of a tenant",
			},
		},
		{
			"a team grants itself nothing",
			[]schema.Compiled{compiled("1", good(root), good(pkg("teams/a", newQuota("q", "a", 9), web)))},
			[]string{
				".: cell c, tenant a, tenant b",
				"stale teams/a: teams/a/x.cue:1:1: quota.q: directory teams/a may not declare a quota: want the root package, cells/, or a path of a tenant with the capability admin",
			},
		},
		{
			"a tenant of a package that is not taken judges nobody",
			[]schema.Compiled{
				compiled("1", good(root), good(pkg("teams/a", web))),
				compiled("2",
					good(pkg(".", schema.Cell{Name: "c"}, tenant("b", "teams/a", "teams/b"), schema.Quota{Name: "q", User: "b", Cell: "nowhere"})),
					good(pkg("teams/a", api))),
			},
			[]string{
				".: cell c, tenant a, tenant b", "teams/a: job c/a/api",
				`stale .: x.cue:3:1: quota.q.cell: no cell "nowhere" is declared: want one of c`,
			},
		},
		{
			"the longest path owns, whatever its letters",
			[]schema.Compiled{compiled("1", good(pkg(".", tenant("all", "."), tenant("a", "a"))), good(pkg("a", web)), good(pkg("ab", service("all", "x", 1, "v"))))},
			[]string{".: tenant a, tenant all", "a: job c/a/web", "ab: job c/all/x"},
		},
		{
			"without tenants all is allowed, but to declare one in a corner",
			[]schema.Compiled{compiled("1", good(pkg("a", web, newQuota("q", "a", 1))), good(pkg("b", tenant("b", "b"))))},
			[]string{
				"a: job c/a/web, quota q",
				"stale b: b/x.cue:1:1: tenant.b: directory b may not declare a tenant: want the root package, cells/, or a path of a tenant with the capability admin",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCell()
			for _, commit := range tt.commits {
				c.commit(commit)
			}
			if c.state.Head.Commit != tt.commits[len(tt.commits)-1].Commit {
				t.Errorf("the head is at commit %s", c.state.Head.Commit)
			}
			if diff := cmp.Diff(tt.want, adopted(c)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if w, _ := reconciler.Adopt(c.state, intent.Of(c.state), tt.commits[len(tt.commits)-1], c.now); len(w) > 0 {
				t.Errorf("the same commit again writes %s", w[0].Key)
			}
			if n := len(c.state.Packages); n > len(c.state.Head.Packages) {
				t.Errorf("%d packages are stored, %d are in use", n, len(c.state.Head.Packages))
			}
		})
	}
}

// TestAdoptHalf: whatever prefix of an adoption's writes is stored, the cell has
// the old head or the new, with all that it refers to, and the adoption can be
// done again.
func TestAdoptHalf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := &anything{cell: newCell(), done: map[schema.TaskName]bool{}}
		for range rapid.IntRange(0, 3).Draw(t, "commits") {
			a.commit(a.randomCommit(t))
		}
		before := a.state.Head.Commit
		next := a.randomCommit(t)
		writes, _ := reconciler.Adopt(a.state, intent.Of(a.state), next, a.now)
		for _, w := range writes[:rapid.IntRange(0, len(writes)).Draw(t, "stored")] {
			a.take([]model.Write{w})
			a.restart()
			if c := a.state.Head.Commit; c != before && c != next.Commit {
				t.Fatalf("the head is at %s", c)
			}
		}
		a.commit(next)
		whole := newCell()
		whole.docs = maps.Clone(a.docs)
		whole.restart()
		if again, _ := reconciler.Adopt(whole.state, intent.Of(whole.state), next, a.now); len(again) > 0 && whole.state.Head.Commit == next.Commit {
			t.Fatalf("the same commit again writes %s", again[0].Key)
		}
		held := map[schema.ObjectKey]string{}
		for dir, digest := range a.state.Head.Packages {
			for key := range a.state.Packages[digest].Origins {
				if other, twice := held[key]; twice {
					t.Fatalf("%s is of %s and of %s", key, dir, other)
				}
				held[key] = dir
			}
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	web := service("a", "web", 3, "v")
	objects, ds := reconciler.Check(compiled("",
		good(pkg(".", newQuota("q", "a", 2))), good(pkg("x", web)), good(pkg("y", web)), bad("z"), good(pkg("ok", service("a", "api", 5, "v")))), epoch)
	got := said(ds)
	want := []string{
		"warning ownership no tenant is declared, so every directory may declare everything",
		"error quota ok/x.cue:1:1: job.api: over quota: owner a, production: tasks 5 of 2, over by 3; largest jobs: api 5: want together tasks at most 2",
		"error duplicate y/x.cue:1:1: job.web: job c/a/web is declared by two packages, here and at x/x.cue:1:1: want one package that declares it",
		"error syntax z/x.cue:7:3: expected label or ':'",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diagnostics (-want +got)\n%s", diff)
	}
	if n := len(objects.Jobs); n != 1 {
		t.Errorf("%d jobs are taken, want 1", n)
	}
}

// said writes diagnostics in one line each.
func said(ds []schema.Diagnostic) []string {
	var out []string
	for _, d := range ds {
		out = append(out, fmt.Sprintf("%s %s %s", d.Severity, d.Rule, d.Error()))
	}
	return out
}

// TestOneNameInThreePackages: a name that three packages declare is one mistake,
// reported at the second and the third place, also where its kinds are not the same.
func TestOneNameInThreePackages(t *testing.T) {
	t.Parallel()
	web := service("a", "web", 3, "v")
	set := schema.AllocSet{Cell: "c", Name: "web", User: "a", Allocs: 1}
	for _, tt := range []struct {
		name string
		of   [3]any
		want []string
	}{
		{"three jobs", [3]any{web, web, web}, []string{
			"error duplicate y/x.cue:1:1: job.web: job c/a/web is declared by two packages, here and at z/x.cue:1:1: want one package that declares it",
			"error duplicate z/x.cue:1:1: job.web: job c/a/web is declared by two packages, here and at x/x.cue:1:1: want one package that declares it",
		}},
		{"two jobs and an alloc set", [3]any{web, web, set}, []string{
			"error duplicate y/x.cue:1:1: job.web: name c/a/web is declared by two packages, here as job and as allocset at z/x.cue:1:1: want one of them: tasks and allocs are addressed alike",
			"error duplicate z/x.cue:1:1: allocset.web: name c/a/web is declared by two packages, here as allocset and as job at x/x.cue:1:1: want one of them: tasks and allocs are addressed alike",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, ds := reconciler.Check(compiled("", good(pkg("x", tt.of[0])), good(pkg("y", tt.of[1])), good(pkg("z", tt.of[2]))), epoch)
			if diff := cmp.Diff(tt.want, said(ds)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestRulesAreNoNews: a head that a release without rules has stored says the same as
// one with them. The same commit writes nothing and logs nothing; and a directory
// that was broken before is not thought to hide a job that goes now.
func TestRulesAreNoNews(t *testing.T) {
	t.Parallel()
	c := newCell()
	first := compiled("1", good(pkg(".", schema.Cell{Name: "c", Quota: "off"})), good(pkg("x", service("a", "web", 3, "v"))), bad("y"))
	c.commit(first)
	c.step() // web is admitted
	if rule := c.state.Head.Stale["y"][0].Rule; rule != schema.RuleSyntax {
		t.Fatalf("y is stale by rule %q", rule)
	}
	const rule = `"rule":"syntax",`
	if c.docs[model.KeyHead] = bytes.ReplaceAll(c.docs[model.KeyHead], []byte(rule), nil); bytes.Contains(c.docs[model.KeyHead], []byte("rule")) {
		t.Fatalf("the head has rules: %s", c.docs[model.KeyHead])
	}
	c.restart()
	if events := c.commit(first); len(events) > 0 || c.state.Head.Stale["y"][0].Rule != "" {
		t.Errorf("the same commit logs %v, and the head is written again: %+v", events, c.state.Head)
	}
	c.step()
	c.commit(compiled("2", first.Packages[0], bad("y")))
	if len(c.state.Jobs) != 1 {
		t.Errorf("jobs %v", c.state.Jobs)
	}
	if held := c.state.Head.Held; held != nil {
		t.Errorf("held: %+v", held)
	}
	if got := c.state.Head.Stale["y"][0].Rule; got != schema.RuleSyntax {
		t.Errorf("after the next commit y is stale by rule %q", got)
	}
}

// TestStaleIsShort gives a commit with more mistakes than anyone reads.
func TestStaleIsShort(t *testing.T) {
	t.Parallel()
	for _, dirs := range []int{1, 500, 5000} {
		c := newCell()
		var packages []schema.CompiledPackage
		for i := range dirs {
			p := bad(fmt.Sprintf("d%d", i))
			p.Diagnostics = slices.Repeat(p.Diagnostics, 100)
			packages = append(packages, p)
		}
		c.commit(compiled("1", packages...))
		n := 0
		for dir, ds := range c.state.Head.Stale {
			n += len(ds)
			if last := ds[len(ds)-1].Message; !strings.Contains(last, " more, which muster validate shows") {
				t.Fatalf("%s: %s", dir, last)
			}
		}
		if len(c.state.Head.Stale) != dirs || n > max(dirs, 2000) || n < min(20, dirs) {
			t.Errorf("%d directories: %d are stale, with %d reasons", dirs, len(c.state.Head.Stale), n)
		}
	}
}

// TestCheckHeadless: what follows from a package that was not taken and may
// grant quota is not reported.
func TestCheckHeadless(t *testing.T) {
	t.Parallel()
	_, ds := reconciler.Check(compiled("", bad("."), good(pkg("x", service("a", "web", 3, "v")))), epoch)
	if len(ds) != 1 || ds[0].Path != "./x.cue" {
		t.Errorf("%v, want the mistake of the root alone", ds)
	}
	_, ds = reconciler.Check(compiled("", good(pkg(".", schema.Cell{Name: "c", Quota: "on"}, tenant("a", "x"))), bad("x/y"), good(pkg("x", service("a", "web", 3, "v")))), epoch)
	if len(ds) != 2 {
		t.Errorf("%v, want two mistakes", ds)
	}
}

// TestAdoptTheSame: a commit that changes no package moves the head and nothing
// else, unless a directory was stale, or a crash has left something behind.
func TestAdoptTheSame(t *testing.T) {
	t.Parallel()
	web, db := good(pkg("a", service("u", "web", 3, "v"))), good(pkg("b", service("u", "db", 1, "v")))
	adopt := func(s *model.State, c schema.Compiled) []string {
		writes, events := reconciler.Adopt(s, intent.Of(s), c, time.Time{})
		if err := s.Apply(writes); err != nil {
			t.Fatal(err)
		}
		keys := []string{fmt.Sprint(len(events), " events")}
		for _, w := range writes {
			kind, _, _ := strings.Cut(w.Key, "/")
			keys = append(keys, kind)
		}
		return keys
	}
	s := model.NewState("c")
	for i, step := range []struct {
		commit schema.Compiled
		want   []string
	}{
		{compiled("1", web, db), []string{"3 events", "package", "package", "head"}},
		{compiled("2", db, web), []string{"1 events", "head"}},
		{compiled("2", web, db), []string{"0 events"}},
		{compiled("3", web), []string{"2 events", "head", "package"}},
		{compiled("4", web, bad("b")), []string{"2 events", "head"}},
		{compiled("5", web, bad("b")), []string{"2 events", "head"}},
		{compiled("6", web), []string{"1 events", "head"}},
	} {
		if got := adopt(s, step.commit); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		if s.Head.Commit != step.commit.Commit {
			t.Errorf("step %d: the head is %s", i, s.Head.Commit)
		}
	}
	left := db.Package
	if err := s.Apply([]model.Write{{Key: "package/" + string(db.Digest), Value: schema.Canonical(left)}}); err != nil {
		t.Fatal(err)
	}
	if got := adopt(s, compiled("7", web)); !slices.Equal(got, []string{"1 events", "head", "package"}) {
		t.Errorf("with something left behind: %q", got)
	}
}
