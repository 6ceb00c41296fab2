package secrets_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/secrets"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
)

// identity writes a file of identities, and returns its path and the recipients.
func identity(t *testing.T, n int) (string, []sealed.Recipient) {
	t.Helper()
	var text strings.Builder
	var rs []sealed.Recipient
	for range n {
		line, r, err := sealed.NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(line + "\n")
		rs = append(rs, r)
	}
	path := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, rs
}

func seal(t *testing.T, plain, of string, rs ...sealed.Recipient) string {
	t.Helper()
	text, err := sealed.Seal([]byte(plain), rs, of)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// commit is a commit with one secret, local/search/key.
func commit(age string, tenants ...schema.Tenant) *schema.Compiled {
	p := &schema.Package{Dir: "a", Objects: schema.Objects{Tenants: tenants, Secrets: []schema.Secret{{Name: "key", User: "search", Cell: "local", Age: age}}}}
	return &schema.Compiled{Packages: []schema.CompiledPackage{{Dir: "a", Package: p, Digest: schema.DigestOf(p)}}}
}

// take returns what becomes of the secret of a commit.
func take(t *testing.T, o *secrets.Opener, c *schema.Compiled, key string) schema.Opened {
	t.Helper()
	was := c.Packages[0].Package
	o.Take(c, key)
	p := c.Packages[0]
	if was.Opened != nil || p.Digest != schema.DigestOf(p.Package) {
		t.Errorf("the package was written to, or has another digest than it says")
	}
	return p.Package.Opened[schema.ObjectKey{Kind: schema.KindSecret, Name: "local/search/key"}]
}

// TestTake: a version follows the plaintext, and neither the ciphertext nor the keys.
func TestTake(t *testing.T) {
	t.Parallel()
	path, rs := identity(t, 2)
	c := commit(seal(t, "hunter2", "local/search", rs[0]))
	first := take(t, &secrets.Opener{File: path}, c, "")
	if first.Version == "" || first.Trouble != "" || c.VersionKey == "" {
		t.Fatalf("%+v, key %q", first, c.VersionKey)
	}
	stored := c.VersionKey
	again := commit(seal(t, "hunter2", "local/search", rs[1]))
	o := &secrets.Opener{File: path}
	if got := take(t, o, again, stored); got != first || again.VersionKey != stored {
		t.Errorf("another ciphertext: %+v, want %+v", got, first)
	}
	if got := take(t, o, commit(seal(t, "hunter3", "local/search", rs[0])), stored); got.Version == "" || got == first {
		t.Errorf("another plaintext: %+v", got)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, second, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(path, []byte(second), 0o600); err != nil { // the first identity is rotated out
		t.Fatal(err)
	}
	rotated := commit(seal(t, "hunter2", "local/search", rs[1]))
	if got := take(t, o, rotated, stored); got != first || rotated.VersionKey == stored {
		t.Errorf("after rotation: %+v, want %+v and another sealed key", got, first)
	}
	lost, _ := identity(t, 1)
	gone := commit(seal(t, "hunter2", "local/search", rs[0]))
	if got := take(t, &secrets.Opener{File: lost}, gone, stored); got.Version != "" || !strings.Contains(got.Trouble, "other recipients") || !strings.Contains(got.Hint, "rotate") {
		t.Errorf("for other identities: %+v", got)
	}
}

// TestTrouble: each reason why a secret is not opened, with what to do.
func TestTrouble(t *testing.T) {
	t.Parallel()
	path, rs := identity(t, 1)
	open, _ := identity(t, 1)
	if err := os.Chmod(open, 0o644); err != nil { //nolint:gosec // what is refused
		t.Fatal(err)
	}
	tenant := schema.Tenant{Name: "search", Paths: []string{"a"}, Users: []string{"search"}}
	mine := seal(t, "hunter2", "local/search", rs...)
	for _, tt := range []struct {
		name, file string
		c          *schema.Compiled
		want       string
	}{
		{"no identity", "", commit(mine), "no identity"},
		{"a file that others can read", open, commit(mine), "others can read"},
		{"no file", filepath.Join(t.TempDir(), "none"), commit(mine), "no such file"},
		{"another's", path, commit(seal(t, "hunter2", "local/ads", rs...)), "sealed for local/ads"},
		{"nobody's, of a tenant", path, commit(seal(t, "hunter2", "", rs...), tenant), "does not say whose"},
		{"no secret", path, commit("hunter2"), "no age file"},
	} {
		got := take(t, &secrets.Opener{File: tt.file}, tt.c, "")
		if got.Version != "" || !strings.Contains(got.Trouble, tt.want) || strings.Contains(got.Trouble+got.Hint, "hunter2") {
			t.Errorf("%s: %+v, want %q", tt.name, got, tt.want)
		}
	}
	if got := take(t, &secrets.Opener{File: path}, commit(seal(t, "hunter2", "", rs...)), ""); got.Trouble != "" {
		t.Errorf("nobody's, without tenants: %+v", got)
	}
	if err := (&secrets.Opener{File: open}).Check(); err == nil {
		t.Error("a file that others can read is fine")
	}
}

// TestSealFor: only the machine can open what is sealed for it.
func TestSealFor(t *testing.T) {
	t.Parallel()
	path, rs := identity(t, 1)
	line, machine, err := sealed.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s := &schema.SealedSecret{Age: seal(t, "hunter2", "local/search", rs...)}
	text, err := (&secrets.Opener{File: path}).SealFor(s, machine.String())
	if err != nil {
		t.Fatal(err)
	}
	ids, err := sealed.ParseIdentities([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := ids.Open(text); err != nil || string(plain) != "hunter2" {
		t.Errorf("%q, %v", plain, err)
	}
	if _, err := (&secrets.Opener{}).SealFor(s, machine.String()); err == nil {
		t.Error("sealed without an identity")
	}
	if _, err := (&secrets.Opener{File: path}).SealFor(s, "nobody"); err == nil {
		t.Error("sealed for nobody")
	}
}
