package sealed

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/musterhq/muster/schema"
)

// MaxPlain is the largest secret, in bytes: it is for keys and passwords, and is
// kept in memory.
const MaxPlain = 64 << 10

// Recipient is a public key that something can be sealed for.
type Recipient struct {
	text string
	key  age.Recipient
}

// String returns the recipient as ParseRecipient takes it.
func (r Recipient) String() string { return r.text }

// ParseRecipient reads a native recipient of age: age1… or age1pq1….
func ParseRecipient(text string) (Recipient, error) {
	var key age.Recipient
	var err error
	switch {
	case strings.HasPrefix(text, "age1pq1"):
		key, err = age.ParseHybridRecipient(text)
	case strings.HasPrefix(text, "age1"):
		key, err = age.ParseX25519Recipient(text)
	case secretKey(text):
		return Recipient{}, schema.Hintf("muster secret keys FILE prints the recipients of a file of identities; what was shown to others is to be replaced", "this is an identity, which opens secrets, and not a recipient")
	case strings.HasPrefix(text, "ssh-"):
		return Recipient{}, schema.Hintf("muster secret keys --new FILE makes an age identity", "ssh keys are not supported yet")
	default:
		return Recipient{}, schema.Hintf("muster secret keys FILE prints the recipients of a file of identities", "%.20q is no recipient: want age1…", text)
	}
	if err != nil {
		return Recipient{}, schema.Hintf("copy it whole: muster secret keys FILE prints it", "%.20q… is a damaged recipient", text)
	}
	return Recipient{text, key}, nil
}

// secretKey reports whether text begins as an identity of age does.
func secretKey(text string) bool { return strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-") }

// ownerStanza is the type of the header's line that says whose a secret is. It wraps no
// key; other implementations of age pass over it.
const ownerStanza = "muster-owner"

// owner is written into the header as a recipient is.
type owner struct {
	name   string
	labels []string // those of the other recipients: all of a file have the same
}

// Wrap returns the line.
func (o owner) Wrap([]byte) ([]*age.Stanza, error) {
	return []*age.Stanza{{Type: ownerStanza, Args: []string{o.name}}}, nil
}

// WrapWithLabels returns the line.
func (o owner) WrapWithLabels(key []byte) ([]*age.Stanza, []string, error) {
	s, err := o.Wrap(key)
	return s, o.labels, err
}

// Seal returns plaintext as an armored age file that the recipients can open. of is
// whose it is, as in local/search (see Owner); "" for what is given to a machine.
func Seal(plaintext []byte, recipients []Recipient, of string) (string, error) {
	if len(plaintext) > MaxPlain {
		return "", fmt.Errorf("the secret has %d bytes, of %d at most", len(plaintext), MaxPlain)
	}
	var keys []age.Recipient
	for _, r := range recipients {
		keys = append(keys, r.key)
	}
	if of != "" && len(keys) > 0 {
		o := owner{name: of}
		if _, ok := keys[0].(*age.HybridRecipient); ok {
			o.labels = []string{"postquantum"}
		}
		keys = append(keys, o)
	}
	var out bytes.Buffer
	text := armor.NewWriter(&out)
	w, err := age.Encrypt(text, keys...)
	if err != nil {
		return "", fmt.Errorf("seal for %d recipients: %w", len(recipients), err)
	}
	if _, err := w.Write(plaintext); err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	if err := errors.Join(w.Close(), text.Close()); err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	return out.String(), nil
}

// Identities are keys that open what was sealed for their recipients.
type Identities struct { //nolint:recvcheck // a value that is made once
	keys       []age.Identity
	recipients []Recipient
}

// ParseIdentities reads the text of a file of age identities: one a line, beside empty
// lines and comments that begin with #.
func ParseIdentities(text []byte) (Identities, error) {
	var out Identities
	if bytes.Contains(text, []byte("-----BEGIN ")) {
		return Identities{}, schema.Hintf("muster secret keys --new FILE makes an age identity", "it is an ssh key, or another in PEM form, which are not supported yet: want AGE-SECRET-KEY-1…")
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := out.add(line); err != nil {
			return Identities{}, schema.Hintf("muster secret keys --new FILE makes an identity", "line %d is no age identity: want AGE-SECRET-KEY-1…", n)
		}
	}
	if len(out.keys) == 0 {
		return Identities{}, schema.Hintf("muster secret keys --new FILE makes an identity", "there is no age identity in it")
	}
	return out, nil
}

func (i *Identities) add(line string) error {
	if strings.HasPrefix(line, "AGE-SECRET-KEY-PQ-1") {
		key, err := age.ParseHybridIdentity(line)
		if err == nil {
			i.keys = append(i.keys, key)
			i.recipients = append(i.recipients, Recipient{key.Recipient().String(), key.Recipient()})
		}
		return err
	}
	key, err := age.ParseX25519Identity(line)
	if err == nil {
		i.keys = append(i.keys, key)
		i.recipients = append(i.recipients, Recipient{key.Recipient().String(), key.Recipient()})
	}
	return err
}

// NewIdentity draws an identity. It returns the line that ParseIdentities takes, which is
// to be kept secret, and its recipient.
func NewIdentity() (secret string, r Recipient, err error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return "", Recipient{}, fmt.Errorf("draw an identity: %w", err)
	}
	return key.String(), Recipient{key.Recipient().String(), key.Recipient()}, nil
}

