package credential

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema/identity"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// issuer is a cell's authority.
type issuer struct {
	t   *testing.T
	ca  *x509.Certificate
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(time.Hour * 1000), IsCA: true, BasicConstraintsValid: true,
	}
	return issuer{t, create(t, template, template, key, key), key}
}

func create(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answer is what a master gives for a request.
func (i issuer) answer(request []byte, name string, now time.Time) []byte {
	i.t.Helper()
	r, err := x509.ParseCertificateRequest(request)
	if err != nil {
		i.t.Fatal(err)
	}
	n := identity.Name{Cell: "c", Role: identity.Machine, Name: name}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), URIs: []*url.URL{n.URI()}, NotBefore: now.Add(-identity.Backdate), NotAfter: now.Add(time.Hour),
	}, i.ca, r.PublicKey, i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	return der
}

// token writes a token into a file.
func (i issuer) token(file, machine string) {
	i.t.Helper()
	text, err := identity.NewToken(identity.Name{Cell: "c", Role: identity.Machine, Name: machine}, i.ca, i.key, noon, noon.Add(time.Hour))
	if err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// machine is a state directory with a token beside it.
type machine struct {
	t    *testing.T
	dir  string
	file string
	now  time.Time
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{t: t, dir: t.TempDir(), file: filepath.Join(t.TempDir(), "token"), now: noon}
}

func (m *machine) open() *Store {
	m.t.Helper()
	s, err := Open(Config{Dir: m.dir, TokenFile: m.file, Now: func() time.Time { return m.now }})
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// join has the machine join.
func (m *machine) join(i issuer) *Store {
	m.t.Helper()
	i.token(m.file, "m1")
	s := m.open()
	_, request, err := s.Enroll(false)
	if err == nil {
		err = s.Accept(i.answer(request, "m1", m.now), [][]byte{i.ca.Raw})
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

func says(t *testing.T, err, is error, want string) {
	t.Helper()
	if is != nil && !errors.Is(err, is) || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %v with %q", err, is, want)
	}
}

func keyOf(t *testing.T, request []byte) string {
	t.Helper()
	r, err := x509.ParseCertificateRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	d, err := identity.KeyDigest(r.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestJoin goes through a machine's first join, which is interrupted, and what
// stays of it.
func TestJoin(t *testing.T) {
	t.Parallel()
	i, m := newIssuer(t), newMachine(t)
	i.token(m.file, "m1")
	s := m.open()
	if n := s.Name(); n != (identity.Name{Cell: "c", Role: identity.Machine, Name: "m1"}) {
		t.Errorf("name %+v", n)
	}
	_, err := s.Connect("h")
	says(t, err, ErrNone, "muster pki token m1")
	_, _, err = s.Renewal()
	says(t, err, ErrNone, "")
	token, request, err := s.Enroll(false)
	if err != nil || token == "" {
		t.Fatal(token, err)
	}
	if cfg, err := s.Unknown("h", token); err != nil || cfg.GetClientCertificate != nil || cfg.ServerName != "h" {
		t.Errorf("%+v, %v", cfg, err)
	}
	s = m.open() // killed meanwhile
	token2, request2, err := s.Enroll(false)
	if err != nil || token2 != token || keyOf(t, request2) != keyOf(t, request) {
		t.Errorf("another key after a crash: %v", err)
	}
	if err := s.Accept(i.answer(request2, "m1", noon), [][]byte{i.ca.Raw}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{identityFile: 0o600, durable.Second(identityFile): 0o600} {
		if info, err := os.Stat(filepath.Join(m.dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(m.dir); err != nil || len(left) != 2 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
	if err := os.Remove(m.file); err != nil {
		t.Fatal(err)
	}
	s = m.open() // without its token
	if token, _, err := s.Enroll(true); token != "" || err != nil {
		t.Errorf("it wants to join again: %q, %v", token, err)
	}
	cfg, err := s.Connect("h")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := cfg.GetClientCertificate(nil)
	if err != nil || !pair.Leaf.NotAfter.Equal(noon.Add(time.Hour)) {
		t.Errorf("%v, %v", pair, err)
	}
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	i, m := newIssuer(t), newMachine(t)
	s := m.join(i)
	for range 100 { // each certificate has a moment of its own
		at, request, err := s.Renewal()
		if err != nil {
			t.Fatal(err)
		}
		if early, late := m.now.Add(36*time.Minute), m.now.Add(44*time.Minute); at.Before(early) || at.After(late) {
			t.Fatalf("renewed at %v: want %v to %v", at, early, late)
		}
		m.now = at
		if err := s.Accept(i.answer(request, "m1", m.now), [][]byte{i.ca.Raw}); err != nil {
			t.Fatal(err)
		}
	}
	if again := m.open(); !again.pair.Leaf.NotAfter.Equal(s.pair.Leaf.NotAfter) {
		t.Error("the disk has another certificate")
	}
}

// TestExpired has a machine off for longer than its certificate lasts.
func TestExpired(t *testing.T) {
	t.Parallel()
	i, m := newIssuer(t), newMachine(t)
	m.join(i)
	m.now = noon.Add(time.Hour * 24 * 31)
	s := m.open()
	if token, _, err := s.Enroll(false); token != "" || err != nil {
		t.Errorf("with the token that was used: %q, %v", token, err)
	}
	_, err := s.Connect("h")
	says(t, err, nil, "the certificate of machine m1: it expired at 2026-03-01T13:00:00Z; the local time is 2026-04-01T12:00:00Z; if the clock is right, the machine has to join again")
	old := bytes.Clone(s.held.Key)
	i.token(m.file, "m2")
	_, _, err = s.Enroll(false)
	says(t, err, nil, "is for machine m2 of cell c, and this is machine m1 of cell c")
	i.token(m.file, "m1")
	token, request, err := s.Enroll(false)
	if err != nil || token == "" {
		t.Fatal(token, err)
	}
	if err := s.Accept(i.answer(request, "m1", m.now), [][]byte{i.ca.Raw}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Connect("h"); err != nil || bytes.Equal(s.held.Key, old) {
		t.Errorf("the same key again, or %v", err)
	}
	m.now = noon
	_, err = s.Connect("h")
	says(t, err, nil, "the local time is 2026-03-01T12:00:00Z: check the clock")
}

func TestAcceptRefuses(t *testing.T) {
	t.Parallel()
	i, m := newIssuer(t), newMachine(t)
	s := m.join(i)
	_, mine, err := s.Renewal()
	if err != nil {
		t.Fatal(err)
	}
	other := newMachine(t)
	_, theirs, err := other.join(i).Renewal()
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(m.dir, identityFile))
	if err != nil {
		t.Fatal(err)
	}
	cas := [][]byte{i.ca.Raw}
	says(t, s.Accept([]byte("x"), cas), nil, "certificate of the master's making")
	says(t, s.Accept(i.ca.Raw, cas), nil, "has 0 URIs")
	says(t, s.Accept(i.answer(mine, "m2", noon), cas), nil, "a certificate of machine/m2 of cell")
	says(t, s.Accept(i.answer(theirs, "m1", noon), cas), nil, "for a key that this machine does not have")
	says(t, s.Accept(i.answer(mine, "m1", noon), nil), nil, "no authority to trust")
	says(t, s.Accept(i.answer(mine, "m1", noon), [][]byte{[]byte("x")}), nil, "")
	if after, err := os.ReadFile(filepath.Join(m.dir, identityFile)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the disk has changed, %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	i, m := newIssuer(t), newMachine(t)
	_, err := Open(Config{Dir: m.dir})
	says(t, err, ErrNone, "holds no identity.json, and no token file is given")
	_, err = Open(Config{Dir: m.dir, TokenFile: m.file})
	says(t, err, fs.ErrNotExist, "join token: ")
	if err := os.WriteFile(m.file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Config{Dir: m.dir, TokenFile: m.file})
	says(t, err, identity.ErrToken, m.file)
	if err := os.Truncate(m.file, maxTokenFile+1); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Config{Dir: m.dir, TokenFile: m.file})
	says(t, err, identity.ErrToken, "it has 65537 bytes")
	m.join(i)
	for _, cfg := range []Config{{Machine: "m2"}, {Cell: "d"}} {
		cfg.Dir = m.dir
		_, err = Open(cfg)
		says(t, err, ErrOther, "the certificate in "+m.dir)
	}
	if err := os.WriteFile(filepath.Join(m.dir, identityFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Config{Dir: m.dir})
	says(t, err, nil, identityFile+": key: ")
}

// TestDamagedIdentity: a certificate is kept twice, and either copy is enough.
func TestDamagedIdentity(t *testing.T) {
	t.Parallel()
	i, m := newIssuer(t), newMachine(t)
	m.join(i)
	if err := os.WriteFile(filepath.Join(m.dir, durable.FormatFile), nil, 0o600); err != nil { // of this release
		t.Fatal(err)
	}
	first, second := filepath.Join(m.dir, identityFile), filepath.Join(m.dir, durable.Second(identityFile))
	for name, damage := range map[string]func() error{
		"first emptied": func() error { return os.Truncate(first, 0) },
		"first removed": func() error { return os.Remove(first) },
		"second cut":    func() error { return os.Truncate(second, 40) },
		"a directory":   func() error { return errors.Join(os.Remove(first), os.Mkdir(first, 0o700)) },
	} {
		if err := damage(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		reported := 0
		if _, err := Open(Config{Dir: m.dir, Damaged: func(durable.Damage) { reported++ }}); err != nil || reported == 0 {
			t.Errorf("%s: %v, reported %d times", name, err, reported)
		}
		for _, file := range []string{first, second} {
			if !durable.Sealed(file) {
				t.Errorf("%s: %s is not repaired", name, file)
			}
		}
	}
}
