package credential

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema/identity"
)

const (
	identityFile = "identity.json"
	joinFile     = "join.json"
	maxTokenFile = 64 << 10 // bytes
)

// protocol is what gRPC speaks over TLS.
const protocol = "h2"

// ErrNone says that there is nothing that the master could be shown.
var ErrNone = errors.New("no certificate and no join token")

// ErrOther says that a certificate or a token is of another cell or machine than
// the agent's flags say.
var ErrOther = errors.New("of another cell or machine")

// Config is what a Store needs.
type Config struct {
	Dir       string // the agent's state directory, which is there
	TokenFile string // "" for none; it need not be there
	// Cell and Machine are what the agent's flags say; "" for what the
	// certificate or else the token says.
	Cell, Machine string
	Now           func() time.Time // time.Now when nil
	// Damaged, if set, is called with each file that was damaged. The certificate is
	// kept twice; without either it is as if there had been none.
	Damaged func(durable.Damage)
}

// held is what identity.json holds.
type held struct {
	Key         []byte   `json:"key"`         // PKCS #8
	Certificate []byte   `json:"certificate"` // X.509, DER
	Authorities [][]byte `json:"authorities"` // that may have signed the master's
	Token       string   `json:"token"`       // id of the token that it came by
}

// pending is what join.json holds.
type pending struct {
	Key   []byte `json:"key"`
	Token string `json:"token"` // id
}

// Store is a machine's identity on disk.
type Store struct {
	cfg  Config
	docs durable.Documents
	name identity.Name

	mu          sync.Mutex // guards what follows
	held        held
	pair        *tls.Certificate // nil while there is none
	authorities []*x509.Certificate
	renew       time.Time // when the next certificate is to be asked for
	join        pending   // of the join in progress
}

// Open reads what the state directory holds. It errs with ErrNone when there is
// neither a certificate nor a token, and with ErrOther when they are not of the
// cell and machine of the agent's flags.
func Open(cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, name: identity.Name{Cell: cfg.Cell, Role: identity.Machine, Name: cfg.Machine}}
	s.docs = durable.Documents{Old: !durable.Current(cfg.Dir), Report: cfg.Damaged}
	file := filepath.Join(cfg.Dir, identityFile)
	switch found, err := s.read(identityFile, s.docs.ReadTwice, &s.held); {
	case err != nil:
		return nil, err
	case found:
		if err := s.adopt(s.held); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		n, err := identity.Of(s.pair.Leaf)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return s, s.is(n.Cell, n.Name, "the certificate in "+file)
	}
	t, err := s.token()
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("%w: %s holds no %s, and no token file is given", ErrNone, cfg.Dir, identityFile)
	}
	return s, s.is(t.Cell, t.Machine, "the join token in "+cfg.TokenFile)
}

// is takes a cell's and a machine's name, which must be those of the agent's
// flags, where these say them.
func (s *Store) is(cell, machine, whose string) error {
	switch {
	case s.name.Cell != "" && s.name.Cell != cell:
		return fmt.Errorf("%s is %w: it is for cell %s, and this agent is of cell %s", whose, ErrOther, cell, s.name.Cell)
	case s.name.Name != "" && s.name.Name != machine:
		return fmt.Errorf("%s is %w: it is for machine %s, and this agent is %s", whose, ErrOther, machine, s.name.Name)
	}
	s.name.Cell, s.name.Name = cell, machine
	return nil
}

// Name returns who the machine is.
func (s *Store) Name() identity.Name { return s.name }

// token reads the token file; nil when none is named.
func (s *Store) token() (*identity.Token, error) {
	t, _, err := s.readToken()
	return t, err
}

func (s *Store) readToken() (*identity.Token, string, error) {
	if s.cfg.TokenFile == "" {
		return nil, "", nil
	}
	info, err := os.Stat(s.cfg.TokenFile)
	if err != nil {
		return nil, "", fmt.Errorf("join token: %w", err)
	}
	if info.Size() > maxTokenFile {
		return nil, "", fmt.Errorf("%s: %w: it has %d bytes", s.cfg.TokenFile, identity.ErrToken, info.Size())
	}
	b, err := os.ReadFile(s.cfg.TokenFile)
	if err != nil {
		return nil, "", fmt.Errorf("join token: %w", err)
	}
	t, err := identity.ParseToken(string(b))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", s.cfg.TokenFile, err)
	}
	return t, strings.TrimSpace(string(b)), nil
}

