package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// authority is a certificate that signs.
type authority struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	return sign(t, x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(1000 * time.Hour),
	}, nil)
}

// sign makes a certificate; by is who signs it, nil for itself.
func sign(t testing.TB, template x509.Certificate, by *authority) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := &template, key
	if by != nil {
		parent, signer = by.Certificate, by.key
	}
	template.SerialNumber, template.PublicKey = big.NewInt(1), nil
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{c, key}
}

func token(t testing.TB, ca authority) string {
	t.Helper()
	s, err := NewToken(Name{"c", Machine, "m1"}, ca.Certificate, ca.key, noon, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// forged returns the token with other claims under the same signature.
func forged(t *testing.T, text string, change func(*claims)) string {
	t.Helper()
	parts := strings.Split(text, ".")
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var c claims
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	change(&c)
	if b, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	return parts[0] + "." + base64.RawURLEncoding.EncodeToString(b) + "." + parts[2]
}

func TestToken(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	text := token(t, ca)
	for name, tt := range map[string]struct {
		text string
		cell string
		now  time.Time
		want string // in the error, "" for none
	}{
		"good":                 {text: "\n" + text + " \n", cell: "c", now: noon},
		"a clock behind":       {text: text, cell: "c", now: noon.Add(-Backdate)},
		"a clock far behind":   {text: text, cell: "c", now: noon.Add(-Backdate - time.Second), want: "the master's time is 2026-03-01T11:49:59Z: check the clock"},
		"expired":              {text: text, cell: "c", now: noon.Add(time.Hour), want: "the join token of machine m1 expired at 2026-03-01T13:00:00Z; the master's time is 2026-03-01T13:00:00Z"},
		"another cell":         {text: text, cell: "d", now: noon, want: `for cell "c", and this is cell "d"`},
		"another authority":    {text: token(t, other), cell: "c", now: noon, want: "is of another authority"},
		"another machine":      {text: forged(t, text, func(c *claims) { c.Machine = "m2" }), cell: "c", now: noon, want: "not signed by this cell's authority"},
		"a longer life":        {text: forged(t, text, func(c *claims) { c.Expires++ }), cell: "c", now: noon, want: "not signed by this cell's authority"},
		"a forged authority":   {text: forged(t, token(t, other), func(c *claims) { c.CA = Fingerprint(ca.Certificate) }), cell: "c", now: noon, want: "not signed by this cell's authority"},
		"a signature cut away": {text: text[:strings.LastIndex(text, ".")+1], cell: "c", now: noon, want: "not signed by this cell's authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parsed, err := ParseToken(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			err = parsed.Verify(tt.cell, ca.Certificate, tt.now)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestParseTokenErrors(t *testing.T) {
	t.Parallel()
	text := token(t, newAuthority(t))
	parts := strings.Split(text, ".")
	encode := base64.RawURLEncoding.EncodeToString
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	with := func(claims string) string { return parts[0] + "." + encode([]byte(claims)) + "." + parts[2] }
	for name, tt := range map[string]struct{ text, want string }{
		"empty":          {"", "want one line, muster-join-1.….…"},
		"another form":   {"muster-join-2." + parts[1] + "." + parts[2], "want one line"},
		"two lines":      {text + "\n" + text, "want one line"},
		"base64":         {parts[0] + ".!." + parts[2], "its second part: illegal base64"},
		"signature":      {parts[0] + "." + parts[1] + ".!", "its third part: illegal base64"},
		"padding":        {parts[0] + "." + parts[1] + "." + parts[2] + "=", "its third part: illegal base64"},
		"no JSON":        {with("x"), "its claims: invalid character"},
		"more":           {with(string(body) + "{}"), "something follows its claims"},
		"unknown claim":  {with(strings.Replace(string(body), "{", `{"root":true,`, 1)), `unknown field "root"`},
		"machine":        {forged(t, text, func(c *claims) { c.Machine = "../m" }), `machine: name "../m": want lower-case`},
		"cell":           {forged(t, text, func(c *claims) { c.Cell = "" }), "cell: empty name"},
		"id":             {forged(t, text, func(c *claims) { c.ID = "00" }), `id "00": want 32 hex digits`},
		"capitals":       {forged(t, text, func(c *claims) { c.ID = strings.Repeat("AB", 16) }), "want 32 hex digits"},
		"fingerprint":    {forged(t, text, func(c *claims) { c.CA = "zz" }), `authority "zz": want 64 hex digits`},
		"expired before": {forged(t, text, func(c *claims) { c.Expires = c.Issued }), "which is not after its issue"},
		"long":           {strings.Repeat("a", 3000), "it has 3000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := ParseToken(tt.text); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, error %v, want %q", got, err, tt.want)
			}
		})
	}
}

func FuzzParseToken(f *testing.F) {
	ca := newAuthority(f)
	f.Add(token(f, ca))
	f.Add("muster-join-1.e30.e30")
	f.Add("muster-join-1..")
	f.Fuzz(func(t *testing.T, s string) {
		parsed, err := ParseToken(s)
		if err != nil {
			if !errors.Is(err, ErrToken) || strings.ContainsRune(err.Error(), '\n') {
				t.Errorf("error %q", err)
			}
			return
		}
		if parsed.check() != nil {
			t.Errorf("%+v was taken", parsed)
		}
		// Whoever has no key makes no token.
		if err := parsed.Verify("c", newAuthority(t).Certificate, noon); !errors.Is(err, ErrRefused) {
			t.Errorf("%+v: %v", parsed, err)
		}
	})
}
