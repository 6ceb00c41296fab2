package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
)

// registryPackage is a package of a cell with a mirror and a login, and of two users' logins.
func registryPackage(versions ...string) *schema.Package {
	p := &schema.Package{
		Dir: ".", Opened: map[schema.ObjectKey]schema.Opened{},
		Objects: schema.Objects{Cells: []schema.Cell{{Name: "c", Registries: map[string]schema.CellRegistry{
			"r.example": {Mirrors: []string{"m.example"}, Login: "ops/pull"},
		}}}},
	}
	for i, s := range []schema.Secret{
		{User: "ops", Name: "pull"}, {User: "a", Name: "pull", Registry: "r.example"}, {User: "b", Name: "pull", Registry: "m.example"},
	} {
		s.Cell, s.Age = "c", "ciphertext"
		p.Objects.Secrets = append(p.Objects.Secrets, s)
		opened := schema.Opened{Trouble: "no identity"}
		if i < len(versions) {
			opened = schema.Opened{Version: versions[i]}
		}
		p.Opened[schema.ObjectKey{Kind: schema.KindSecret, Name: s.ID()}] = opened
	}
	return p
}

// store makes p the only package of the head.
func store(t *testing.T, s *State, p *schema.Package) {
	t.Helper()
	d := schema.DigestOf(p)
	if err := s.Apply([]Write{
		s.Document(KeyPackage+string(d), p),
		s.Document(KeyHead, schema.Head{Packages: map[string]schema.Digest{".": d}}),
	}); err != nil {
		t.Fatal(err)
	}
}

// needs is an assignment of a user's task of an image.
func needs(user, image string) schema.Assignment {
	j := &schema.Job{User: user, Task: schema.TaskSpec{Container: &schema.Container{Image: image}}}
	return schema.Assignment{Task: schema.TaskName{JobName: schema.JobName{Cell: "c", User: user, Job: "web"}}, Job: j}
}

// said is what a machine is sent, in one line.
func said(list []schema.Registry) string {
	var out []string
	for _, r := range list {
		words := []string{r.Name}
		for _, l := range r.Logins {
			words = append(words, l.User+"="+l.Secret)
		}
		out = append(out, strings.Join(words, " "))
	}
	return strings.Join(out, "; ")
}

// TestRegistriesFor: a machine is sent what is said of the registries that it needs, and of their
// mirrors, with the logins of its own users alone.
func TestRegistriesFor(t *testing.T) {
	t.Parallel()
	s := NewState("c")
	store(t, s, registryPackage("v1", "v2", "v3"))
	registries, _ := RegistriesOf(s, nil)
	const image = "r.example/x@sha256:aa"
	for _, tt := range []struct {
		of   []schema.Assignment
		want string
	}{
		{nil, ""},
		{[]schema.Assignment{needs("a", "other.example/x@sha256:aa")}, ""},
		{[]schema.Assignment{needs("z", image)}, "r.example =ops/pull"},
		{[]schema.Assignment{needs("a", image)}, "r.example =ops/pull a=a/pull"},
		{[]schema.Assignment{needs("b", image)}, "m.example b=b/pull; r.example =ops/pull"},
		{[]schema.Assignment{{Task: needs("a", "").Task, Job: &schema.Job{}, Bring: []string{image}}}, "r.example =ops/pull a=a/pull"},
	} {
		if got := said(registries.For(tt.of)); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.of, got, tt.want)
		}
	}
}

// TestRegistriesChange: another version is another view, another ciphertext of the same is
// what is sealed from then on, and a package that says nothing of it changes nothing.
func TestRegistriesChange(t *testing.T) {
	t.Parallel()
	s := NewState("c")
	var is *Registries
	view := func() schema.View {
		is, _ = RegistriesOf(s, is)
		a := []schema.Assignment{needs("a", "r.example/x@sha256:aa")}
		return schema.View{Assignments: a, Registries: is.For(a)}
	}
	store(t, s, registryPackage("v1", "v2"))
	first := view()
	again := registryPackage("v1", "v2")
	again.Objects.Jobs = []schema.Job{{Name: "web", User: "a", Cell: "c"}}
	store(t, s, again)
	if _, news := RegistriesOf(s, is); news || !SameView(first, view()) {
		t.Error("a job has changed what is known of registries")
	}
	sealed := registryPackage("v1", "v2")
	sealed.Objects.Secrets[0].Age = "for another identity"
	store(t, s, sealed)
	if got := view(); !SameView(first, got) || got.Registries[0].Logins[0].Sealed.Age != "for another identity" {
		t.Errorf("sealed again: %+v", got.Registries)
	}
	store(t, s, registryPackage("v1", "w2"))
	if got := view(); SameView(first, got) || got.Registries[0].Logins[1].Sealed.Version != "w2" {
		t.Errorf("another password: %+v", got.Registries)
	}
	store(t, s, registryPackage())
	if got := view().Registries[0].Logins; !slices.EqualFunc(got, []string{"no identity", "no identity"}, func(l schema.RegistryLogin, want string) bool { return l.Trouble == want && l.Sealed == nil }) {
		t.Errorf("without an identity: %+v", got)
	}
}