// adopt makes h what the machine shows.
func (s *Store) adopt(h held) error {
	key, err := parseKey(h.Key)
	if err != nil {
		return err
	}
	c, err := x509.ParseCertificate(h.Certificate)
	if err != nil {
		return err
	}
	if !key.PublicKey.Equal(c.PublicKey) {
		return errors.New("the certificate is not of the key beside it")
	}
	var authorities []*x509.Certificate
	for _, der := range h.Authorities {
		a, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		authorities = append(authorities, a)
	}
	s.held, s.authorities = h, authorities
	s.pair = &tls.Certificate{Certificate: [][]byte{h.Certificate}, PrivateKey: key, Leaf: c}
	s.renew = renewAt(c)
	return nil
}

// renewAt returns when a certificate is to be renewed: at two thirds of its
// life, give or take a twentieth, so that machines that joined together do not
// all ask at once, and a master may be away for a third.
func renewAt(c *x509.Certificate) time.Time {
	issued := identity.Issued(c)
	life := c.NotAfter.Sub(issued)
	return issued.Add(life*2/3 - life/20 + mathrand.N(life/10+1)) //nolint:gosec // not a secret
}

// Connect returns the configuration of a connection on which the machine shows
// its certificate: at each handshake the newest. It errs when there is none, and
// when it has expired.
func (s *Store) Connect(host string) (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	return identity.ClientTLS(identity.Client{
		Cell: s.name.Cell, Host: host, Protocols: []string{protocol}, Now: s.cfg.Now,
		Authorities: func() []*x509.Certificate {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.authorities
		},
		Certificate: func() (*tls.Certificate, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.pair, nil
		},
	}), nil
}

// Peer returns the configuration of a connection to another machine of the cell, on which the
// machine shows its certificate: at each handshake the newest.
func (s *Store) Peer(machine string) *tls.Config {
	return identity.PeerTLS(identity.Client{
		Cell: s.name.Cell, Host: machine, Now: s.cfg.Now,
		Authorities: func() []*x509.Certificate {
			all, _ := s.trusted() // without any, nobody is believed
			return all
		},
		Certificate: s.shown,
	})
}

// Serve returns the configuration of a server for other machines of the cell. Whoever has another
// certificate of the cell gets a connection, too, and nothing over it: see Welcome.
func (s *Store) Serve() *tls.Config {
	return identity.ServerTLS(identity.Server{Certificate: s.shown, Authorities: s.trusted, Now: s.cfg.Now})
}

// Welcome returns which machine of the cell is at the other end of a connection of Serve. It errs
// with identity.ErrRefused if that is none.
func (s *Store) Welcome(state *tls.ConnectionState) (machine string, err error) {
	p, err := identity.PeerOf(state, s.name.Cell)
	switch {
	case err != nil:
		return "", err
	case p == nil || p.Role != identity.Machine:
		return "", fmt.Errorf("%w: this is for machines of cell %s", identity.ErrRefused, s.name.Cell)
	}
	return p.Name.Name, nil
}

// shown returns the certificate, if it can be used.
func (s *Store) shown() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pair, s.usable()
}

func (s *Store) trusted() ([]*x509.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.authorities, nil
}

// usable errs unless there is a certificate that is valid now.
func (s *Store) usable() error {
	if s.pair == nil {
		return fmt.Errorf("%w: get one with `muster pki token %s`, and name its file with --token-file", ErrNone, s.name.Name)
	}
	if err := identity.When(s.pair.Leaf, s.cfg.Now()); err != nil {
		return fmt.Errorf("the certificate of machine %s: %w; if the clock is right, the machine has to join again: put a new token of `muster pki token %s` into a file for --token-file",
			s.name.Name, err, s.name.Name)
	}
	return nil
}

