package intent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// loginCommit is a commit of a cell with a login, and of packages with secrets.
func loginCommit(commit, login string, packages map[string][]schema.Secret) schema.Compiled {
	cell := schema.Cell{Name: "local", Registries: map[string]schema.CellRegistry{"r.example": {Login: login}}}
	c := schema.Compiled{Commit: commit}
	for _, dir := range []string{".", "a", "b"} {
		p := &schema.Package{Dir: dir, Origins: map[schema.ObjectKey]schema.Position{}}
		if dir == "." {
			p.Objects.Cells = []schema.Cell{cell}
			p.Origins[schema.ObjectKey{Kind: schema.KindCell, Name: "local"}] = schema.Position{Path: "cell.cue", Line: 1}
		}
		for _, s := range packages[dir] {
			s.Cell, s.Age = "local", "x"
			p.Objects.Secrets = append(p.Objects.Secrets, s)
			p.Origins[schema.ObjectKey{Kind: schema.KindSecret, Name: s.ID()}] = schema.Position{Path: dir + "/" + s.Name + ".cue", Line: 1}
		}
		c.Packages = append(c.Packages, schema.CompiledPackage{Dir: dir, Package: p, Digest: schema.DigestOf(p)})
	}
	return c
}

// TestLogins: a cell's login is a secret that is declared, and a user has one for a registry:
// the one that there was.
func TestLogins(t *testing.T) {
	t.Parallel()
	s := model.NewState("local")
	adopt := func(c schema.Compiled) map[string][]schema.Diagnostic {
		t.Helper()
		a := intent.Adopt(s, intent.Of(s), c, time.Time{})
		if err := s.Apply(a.Writes); err != nil {
			t.Fatal(err)
		}
		return s.Head.Stale
	}
	pull := schema.Secret{User: "ops", Name: "pull"}
	mine := schema.Secret{User: "u", Name: "mine", Registry: "r.example"}
	if stale := adopt(loginCommit("1", "ops/pull", map[string][]schema.Secret{"a": {pull}, "b": {mine}})); len(stale) > 0 {
		t.Fatalf("refused: %v", stale)
	}
	stale := adopt(loginCommit("2", "ops/pul", map[string][]schema.Secret{"a": {pull}, "b": {mine}}))
	if ds := stale["."]; len(ds) != 1 || ds[0].Field != `cell.local.registries."r.example".login` || !strings.Contains(ds[0].Message, `no secret "ops/pul" is declared in cell local`) || ds[0].Hint != `did you mean "ops/pull"?` {
		t.Errorf("a login that nobody declares: %+v", stale)
	}
	second := schema.Secret{User: "u", Name: "a-second", Registry: "r.example"}
	stale = adopt(loginCommit("3", "ops/pull", map[string][]schema.Secret{"a": {pull, second}, "b": {mine}}))
	if ds := stale["a"]; len(stale) != 1 || len(ds) != 1 || ds[0].Field != `secret."a-second".registry` || !strings.Contains(ds[0].Message, "another login for r.example, declared at b/mine.cue:1") {
		t.Errorf("a second login: %+v", stale)
	}
	if stale := adopt(loginCommit("4", "ops/pull", map[string][]schema.Secret{"a": {second}})); len(stale) != 1 || len(stale["."]) != 1 {
		t.Errorf("a login that takes the place of another, and one that is removed: %+v", stale)
	}
	registries, _ := model.RegistriesOf(s, nil)
	if got := registries.For([]schema.Assignment{{
		Task: schema.TaskName{JobName: schema.JobName{Cell: "local", User: "u", Job: "web"}},
		Job:  &schema.Job{Task: schema.TaskSpec{Container: &schema.Container{Image: "r.example/x@sha256:aa"}}},
	}}); len(got) != 1 || len(got[0].Logins) != 2 || got[0].Logins[0].Trouble != "it is not declared any more" || got[0].Logins[1].Secret != "u/a-second" {
		t.Errorf("%+v", got)
	}
}
