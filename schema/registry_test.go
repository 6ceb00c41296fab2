package schema

import (
	"maps"
	"slices"
	"testing"
)

func TestRegistryOf(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"registry.example.com:5000/team/app:1@sha256:aa": "registry.example.com:5000",
		"index.docker.io/library/nginx@sha256:aa":        "docker.io",
		"Registry.example.com/x@sha256:aa":               "registry.example.com",
		"oci://registry.example.com/rank@sha256:aa":      "registry.example.com",
		"https://files.example.com/jdk.tar.gz@sha256:aa": "files.example.com",
	} {
		if got := RegistryOf(source); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
	for _, name := range []string{"docker.io", "localhost", "10.0.0.7:5000", "[::1]:5000", "registry.example.com"} {
		if err := CheckRegistry(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, hint := range map[string]string{
		"index.docker.io":           "write docker.io",
		"https://example.com":       "write example.com",
		"example.com/team":          "write example.com",
		"Example.com":               "as in registry.example.com or registry.example.com:5000",
		"nginx":                     "as in registry.example.com or registry.example.com:5000",
		"registry.example.com:port": "as in registry.example.com or registry.example.com:5000",
		"":                          "as in registry.example.com or registry.example.com:5000",
	} {
		if err := CheckRegistry(name); err == nil {
			t.Errorf("%q is fine", name)
		} else if _, got := HintOf(err); got != hint {
			t.Errorf("%q: %v, hint %q, want %q", name, err, got, hint)
		}
	}
}

// TestUnsealed: a machine is sent versions, and keeps what it was sent by them.
func TestUnsealed(t *testing.T) {
	t.Parallel()
	v := &View{Registries: []Registry{{Name: "r", Logins: []RegistryLogin{
		{Secret: "ops/pull", Sealed: &SealedSecret{Version: "v1", Age: "ciphertext"}},
		{User: "u", Secret: "u/pull", Trouble: "no identity"},
	}}}}
	out := v.Unsealed()
	if got := out.Registries[0].Logins[0].Sealed; *got != (SealedSecret{Version: "v1"}) {
		t.Errorf("sent %+v", got)
	}
	if v.Registries[0].Logins[0].Sealed.Age == "" {
		t.Error("the view was written to")
	}
	if !v.Registries[0].Equal(&out.Registries[0]) {
		t.Error("it says something else")
	}
	need := v.Needs(map[string]MachineSecret{"v1": {Sealed: "s"}, "v2": {Sealed: "another's"}})
	if got := slices.Collect(maps.Keys(need)); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("needs %v", got)
	}
}