// Empty reports whether there are none.
func (i Identities) Empty() bool { return len(i.keys) == 0 }

// Recipients returns the recipients of the identities, in their order.
func (i Identities) Recipients() []Recipient { return slices.Clone(i.recipients) }

// ErrNotFor is wrapped by what Open returns when none of the identities is one that the
// ciphertext was sealed for.
var ErrNotFor = errors.New("sealed for other recipients")

// Open returns the plaintext of an armored age file. Its errors are those of Inspect,
// and ErrNotFor.
func (i Identities) Open(text string) ([]byte, error) {
	if _, err := Inspect(text); err != nil {
		return nil, err
	}
	if i.Empty() {
		return nil, fmt.Errorf("there is no identity to open it with: %w", ErrNotFor)
	}
	r, err := age.Decrypt(armor.NewReader(strings.NewReader(text)), i.keys...)
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return nil, ErrNotFor
	}
	if err != nil {
		return nil, fmt.Errorf("the age file is damaged: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, MaxPlain+1))
	if err != nil {
		return nil, fmt.Errorf("the age file is damaged: %w", err)
	}
	if len(plain) > MaxPlain {
		clear(plain)
		return nil, fmt.Errorf("the secret has more than %d bytes", MaxPlain)
	}
	return plain, nil
}

// Header is what can be known of an age file without a key.
type Header struct {
	// Recipients are the types of those that can open it, such as X25519, in order.
	Recipients []string
	// Owner is whose it is, as in local/search; "" if it does not say.
	Owner string
}

// Inspect checks that text is an armored age file for recipients' keys. It does not
// check what needs a key.
func Inspect(text string) (Header, error) {
	const how = "muster secret edit FILE makes one"
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "":
		return Header{}, schema.Hintf(how, "it is empty, and no age file")
	case strings.HasPrefix(trimmed, "age-encryption.org/"):
		return Header{}, schema.Hintf("encrypt with age --armor, or: "+how, "it is an age file in binary form")
	case !strings.HasPrefix(trimmed, armor.Header):
		return Header{}, schema.Hintf(how+"; what was committed in clear is to be replaced: it stays in the history", "it is no age file: want %s", armor.Header)
	}
	header, err := age.ExtractHeader(armor.NewReader(strings.NewReader(text)))
	if err == nil {
		_, err = io.Copy(io.Discard, armor.NewReader(strings.NewReader(text)))
	}
	if err != nil {
		return Header{}, schema.Hintf("restore it, or: "+how, "the age file is damaged: %w", err)
	}
	var h Header
	for line := range strings.Lines(string(header)) {
		args := strings.Fields(line)
		switch {
		case len(args) < 2 || args[0] != "->":
		case args[1] == "scrypt":
			return Header{}, schema.Hintf("encrypt it for the recipients of the cell: "+how, "it is sealed with a passphrase, which no machine can type")
		case args[1] == ownerStanza:
			if len(args) != 3 || h.Owner != "" {
				return Header{}, schema.Hintf(how, "the age file is damaged: it does not say whose it is")
			}
			h.Owner = args[2]
		default:
			h.Recipients = append(h.Recipients, args[1])
		}
	}
	if len(h.Recipients) > 0 && !slices.ContainsFunc(h.Recipients, func(kind string) bool { return !strings.HasPrefix(kind, "ssh-") }) {
		return Header{}, schema.Hintf("encrypt it for age recipients: "+how, "it is sealed for ssh keys alone, which are not supported yet")
	}
	return h, nil
}

// Version returns what differs where two plaintexts do, and without the key says nothing
// about either: an HMAC-SHA256 in hexadecimal. of is the name of the secret, so that two
// with the same plaintext do not look alike.
func Version(key []byte, of string, plaintext []byte) string {
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%d:%s", len(of), of)
	m.Write(plaintext)
	return hex.EncodeToString(m.Sum(nil))
}
