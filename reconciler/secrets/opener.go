package secrets

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
	"github.com/musterhq/muster/schema/sops"
)

// Opener opens secrets. Its zero value has no identities, and opens none.
type Opener struct {
	// File is the path of a file of age identities; "" for none.
	File string

	mu     sync.Mutex                      // guards the rest
	known  map[schema.Digest]schema.Opened // by what was opened, with what and for whom
	within string                          // the digests of known are of this key and these identities
}

// How to do what errors speak of.
const (
	giveIdentity = "start the masters with --secret-identity FILE; muster secret keys --new FILE makes one"
	sealAgain    = "seal it for the recipients of the cell's identity: muster secret rotate"
)

// Check errs unless the file, if there is one, can be used.
func (o *Opener) Check() error {
	_, err := o.identities()
	return err
}

// identities reads the file.
func (o *Opener) identities() (sealed.Identities, error) {
	if o.File == "" {
		return sealed.Identities{}, nil
	}
	info, err := os.Stat(o.File)
	if err != nil {
		return sealed.Identities{}, fmt.Errorf("identities of secrets: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return sealed.Identities{}, schema.Hintf("chmod 600 "+o.File, "%s: others can read the identities, mode %04o", o.File, info.Mode().Perm())
	}
	text, err := os.ReadFile(o.File)
	if err != nil {
		return sealed.Identities{}, fmt.Errorf("identities of secrets: %w", err)
	}
	defer clear(text)
	ids, err := sealed.ParseIdentities(text)
	if err != nil {
		message, hint := schema.HintOf(err)
		return sealed.Identities{}, schema.Hintf(hint, "%s: %s", o.File, message)
	}
	return ids, nil
}

// Take says in the packages of a commit what their secrets hold: see schema.Package.Opened.
// key is the cell's, as it is stored (see schema.Compiled.VersionKey); "" if it has none yet.
// What c has of others is not written to.
func (o *Opener) Take(c *schema.Compiled, key string) {
	if !slices.ContainsFunc(c.Packages, func(p schema.CompiledPackage) bool { return p.Package != nil && len(p.Package.Objects.Secrets) > 0 }) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ids, err := o.identities()
	t := taking{ids: ids, bound: tenanted(c)}
	switch {
	case err != nil:
		t.trouble, t.hint = schema.HintOf(err)
	case ids.Empty():
		t.trouble, t.hint = "this master has no identity that opens secrets", giveIdentity
	default:
		c.VersionKey, err = t.versionKey(key)
		if err != nil {
			t.trouble, t.hint = schema.HintOf(err)
		}
	}
	defer clear(t.key)
	if within := t.within(); o.known == nil || o.within != within {
		o.known, o.within = map[schema.Digest]schema.Opened{}, within
	}
	used := map[schema.Digest]schema.Opened{}
	c.Packages = slices.Clone(c.Packages)
	for i := range c.Packages {
		if p := &c.Packages[i]; p.Package != nil && len(p.Package.Objects.Secrets) > 0 {
			opened := *p.Package
			opened.Opened = o.open(&t, p.Package.Objects.Secrets, used)
			p.Package, p.Digest = &opened, schema.DigestOf(&opened)
		}
	}
	o.known = used
}

// tenanted reports whether a commit says who owns what.
func tenanted(c *schema.Compiled) bool {
	return slices.ContainsFunc(c.Packages, func(p schema.CompiledPackage) bool { return p.Package != nil && len(p.Package.Objects.Tenants) > 0 })
}

// open returns what secrets hold. It adds to used what it has learnt, and known of it.
func (o *Opener) open(t *taking, secrets []schema.Secret, used map[schema.Digest]schema.Opened) map[schema.ObjectKey]schema.Opened {
	out := make(map[schema.ObjectKey]schema.Opened, len(secrets))
	for i := range secrets {
		s := &secrets[i]
		digest := schema.DigestOf(s)
		opened, known := o.known[digest]
		if !known {
			opened = t.opened(s)
		}
		used[digest] = opened
		out[schema.ObjectKey{Kind: schema.KindSecret, Name: s.ID()}] = opened
	}
	return out
}

// taking is one call of Take.
type taking struct {
	ids           sealed.Identities
	key           []byte
	bound         bool   // a secret has to say whose it is
	trouble, hint string // why none can be opened
}

// within identifies what the outcome of each secret depends on beside itself.
func (t *taking) within() string {
	var rs []string
	for _, r := range t.ids.Recipients() {
		rs = append(rs, r.String())
	}
	return fmt.Sprint(t.bound, t.trouble, rs, sealed.Version(t.key, "", nil))
}

// versionKey returns the key of digests as it is to be stored, and keeps it in clear. One
// that nobody can open any more is drawn anew: what was opened before keeps its version as
// long as its ciphertext stays.
func (t *taking) versionKey(stored string) (string, error) {
	if stored != "" {
		plain, err := t.ids.Open(stored)
		if err == nil {
			t.key = plain
			if h, err := sealed.Inspect(stored); err == nil && len(h.Recipients) == len(t.ids.Recipients()) {
				return stored, nil
			}
		} else if !errors.Is(err, sealed.ErrNotFor) {
			return "", err
		}
	}
	if t.key == nil {
		t.key = make([]byte, 32)
		_, _ = rand.Read(t.key) // it never fails
	}
	text, err := sealed.Seal(t.key, t.ids.Recipients(), "")
	return text, err
}

// opened says what a secret holds, for all who may know that.
func (t *taking) opened(s *schema.Secret) schema.Opened {
	if t.trouble != "" {
		return schema.Opened{Trouble: t.trouble, Hint: t.hint}
	}
	plain, err := plainOf(t.ids, s.Sealed())
	defer clear(plain)
	if err == nil {
		err = t.mayHave(s)
	}
	if err != nil {
		message, hint := schema.HintOf(err)
		return schema.Opened{Trouble: message, Hint: hint}
	}
	return schema.Opened{Version: sealed.Version(t.key, s.ID(), plain)}
}

// mayHave errs if a secret may be another owner's.
func (t *taking) mayHave(s *schema.Secret) error {
	var owner string
	var err error
	if s.SOPS != "" {
		owner, err = sops.Owner(s.SOPS, t.ids.Open)
	} else {
		var h sealed.Header
		h, err = sealed.Inspect(s.Age)
		owner = h.Owner
	}
	switch {
	case err != nil:
		return err
	case owner == "" && t.bound && s.SOPS != "":
		return schema.Hintf(fmt.Sprintf("add the value %s: %q to the SOPS file, encrypted", sops.OwnerKey, s.Owner()), "the SOPS file does not say whose it is")
	case owner == "" && t.bound:
		return schema.Hintf("muster secret rotate writes it into the file", "the age file does not say whose it is")
	case owner != "" && owner != s.Owner():
		return schema.Hintf("who knows it can seal it again for "+s.Owner(), "it is sealed for %s", owner)
	}
	return nil
}

// plainOf returns what a secret holds.
func plainOf(ids sealed.Identities, s *schema.SealedSecret) ([]byte, error) {
	var plain []byte
	var err error
	if s.SOPS != "" {
		plain, err = sops.Open(s.SOPS, s.Key, ids.Open)
	} else {
		plain, err = ids.Open(s.Age)
	}
	if errors.Is(err, sealed.ErrNotFor) {
		return nil, schema.Hintf(sealAgain, "it is %w, and not for this cell's identity", err)
	}
	if err == nil && len(plain) > sealed.MaxPlain {
		clear(plain)
		return nil, fmt.Errorf("the secret has more than %d bytes", sealed.MaxPlain)
	}
	return plain, err
}

// SealFor opens a secret as it is in the data of a job, and returns it as an armored age
// file for the recipient alone.
func (o *Opener) SealFor(s *schema.SealedSecret, recipient string) (string, error) {
	ids, err := o.identities()
	if err != nil {
		return "", err
	}
	if ids.Empty() {
		return "", schema.Hintf(giveIdentity, "this master has no identity that opens secrets")
	}
	r, err := sealed.ParseRecipient(strings.TrimSpace(recipient))
	if err != nil {
		return "", fmt.Errorf("recipient of the machine: %w", err)
	}
	plain, err := plainOf(ids, s)
	defer clear(plain)
	if err != nil {
		return "", err
	}
	return sealed.Seal(plain, []sealed.Recipient{r}, "")
}
