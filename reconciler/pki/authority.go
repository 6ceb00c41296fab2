package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// MinLife and MaxLife bound the life of a machine's certificate. The least is
// for tests of renewal; below minutes a busy machine may miss it.
const (
	MinLife = 5 * time.Second
	MaxLife = 90 * 24 * time.Hour
)

const (
	keyToken  = "token/"
	keyMember = "member/"
	// keepToken is how long a burnt token is remembered after it expired: a
	// clock that is set back within it revives none.
	keepToken = 30 * 24 * time.Hour
	maxSweep  = 32 // forgotten with one write

	commitTimeout = 30 * time.Second
)

// Ledger keeps documents; it is the cell's store.
type Ledger interface {
	// Documents returns the documents whose keys begin with prefix.
	Documents(ctx context.Context, prefix string) (map[string][]byte, error)
	// Commit stores all writes or none.
	Commit(ctx context.Context, writes []model.Write) error
}

// burnt is the document of a token that was used.
type burnt struct {
	Machine string    `json:"machine"`
	Key     string    `json:"key"` // of the machine that used it
	At      time.Time `json:"at"`
	Expires time.Time `json:"expires"`
}

// member is the document of a machine that joined.
type member struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
	// Issued is when its token was. A revocation is held against that and not
	// against the newest certificate, or a machine could outrun it by renewals.
	Issued time.Time `json:"issued"`
}

// Config is what an Authority needs.
type Config struct {
	Dir    *Directory
	Ledger Ledger
	Life   time.Duration // of a machine's certificate, MinLife to MaxLife
	Log    *slog.Logger
	Now    func() time.Time // time.Now when nil
}

// Authority lets machines join a cell, renews their certificates, and says who
// is still welcome.
type Authority struct {
	cfg     Config
	master  *watched[*tls.Certificate]
	revoked *watched[revocations]

	joining sync.Mutex // held over a join, so that a token is used once

	mu      sync.Mutex // guards what follows; never held while waiting
	burnt   map[string]burnt
	members map[string]member
	joins   uint64                     // counts changes of members
	unknown map[string]*schema.Unknown // of the documents of machines that joined, by key
}

// ErrMaster says that there is no certificate that the master could show.
var ErrMaster = errors.New("the master's certificate")

// NewAuthority is OpenAuthority and Load.
func NewAuthority(ctx context.Context, cfg Config) (*Authority, error) {
	a, err := OpenAuthority(cfg)
	if err != nil {
		return nil, err
	}
	return a, a.Load(ctx)
}

// OpenAuthority returns an Authority that knows of no machine that joined, until
// Load. It errs with ErrMaster when master.pem is not there or not of the master.
func OpenAuthority(cfg Config) (*Authority, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Life < MinLife || cfg.Life > MaxLife {
		return nil, fmt.Errorf("life of machines' certificates %v: want %v to %v", cfg.Life, MinLife, MaxLife)
	}
	a := &Authority{cfg: cfg}
	var err error
	d := cfg.Dir
	if a.master, err = watch(d.MasterFile(), cfg.Log, d.masterPair); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMaster, err)
	}
	if a.revoked, err = watch(filepath.Join(d.path, revokedFile), cfg.Log, d.revokedList); err != nil {
		return nil, err
	}
	return a, nil
}

// Load reads what the ledger knows of machines that joined, in place of what was
// read before. A master does so when it begins to lead: another one may have let
// machines in meanwhile.
func (a *Authority) Load(ctx context.Context) error {
	a.joining.Lock()
	defer a.joining.Unlock()
	tokens, members, unknown := map[string]burnt{}, map[string]member{}, map[string]*schema.Unknown{}
	if err := load(ctx, a.cfg.Ledger, keyToken, tokens, unknown); err != nil {
		return err
	}
	if err := load(ctx, a.cfg.Ledger, keyMember, members, unknown); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.burnt, a.members, a.unknown = tokens, members, unknown
	a.joins++
	return nil
}

// Unload forgets them: a master that does not lead does not know who joins again. It lets
// in whose certificate is good, and the one that leads has the last word.
func (a *Authority) Unload() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.burnt, a.members, a.unknown = nil, nil, nil
}

func load[T any](ctx context.Context, l Ledger, prefix string, into map[string]T, beyond map[string]*schema.Unknown) error {
	docs, err := l.Documents(ctx, prefix)
	if err != nil {
		return err
	}
	for key, b := range docs {
		var v T
		unknown, err := schema.Decode(b, &v)
		if err != nil {
			return fmt.Errorf("document %s: %w", key, err)
		}
		beyond[key] = unknown
		into[strings.TrimPrefix(key, prefix)] = v
	}
	return nil
}

