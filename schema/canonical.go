package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Digest is "sha256:" and the hexadecimal SHA-256 of a value's canonical JSON.
type Digest string

// Canonical returns v as canonical JSON: all keys sorted, whether they come
// from a struct or a map, no insignificant white space, no HTML escaping, and
// no newline at the end. The same value gives the same bytes on every machine,
// whatever the order in which Go declares its fields. It panics when v cannot
// be JSON (a channel, a cycle, a NaN): the types of this package always can.
func Canonical(v any) []byte {
	plain, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("schema: %T has no canonical form: %v", v, err))
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber() // an int64 must not pass through a float64
	var tree any
	if err := d.Decode(&tree); err != nil {
		panic(fmt.Sprintf("schema: %T has no canonical form: %v", v, err))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b) // sorts the keys of maps
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		panic(fmt.Sprintf("schema: %T has no canonical form: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// DigestOf returns the digest of v's canonical JSON.
func DigestOf(v any) Digest { return DigestBytes(Canonical(v)) }

// DigestBytes returns the digest of canonical JSON.
func DigestBytes(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}
