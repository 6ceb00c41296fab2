package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema/identity"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is an authority with a clock and a store of its own.
type world struct {
	t      *testing.T
	dir    *Directory
	memory *store.Memory
	ledger *store.Store
	a      *Authority

	mu  sync.Mutex // guards now
	now time.Time
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) set(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, memory: store.NewMemory(), now: noon}
	var err error
	if w.dir, err = Init(filepath.Join(t.TempDir(), "pki"), "c", noon); err != nil {
		t.Fatal(err)
	}
	w.issue("master", identity.Master, w.dir.MasterFile())
	w.restart()
	return w
}

func (w *world) issue(name string, role identity.Role, file string) *x509.Certificate {
	w.t.Helper()
	r := Request{Name: identity.Name{Cell: "c", Role: role, Name: name}, Life: time.Hour, Now: w.clock()}
	if role == identity.Master {
		r.Hosts = []string{"master.example", "10.0.0.1"}
	}
	c, err := w.dir.Issue(r, file)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// restart is a new master on the same store.
func (w *world) restart() {
	w.t.Helper()
	if w.ledger != nil {
		if err := w.ledger.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	var err error
	if w.ledger, err = w.memory.Open("c"); err != nil {
		w.t.Fatal(err)
	}
	if err := w.ledger.Campaign(w.t.Context(), "test"); err != nil {
		w.t.Fatal(err)
	}
	w.a, err = NewAuthority(w.t.Context(), Config{
		Dir: w.dir, Ledger: w.ledger, Life: time.Hour, Log: slog.New(slog.DiscardHandler), Now: w.clock,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) token(machine string) string {
	w.t.Helper()
	s, err := w.dir.Token(machine, w.clock(), 30*time.Minute)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// request returns a certificate request with a key of its own.
func request(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (w *world) join(token string, request []byte) *identity.Peer {
	w.t.Helper()
	c, err := w.a.Join(w.t.Context(), token, request)
	if err != nil {
		w.t.Fatal(err)
	}
	return peer(w.t, c)
}

func peer(t *testing.T, c *x509.Certificate) *identity.Peer {
	t.Helper()
	n, err := identity.Of(c)
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.KeyDigest(c.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return &identity.Peer{Name: n, Key: key, Issued: identity.Issued(c), Expires: c.NotAfter}
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if !errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want a refusal with %q", err, want)
	}
}

func TestJoinOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, mine, theirs := w.token("m1"), request(t), request(t)
	p := w.join(token, mine)
	if p.String() != "machine/m1" || !p.Expires.Equal(noon.Add(time.Hour)) || !p.Issued.Equal(noon) {
		t.Errorf("%+v", p)
	}
	if again := w.join(token, mine); again.Key != p.Key { // the answer was lost
		t.Errorf("%+v", again)
	}
	_, err := w.a.Join(t.Context(), token, theirs)
	refused(t, err, "the join token of machine m1 was used at 2026-03-01T12:00:00Z: one token is for one join")
	w.restart()
	_, err = w.a.Join(t.Context(), token, theirs)
	refused(t, err, "was used at")
	if err := w.a.Admit(p); err != nil {
		t.Error(err)
	}
}

// TestJoinRace has many machines use one token at the same time.
func TestJoinRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token("m1")
	var wg sync.WaitGroup
	won := make(chan string, 16)
	for range cap(won) {
		der := request(t)
		wg.Go(func() {
			c, err := w.a.Join(context.Background(), token, der)
			if err == nil {
				won <- peer(t, c).Key
			} else {
				refused(t, err, "was used at")
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d machines joined with one token", len(won))
	}
}

// TestJoinAgain gives a name to another key: the holder before is out.
func TestJoinAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, mine := w.token("m1"), request(t)
	old := w.join(first, mine)
	w.set(noon.Add(time.Minute))
	renewed := w.join(w.token("m1"), request(t))
	w.restart()
	refused(t, w.a.Admit(old), "machine m1 joined with another key at 2026-03-01T12:01:00Z")
	_, err := w.a.Renew(old, mine)
	refused(t, err, "joined with another key")
	_, err = w.a.Join(t.Context(), first, mine)
	refused(t, err, "was used at")
	if err := w.a.Admit(renewed); err != nil {
		t.Error(err)
	}
}

func TestJoinRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := newWorld(t)
	good := request(t)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edwards, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	forged := slices.Clone(good)
	forged[len(forged)-1] ^= 1
	old := w.token("m1")
	late := w.token("m9")
	w.set(noon.Add(29 * time.Minute))
	if err := w.dir.Revoke(identity.Name{Cell: "c", Role: identity.Machine, Name: "m9"}, w.clock()); err != nil {
		t.Fatal(err)
	}
	w.restart() // reads what is revoked
	for name, tt := range map[string]struct {
		token   string
		request []byte
		want    string
	}{
		"no token":        {"", good, "not a join token"},
		"another cell's":  {other.token("m1"), good, "is of another authority"},
		"revoked since":   {late, good, "machine/m9 was revoked at 2026-03-01T12:29:00Z"},
		"no request":      {old, nil, "certificate request: "},
		"no signature":    {old, forged, "certificate request: "},
		"another curve":   {old, edwards, "want a key on the curve P-256"},
		"trailing bytes":  {old, append(slices.Clone(good), 0), "trailing data"},
		"a private thing": {old, []byte("-----BEGIN"), "certificate request: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.a.Join(t.Context(), tt.token, tt.request)
			refused(t, err, tt.want)
		})
	}
	w.set(noon.Add(31 * time.Minute))
	_, err = w.a.Join(t.Context(), old, good)
	refused(t, err, "expired at 2026-03-01T12:30:00Z; the master's time is 2026-03-01T12:31:00Z")
	if docs, err := w.ledger.Documents(t.Context(), ""); err != nil || len(docs) > 1 { // the store's own
		t.Errorf("a refused join left %v, %v", slices.Sorted(maps.Keys(docs)), err)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mine := request(t)
	p := w.join(w.token("m1"), mine)
	w.set(noon.Add(40 * time.Minute))
	c, err := w.a.Renew(p, mine)
	if err != nil {
		t.Fatal(err)
	}
	if n := peer(t, c); n.Name != p.Name || n.Key != p.Key || !n.Expires.Equal(noon.Add(100*time.Minute)) {
		t.Errorf("%+v", n)
	}
	_, err = w.a.Renew(p, request(t))
	refused(t, err, "for another key than its certificate's")
	_, err = w.a.Renew(&identity.Peer{Name: identity.Name{Cell: "c", Role: identity.Operator, Name: "ada"}, Expires: p.Expires}, mine)
	refused(t, err, "operator/ada is no machine")
	w.set(noon.Add(61 * time.Minute))
	_, err = w.a.Renew(p, mine)
	refused(t, err, "the certificate of machine/m1 expired at 2026-03-01T13:00:00Z; the master's time is 2026-03-01T13:01:00Z")
}

// TestRevoke has a running master see a revocation, and what is issued later be
// good.
func TestRevoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := peer(t, w.issue("ada", identity.Operator, filepath.Join(t.TempDir(), "ada.pem")))
	ben := peer(t, w.issue("ben", identity.Operator, filepath.Join(t.TempDir(), "ben.pem")))
	w.set(noon.Add(time.Second))
	if err := w.dir.Revoke(ada.Name, w.clock()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); w.a.Admit(ada) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the revocation is not seen")
		}
	}
	refused(t, w.a.Admit(ada), "operator/ada was revoked at 2026-03-01T12:00:01Z")
	if err := w.a.Admit(ben); err != nil {
		t.Error(err)
	}
	w.set(noon.Add(2 * time.Second))
	if err := w.a.Admit(peer(t, w.issue("ada", identity.Operator, filepath.Join(t.TempDir(), "ada.pem")))); err != nil {
		t.Error(err)
	}
	// What cannot be read leaves the last list in force.
	if err := os.WriteFile(filepath.Join(w.dir.path, revokedFile), []byte("operator/ben yesterday\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.a.revoked.expire()
	refused(t, w.a.Admit(ada), "was revoked")
	if err := w.dir.Revoke(ben.Name, noon); err == nil || !strings.Contains(err.Error(), `revoked: line 1: "operator/ben yesterday": want ROLE/NAME and a time`) {
		t.Errorf("a list that is none: %v", err)
	}
}

// TestRevokedWhileRenewing has a machine renew its certificate after the moment
// of its revocation, while that is being written: it is out all the same, until
// it comes with a token that was issued later.
func TestRevokedWhileRenewing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mine := request(t)
	early := w.token("m1")
	p := w.join(w.token("m1"), mine)
	w.set(noon.Add(10 * time.Second))
	c, err := w.a.Renew(p, mine)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.dir.Revoke(p.Name, noon.Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = w.a.Renew(peer(t, c), mine) // at once: the list is read for it
	refused(t, err, "machine/m1 was revoked at 2026-03-01T12:00:05Z")
	refused(t, w.a.Admit(peer(t, c)), "was revoked at")
	_, err = w.a.Join(t.Context(), early, request(t))
	refused(t, err, "was revoked at")
	w.restart()
	refused(t, w.a.Admit(peer(t, c)), "was revoked at")
	if err := w.a.Admit(w.join(w.token("m1"), request(t))); err != nil {
		t.Error(err)
	}
}

// TestRenewMaster: the master's certificate is replaced in the last third of its life
// by one for the same names, as long, and with another key, but not beyond the
// authority's end.
func TestRenewMaster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.a.master.get().Leaf
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{39 * time.Minute, false}, {41 * time.Minute, true}, {42 * time.Minute, false}, {82 * time.Minute, true}} {
		w.set(noon.Add(c.after))
		if got, err := w.a.RenewMaster(); err != nil || got != c.want {
			t.Fatalf("%v after noon: renewed %t, %v, want %t", c.after, got, err, c.want)
		}
		if got := w.a.Expires(); c.want && !got.Equal(noon.Add(c.after+time.Hour)) {
			t.Errorf("%v after noon: it ends at %v", c.after, got)
		}
	}
	got := w.a.master.get().Leaf
	if !slices.Equal(identity.Hosts(got), identity.Hosts(old)) || identity.Fingerprint(got) == identity.Fingerprint(old) || got.CheckSignatureFrom(w.dir.CA) != nil {
		t.Errorf("the new one: hosts %v", identity.Hosts(got))
	}
	w.set(w.dir.CA.NotAfter.Add(-time.Minute))
	if _, err := w.a.RenewMaster(); err != nil { // to the authority's end
		t.Fatal(err)
	}
	w.set(w.dir.CA.NotAfter.Add(-time.Second))
	if got, err := w.a.RenewMaster(); got || err == nil || !strings.Contains(err.Error(), "the authority itself expires at ") {
		t.Errorf("at the authority's end: renewed %t, %v", got, err)
	}
}

// TestReload has a running master see its new certificate.
func TestReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.a.Expires()
	w.set(noon.Add(time.Minute))
	w.issue("master", identity.Master, w.dir.MasterFile())
	for deadline := time.Now().Add(10 * time.Second); !w.a.Expires().After(before); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not seen")
		}
	}
	if got := w.a.Hosts(); !slices.Equal(got, []string{"master.example", "10.0.0.1"}) {
		t.Errorf("hosts %v", got)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join(w.token("m1"), request(t))
	w.set(noon.Add(keepToken + time.Hour))
	w.join(w.token("m2"), request(t))
	docs, err := w.ledger.Documents(t.Context(), keyToken)
	if err != nil || len(docs) != 1 || len(w.a.burnt) != 1 {
		t.Errorf("%v, %v: want the token of m2 alone", docs, err)
	}
}

