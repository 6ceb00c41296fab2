package sops

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// OwnerKey is the top-level key of a document that says whose it is, as in local/search.
const OwnerKey = "muster_owner"

// Opener opens an armored age file.
type Opener func(age string) ([]byte, error)

// Inspect checks that text is a SOPS file that age recipients can open, as far as that is
// seen without a key.
func Inspect(text string) error {
	_, err := parse(text)
	return err
}

// Open returns the value with the given path, its parts with . between them, as text; with
// key "" the whole document, in its format and without comments. When none of the
// recipients is open's, it returns the error of open.
func Open(text, key string, open Opener) ([]byte, error) {
	f, err := decrypt(text, open)
	if err != nil {
		return nil, err
	}
	if key == "" {
		return f.encode()
	}
	v, err := lookup(f.root, key)
	if err != nil {
		return nil, err
	}
	return bytesOf(v)
}

// Owner returns the value of OwnerKey; "" if there is none that only who knows the file's key
// can have written.
func Owner(text string, open Opener) (string, error) {
	f, err := decrypt(text, open)
	if err != nil {
		return "", err
	}
	for _, field := range f.root {
		if owner, ok := field.value.(string); ok && field.name == OwnerKey && (!f.meta.MACOnlyEncrypted || f.meta.encrypted([]string{OwnerKey})) {
			return owner, nil
		}
	}
	return "", nil
}

// lookup returns the value at a path.
func lookup(root object, key string) (any, error) {
	var at any = root
	for part := range strings.SplitSeq(key, ".") {
		found := false
		switch in := at.(type) {
		case object:
			for _, f := range in {
				if f.name == part && !found {
					at, found = f.value, true
				}
			}
		case []any:
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(in) {
				at, found = in[i], true
			}
		}
		if !found {
			return nil, schema.Hintf("sops -d FILE shows the document; parts of the path have . between them", "the SOPS file has no value %q", key)
		}
	}
	return at, nil
}

// decrypt opens a file and checks its MAC.
func decrypt(text string, open Opener) (*file, error) {
	f, err := parse(text)
	if err != nil {
		return nil, err
	}
	key, err := f.meta.dataKey(open)
	if err != nil {
		return nil, err
	}
	defer clear(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("the SOPS file is damaged: its data key has %d bytes", len(key))
	}
	d := decryption{block, &f.meta, sha512.New()}
	if f.meta.MACOnlyEncrypted {
		d.sum.Write(onlyEncrypted)
	}
	root, err := d.object(f.root, nil)
	if err != nil {
		return nil, err
	}
	f.root = root
	at, err := time.Parse(time.RFC3339, f.meta.LastModified)
	if err != nil {
		return nil, errors.New("the SOPS file is damaged: it has no time of change")
	}
	mac, err := d.value(f.meta.MAC, at.Format(time.RFC3339))
	if got := fmt.Sprintf("%X", d.sum.Sum(nil)); err != nil || subtle.ConstantTimeCompare([]byte(got), []byte(fmt.Sprint(mac))) != 1 {
		return nil, schema.Hintf("restore it; SOPS files are edited with sops FILE", "the SOPS file was changed without its key: its MAC is another one")
	}
	return f, nil
}

// onlyEncrypted begins a MAC over encrypted values alone, so that it differs from one over
// all of them: the SHA-256 of "sops".
var onlyEncrypted = []byte{
	0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b,
	0x0b, 0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
}

// decryption is one walk over a document.
type decryption struct {
	block cipher.Block
	meta  *metadata
	sum   hash.Hash
}

// comment is a value of a list that stands for a comment.
type comment struct{}

func (d *decryption) object(in object, path []string) (object, error) {
	out := make(object, 0, len(in))
	for _, f := range in {
		v, err := d.walk(f.value, append(path[:len(path):len(path)], f.name))
		if err != nil {
			return nil, err
		}
		out = append(out, field{f.name, v})
	}
	return out, nil
}

// walk decrypts a value; those of a list have the path of the list.
func (d *decryption) walk(v any, path []string) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case object:
		return d.object(v, path)
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			e, err := d.walk(e, path)
			if err != nil {
				return nil, err
			}
			if _, is := e.(comment); !is {
				out = append(out, e)
			}
		}
		return out, nil
	}
	encrypted := d.meta.encrypted(path)
	if encrypted {
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("the SOPS file has %s in clear", strings.Join(path, "."))
		}
		var err error
		if v, err = d.value(text, strings.Join(path, ":")+":"); err != nil {
			return nil, fmt.Errorf("the SOPS file is damaged at %s: %w", strings.Join(path, "."), err)
		}
	}
	if _, is := v.(comment); !is && (encrypted || !d.meta.MACOnlyEncrypted) {
		b, err := bytesForMAC(v)
		if err != nil {
			return nil, err
		}
		d.sum.Write(b)
	}
	return v, nil
}

var sealedForm = lazyregexp.New(`^ENC\[AES256_GCM,data:(.+),iv:(.+),tag:(.+),type:(.+)\]$`)

// value decrypts one text.
func (d *decryption) value(text, path string) (any, error) {
	if text == "" {
		return "", nil
	}
	m := sealedForm.FindStringSubmatch(text)
	if m == nil {
		return nil, errors.New("it is in clear")
	}
	var parts [3][]byte
	for i := range parts {
		b, err := base64.StdEncoding.DecodeString(m[i+1])
		if err != nil {
			return nil, errors.New("it is cut")
		}
		parts[i] = b
	}
	if len(parts[1]) == 0 || len(parts[2]) != aes.BlockSize {
		return nil, errors.New("it is cut")
	}
	gcm, err := cipher.NewGCMWithNonceSize(d.block, len(parts[1]))
	if err != nil {
		return nil, errors.New("it is cut")
	}
	plain, err := gcm.Open(nil, parts[1], append(parts[0], parts[2]...), []byte(path))
	if err != nil {
		return nil, errors.New("it was changed, or is of another place")
	}
	return typed(string(plain), m[4])
}

// typed returns a plaintext as what it was before.
func typed(plain, kind string) (v any, err error) {
	switch kind {
	case "str", "bytes":
		return plain, nil
	case "int":
		v, err = strconv.Atoi(plain)
	case "float":
		v, err = strconv.ParseFloat(plain, 64)
	case "bool":
		v, err = strconv.ParseBool(plain)
	case "time":
		var at time.Time
		err = at.UnmarshalText([]byte(plain))
		v = at
	case "comment":
		return comment{}, nil
	default:
		return nil, errors.New("its type is not known")
	}
	if err != nil {
		return nil, errors.New("it is not of its type") // err has the plaintext
	}
	return v, nil
}

// bytesForMAC returns a value as it is part of the MAC.
func bytesForMAC(v any) ([]byte, error) {
	if v, ok := v.(bool); ok {
		if v {
			return []byte("True"), nil
		}
		return []byte("False"), nil
	}
	return bytesOf(v)
}

// bytesOf returns a value as text.
func bytesOf(v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return []byte(v), nil
	case int:
		return strconv.AppendInt(nil, int64(v), 10), nil
	case float64:
		return strconv.AppendFloat(nil, v, 'f', -1, 64), nil
	case bool:
		return strconv.AppendBool(nil, v), nil
	case time.Time:
		return v.MarshalText()
	case object, []any:
		return nil, schema.Hintf("name one value, as in db.password, or leave key out for the whole document", "the value in the SOPS file is not a single one")
	}
	return nil, errors.New("the value in the SOPS file is empty")
}