// TLS returns the configuration of a server that shows the master's
// certificate. With anonymous it lets in clients without one.
func (a *Authority) TLS(anonymous bool, protocols ...string) *tls.Config {
	return identity.ServerTLS(identity.Server{
		Certificate: func() (*tls.Certificate, error) { return a.master.get(), nil },
		Authorities: func() ([]*x509.Certificate, error) { return []*x509.Certificate{a.cfg.Dir.CA}, nil },
		Anonymous:   anonymous, Protocols: protocols, Now: a.cfg.Now,
	})
}

// Client returns the configuration of a connection to another master of the cell, at a
// host. What it shows is made for this connection, and is kept nowhere.
func (a *Authority) Client(host string) (*tls.Config, error) {
	name, err := identity.Of(a.master.get().Leaf)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of %s: %w", name, err)
	}
	c, err := a.cfg.Dir.certificate(Request{Name: name, Life: MaxLife, Now: a.cfg.Now(), Client: true}, key.Public())
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	pair := &tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
	return identity.ClientTLS(identity.Client{
		Cell: a.cfg.Dir.Cell, Host: host, Authorities: a.Authorities, Protocols: []string{"h2"}, Now: a.cfg.Now,
		Certificate: func() (*tls.Certificate, error) { return pair, nil },
	}), nil
}

// Hosts returns the names and addresses that the master's certificate is for.
func (a *Authority) Hosts() []string { return identity.Hosts(a.master.get().Leaf) }

// Expires returns when the master's certificate does.
func (a *Authority) Expires() time.Time { return a.master.get().Leaf.NotAfter }

// AuthorityExpires returns when the authority's own certificate does, and with it
// all that it has issued.
func (a *Authority) AuthorityExpires() time.Time { return a.cfg.Dir.CA.NotAfter }

// RenewMaster replaces the master's certificate in the last third of its life by one
// with a new key, for the same names and as long; connections that there are go on.
// It reports whether it has. Masters that share the directory may do it twice.
func (a *Authority) RenewMaster() (bool, error) {
	c, now := a.master.get().Leaf, a.cfg.Now()
	life := c.NotAfter.Sub(identity.Issued(c))
	if c.NotAfter.Sub(now) > life/3 {
		return false, nil
	}
	if end := a.cfg.Dir.CA.NotAfter; !end.After(c.NotAfter) {
		return false, fmt.Errorf("the authority itself expires at %s, and no certificate can outlive it", stamp(end))
	}
	n, err := identity.Of(c)
	if err != nil {
		return false, err
	}
	request := Request{Name: n, Hosts: identity.Hosts(c), Life: life, Now: now}
	failpoint.Certificate.Before()
	_, err = a.cfg.Dir.Issue(request, a.cfg.Dir.MasterFile())
	failpoint.Certificate.After()
	if err != nil {
		return false, err
	}
	a.master.expire()
	return true, nil
}

// Revision returns a number that is another whenever Admit may refuse a machine that it
// did not before and whose certificate has not expired: something was revoked, or a
// machine has joined with another key.
func (a *Authority) Revision() uint64 {
	revoked := a.revoked.read()
	a.mu.Lock()
	defer a.mu.Unlock()
	return revoked + a.joins
}

// Admit errs with identity.ErrRefused unless the peer, whose certificate was
// verified, is welcome at this moment.
func (a *Authority) Admit(p *identity.Peer) error {
	if now := a.cfg.Now(); now.After(p.Expires) {
		return fmt.Errorf("%w: the certificate of %s expired at %s; the master's time is %s",
			identity.ErrRefused, p, stamp(p.Expires), stamp(now))
	}
	issued := p.Issued
	m, ok := a.member(p)
	if ok {
		issued = m.Issued
	}
	if err := a.revoked.get().check(p.Name, issued); err != nil {
		return err
	}
	if ok && m.Key != p.Key {
		return fmt.Errorf("%w: machine %s joined with another key at %s, so its earlier certificates are revoked",
			identity.ErrRefused, p.Name.Name, stamp(m.At))
	}
	return nil
}

