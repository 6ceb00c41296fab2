package valid

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/musterhq/muster/schema"
)

// Type is what a value must be.
type Type string

// The types of values.
const (
	Bool     Type = "boolean"
	Int      Type = "integer"
	String   Type = "string"
	Enum     Type = "word"     // one of Rule.Words
	Priority Type = "priority" // a word, a name, or an integer
	List     Type = "list"
	Map      Type = "map"    // keys are free within Rule.Key
	Struct   Type = "struct" // keys are Rule.Fields
	Free     Type = "object" // keys and values are free: it is meant for another program
	Time     Type = "time"   // RFC 3339, of the years Rule.Min to Rule.Max
)

// Unit says what an integer counts, for the hints.
type Unit string

// The units.
const (
	Count   Unit = ""
	Milli   Unit = "cpuMilli" // thousandths of a core
	Bytes   Unit = "bytes"
	Seconds Unit = "seconds"
	Percent Unit = "percent"
)

// Rule says which values are valid.
type Rule struct {
	Type Type
	Unit Unit // of an Int
	// Min and Max bound an Int's value, a String's bytes, a List's or Map's
	// number of elements; Max the bytes of an Object's JSON.
	Min, Max int64
	Words    []string // of an Enum or Priority, or of a Bool that is a word instead
	Elem     *Rule    // of a List or Map
	Unique   bool     // a List has each element once
	// Match says for a String what was expected instead, "" if it is valid.
	Match func(string) string
	// Key says the same for a key of a Map.
	Key func(string) string
	// Total bounds the bytes of a Map's keys and values, or of a List's strings,
	// together; 0 does not. Instead says what to do with more.
	Total   int64
	Instead string
	// Refers is set when a String, or a Priority that is none of Words, is the
	// name of an object of this kind, which another package may declare. That
	// it exists is looked for when all packages are there: see Names.
	Refers schema.Kind
	// KeyRefers is set when the keys of a Map are names of objects of this kind.
	KeyRefers schema.Kind
	Fields    []Field // of a Struct
	// Later are fields of a Struct that have a meaning which the cell does
	// not have yet.
	Later []string
	// Never maps fields of a Struct, and words of an Enum, that one could
	// expect to the reason why there are none.
	Never map[string]string
	// Alias maps what users of other systems write, as a field of a Struct or
	// as the word of an Enum, to what stands for it here.
	Alias map[string]string
}

// Field is one field of a Struct.
type Field struct {
	Name     string
	Rule     *Rule
	Required bool
	// Default is taken when the field is absent; nil for none. An empty
	// map[string]any stands for a struct of defaults.
	Default any
	// DefaultBeside holds what Default is when the field of this name is there,
	// too: at most one of them is.
	DefaultBeside map[string]any
	// Former is a name that the field had before the release Since, and under which
	// it is still taken, with a warning; "" for none.
	Former, Since string
}

// RewriteHint is what to do about former names.
const RewriteHint = "muster schema update --rewrite changes it in the files of the repository"

// Replaced says of a field that is written under its former name what to write.
func (f *Field) Replaced() string {
	return fmt.Sprintf("%s is deprecated since %s, use %s", f.Former, f.Since, f.Name)
}

// Has reports whether r is a Struct with a field called name, now or formerly.
func (r *Rule) Has(name string) bool { return r.Field(name) != nil }

// defaultIn returns what is taken when f is absent from m; nil for nothing.
func (f *Field) defaultIn(m map[string]any) any {
	for name, v := range f.DefaultBeside {
		if _, ok := m[name]; ok {
			return v
		}
	}
	return f.Default
}

// Field returns the field called name, now or formerly; nil if there is none.
func (r *Rule) Field(name string) *Field {
	if r == nil || name == "" {
		return nil
	}
	for i := range r.Fields {
		if r.Fields[i].Name == name || r.Fields[i].Former == name {
			return &r.Fields[i]
		}
	}
	return nil
}

// given returns the path of a value in what Object was given: see Given.
func (r *Rule) given(data any, path []string) []string {
	out := slices.Clone(path)
	for i, name := range path {
		if r == nil {
			break
		}
		f := r.Field(name)
		switch v := data.(type) {
		case map[string]any:
			if _, ok := v[name]; !ok && f != nil && f.Former != "" {
				if _, ok := v[f.Former]; ok {
					out[i] = f.Former
				}
			}
			data = v[out[i]]
		case []any:
			if n, err := strconv.Atoi(name); err == nil && n < len(v) {
				data = v[n]
			}
		}
		if r = r.Elem; f != nil {
			r = f.Rule
		}
	}
	return out
}
