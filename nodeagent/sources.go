package nodeagent

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// Sources is what the master says of the registry that an image or a package comes from, which is
// the first, and of its mirrors.
type Sources []Source

// Source is what is known of one of them.
type Source struct {
	Name    string // HOST[:PORT]
	Mirrors []string
	Logins  []Login // in the order in which they are tried
}

// Login is a secret that a registry is asked with.
type Login struct {
	Secret string // USER/NAME
	// Sealed is an armored age file for this machine: USER:PASSWORD, or what docker login
	// writes.
	Sealed string
	// Trouble says why there is no Sealed, "" if there is.
	Trouble string
	version string
}

func (s Source) equal(o Source) bool {
	return s.Name == o.Name && slices.Equal(s.Mirrors, o.Mirrors) && slices.EqualFunc(s.Logins, o.Logins, func(a, b Login) bool {
		return a.Secret == b.Secret && a.Trouble == b.Trouble && a.version == b.version
	})
}

// sources returns what v, which may be nil, says of where something may come from that tasks
// here need. Those of one user are not let in by the login of another: first are the logins of
// the users who need it, and then that of all.
func sources(v *schema.View, name string) Sources {
	if v == nil || len(v.Registries) == 0 {
		return nil
	}
	users := usersOf(v, name)
	var out Sources
	add := func(registry string) []string {
		i := slices.IndexFunc(v.Registries, func(r schema.Registry) bool { return r.Name == registry })
		if i < 0 || slices.ContainsFunc(out, func(s Source) bool { return s.Name == registry }) {
			return nil
		}
		r := &v.Registries[i]
		out = append(out, Source{Name: r.Name, Mirrors: r.Mirrors, Logins: logins(v, r, users)})
		return r.Mirrors
	}
	for _, mirror := range add(schema.RegistryOf(name)) {
		add(mirror)
	}
	return out
}

// usersOf returns the users of whom this machine has tasks that need something, sorted.
func usersOf(v *schema.View, name string) []string {
	var users []string
	for i := range v.Assignments {
		x := &v.Assignments[i]
		if slices.Contains(x.Bring, name) || slices.Contains(x.Job.Task.Brings(), name) {
			users = append(users, x.Task.User)
		}
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// logins returns those of a registry that are for one of users, and then that of all.
func logins(v *schema.View, r *schema.Registry, users []string) []Login {
	var own, all []Login
	for i := range r.Logins {
		l := &r.Logins[i]
		out := Login{Secret: l.Secret, Trouble: l.Trouble}
		if l.Sealed != nil {
			has := v.Secrets[l.Sealed.Version]
			out.version, out.Sealed, out.Trouble = l.Sealed.Version, has.Sealed, has.Refused
			if has.Sealed == "" && has.Refused == "" {
				out.Trouble = "the master has not sent it"
			}
		}
		switch {
		case l.User == "":
			all = append(all, out)
		case slices.Contains(users, l.User):
			own = append(own, out)
		}
	}
	return append(own, all...)
}
