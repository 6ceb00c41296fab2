package sops

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// The values of a document are objects, lists of type []any, and string, int, float64, bool,
// time.Time and nil. The MAC depends on the order of an object's fields.
type object []field

type field struct {
	name  string
	value any
}

// format is how a document is written.
type format int

const (
	asYAML format = iota
	asJSON
	asDotenv
)

// file is a document and what SOPS has added to it.
type file struct {
	format format
	root   object
	meta   metadata
}

// metadata is the part of what SOPS adds that is read here.
type metadata struct {
	Age []struct {
		Recipient string `json:"recipient"`
		Enc       string `json:"enc"`
	} `json:"age"`
	KeyGroups          []any  `json:"key_groups"`
	Shamir             int    `json:"shamir_threshold"`
	LastModified       string `json:"lastmodified"`
	MAC                string `json:"mac"`
	MACOnlyEncrypted   bool   `json:"mac_only_encrypted"`
	UnencryptedSuffix  string `json:"unencrypted_suffix"`
	EncryptedSuffix    string `json:"encrypted_suffix"`
	UnencryptedRegex   string `json:"unencrypted_regex"`
	EncryptedRegex     string `json:"encrypted_regex"`
	UnencryptedComment string `json:"unencrypted_comment_regex"`
	EncryptedComment   string `json:"encrypted_comment_regex"`

	plain, sealed *regexp.Regexp
}

const (
	metadataKey = "sops"
	// maxValues bounds what aliases in YAML can make of a text.
	maxValues = 100_000
	maxDepth  = 100
)

var errNoFile = schema.Hintf("sops --encrypt --age RECIPIENT FILE makes one; what was committed in clear is to be replaced: it stays in the history", "it is no SOPS file")

// parse reads a file.
func parse(text string) (*file, error) {
	f := &file{}
	var err error
	switch trimmed := strings.TrimSpace(text); {
	case strings.HasPrefix(trimmed, "{"):
		f.format = asJSON
		f.root, err = parseJSON(text)
	case dotenvForm.MatchString(text):
		f.format = asDotenv
		f.root, err = parseDotenv(text)
	case iniForm.MatchString(text):
		return nil, schema.Hintf("write it as YAML, JSON or dotenv", "SOPS files in INI are not supported yet")
	default:
		f.root, err = parseYAML(text)
	}
	if err != nil {
		return nil, errNoFile // err may have what should be a secret
	}
	if err := f.takeMetadata(); err != nil {
		return nil, err
	}
	return f, f.meta.check()
}

var (
	dotenvForm = lazyregexp.New(`(?m)^sops_mac=`)
	iniForm    = lazyregexp.New(`(?m)^\[sops\]`)
)

// takeMetadata moves what SOPS has added out of the document.
func (f *file) takeMetadata() error {
	var meta any
	kept := f.root[:0]
	flat := object{}
	for _, e := range f.root {
		name, is := strings.CutPrefix(e.name, metadataKey+"_")
		switch {
		case f.format == asDotenv && is:
			flat = append(flat, field{name, e.value})
		case f.format != asDotenv && e.name == metadataKey:
			meta = e.value
		default:
			kept = append(kept, e)
		}
	}
	f.root = kept
	if f.format == asDotenv {
		meta = unflatten(flat)
	}
	o, ok := meta.(object)
	if !ok {
		return errNoFile
	}
	b, err := encodeJSON(o)
	if err == nil {
		err = json.Unmarshal(b, &f.meta)
	}
	if err != nil {
		return errNoFile
	}
	return nil
}

// check errs if the file needs what is not read here.
func (m *metadata) check() error {
	var err error
	switch {
	case m.MAC == "" || m.LastModified == "":
		return errNoFile
	case m.Shamir > 0 || len(m.KeyGroups) > 0:
		return schema.Hintf("seal it for age recipients without groups", "SOPS files with key groups are not supported yet")
	case len(m.Age) == 0:
		return schema.Hintf("sops rotate --in-place --add-age RECIPIENT FILE", "the SOPS file has no age recipient, and others are not supported")
	case m.EncryptedComment != "" || m.UnencryptedComment != "":
		return schema.Hintf("use encrypted_regex", "SOPS files with rules by comments are not supported yet")
	}
	if m.UnencryptedRegex != "" {
		m.plain, err = regexp.Compile(m.UnencryptedRegex)
	}
	if m.EncryptedRegex != "" && err == nil {
		m.sealed, err = regexp.Compile(m.EncryptedRegex)
	}
	if err != nil {
		return fmt.Errorf("the SOPS file has a rule that cannot be read: %w", err)
	}
	if m.UnencryptedSuffix == "" && m.EncryptedSuffix == "" && m.plain == nil && m.sealed == nil {
		m.UnencryptedSuffix = "_unencrypted"
	}
	return nil
}

// encrypted reports whether the value at a path is.
func (m *metadata) encrypted(path []string) bool {
	some := func(is func(string) bool) bool {
		for _, p := range path {
			if is(p) {
				return true
			}
		}
		return false
	}
	switch {
	case m.sealed != nil:
		return some(m.sealed.MatchString)
	case m.plain != nil:
		return !some(m.plain.MatchString)
	case m.EncryptedSuffix != "":
		return some(func(p string) bool { return strings.HasSuffix(p, m.EncryptedSuffix) })
	}
	return !some(func(p string) bool { return strings.HasSuffix(p, m.UnencryptedSuffix) })
}