// Enroll returns what the machine joins with: a token and a certificate
// request. The token is "" when there is nothing to join with or no need to; it
// is needed when the present certificate cannot be used or, as again says, was
// refused.
func (s *Store) Enroll(again bool) (token string, request []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable() == nil && !again {
		return "", nil, nil
	}
	t, text, err := s.readToken()
	switch {
	case s.pair != nil && (err != nil || t == nil || t.ID == s.held.Token):
		return "", nil, nil // what is wrong is the certificate, and Connect says so
	case err != nil:
		return "", nil, err
	case t == nil:
		return "", nil, s.usable()
	case t.Cell != s.name.Cell || t.Machine != s.name.Name:
		return "", nil, fmt.Errorf("the join token in %s is for machine %s of cell %s, and this is machine %s of cell %s",
			s.cfg.TokenFile, t.Machine, t.Cell, s.name.Name, s.name.Cell)
	}
	key, err := s.joinKey(t.ID)
	if err != nil {
		return "", nil, err
	}
	request, err = newRequest(key)
	return text, request, err
}

// Unknown returns the configuration of a connection on which the machine shows
// no certificate: the token says which master is the right one.
func (s *Store) Unknown(host, token string) (*tls.Config, error) {
	t, err := identity.ParseToken(token)
	if err != nil {
		return nil, err
	}
	return identity.ClientTLS(identity.Client{
		Cell: t.Cell, Host: host, Pin: t.CA, Protocols: []string{protocol}, Now: s.cfg.Now,
	}), nil
}

// joinKey returns the key for a token: that of a join which did not complete, or a new one,
// which is on disk before it is used.
func (s *Store) joinKey(token string) (*ecdsa.PrivateKey, error) {
	var p pending
	if _, err := s.read(joinFile, s.docs.Read, &p); err != nil {
		return nil, err
	}
	if p.Token == token {
		s.join = p
		return parseKey(p.Key)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	s.join = pending{Key: der, Token: token}
	return key, s.docs.Write(filepath.Join(s.cfg.Dir, joinFile), joinFile, s.join)
}

// Accept keeps a certificate that the master has given, for the join in progress
// or in place of the present one, and the authorities to trust from now on.
func (s *Store) Accept(certificate []byte, authorities [][]byte) error {
	c, err := x509.ParseCertificate(certificate)
	if err != nil {
		return fmt.Errorf("certificate of the master's making: %w", err)
	}
	n, err := identity.Of(c)
	if err != nil {
		return err
	}
	if n != s.name {
		return fmt.Errorf("the master gave a certificate of %s of cell %q to machine %s of cell %q", n, n.Cell, s.name.Name, s.name.Cell)
	}
	if len(authorities) == 0 {
		return errors.New("the master gave a certificate and no authority to trust")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := held{Key: s.held.Key, Certificate: certificate, Authorities: authorities, Token: s.held.Token}
	if s.isOf(c, s.join.Key) {
		next.Key, next.Token = s.join.Key, s.join.Token
	} else if !s.isOf(c, s.held.Key) {
		return errors.New("the master gave a certificate for a key that this machine does not have")
	}
	if err := s.adopt(next); err != nil {
		return err
	}
	if err := s.docs.WriteTwice(filepath.Join(s.cfg.Dir, identityFile), identityFile, next); err != nil {
		return err
	}
	s.join = pending{}
	if err := os.Remove(filepath.Join(s.cfg.Dir, joinFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s *Store) isOf(c *x509.Certificate, der []byte) bool {
	key, err := parseKey(der)
	return err == nil && key.PublicKey.Equal(c.PublicKey)
}

// Renewal returns when the next certificate is to be asked for, and the request.
func (s *Store) Renewal() (at time.Time, request []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pair == nil {
		return time.Time{}, nil, s.usable()
	}
	key, err := parseKey(s.held.Key)
	if err != nil {
		return time.Time{}, nil, err
	}
	request, err = newRequest(key)
	return s.renew, request, err
}

func newRequest(key *ecdsa.PrivateKey) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

func parseKey(der []byte) (*ecdsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("key of type %T: want ECDSA", key)
	}
	return k, nil
}

// read reads a document; false when there is none, or it is damaged.
func (s *Store) read(name string, read func(file, id string, v any) error, v any) (bool, error) {
	var damage *durable.Damage
	err := read(filepath.Join(s.cfg.Dir, name), name, v)
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &damage) {
		return false, nil
	}
	return err == nil, err
}
