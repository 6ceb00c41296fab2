package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// The form of a token is "muster-join-1.CLAIMS.SIGNATURE", the latter two in
// base64url without padding.
const (
	tokenPrefix = "muster-join-1"
	maxToken    = 2048 // bytes; one with the longest names has some 600
	idBytes     = 16
)

// tokenContext is signed before the claims, so that no signature for another
// purpose is one of a token.
const tokenContext = "muster join token 1\x00"

// ErrToken is in the error for a text that is no token.
var ErrToken = errors.New("not a join token of muster pki token")

// Token lets one machine join a cell, once.
type Token struct {
	ID      string // 32 hex digits, random
	Cell    string
	Machine string
	CA      string // fingerprint of the authority that signed it
	Issued  time.Time
	Expires time.Time

	claims, signature []byte // as they came
}

// claims is a token's JSON. Times are seconds since 1970.
type claims struct {
	ID      string `json:"id"`
	Cell    string `json:"cell"`
	Machine string `json:"machine"`
	CA      string `json:"ca"`
	Issued  int64  `json:"issued"`
	Expires int64  `json:"expires"`
}

// NewToken makes a token for a machine and returns its text. The key is that
// of ca, on the curve P-256.
func NewToken(n Name, ca *x509.Certificate, key crypto.Signer, issued, expires time.Time) (string, error) {
	id := make([]byte, idBytes)
	_, _ = rand.Read(id) // it never fails
	t := Token{
		ID: hex.EncodeToString(id), Cell: n.Cell, Machine: n.Name, CA: Fingerprint(ca),
		Issued: issued, Expires: expires,
	}
	if err := t.check(); err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	b, err := json.Marshal(claims{t.ID, t.Cell, t.Machine, t.CA, issued.Unix(), expires.Unix()})
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	sum := signed(b)
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("token: sign: %w", err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return tokenPrefix + "." + encode(b) + "." + encode(signature), nil
}

// signed returns what the signature of a token is of.
func signed(claims []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte(tokenContext), claims...))
}

// ParseToken parses a token's text; white space around it is no part of it. The
// signature is not checked: see Verify.
func ParseToken(s string) (*Token, error) {
	s = strings.TrimSpace(s)
	if len(s) > maxToken {
		return nil, fmt.Errorf("%w: it has %d bytes, and one has at most %d", ErrToken, len(s), maxToken)
	}
	parts := strings.Split(s, ".")
	if len(parts) != 3 || parts[0] != tokenPrefix {
		return nil, fmt.Errorf("%w: want one line, %s.….…", ErrToken, tokenPrefix)
	}
	decode := base64.RawURLEncoding.Strict().DecodeString
	body, err := decode(parts[1])
	if err != nil {
		return nil, fmt.Errorf("%w: its second part: %w", ErrToken, err)
	}
	signature, err := decode(parts[2])
	if err != nil {
		return nil, fmt.Errorf("%w: its third part: %w", ErrToken, err)
	}
	var c claims
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("%w: its claims: %w", ErrToken, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows its claims", ErrToken)
	}
	t := &Token{
		ID: c.ID, Cell: c.Cell, Machine: c.Machine, CA: c.CA,
		Issued: time.Unix(c.Issued, 0).UTC(), Expires: time.Unix(c.Expires, 0).UTC(),
		claims: body, signature: signature,
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	return t, nil
}

func (t *Token) check() error {
	if err := schema.CheckName(t.Cell); err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	if err := schema.CheckName(t.Machine); err != nil {
		return fmt.Errorf("machine: %w", err)
	}
	for _, h := range []struct {
		what, text string
		bytes      int
	}{{"id", t.ID, idBytes}, {"authority", t.CA, sha256.Size}} {
		if b, err := hex.DecodeString(h.text); err != nil || len(b) != h.bytes || hex.EncodeToString(b) != h.text {
			return fmt.Errorf("%s %q: want %d hex digits", h.what, h.text, 2*h.bytes)
		}
	}
	if !t.Expires.After(t.Issued) {
		return fmt.Errorf("it expires at %s, which is not after its issue at %s", stamp(t.Expires), stamp(t.Issued))
	}
	return nil
}

// Verify errs with ErrRefused unless the authority signed the token for this
// cell and it is valid now.
func (t *Token) Verify(cell string, ca *x509.Certificate, now time.Time) error {
	public, ok := ca.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("the authority's key is a %T: want one on the curve P-256", ca.PublicKey)
	}
	sum := signed(t.claims)
	switch {
	case t.CA != Fingerprint(ca):
		return fmt.Errorf("%w: the join token is of another authority, %.16s…, and this cell's is %.16s…", ErrRefused, t.CA, Fingerprint(ca))
	case !ecdsa.VerifyASN1(public, sum[:], t.signature):
		return fmt.Errorf("%w: the join token is not signed by this cell's authority", ErrRefused)
	case t.Cell != cell:
		return fmt.Errorf("%w: the join token is for cell %q, and this is cell %q", ErrRefused, t.Cell, cell)
	}
	return t.valid(now)
}

// valid errs with ErrRefused unless the token is valid now, by the master's clock.
func (t *Token) valid(now time.Time) error {
	switch {
	case !now.Before(t.Expires):
		return fmt.Errorf("%w: the join token of machine %s expired at %s; the master's time is %s", ErrRefused, t.Machine, stamp(t.Expires), stamp(now))
	case now.Before(t.Issued.Add(-Backdate)):
		return fmt.Errorf("%w: the join token of machine %s was issued at %s; the master's time is %s: check the clock",
			ErrRefused, t.Machine, stamp(t.Issued), stamp(now))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
