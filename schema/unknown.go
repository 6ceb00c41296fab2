package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/musterhq/muster/schema/strictjson"
)

// Unknown is what a document holds beyond what this release knows: fields that
// a later release wrote before somebody went back to this one. Encode puts them
// where they were, so that the later release finds them again.
//
// It is kept of every object in the document, at any depth. An element of a list
// is recognised by its index, name or job, or else by all that is known of it,
// wherever it has moved; with an object that goes, what is unknown of it goes.
// A nil *Unknown is that of a document without any.
type Unknown struct {
	members  map[string]any        // fields that are unknown as a whole
	inside   map[string]*Unknown   // what is unknown within the others
	elements map[string][]*Unknown // of a list, by identify
}

// Decode reads a stored document into v, a pointer, which it overwrites. The
// document may have been written by a later release.
func Decode(doc []byte, v any) (*Unknown, error) {
	if strictjson.Unmarshal(doc, v) == nil {
		return nil, nil
	}
	// Rare, and thus slow: find out what is unknown by writing what is known.
	reflect.ValueOf(v).Elem().SetZero()
	if err := json.Unmarshal(doc, v); err != nil {
		return nil, err
	}
	return subtract(tree(doc), tree(Canonical(v))), nil
}

// Encode returns v as canonical JSON, with what is unknown put back.
func (u *Unknown) Encode(v any) []byte {
	doc := Canonical(v)
	if u == nil {
		return doc
	}
	return Canonical(u.restore(tree(doc)))
}

// tree returns JSON, which must be valid, as maps, lists and literals.
func tree(doc []byte) (t any) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&t); err != nil {
		panic(fmt.Sprintf("schema: %.100q was JSON: %v", doc, err))
	}
	return t
}

// subtract returns what doc has and known has not; nil if that is nothing.
func subtract(doc, known any) *Unknown {
	u := &Unknown{members: map[string]any{}, inside: map[string]*Unknown{}, elements: map[string][]*Unknown{}}
	switch doc := doc.(type) {
	case map[string]any:
		known, ok := known.(map[string]any)
		if !ok {
			return nil // another form of a value, as of a name
		}
		for name, value := range doc {
			if was, ok := known[name]; !ok {
				u.members[name] = value
			} else if in := subtract(value, was); in != nil {
				u.inside[name] = in
			}
		}
	case []any:
		known, ok := known.([]any)
		if !ok || len(known) != len(doc) {
			return nil
		}
		found := false
		for i := range doc {
			in, id := subtract(doc[i], known[i]), identify(known[i])
			// Equal elements are distinguished by their order, so those without unknown
			// fields count too.
			u.elements[id] = append(u.elements[id], in)
			found = found || in != nil
		}
		if !found {
			return nil
		}
	}
	if len(u.members)+len(u.inside)+len(u.elements) == 0 {
		return nil
	}
	return u
}

// identify returns what distinguishes an element of a list from the others.
func identify(element any) string {
	if object, ok := element.(map[string]any); ok {
		for _, name := range []string{"index", "name", "job"} {
			if id, ok := object[name]; ok {
				return name + string(Canonical(id))
			}
		}
	}
	return string(Canonical(element))
}

// restore puts what is unknown back into t, and returns it.
func (u *Unknown) restore(t any) any {
	if u == nil {
		return t
	}
	switch t := t.(type) {
	case map[string]any:
		for name, in := range u.inside {
			if value, ok := t[name]; ok {
				t[name] = in.restore(value)
			}
		}
		for name, value := range u.members {
			if _, ok := t[name]; !ok {
				t[name] = value
			}
		}
	case []any:
		taken := map[string]int{}
		for i := range t {
			id := identify(t[i])
			if n := taken[id]; n < len(u.elements[id]) {
				taken[id]++
				t[i] = u.elements[id][n].restore(t[i])
			}
		}
	}
	return t
}
