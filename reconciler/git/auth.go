package git

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/schema"
)

// Auth says who a master is to a remote, and whom it trusts. What is secret is
// named by a file. All files are read at each look: to put a new token or key
// in place takes no restart.
type Auth struct {
	// User goes with the token; for ssh it is the user to log in as. Empty:
	// the URL's user, else "x-access-token" with http and "git" with ssh.
	User string
	// TokenFile holds a token or password, for http and https.
	TokenFile string
	// Bearer sends the token as `Authorization: Bearer`, not as the password
	// of basic authentication, which is what most servers take.
	Bearer bool
	// CAFile holds certificates in PEM, for https: what they have signed is
	// trusted, and nothing else. Empty: what the system trusts.
	CAFile string
	// KeyFile is a private key for ssh, PassphraseFile what it is encrypted
	// with, if it is, and KnownHosts lists the keys of servers as sshd(8) says.
	KeyFile, PassphraseFile, KnownHosts string
}

const (
	tokenUser = "x-access-token"
	sshUser   = "git"
	maxSecret = 1 << 20
)

// check finds what is wrong with a, for a remote of a protocol, before it is
// asked.
func (a Auth) check(m *remote) error {
	web, shell := m.protocol == "http" || m.protocol == "https", m.protocol == "ssh"
	for _, f := range []struct {
		flag string
		set  bool
		fits bool
		want string
	}{
		{"token file", a.TokenFile != "", web, "https"},
		{"bearer token", a.Bearer, web, "https"},
		{"CA file", a.CAFile != "", m.protocol == "https", "https"},
		{"user", a.User != "", web || shell, "https or ssh"},
		{"key file", a.KeyFile != "", shell, "ssh"},
		{"passphrase file", a.PassphraseFile != "", shell, "ssh"},
		{"known hosts", a.KnownHosts != "", shell, "ssh"},
	} {
		if f.set && !f.fits {
			return schema.Hintf("leave it out, or give a URL that begins with "+f.want, "a %s is given, but it is of no use with %s", f.flag, m.protocol)
		}
	}
	if m.user != "" && a.User != "" && m.user != a.User {
		return schema.Hintf("give one of them", "the URL and --git-user name different users")
	}
	if shell {
		return a.checkShell(m)
	}
	if !web {
		return nil
	}
	switch {
	case m.user+a.User != "" && a.TokenFile == "":
		return schema.Hintf("put the password or token into a file that only you can read and give --git-token-file FILE", "a user is given without credentials")
	case a.Bearer && a.TokenFile == "":
		return schema.Hintf("give --git-token-file FILE", "--git-bearer is given without a token")
	case a.Bearer && m.user+a.User != "":
		return schema.Hintf("leave out the user: a bearer token identifies its owner", "a user is given beside a bearer token")
	case a.TokenFile != "" && m.protocol == "http" && !loopback(m.host):
		return schema.Hintf("give an https URL; --git-ca-file names the certificate of an authority of your own", "the token would cross the network in clear text")
	}
	if _, err := a.token(); err != nil {
		return err
	}
	_, err := a.roots()
	return err
}

func (a Auth) checkShell(m *remote) error {
	if a.KnownHosts == "" {
		return schema.Hintf(fmt.Sprintf("write the server's key with `%s > FILE`, compare its fingerprint with what the server's administrator says, and give --git-known-hosts FILE", m.keyscan()), "the server's host key is not known")
	}
	if a.KeyFile == "" {
		return schema.Hintf("make one with `ssh-keygen -t ed25519 -N '' -f FILE`, let FILE.pub read the repository, and give --git-key-file FILE", "no private key is given")
	}
	if _, err := a.signer(); err != nil {
		return err
	}
	_, err := a.hosts(m)
	return err
}

// readFile reads a file that is named by a flag. Bits in closed must not be set
// in its mode.
func readFile(flag, path string, closed fs.FileMode) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, schema.Hintf("name a file that the master can read", "%s: %w", flag, err)
	case !info.Mode().IsRegular():
		return nil, schema.Hintf("name a file", "%s: %s is not a file", flag, path)
	case info.Size() > maxSecret:
		return nil, schema.Hintf("name a file that holds nothing else", "%s: %s has %d bytes, at most %d", flag, path, info.Size(), maxSecret)
	case info.Mode().Perm()&closed != 0:
		return nil, schema.Hintf(fmt.Sprintf("chmod 600 %s", path), "%s: %s has mode %04o: others than its owner can use it", flag, path, info.Mode().Perm())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, schema.Hintf("name a file that the master can read", "%s: %w", flag, err)
	}
	return data, nil
}

// secret reads a file that holds one line.
func secret(flag, path string) (string, error) {
	data, err := readFile(flag, path, 0o007)
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", schema.Hintf("write it there, on one line", "%s: %s is empty", flag, path)
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return "", schema.Hintf("write it there alone, on one line", "%s: %s has more than one line, or control characters", flag, path)
	}
	return text, nil
}

// token returns the token or password, "" if there is none.
func (a Auth) token() (string, error) {
	if a.TokenFile == "" {
		return "", nil
	}
	return secret("--git-token-file", a.TokenFile)
}

// roots returns the content of CAFile, nil if there is none.
func (a Auth) roots() ([]byte, error) {
	if a.CAFile == "" {
		return nil, nil
	}
	data, err := readFile("--git-ca-file", a.CAFile, 0)
	if err != nil {
		return nil, err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return nil, schema.Hintf("it begins with -----BEGIN CERTIFICATE-----", "--git-ca-file: %s has no certificate in PEM", a.CAFile)
	}
	return data, nil
}

// signer returns the key to log in with.
func (a Auth) signer() (ssh.Signer, error) {
	data, err := readFile("--git-key-file", a.KeyFile, 0o077)
	if err != nil {
		return nil, err
	}
	if a.PassphraseFile != "" {
		pass, err := secret("--git-key-passphrase-file", a.PassphraseFile)
		if err != nil {
			return nil, err
		}
		s, err := ssh.ParsePrivateKeyWithPassphrase(data, []byte(pass))
		switch {
		case errors.Is(err, x509.IncorrectPasswordError):
			return nil, schema.Hintf("the file holds the passphrase on one line", "--git-key-passphrase-file: %s does not open the key in %s", a.PassphraseFile, a.KeyFile)
		case err != nil && strings.Contains(err.Error(), "not password protected"), err != nil && strings.Contains(err.Error(), "not an encrypted key"):
			return nil, schema.Hintf("leave out --git-key-passphrase-file", "--git-key-file: the key in %s is not encrypted", a.KeyFile)
		case err != nil:
			return nil, badKey(a.KeyFile, err)
		}
		return s, nil
	}
	s, err := ssh.ParsePrivateKey(data)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, schema.Hintf("give --git-key-passphrase-file FILE, or a key without a passphrase", "--git-key-file: the key in %s is encrypted", a.KeyFile)
	}
	if err != nil {
		return nil, badKey(a.KeyFile, err)
	}
	return s, nil
}

func badKey(path string, err error) error {
	return schema.Hintf("name the private key that ssh-keygen wrote, not the .pub beside it", "--git-key-file: %s holds no private key: %w", path, err)
}
