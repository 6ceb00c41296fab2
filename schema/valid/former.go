package valid

import (
	"bytes"
	"maps"
	"slices"
	"strconv"

	"github.com/musterhq/muster/schema"
)

// Fields that have got another name are taken under their former one, too, and have their
// own in the data that Object returns. What follows is for those who need both.

// Given returns the path of a value in what Object was given, of its path in what that
// returned: a field that is written under its former name has that.
func Given(kind schema.Kind, data any, path []string) []string { return Of(kind).given(data, path) }

// Renamed is a field that has a former name.
type Renamed struct {
	*Field
	In string // the field that holds it; "" for a field of an object
}

// Formers returns the fields of all kinds that have a former name, by that.
func Formers() map[string]Renamed { return formers }

var formers = findFormers()

func findFormers() map[string]Renamed {
	out, seen := map[string]Renamed{}, map[*Rule]bool{}
	var walk func(r *Rule, in string)
	walk = func(r *Rule, in string) {
		if r == nil || seen[r] {
			return
		}
		seen[r] = true
		walk(r.Elem, in)
		for i := range r.Fields {
			f := &r.Fields[i]
			if f.Former != "" {
				out[f.Former] = Renamed{f, in}
			}
			walk(f.Rule, f.Name)
		}
	}
	for _, kind := range schema.Kinds() {
		walk(Of(kind), "")
	}
	return out
}

// WithFormer returns the JSON of an object as Object returns it with what has a former name
// under that, too, for CUE that still asks for it. It is what it was if there is none.
func WithFormer(kind schema.Kind, data []byte) []byte {
	if !slices.ContainsFunc(slices.Collect(maps.Values(formers)), func(f Renamed) bool { return bytes.Contains(data, []byte(strconv.Quote(f.Name))) }) {
		return data
	}
	v, err := Parse(data)
	if err != nil {
		return data
	}
	Of(kind).addFormer(v)
	return schema.Canonical(v)
}

func (r *Rule) addFormer(data any) {
	if r == nil {
		return // what is in it is free
	}
	switch v := data.(type) {
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(v)) {
			f := r.Field(name)
			switch {
			case f != nil:
				f.Rule.addFormer(v[name])
				if f.Former != "" {
					v[f.Former] = v[name]
				}
			case r.Elem != nil:
				r.Elem.addFormer(v[name])
			}
		}
	case []any:
		for _, e := range v {
			r.Elem.addFormer(e)
		}
	}
}
