package secrets

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
	"github.com/musterhq/muster/schema/sealed"
)

// identityFile has the machine's key, in the state directory.
const identityFile = "secrets.key"

// Machine is what a machine has that can hold secrets.
type Machine struct {
	*Memory
	keys sealed.Identities
}

// Open reads the key of the state directory dir, which it draws if there is none, and finds
// a place in memory. The error says why the machine can hold no secrets.
func Open(dir string) (*Machine, error) { return openMachine(dir, places()) }

func openMachine(dir string, in []string) (*Machine, error) {
	text, err := identity(filepath.Join(dir, identityFile))
	if err != nil {
		return nil, fmt.Errorf("the machine's key for secrets: %w", err)
	}
	m := &Machine{}
	if m.keys, err = sealed.ParseIdentities(text); err != nil {
		return nil, fmt.Errorf("the machine's key for secrets, %s: %w", filepath.Join(dir, identityFile), err)
	}
	// Whoever may write to the same file system could be there before us.
	name := sha256.Sum256(append([]byte("muster secrets in memory\x00"), text...))
	m.Memory, err = openMemory(in, "muster-"+hex.EncodeToString(name[:8]))
	return m, err
}

// identity returns what is in name, which it makes.
func identity(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	secret, _, err := sealed.NewIdentity()
	if err != nil {
		return nil, err
	}
	text = []byte(secret + "\n")
	return text, atomicfile.Write(name, text, 0o600)
}

// Recipient is whom secrets for this machine are sealed for.
func (m *Machine) Recipient() string { return m.keys.Recipients()[0].String() }

// Open returns what is in an armored age file for this machine. The error has nothing of it.
func (m *Machine) Open(text string) ([]byte, error) {
	plain, err := m.keys.Open(text)
	switch {
	case errors.Is(err, sealed.ErrNotFor):
		return nil, errors.New("it cannot be opened by this machine: it was sealed for another key than the one in " + identityFile + "; the master seals it anew at the agent's next connection")
	case err != nil:
		return nil, fmt.Errorf("it cannot be opened by this machine: %w", err)
	}
	return plain, nil
}

// Of opens secrets of the task of a, by their names: the ciphertexts are in a.Secrets, by
// their versions. An error says of which secret it is, and nothing of what is in it.
func (m *Machine) Of(a *schema.Assignment, names []string, owner *User) (*Given, error) {
	given := &Given{Owner: owner, Env: map[string][]byte{}}
	for _, name := range names {
		s := a.Job.Task.Secrets[name]
		if err := m.add(given, name, &s, a.Secrets); err != nil {
			given.Clear()
			return nil, fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return given, nil
}

func (m *Machine) add(to *Given, name string, s *schema.TaskSecret, from map[string]string) error {
	version := ""
	if s.Sealed != nil {
		version = s.Sealed.Version
	}
	if version == "" || from[version] == "" {
		return errors.New("the master has not sent it to this machine")
	}
	plain, err := m.Open(from[version])
	if err != nil {
		return err
	}
	if path := s.Path(name); path != "" {
		mode, err := mode(s.Mode)
		if err != nil {
			return err
		}
		if !filepath.IsLocal(path) || path == "." {
			return fmt.Errorf("%q is no path in a directory", path)
		}
		to.Files = append(to.Files, File{Path: filepath.Clean(path), Mode: mode, Content: plain})
	}
	if s.Env != "" {
		if bytes.IndexByte(plain, 0) >= 0 {
			return fmt.Errorf("it has a byte that the variable %s cannot hold (NUL): give it to the task as a file", s.Env)
		}
		to.Env[s.Env] = bytes.TrimSuffix(plain, []byte("\n")) // an editor's
	}
	return nil
}

// mode returns the permissions that a job asks for.
func mode(text string) (fs.FileMode, error) {
	if text == "" {
		text = schema.DefaultSecretMode
	}
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("%q is no mode of a file: want octal digits, such as 0400", text)
	}
	return fs.FileMode(n), nil
}

// Clear forgets what is given.
func (g *Given) Clear() {
	for _, f := range g.Files {
		clear(f.Content)
	}
	for _, v := range g.Env {
		clear(v)
	}
}
