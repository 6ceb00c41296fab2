package schema

import (
	"slices"
	"strings"
)

// Registry is what is sent to a machine about a registry, or of a mirror, that what it is to
// bring may come from.
type Registry struct {
	Name    string   `json:"name"` // HOST[:PORT]
	Mirrors []string `json:"mirrors,omitempty"`
	// Logins are sorted by User: that of all jobs comes first.
	Logins []RegistryLogin `json:"logins,omitempty"`
}

// RegistryLogin is a secret with which a registry is asked: USER:PASSWORD, or what docker
// login writes.
type RegistryLogin struct {
	// User is whose jobs it is for; "" is all that have none of their own.
	User   string `json:"user,omitempty"`
	Secret string `json:"secret"` // USER/NAME
	// Sealed is the secret. What is sent to a machine has its Version alone, by which
	// View.Secrets has it.
	Sealed *SealedSecret `json:"sealed,omitempty"`
	// Trouble says why there is no Sealed that can be opened, "" if there is.
	Trouble string `json:"trouble,omitempty"`
}

// Equal reports whether r and o say the same.
func (r *Registry) Equal(o *Registry) bool {
	return r.Name == o.Name && slices.Equal(r.Mirrors, o.Mirrors) && slices.EqualFunc(r.Logins, o.Logins, func(a, b RegistryLogin) bool { return a.equal(&b) })
}

// equal leaves the ciphertext out of two secrets with one version: what is in them is the same.
func (l *RegistryLogin) equal(o *RegistryLogin) bool {
	return l.User == o.User && l.Secret == o.Secret && l.Trouble == o.Trouble && l.version() == o.version()
}

func (l *RegistryLogin) version() string {
	if l.Sealed == nil {
		return ""
	}
	return l.Sealed.Version
}

// dockerHubIndex is another name that Docker Hub had.
const dockerHubIndex = "index.docker.io"

// RegistryOf returns the registry of an image, or the host of a package, as TaskSpec.Brings
// names them: whose logins and mirrors count for it.
func RegistryOf(source string) string {
	if _, rest, ok := strings.Cut(source, "://"); ok {
		source = rest
	}
	name, _, _ := strings.Cut(source, "/")
	if name = strings.ToLower(name); name == dockerHubIndex {
		return dockerHub
	}
	return name
}

// CheckRegistry errs unless name is that of a registry as RegistryOf returns it. The error
// is a HintedError.
func CheckRegistry(name string) error {
	switch {
	case name == dockerHubIndex:
		return Hintf("write "+dockerHub, "%s is an old name of %s", name, dockerHub)
	case strings.Contains(name, "://") && CheckRegistry(RegistryOf(name)) == nil:
		return Hintf("write "+clip(RegistryOf(name)), "%q is a URL", clip(name))
	case strings.Contains(name, "/") && CheckRegistry(RegistryOf(name)) == nil:
		return Hintf("write "+clip(RegistryOf(name)), "%q has a path", clip(name))
	case name == "" || !isRegistry(name) || !strings.ContainsAny(name, ".:") && name != "localhost":
		return Hintf("as in registry.example.com or registry.example.com:5000", "%q is no host name in lower case or address, with or without :PORT", clip(name))
	}
	return nil
}

// Unsealed returns v, with the secrets of logins named by their versions alone.
func (v *View) Unsealed() *View {
	if len(v.Registries) == 0 {
		return v
	}
	out := *v
	out.Registries = slices.Clone(v.Registries)
	for i := range out.Registries {
		r := &out.Registries[i]
		r.Logins = slices.Clone(r.Logins)
		for i := range r.Logins {
			if version := r.Logins[i].version(); version != "" {
				r.Logins[i].Sealed = &SealedSecret{Version: version}
			} else {
				r.Logins[i].Sealed = nil
			}
		}
	}
	return &out
}

// Logins yields the secrets of logins that v has, each with its name USER/NAME.
func (v *View) Logins(yield func(name string, s *SealedSecret) bool) {
	for i := range v.Registries {
		for _, l := range v.Registries[i].Logins {
			if l.Sealed != nil && !yield(l.Secret, l.Sealed) {
				return
			}
		}
	}
}