// member returns what is recorded of a machine; false for one that is not known,
// and for all who are no machine.
func (a *Authority) member(p *identity.Peer) (member, bool) {
	if p.Role != identity.Machine {
		return member{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.members[p.Name.Name]
	return m, ok
}

// Join burns a token and returns the certificate for the request of the machine
// that showed it. The same token with the same key is the same join again: its
// answer may have been lost. The error is identity.ErrRefused when no repetition
// can help.
func (a *Authority) Join(ctx context.Context, token string, request []byte) (*x509.Certificate, error) {
	t, err := identity.ParseToken(token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", identity.ErrRefused, err)
	}
	now := a.cfg.Now()
	if err := t.Verify(a.cfg.Dir.Cell, a.cfg.Dir.CA, now); err != nil {
		return nil, err
	}
	name := identity.Name{Cell: t.Cell, Role: identity.Machine, Name: t.Machine}
	a.revoked.expire()
	if err := a.revoked.get().check(name, t.Issued); err != nil {
		return nil, err
	}
	public, key, err := parseRequest(request)
	if err != nil {
		return nil, err
	}
	if err := a.burn(ctx, t, key, now); err != nil {
		return nil, err
	}
	return a.sign(name, public, now)
}

// burn records that the machine with the key has used the token.
func (a *Authority) burn(ctx context.Context, t *identity.Token, key string, now time.Time) error {
	a.joining.Lock()
	defer a.joining.Unlock()
	sum := sha256.Sum256([]byte(t.ID))
	id := hex.EncodeToString(sum[:])
	a.mu.Lock()
	if a.members == nil {
		a.mu.Unlock()
		return errors.New("this master does not lead the cell yet")
	}
	used, again := a.burnt[id]
	held, unknown := a.members[t.Machine], a.unknown[keyMember+t.Machine]
	writes, forget := a.sweep(now)
	a.mu.Unlock()
	if again && (used.Key != key || held.Key != key) {
		return fmt.Errorf("%w: the join token of machine %s was used at %s: one token is for one join",
			identity.ErrRefused, t.Machine, stamp(used.At))
	}
	if again {
		return nil
	}
	b, m := burnt{t.Machine, key, now.UTC(), t.Expires}, member{key, now.UTC(), t.Issued}
	writes = append(writes,
		model.Write{Key: keyToken + id, Value: schema.Canonical(b)},
		model.Write{Key: keyMember + t.Machine, Value: unknown.Encode(m)})
	// A machine that hangs up must not leave the outcome of a write unknown:
	// the store would give up the cell.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := a.cfg.Ledger.Commit(ctx, writes); err != nil {
		return fmt.Errorf("join of machine %s: %w", t.Machine, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.burnt[id], a.members[t.Machine] = b, m
	a.joins++
	for _, old := range forget {
		delete(a.burnt, old)
	}
	return nil
}

// sweep returns the writes that forget tokens which expired long ago.
func (a *Authority) sweep(now time.Time) (writes []model.Write, ids []string) {
	for id, b := range a.burnt {
		if len(ids) < maxSweep && now.Sub(b.Expires) > keepToken {
			writes = append(writes, model.Write{Key: keyToken + id})
			ids = append(ids, id)
		}
	}
	return writes, ids
}

// Renew returns a new certificate for a machine that has one. The request must
// be for the key that it has.
func (a *Authority) Renew(p *identity.Peer, request []byte) (*x509.Certificate, error) {
	if p.Role != identity.Machine {
		return nil, fmt.Errorf("%w: %s is no machine", identity.ErrRefused, p)
	}
	a.revoked.expire()
	if err := a.Admit(p); err != nil {
		return nil, err
	}
	public, key, err := parseRequest(request)
	if err != nil {
		return nil, err
	}
	if key != p.Key {
		return nil, fmt.Errorf("%w: the request of machine %s is for another key than its certificate's", identity.ErrRefused, p.Name.Name)
	}
	return a.sign(p.Name, public, a.cfg.Now())
}

// Authorities returns what a machine is to trust.
func (a *Authority) Authorities() []*x509.Certificate { return []*x509.Certificate{a.cfg.Dir.CA} }

func (a *Authority) sign(n identity.Name, public *ecdsa.PublicKey, now time.Time) (*x509.Certificate, error) {
	c, err := a.cfg.Dir.certificate(Request{Name: n, Life: a.cfg.Life, Now: now}, public)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", n, err)
	}
	return c, nil
}

// parseRequest returns the key that a certificate request is for, and its
// digest. What else the request says does not count.
func parseRequest(der []byte) (*ecdsa.PublicKey, string, error) {
	r, err := x509.ParseCertificateRequest(der)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, "", fmt.Errorf("%w: certificate request: %w", identity.ErrRefused, err)
	}
	public, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, "", fmt.Errorf("%w: certificate request with a %T: want a key on the curve P-256", identity.ErrRefused, r.PublicKey)
	}
	key, err := identity.KeyDigest(public)
	return public, key, err
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
