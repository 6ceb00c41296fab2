package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
	"github.com/musterhq/muster/schema/identity"
)

// The files of a directory.
const (
	caFile      = "ca.pem"
	keyFile     = "ca.key"
	masterFile  = "master.pem"
	revokedFile = "revoked"
)

// MasterName is the name of a cell's master in its certificate.
const MasterName = "master"

// caLife is the life of an authority: ten years, as with other cluster managers.
const caLife = 10 * 365 * 24 * time.Hour

// The types of PEM blocks.
const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// Directory is the authority of one cell. It holds the key in memory.
type Directory struct {
	path string
	Cell string
	CA   *x509.Certificate
	key  crypto.Signer
}

// Init makes a new authority for a cell in the directory, which is made with
// mode 0700. It errs with fs.ErrExist when there is one already.
func Init(path, cell string, now time.Time) (*Directory, error) {
	if err := schema.CheckName(cell); err != nil {
		return nil, fmt.Errorf("cell: %w", err)
	}
	for _, name := range []string{caFile, keyFile} {
		if _, err := os.Lstat(filepath.Join(path, name)); err == nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(path, name), fs.ErrExist)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "muster cell " + cell},
		URIs:      []*url.URL{cellURI(cell)},
		NotBefore: now.Add(-identity.Backdate), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	block, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	// The certificate last: where it is, there is all.
	if err := writeFile(filepath.Join(path, keyFile), block, 0o600); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(path, caFile), encodeCertificates(der), 0o644); err != nil {
		return nil, err
	}
	return Open(path)
}

// cellURI is what an authority's certificate says of its cell.
func cellURI(cell string) *url.URL { return &url.URL{Scheme: "muster", Host: cell} }

// Open reads the authority in a directory. Its key must be closed to all other
// users.
func Open(path string) (*Directory, error) {
	ca, err := readAuthority(filepath.Join(path, caFile))
	if err != nil {
		return nil, err
	}
	name := filepath.Join(path, keyFile)
	b, err := readPrivate(name)
	if err != nil {
		return nil, err
	}
	key, err := decodeKey(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !key.PublicKey.Equal(ca.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of %s", name, filepath.Join(path, caFile))
	}
	return &Directory{path: path, Cell: ca.URIs[0].Host, CA: ca, key: key}, nil
}

// readAuthority reads an authority's certificate.
func readAuthority(name string) (*x509.Certificate, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	list, err := decodeCertificates(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := list[0]
	if !c.IsCA || len(c.URIs) != 1 || c.URIs[0].String() != cellURI(c.URIs[0].Host).String() || schema.CheckName(c.URIs[0].Host) != nil {
		return nil, fmt.Errorf("%s: not an authority of `muster pki init`", name)
	}
	return c, nil
}

// readPrivate reads a file that no other user may read.
func readPrivate(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, so other users can read the key: want 0600", name, mode)
	}
	return os.ReadFile(name)
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // RFC 5280 §4.1.2.2: at most 20 octets
}

func encodeCertificates(list ...[]byte) []byte {
	var out []byte
	for _, der := range list {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})...)
	}
	return out
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// decodeCertificates returns all certificates of a PEM file, at least one.
func decodeCertificates(b []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in it: want PEM")
	}
	return out, nil
}

func decodeKey(b []byte) (*ecdsa.PrivateKey, error) {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != keyBlock {
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		k, ok := key.(*ecdsa.PrivateKey)
		if !ok || k.Curve != elliptic.P256() {
			return nil, fmt.Errorf("a key of type %T: want ECDSA on the curve P-256", key)
		}
		return k, nil
	}
	return nil, errors.New("no key in it: want PEM, PKCS #8")
}

// writeFile writes a file whole and durably. Two commands may write the same one.
func writeFile(name string, data []byte, mode fs.FileMode) error {
	return atomicfile.WriteFrom(name, mode, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
