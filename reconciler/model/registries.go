package model

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Registries is what the head says of registries, by their names: the mirrors, and the logins
// of all users. It is not written to.
type Registries struct {
	all     map[string]schema.Registry
	desires uint64 // State.Desires of when it was made
}

// RegistriesOf returns what the head says of registries, and whether that is another than
// had: what it said before, nil if that is not known.
func RegistriesOf(s *State, had *Registries) (is *Registries, news bool) {
	if had != nil && had.desires == s.Desires {
		return had, false
	}
	secrets := map[string]schema.RegistryLogin{} // by USER/NAME
	var own []*schema.Secret
	for _, digest := range s.Head.Packages {
		p := s.Packages[digest]
		for i := 0; p != nil && i < len(p.Objects.Secrets); i++ {
			x := &p.Objects.Secrets[i]
			if x.Cell != s.Cell {
				continue
			}
			name := x.User + "/" + x.Name
			secrets[name] = login(name, x, p.Opened[schema.ObjectKey{Kind: schema.KindSecret, Name: x.ID()}])
			if x.Registry != "" {
				own = append(own, x)
			}
		}
	}
	all := map[string]schema.Registry{}
	for _, digest := range s.Head.Packages {
		p := s.Packages[digest]
		for i := 0; p != nil && i < len(p.Objects.Cells); i++ {
			if c := &p.Objects.Cells[i]; c.Name == s.Cell {
				cellRegistries(all, c, secrets)
			}
		}
	}
	slices.SortFunc(own, func(a, b *schema.Secret) int { return strings.Compare(a.ID(), b.ID()) })
	for _, x := range own {
		r := all[x.Registry]
		l := secrets[x.User+"/"+x.Name]
		l.User = x.User
		if n := len(r.Logins); n == 0 || r.Logins[n-1].User != x.User { // a commit with two is not taken
			r.Name, r.Logins = x.Registry, append(r.Logins, l)
		}
		all[x.Registry] = r
	}
	// A ciphertext for other identities counts: the one before may be for none that a master has.
	return &Registries{all, s.Desires}, had == nil || !reflect.DeepEqual(all, had.all)
}

// cellRegistries adds what a cell says of registries.
func cellRegistries(all map[string]schema.Registry, c *schema.Cell, secrets map[string]schema.RegistryLogin) {
	for name, of := range c.Registries {
		r := schema.Registry{Name: name, Mirrors: of.Mirrors}
		if l, ok := secrets[of.Login]; ok {
			r.Logins = append(r.Logins, l)
		} else if of.Login != "" {
			r.Logins = append(r.Logins, schema.RegistryLogin{Secret: of.Login, Trouble: "it is not declared any more"})
		}
		all[name] = r
	}
}

// login returns a secret as a login of all, with what the master that took it has said of it.
func login(name string, x *schema.Secret, opened schema.Opened) schema.RegistryLogin {
	l := schema.RegistryLogin{Secret: name}
	switch {
	case opened.Version != "":
		l.Sealed = x.Sealed()
		l.Sealed.Version = opened.Version
	case opened.Trouble != "":
		l.Trouble = opened.Trouble
	default:
		l.Trouble = "no master has opened it"
	}
	return l
}

// For returns what a machine with the given assignments has to know of registries, sorted by
// name: of those that something it needs comes from, and their mirrors. It gets no login of a
// user of whom it has nothing.
func (r *Registries) For(assignments []schema.Assignment) []schema.Registry {
	if r == nil || len(r.all) == 0 {
		return nil
	}
	users := map[string]map[string]bool{} // by registry
	use := func(registry, user string) {
		if _, known := r.all[registry]; !known {
			return
		}
		if users[registry] == nil {
			users[registry] = map[string]bool{"": true}
		}
		users[registry][user] = true
	}
	for i := range assignments {
		a := &assignments[i]
		for _, names := range [][]string{a.Job.Task.Brings(), a.Bring} {
			for _, name := range names {
				registry := schema.RegistryOf(name)
				use(registry, a.Task.User)
				for _, mirror := range r.all[registry].Mirrors {
					use(mirror, a.Task.User)
				}
			}
		}
	}
	var out []schema.Registry
	for _, name := range slices.Sorted(maps.Keys(users)) {
		of := r.all[name]
		of.Logins = slices.DeleteFunc(slices.Clone(of.Logins), func(l schema.RegistryLogin) bool { return !users[name][l.User] })
		if len(of.Mirrors)+len(of.Logins) > 0 {
			out = append(out, of)
		}
	}
	return out
}
