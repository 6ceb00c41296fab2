package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/musterhq/muster/schema/identity"
)

// Request says which certificate is wanted.
type Request struct {
	Name  identity.Name
	Hosts []string // names and addresses, for a master; none for others
	Life  time.Duration
	Now   time.Time
	// Client is a master's certificate for connections that it makes to other masters.
	Client bool
}

// certificate signs a certificate for a public key.
func (d *Directory) certificate(r Request, public crypto.PublicKey) (*x509.Certificate, error) {
	if err := r.Name.Check(); err != nil {
		return nil, err
	}
	if r.Life < time.Second {
		return nil, fmt.Errorf("a validity of %v: want at least a second", r.Life)
	}
	if !r.Now.Before(d.CA.NotAfter) {
		return nil, fmt.Errorf("the authority expired at %s: make a new one", d.CA.NotAfter.Format(time.RFC3339))
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: r.Name.String()},
		URIs:      []*url.URL{r.Name.URI()},
		NotBefore: r.Now.Add(-identity.Backdate), NotAfter: r.Now.Add(r.Life),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if template.NotAfter.After(d.CA.NotAfter) {
		template.NotAfter = d.CA.NotAfter // what outlives it would be worth nothing
	}
	if r.Name.Role == identity.Master && !r.Client {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if err := addHosts(template, r.Hosts); err != nil {
			return nil, err
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, d.CA, public, d.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// addHosts puts the names and addresses of a server into its certificate.
func addHosts(c *x509.Certificate, hosts []string) error {
	if len(hosts) == 0 {
		return errors.New("a master's certificate is for names or addresses, and none is given")
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			if ip.IsUnspecified() {
				return fmt.Errorf("host %q is not an address that can be dialled", h)
			}
			c.IPAddresses = append(c.IPAddresses, ip)
			continue
		}
		if !validHost(h) {
			return fmt.Errorf("host %q: want a name such as master.example.com or an IP address, without a port", h)
		}
		c.DNSNames = append(c.DNSNames, strings.ToLower(h))
	}
	return nil
}

// CheckHosts errs unless a master's certificate can be for all hosts.
func CheckHosts(hosts []string) error { return addHosts(new(x509.Certificate), hosts) }

// Read reads the first certificate of a file.
func Read(file string) (*x509.Certificate, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	list, err := decodeCertificates(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list[0], nil
}

// MasterHosts returns what the master's present certificate is for.
func (d *Directory) MasterHosts() ([]string, error) {
	c, err := Read(d.MasterFile())
	if err != nil {
		return nil, err
	}
	return identity.Hosts(c), nil
}

// validHost returns whether h is a name of DNS (RFC 1123 §2.1), as crypto/x509
// compares it.
func validHost(h string) bool {
	if len(h) > 253 {
		return false
	}
	for label := range strings.SplitSeq(h, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range strings.ToLower(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}

// Issue makes a key and a certificate for it, and writes both with the
// authority's certificate to a file of mode 0600. A file that holds a
// certificate of the same name is replaced; any other is not: fs.ErrExist.
func (d *Directory) Issue(r Request, file string) (*x509.Certificate, error) {
	if err := replaceable(file, r.Name); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c, err := d.certificate(r, key.Public())
	if err != nil {
		return nil, err
	}
	block, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return c, writeFile(file, append(encodeCertificates(c.Raw, d.CA.Raw), block...), 0o600)
}

// replaceable errs when there is a file that is no certificate of the name.
func replaceable(file string, name identity.Name) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if list, err := decodeCertificates(b); err == nil {
		if was, err := identity.Of(list[0]); err == nil && was == name {
			return nil
		}
	}
	return fmt.Errorf("%s: %w, and it is no certificate of %s", file, fs.ErrExist, name)
}

// MasterFile is where the master's certificate belongs.
func (d *Directory) MasterFile() string { return filepath.Join(d.path, masterFile) }

// Token makes a token with which the machine can join the cell once.
func (d *Directory) Token(machine string, now time.Time, life time.Duration) (string, error) {
	n := identity.Name{Cell: d.Cell, Role: identity.Machine, Name: machine}
	if err := n.Check(); err != nil {
		return "", err
	}
	now = now.Truncate(time.Second) // a token's times are whole seconds
	return identity.NewToken(n, d.CA, d.key, now, now.Add(life))
}