// TestJoinHungUp has a machine hang up while its token is burnt: the store must
// not take that for a write with an unknown outcome.
func TestJoinHungUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.a.Join(ctx, w.token("m1"), request(t)); err != nil {
		t.Error(err)
	}
	select {
	case <-w.ledger.Lost():
		t.Error("the master has lost its cell")
	default:
	}
}

// unable is a ledger that stores nothing.
type unable struct{ Ledger }

func (unable) Commit(context.Context, []model.Write) error { return errors.New("disk full") }

// TestJoinUnstored gives no certificate for a token that could not be burnt.
func TestJoinUnstored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token("m1")
	w.a.cfg.Ledger = unable{w.ledger}
	c, err := w.a.Join(t.Context(), token, request(t))
	if c != nil || err == nil || errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), "join of machine m1: disk full") {
		t.Errorf("%v, %v", c, err)
	}
	w.a.cfg.Ledger = w.ledger
	w.join(token, request(t))
}

func TestInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "pki")
	if _, err := Init(dir, "C", noon); err == nil {
		t.Error("a cell called C")
	}
	d, err := Init(dir, "c", noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{".": 0o700, keyFile: 0o600, caFile: 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %v", name, info.Mode(), err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); left != nil {
		t.Errorf("left: %v", left)
	}
	if _, err := Init(dir, "d", noon); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one: %v", err)
	}
	if d.Cell != "c" || !d.CA.IsCA {
		t.Errorf("%+v", d)
	}
	if err := os.Chmod(filepath.Join(dir, keyFile), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "has mode 0640, so other users can read the key") {
		t.Errorf("an open key: %v", err)
	}
}

func TestIssueRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	foreign := filepath.Join(dir, "notes")
	if err := os.WriteFile(foreign, []byte("dear diary"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := Request{Name: identity.Name{Cell: "c", Role: identity.Operator, Name: "ada"}, Life: time.Hour, Now: noon}
	for name, tt := range map[string]struct {
		change func(*Request)
		file   string
		want   string
	}{
		"name":             {func(r *Request) { r.Name.Name = "Ada" }, "x", "want lower-case"},
		"role":             {func(r *Request) { r.Name.Role = "root" }, "x", `role "root"`},
		"life":             {func(r *Request) { r.Life = 0 }, "x", "a validity of 0s"},
		"no hosts":         {func(r *Request) { r.Name.Role = identity.Master }, "x", "none is given"},
		"host with a port": {func(r *Request) { r.Name.Role = identity.Master; r.Hosts = []string{"a:1"} }, "x", `host "a:1": want a name`},
		"any address":      {func(r *Request) { r.Name.Role = identity.Master; r.Hosts = []string{"0.0.0.0"} }, "x", "is not an address that can be dialled"},
		"expired":          {func(r *Request) { r.Now = noon.Add(caLife) }, "x", "the authority expired"},
		"another's file":   {nil, "notes", "file already exists, and it is no certificate of operator/ada"},
		"another's name":   {nil, "master.pem", "file already exists"},
		"no directory":     {nil, "nowhere/x", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			r, file := good, filepath.Join(dir, tt.file)
			if tt.change != nil {
				tt.change(&r)
			}
			if tt.file == "master.pem" {
				file = w.dir.MasterFile()
			}
			if _, err := w.dir.Issue(r, file); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	late := good
	late.Now = noon.Add(caLife - time.Minute)
	if c, err := w.dir.Issue(late, filepath.Join(dir, "late")); err != nil || c.NotAfter.After(w.dir.CA.NotAfter) {
		t.Errorf("it outlives its authority: %v, %v", c.NotAfter, err)
	}
}
