package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// Backdate is how long before its issue a certificate is valid, so that a
// machine whose clock is behind can use it at once.
const Backdate = 10 * time.Minute

// ErrRefused marks the refusal of a peer or a token: to ask again as before
// does not help.
var ErrRefused = errors.New("refused")

// Role is what a certificate's holder may do.
type Role string

// The roles.
const (
	// Master serves the link and the API.
	Master Role = "master"
	// Machine sees its own assignments and reports as itself, over the link.
	Machine Role = "machine"
	// Operator may use all of the API.
	Operator Role = "operator"
	// ReadOnly may use what of the API changes nothing.
	ReadOnly Role = "read-only"
	// Plan may have the cell as `muster plan` needs it: without values of environment
	// variables, files and secrets. It is for CI.
	Plan Role = "plan"
)

// Roles lists all roles.
func Roles() []Role { return []Role{Master, Machine, Operator, ReadOnly, Plan} }

// Client returns whether the role is for the API.
func (r Role) Client() bool { return r == Operator || r == ReadOnly || r == Plan }

// Name is the holder of a certificate.
type Name struct {
	Cell string
	Role Role
	Name string
}

// String returns ROLE/NAME, the form used where the cell is known.
func (n Name) String() string { return string(n.Role) + "/" + n.Name }

// Parse parses ROLE/NAME.
func Parse(cell, s string) (Name, error) {
	role, name, _ := strings.Cut(s, "/")
	n := Name{cell, Role(role), name}
	return n, n.Check()
}

// Check errs unless n can stand in a certificate.
func (n Name) Check() error {
	if err := schema.CheckName(n.Cell); err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	if !slices.Contains(Roles(), n.Role) {
		return fmt.Errorf("role %q: want one of %v", n.Role, Roles())
	}
	if err := schema.CheckName(n.Name); err != nil {
		return fmt.Errorf("%s: %w", n.Role, err)
	}
	return nil
}

const scheme = "muster"

// URI returns what stands in the certificate.
func (n Name) URI() *url.URL {
	return &url.URL{Scheme: scheme, Host: n.Cell, Path: "/" + n.String()}
}

// Of returns the holder of a certificate. It errs when the certificate is no
// cell's.
func Of(c *x509.Certificate) (Name, error) {
	if len(c.URIs) != 1 {
		return Name{}, fmt.Errorf("certificate of %q has %d URIs: want one, muster://CELL/ROLE/NAME", c.Subject, len(c.URIs))
	}
	n, err := Parse(c.URIs[0].Host, strings.TrimPrefix(c.URIs[0].Path, "/"))
	if err != nil {
		return Name{}, fmt.Errorf("certificate with URI %q: %w", c.URIs[0], err)
	}
	if n.URI().String() != c.URIs[0].String() {
		return Name{}, fmt.Errorf("certificate with URI %q: want muster://CELL/ROLE/NAME", c.URIs[0])
	}
	return n, nil
}

// Fingerprint returns the SHA-256 of a certificate, in hex.
func Fingerprint(c *x509.Certificate) string { return digest(c.Raw) }

// KeyDigest returns the SHA-256 of a public key in its PKIX form, in hex.
func KeyDigest(public any) (string, error) {
	b, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("public key: %w", err)
	}
	return digest(b), nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Issued returns when a certificate of a cell was made.
func Issued(c *x509.Certificate) time.Time { return c.NotBefore.Add(Backdate) }
