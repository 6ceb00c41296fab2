package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Peer is who is at the other end of a connection.
type Peer struct {
	Name
	Key     string    // digest of the public key, see KeyDigest
	Issued  time.Time // of the certificate
	Expires time.Time
}

// PeerOf returns the peer that a server's connection has verified; nil when it
// showed no certificate. It errs with ErrRefused for one that is no peer of the
// cell.
func PeerOf(state *tls.ConnectionState, cell string) (*Peer, error) {
	if len(state.VerifiedChains) == 0 {
		return nil, nil
	}
	c := state.VerifiedChains[0][0]
	name, err := Of(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if name.Cell != cell {
		return nil, fmt.Errorf("%w: the certificate is of %s of cell %q, and this is cell %q", ErrRefused, name, name.Cell, cell)
	}
	key, err := KeyDigest(c.PublicKey)
	if err != nil {
		return nil, err
	}
	return &Peer{Name: name, Key: key, Issued: Issued(c), Expires: c.NotAfter}, nil
}

// Server is what ServerTLS needs.
type Server struct {
	// Certificate returns what the server shows; Authorities, who may have
	// signed what a client shows.
	Certificate func() (*tls.Certificate, error)
	Authorities func() ([]*x509.Certificate, error)
	// Anonymous lets in clients without a certificate: what they may do is the
	// caller's to say.
	Anonymous bool
	Protocols []string         // of ALPN
	Now       func() time.Time // time.Now when nil
}

// ServerTLS returns the configuration of a server.
func ServerTLS(s Server) *tls.Config {
	auth := tls.RequireAndVerifyClientCert
	if s.Anonymous {
		auth = tls.VerifyClientCertIfGiven
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: s.Protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			authorities, err := s.Authorities()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13,
				NextProtos: s.Protocols,
				// Each connection is checked again.
				SessionTicketsDisabled: true,
				ClientAuth:             auth,
				ClientCAs:              pool(authorities),
				Time:                   s.Now,
				GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() },
			}, nil
		},
	}
}

// Client is what ClientTLS needs.
type Client struct {
	Cell string // "" takes the master of any cell of the authorities
	Host string // that was dialled: a name or an address
	// Authorities returns who may have signed the master's certificate. When
	// it is nil, that is the one with the fingerprint Pin, which the master
	// sends along.
	Authorities func() []*x509.Certificate
	Pin         string
	// Certificate returns what the client shows; nil shows nothing.
	Certificate func() (*tls.Certificate, error)
	Protocols   []string         // of ALPN
	Now         func() time.Time // time.Now when nil
}

// ClientTLS returns the configuration of a client of a master.
func ClientTLS(c Client) *tls.Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: c.Host,
		NextProtos: c.Protocols,
		Time:       c.Now,
		// The check that this leaves out is made by verify, with words of its
		// own, and of the role as well.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection:   c.verify,
	}
	if c.Certificate != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.Certificate() }
	}
	return cfg
}

// PeerTLS returns the configuration of a client of another machine, whose name c.Host is. A
// machine has one certificate, that it shows as client and as server.
func PeerTLS(c Client) *tls.Config {
	cfg := ClientTLS(c)
	now := c.Now
	if now == nil {
		now = time.Now
	}
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return fmt.Errorf("machine %s shows no certificate", c.Host)
		}
		leaf := state.PeerCertificates[0]
		if err := check(leaf, c.Authorities(), x509.ExtKeyUsageClientAuth, now()); err != nil {
			return fmt.Errorf("certificate of machine %s: %w", c.Host, err)
		}
		name, err := Of(leaf)
		if err != nil {
			return fmt.Errorf("certificate of machine %s: %w", c.Host, err)
		}
		if want := (Name{Cell: c.Cell, Role: Machine, Name: c.Host}); name != want {
			return fmt.Errorf("it is %s of cell %s, not machine %s of cell %s", name, name.Cell, c.Host, c.Cell)
		}
		return nil
	}
	return cfg
}

// verify errs unless the other end is the master.
func (c Client) verify(state tls.ConnectionState) error {
	chain := state.PeerCertificates
	if len(chain) == 0 {
		return fmt.Errorf("%s shows no certificate", c.Host)
	}
	var authorities []*x509.Certificate
	if c.Authorities != nil {
		authorities = c.Authorities()
	} else if i := slices.IndexFunc(chain, func(x *x509.Certificate) bool { return Fingerprint(x) == c.Pin }); i >= 0 {
		authorities = chain[i : i+1]
	} else {
		return fmt.Errorf("%s has a certificate of another authority than the join token names (%.16s…): it is the master of another cell, or an impostor", c.Host, c.Pin)
	}
	now := c.Now()
	if err := check(chain[0], authorities, x509.ExtKeyUsageServerAuth, now); err != nil {
		return fmt.Errorf("certificate of %s: %w", c.Host, err)
	}
	name, err := Of(chain[0])
	switch {
	case err != nil:
		return fmt.Errorf("certificate of %s: %w", c.Host, err)
	case name.Role != Master:
		return fmt.Errorf("%s is %s, not the master", c.Host, name)
	case c.Cell != "" && name.Cell != c.Cell:
		return fmt.Errorf("%s is the master of cell %q: want cell %q", c.Host, name.Cell, c.Cell)
	}
	if err := chain[0].VerifyHostname(c.Host); err != nil {
		return fmt.Errorf("the master's certificate is not for %s: it is for %v; issue one with `muster pki issue --role master --host %s`", c.Host, Hosts(chain[0]), c.Host)
	}
	return nil
}

// Hosts returns the names and addresses that a certificate is for.
func Hosts(c *x509.Certificate) []string {
	out := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

// check errs unless one of the authorities signed c for that use and both are
// valid now.
func check(c *x509.Certificate, authorities []*x509.Certificate, use x509.ExtKeyUsage, now time.Time) error {
	_, err := c.Verify(x509.VerifyOptions{Roots: pool(authorities), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use}})
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return When(invalid.Cert, now)
	case errors.As(err, &unknown):
		return errors.New("it is signed by an authority that is not trusted here")
	}
	return err
}

// When errs unless a certificate is valid now. The error says both times: it is
// the clock that is wrong as often as not.
func When(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("it expired at %s; the local time is %s", stamp(c.NotAfter), stamp(now))
	case now.Before(c.NotBefore):
		return fmt.Errorf("it is not valid before %s; the local time is %s: check the clock", stamp(c.NotBefore), stamp(now))
	}
	return nil
}

func pool(authorities []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range authorities {
		p.AddCert(c)
	}
	return p
}
