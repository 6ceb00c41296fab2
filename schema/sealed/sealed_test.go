package sealed_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
)

func identity(t *testing.T) (sealed.Identities, sealed.Recipient) {
	t.Helper()
	text, r, err := sealed.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := sealed.ParseIdentities([]byte("# a comment\n\n" + text + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return ids, r
}

func seal(t *testing.T, of string, rs ...sealed.Recipient) string {
	t.Helper()
	text, err := sealed.Seal([]byte("hunter2"), rs, of)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestSeal: each recipient opens it, and nobody else; the owner stands in the header.
func TestSeal(t *testing.T) {
	t.Parallel()
	a, ra := identity(t)
	b, rb := identity(t)
	c, _ := identity(t)
	text := seal(t, "local/search", ra, rb)
	for _, ids := range []sealed.Identities{a, b} {
		if plain, err := ids.Open(text); err != nil || string(plain) != "hunter2" {
			t.Errorf("%q, %v", plain, err)
		}
	}
	for _, ids := range []sealed.Identities{c, {}} {
		if _, err := ids.Open(text); !errors.Is(err, sealed.ErrNotFor) {
			t.Errorf("a stranger: %v", err)
		}
	}
	h, err := sealed.Inspect(text)
	if err != nil || h.Owner != "local/search" || len(h.Recipients) != 2 {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err := sealed.Inspect(seal(t, "", ra)); err != nil || h.Owner != "" {
		t.Errorf("of nobody: %+v, %v", h, err)
	}
	if got := a.Recipients(); len(got) != 1 || got[0].String() != ra.String() {
		t.Errorf("recipients %v, want %v", got, ra)
	}
	if again, err := sealed.ParseRecipient(ra.String()); err != nil || again.String() != ra.String() {
		t.Errorf("%v, %v", again, err)
	}
}

// TestOwnerHolds: a ciphertext whose owner was changed cannot be opened.
func TestOwnerHolds(t *testing.T) {
	t.Parallel()
	ids, r := identity(t)
	binary := func(text string) string {
		var b strings.Builder
		if _, err := io.Copy(&b, armor.NewReader(strings.NewReader(text))); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	stolen := strings.Replace(binary(seal(t, "local/search", r)), "local/search", "local/thieve", 1)
	var text strings.Builder
	w := armor.NewWriter(&text)
	if _, err := w.Write([]byte(stolen)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if h, err := sealed.Inspect(text.String()); err != nil || h.Owner != "local/thieve" {
		t.Fatalf("%+v, %v", h, err)
	}
	if _, err := ids.Open(text.String()); err == nil {
		t.Error("it was opened for another owner")
	}
}

// TestPostQuantum: recipients of both kinds are taken, and not together.
func TestPostQuantum(t *testing.T) {
	t.Parallel()
	key, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := sealed.ParseIdentities([]byte(key.String()))
	if err != nil {
		t.Fatal(err)
	}
	text := seal(t, "local/search", ids.Recipients()...)
	if plain, err := ids.Open(text); err != nil || string(plain) != "hunter2" {
		t.Errorf("%q, %v", plain, err)
	}
	_, classic := identity(t)
	if _, err := sealed.Seal([]byte("x"), append(ids.Recipients(), classic), "local/search"); err == nil {
		t.Error("sealed for both kinds")
	}
}

// TestRefused: what is no age file for keys, or no key, is said to be that, without its
// text.
func TestRefused(t *testing.T) {
	t.Parallel()
	_, r := identity(t)
	good := seal(t, "", r)
	pass, err := age.NewScryptRecipient("pass")
	if err != nil {
		t.Fatal(err)
	}
	pass.SetWorkFactor(2)
	var locked strings.Builder
	text := armor.NewWriter(&locked)
	w, err := age.Encrypt(text, pass)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), text.Close()); err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]string{
		"":                                       "is empty",
		"hunter2":                                "no age file",
		"age-encryption.org/v1\n-> X25519":       "binary form",
		good[:len(good)/2]:                       "damaged",
		strings.Replace(good, "YWdl", "YWdm", 1): "damaged",
		locked.String():                          "passphrase",
		forSSH(t):                                "ssh keys alone, which are not supported",
	} {
		_, err := sealed.Inspect(input)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.30q: %v, want %q", input, err, want)
		}
		if _, hint := schema.HintOf(err); hint == "" {
			t.Errorf("%.30q: no hint", input)
		}
	}
	secret, _, err := sealed.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]string{
		secret: "identity", "ssh-ed25519 AAAA": "not supported yet", "age1nonsense": "damaged", "me@example.com": "no recipient",
	} {
		_, err := sealed.ParseRecipient(input)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("recipient %.20q: %v, want %q", input, err, want)
		}
	}
	if _, err := sealed.ParseIdentities([]byte("-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n")); err == nil || !strings.Contains(err.Error(), "ssh key") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("an ssh key: %v", err)
	}
	for _, input := range []string{"", "# nothing\n", "hunter2\n", secret + "x\n", r.String()} {
		if _, err := sealed.ParseIdentities([]byte(input)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("identities %.20q: %v", input, err)
		}
	}
	if _, err := sealed.Seal(make([]byte, sealed.MaxPlain+1), []sealed.Recipient{r}, ""); err == nil {
		t.Error("sealed too much")
	}
	if _, err := sealed.Seal(nil, nil, ""); err == nil {
		t.Error("sealed for nobody")
	}
}

// forSSH is sealed for an ssh key, as age does.
func forSSH(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	text := armor.NewWriter(&out)
	w, err := age.Encrypt(text, sshRecipient{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), text.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// sshRecipient writes the line that an ssh key has in the header.
type sshRecipient struct{}

func (sshRecipient) Wrap([]byte) ([]*age.Stanza, error) {
	return []*age.Stanza{{Type: "ssh-ed25519", Args: []string{"5BMRnA", "x"}, Body: make([]byte, 32)}}, nil
}

// TestVersion: it differs by key, name and plaintext.
func TestVersion(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, key := range []string{"k", "l"} {
		for _, of := range []string{"c/u/a", "c/u/b"} {
			for _, plain := range []string{"", "x"} {
				seen[sealed.Version([]byte(key), of, []byte(plain))] = true
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d versions, want 8", len(seen))
	}
}