// dataKey opens the key of the values.
func (m *metadata) dataKey(open Opener) (key []byte, err error) {
	for _, r := range m.Age {
		if key, err = open(r.Enc); err == nil {
			return key, nil
		}
	}
	return nil, err
}

var errTooLarge = errors.New("too many values")

func parseYAML(text string) (object, error) {
	d := yaml.NewDecoder(strings.NewReader(text))
	var doc, more yaml.Node
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("several documents")
	}
	if len(doc.Content) != 1 {
		return nil, errors.New("no document")
	}
	left := maxValues
	v, err := fromYAML(doc.Content[0], &left, 0)
	o, ok := v.(object)
	if err == nil && !ok {
		err = errors.New("no mapping")
	}
	return o, err
}

func fromYAML(n *yaml.Node, left *int, depth int) (any, error) {
	if *left--; *left < 0 || depth > maxDepth {
		return nil, errTooLarge
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := object{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := fromYAML(n.Content[i+1], left, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, field{n.Content[i].Value, v})
		}
		return out, nil
	case yaml.SequenceNode:
		out := []any{}
		for _, c := range n.Content {
			v, err := fromYAML(c, left, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.AliasNode:
		return fromYAML(n.Alias, left, depth+1)
	}
	var v any
	err := n.Decode(&v)
	return v, err
}

func parseJSON(text string) (object, error) {
	d := json.NewDecoder(strings.NewReader(text))
	v, err := fromJSON(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	o, ok := v.(object)
	if !ok {
		return nil, errors.New("no object")
	}
	return o, nil
}

func fromJSON(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil || depth > maxDepth {
		return nil, errors.Join(err, errTooLarge)
	}
	switch t {
	case json.Delim('{'):
		out := object{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := fromJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, field{fmt.Sprint(name), v})
		}
		_, err = d.Token()
		return out, err
	case json.Delim('['):
		out := []any{}
		for d.More() {
			v, err := fromJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err = d.Token()
		return out, err
	}
	return t, nil
}

func parseDotenv(text string) (object, error) {
	var out object
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, errors.New("a line without =")
		}
		out = append(out, field{name, strings.ReplaceAll(value, `\n`, "\n")})
	}
	return out, nil
}

// unflatten makes metadata of names such as age__list_0__map_enc. Of lists, only that of
// the age recipients counts.
func unflatten(flat object) object {
	var out object
	ages := map[int]object{}
	for _, f := range flat {
		rest, is := strings.CutPrefix(f.name, "age__list_")
		if number, name, ok := strings.Cut(rest, "__map_"); is && ok {
			if i, err := strconv.Atoi(number); err == nil {
				ages[i] = append(ages[i], field{name, f.value})
			}
			continue
		}
		v := f.value
		switch {
		case strings.HasPrefix(f.name, "key_groups"):
			f.name, v = "key_groups", []any{"some"}
		case v == "true" || v == "false":
			v = v == "true"
		case f.name == "shamir_threshold":
			v, _ = strconv.Atoi(fmt.Sprint(v))
		}
		out = append(out, field{f.name, v})
	}
	list := []any{}
	for i := range len(ages) {
		list = append(list, ages[i])
	}
	return append(out, field{"age", list})
}

// encode writes the document, as it is after decryption.
func (f *file) encode() ([]byte, error) {
	switch f.format {
	case asJSON:
		if len(f.root) == 1 && f.root[0].name == "data" {
			return bytesOf(f.root[0].value) // a file of any kind
		}
		b, err := encodeJSON(f.root)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		if err := json.Indent(&out, b, "", "\t"); err != nil {
			return nil, errors.New("the SOPS file cannot be written as JSON")
		}
		out.WriteByte('\n')
		return out.Bytes(), nil
	case asDotenv:
		var out bytes.Buffer
		for _, e := range f.root {
			fmt.Fprintf(&out, "%s=%s\n", e.name, strings.ReplaceAll(fmt.Sprint(e.value), "\n", `\n`))
		}
		return out.Bytes(), nil
	}
	return yaml.Marshal(toYAML(f.root))
}

func encodeJSON(v any) ([]byte, error) {
	switch v := v.(type) {
	case object:
		var out bytes.Buffer
		out.WriteByte('{')
		for i, f := range v {
			b, err := encodeJSON(f.value)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out.WriteByte(',')
			}
			name, err := json.Marshal(f.name)
			if err != nil {
				return nil, err
			}
			out.Write(name)
			out.WriteByte(':')
			out.Write(b)
		}
		out.WriteByte('}')
		return out.Bytes(), nil
	case []any:
		parts := make([]json.RawMessage, len(v))
		for i, e := range v {
			b, err := encodeJSON(e)
			if err != nil {
				return nil, err
			}
			parts[i] = b
		}
		return json.Marshal(parts)
	case time.Time:
		return json.Marshal(v.Format(time.RFC3339Nano))
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(out.Bytes()), err
}

// toYAML returns a document in the order of its fields.
func toYAML(v any) *yaml.Node {
	n := &yaml.Node{}
	switch v := v.(type) {
	case object:
		n.Kind = yaml.MappingNode
		for _, f := range v {
			name := &yaml.Node{}
			name.SetString(f.name)
			n.Content = append(n.Content, name, toYAML(f.value))
		}
	case []any:
		n.Kind = yaml.SequenceNode
		for _, e := range v {
			n.Content = append(n.Content, toYAML(e))
		}
	default:
		_ = n.Encode(v) // a scalar
	}
	return n
}
