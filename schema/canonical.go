package schema

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Digest is "sha256:" and the hexadecimal SHA-256 of a value's canonical JSON.
type Digest string

// Canonical returns v as canonical JSON: all keys sorted, whether they come
// from a struct or a map, no insignificant white space, no HTML escaping, and
// no newline at the end. The same value gives the same bytes on every machine,
// whatever the order in which Go declares its fields. It panics when v cannot
// be JSON (a channel, a cycle, a NaN): the types of this package always can.
func Canonical(v any) []byte {
	switch v := v.(type) {
	case bool, string, json.Number, []any, map[string]any:
		return appendCanonical(nil, v, 0)
	case interface{ canonical() []byte }:
		return v.canonical()
	}
	return canonicalized(v)
}

// maxPlain is how deep decoded JSON is written directly: deeper, it may be a cycle.
const maxPlain = 100

// appendCanonical appends the canonical JSON of v. What was decoded from JSON is written
// directly, which costs a third: the compiler makes canonical JSON of each object twice.
func appendCanonical(b []byte, v any, depth int) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		if isUnescaped(v) {
			return append(append(append(b, '"'), v...), '"')
		}
	case json.Number:
		if isInteger(string(v)) {
			return append(b, v...)
		}
	case []any:
		if v != nil && depth < maxPlain {
			b = append(b, '[')
			for i, e := range v {
				if i > 0 {
					b = append(b, ',')
				}
				b = appendCanonical(b, e, depth+1)
			}
			return append(b, ']')
		}
	case map[string]any:
		if v != nil && depth < maxPlain {
			return appendObject(b, v, depth)
		}
	}
	return append(b, canonicalized(v)...)
}

func appendObject(b []byte, m map[string]any, depth int) []byte {
	var room [16]string
	keys := slices.AppendSeq(room[:0], maps.Keys(m))
	if !slices.ContainsFunc(keys, func(k string) bool { return !isUnescaped(k) }) {
		slices.Sort(keys)
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, '"'), k...), '"', ':')
			b = appendCanonical(b, m[k], depth+1)
		}
		return append(b, '}')
	}
	return append(b, canonicalized(m)...)
}

// isUnescaped reports whether a string needs nothing but quotes in JSON.
func isUnescaped(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// isInteger reports whether s is an integer as JSON has it.
func isInteger(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || digits[0] == '0' {
		return s == "0"
	}
	return strings.Trim(digits, "0123456789") == ""
}

// canonicalized is Canonical of anything.
func canonicalized(v any) []byte {
	c := canonicalizer{in: encode(v)}
	c.out = make([]byte, 0, len(c.in))
	c.value(0)
	return c.out
}

// encode returns v as JSON with no white space, in the order of its fields.
func encode(v any) []byte {
	var b bytes.Buffer
	encodeTo(&b, v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// encodeTo writes v as JSON with no white space, in the order of its fields, and a newline.
func encodeTo(b *bytes.Buffer, v any) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("schema: %T has no canonical form: %v", v, err))
	}
}

// canonicalizer copies JSON that package encoding/json wrote and sorts the
// members of its objects on the way. It works on the bytes: the master makes
// canonical JSON of all it writes, and decoding only to sort costs ten times
// as much.
type canonicalizer struct {
	in, out []byte
	members []member // of the objects that are open, outermost first
	scratch []byte
}

// member is one member of an object: out[from:to] is its key, colon and value.
type member struct {
	key      []byte // what it says, without quotes
	from, to int
}

// value copies the value that begins at i and returns where it ends.
func (c *canonicalizer) value(i int) int {
	switch c.in[i] {
	case '{':
		return c.object(i)
	case '[':
		return c.array(i)
	case '"':
		end, _ := c.text(i)
		return end
	}
	end := i
	for end < len(c.in) && c.in[end] != ',' && c.in[end] != ']' && c.in[end] != '}' {
		end++
	}
	c.out = append(c.out, c.in[i:end]...)
	return end
}

func (c *canonicalizer) array(i int) int {
	c.out = append(c.out, '[')
	for i++; c.in[i] != ']'; {
		i = c.value(i)
		if c.in[i] == ',' {
			c.out = append(c.out, ',')
			i++
		}
	}
	c.out = append(c.out, ']')
	return i + 1
}

func (c *canonicalizer) object(i int) int {
	c.out = append(c.out, '{')
	first, start := len(c.members), len(c.out)
	for i++; c.in[i] != '}'; {
		if c.in[i] == ',' {
			c.out = append(c.out, ',')
			i++
		}
		m := member{from: len(c.out)}
		i, m.key = c.text(i)
		c.out = append(c.out, ':')
		i = c.value(i + 1)
		m.to = len(c.out)
		c.members = append(c.members, m)
	}
	c.sort(start, c.members[first:])
	c.members = c.members[:first]
	c.out = append(c.out, '}')
	return i + 1
}

// sort puts an object's members, which begin at start, in the order of their
// keys. Of several with the same key the last counts, as in a decoder.
func (c *canonicalizer) sort(start int, members []member) {
	ascending := func(a, b member) int { return bytes.Compare(a.key, b.key) }
	sorted := true
	for i := 1; i < len(members) && sorted; i++ {
		sorted = ascending(members[i-1], members[i]) < 0
	}
	if sorted {
		return
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Or(ascending(a, b), cmp.Compare(a.from, b.from)) })
	c.scratch = append(c.scratch[:0], c.out[start:]...)
	c.out = c.out[:start]
	for i, m := range members {
		if i+1 < len(members) && bytes.Equal(members[i+1].key, m.key) {
			continue
		}
		if len(c.out) > start {
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.scratch[m.from-start:m.to-start]...)
	}
}

// text copies the string that begins at i and returns where it ends, and what
// it says.
func (c *canonicalizer) text(i int) (end int, says []byte) {
	plain := true
	for end = i + 1; c.in[end] != '"'; end++ {
		switch b := c.in[end]; {
		case b == '\\':
			plain = false
			end++
		case b >= 0x80:
			plain = false
		}
	}
	end++
	quoted := c.in[i:end]
	if plain {
		c.out = append(c.out, quoted...)
		return end, quoted[1 : len(quoted)-1]
	}
	// There are many ways to write it; encoding/json knows one.
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		panic(fmt.Sprintf("schema: %q has no canonical form: %v", quoted, err))
	}
	c.out = append(c.out, encode(s)...)
	return end, []byte(s)
}

// DigestOf returns the digest of v's canonical JSON.
func DigestOf(v any) Digest { return DigestBytes(Canonical(v)) }

// DigestBytes returns the digest of canonical JSON.
func DigestBytes(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}
