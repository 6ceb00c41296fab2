package git

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/musterhq/muster/schema"
)

// hosts is what a known_hosts file says of one server.
type hosts struct {
	file   string
	server *remote
	check  ssh.HostKeyCallback
	// algorithms are those of the keys that are listed, empty if none is:
	// another key of a known server must not be asked for, since it would look
	// like a changed one.
	algorithms []string
}

// hosts reads KnownHosts.
func (a Auth) hosts(m *remote) (*hosts, error) {
	text, err := readFile("--git-known-hosts", a.KnownHosts, 0o022)
	if err != nil {
		return nil, err
	}
	check, err := knownhosts.New(a.KnownHosts)
	if err != nil {
		return nil, schema.Hintf("each line is as ssh-keyscan prints it: HOST TYPE KEY", "--git-known-hosts: %w", err)
	}
	h := &hosts{file: a.KnownHosts, server: m, check: check}
	lines := strings.Split(string(text), "\n")
	for _, k := range h.listed() {
		// A line of an authority does not say of what kind the server's key is.
		if k.Line <= len(lines) && strings.HasPrefix(strings.TrimSpace(lines[k.Line-1]), "@cert-authority") {
			h.algorithms = append(h.algorithms, certified...)
			continue
		}
		h.algorithms = append(h.algorithms, algorithms(k.Key.Type())...)
	}
	return h, nil
}

// listed returns the keys that the file has for the server.
func (h *hosts) listed() []knownhosts.KnownKey {
	// A key that cannot be in the file is refused with those that are.
	var mismatch *knownhosts.KeyError
	if errors.As(h.check(h.server.address(), nowhere{}, noKey{}), &mismatch) {
		return mismatch.Want
	}
	return nil
}

// certified are the algorithms of keys that an authority has signed.
var certified = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
	ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
}

// algorithms returns the signature algorithms of a type of key.
func algorithms(kind string) []string {
	if kind == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{kind}
}

// verify refuses a key that the file does not list for the server.
func (h *hosts) verify(address string, from net.Addr, key ssh.PublicKey) error {
	err := h.check(address, from, key)
	var mismatch *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		return schema.Hintf("do not connect: ask the server's administrator for its new key", "the server's key %s is revoked by %s:%d", fingerprint(key), h.file, revoked.Revoked.Line)
	case errors.As(err, &mismatch) && len(mismatch.Want) == 0:
		return schema.Hintf(
			fmt.Sprintf("compare the fingerprint with what the server's administrator says; if it is right, `%s >> %s`", h.server.keyscan(), h.file),
			"%s has no key of the server, whose key is %s", h.file, fingerprint(key))
	case errors.As(err, &mismatch):
		want := make([]string, 0, len(mismatch.Want))
		for _, k := range mismatch.Want {
			want = append(want, fmt.Sprintf("%s (line %d)", fingerprint(k.Key), k.Line))
		}
		slices.Sort(want)
		return schema.Hintf(
			"this may be a man-in-the-middle attack; replace the line only if the server's administrator says that the key was changed",
			"the server's key is %s, but %s says %s", fingerprint(key), h.file, strings.Join(want, ", "))
	}
	return &schema.HintedError{
		Message: fmt.Sprintf("the server's key %s is not accepted: %s", fingerprint(key), oneLine(strings.TrimPrefix(err.Error(), "ssh: "))),
		Hint:    "have its certificate renewed, or ask its administrator by which authority it is signed", Err: err,
	}
}

func fingerprint(key ssh.PublicKey) string {
	return strings.TrimPrefix(key.Type(), "ssh-") + " " + ssh.FingerprintSHA256(key)
}

// keyscan returns the command that prints the server's keys.
func (m *remote) keyscan() string {
	if m.port == "22" {
		return "ssh-keyscan " + m.host
	}
	return fmt.Sprintf("ssh-keyscan -p %s %s", m.port, m.host)
}

// nowhere is an address that is asked about without a connection.
type nowhere struct{}

func (nowhere) Network() string { return "tcp" }
func (nowhere) String() string  { return "0.0.0.0:0" }

// noKey is a key that no file has.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return []byte("none") }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }
