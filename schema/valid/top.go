package valid

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// LaterKinds are kinds of object that have a meaning which the cell does not
// have yet.
func LaterKinds() []string {
	return []string{"autoscale"}
}

// Top returns what is wrong with the top-level fields of a package: those that
// are no kind, and those whose value does not hold objects by name. fields maps
// each name to its data, which may hold Broken. The first element of a
// Problem's path is the field. A kind without a Problem is fit for Object.
func Top(fields map[string]any) []Problem {
	var problems []Problem
	reported := map[string]bool{} // of a family of names, or of the fields of a job
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(schema.Kinds(), schema.Kind(name)) {
			if p, bad := unnamed(schema.Kind(name), fields[name]); bad {
				problems = append(problems, p)
			}
			continue
		}
		p := unknownKind(name)
		if of := familyOf(name, fields); of != "" && p.Hint == noHint {
			if reported[of] {
				continue // one file of another system is one mistake
			}
			reported[of] = true
			p.Hint = fmt.Sprintf("this looks like a %s; a job is written job: NAME: muster.#Job & {…}", of)
		} else if arePolicies(name, fields[name]) {
			p.Message, p.Expected = fmt.Sprintf("field %q holds policies, and is no kind", name), ""
			p.Hint = "policies are in a hidden field, without quotes: _policy: NAME: {…}"
		} else if jobRule.Has(name) {
			if reported["job"] {
				continue
			}
			reported["job"] = true
			p.Message, p.Hint = fmt.Sprintf("field %q of a job is outside of any job", name), fmt.Sprintf("write it within a job: job: NAME: {%s: …}", name)
		}
		problems = append(problems, p)
	}
	if reported["job"] { // cell: "local" beside them is one of them
		problems = slices.DeleteFunc(problems, func(p Problem) bool {
			return jobRule.Has(p.Path[0]) && slices.Contains(schema.Kinds(), schema.Kind(p.Path[0]))
		})
	}
	return problems
}

// familyOf returns which system's files have a field called name beside others
// of fields; a single one proves nothing, except for a few.
func familyOf(name string, fields map[string]any) string {
	of := family[name]
	if of == "" || name == "apiVersion" || name == "services" {
		return of
	}
	for other := range fields {
		if other != name && family[other] == of {
			return of
		}
	}
	return ""
}

// arePolicies reports whether a field that is no kind holds what a company demands of objects: by name
// what has a message, or what a kind of object must have. The policy of a job has neither.
func arePolicies(name string, v any) bool {
	if name == "_policy" {
		return true
	}
	byName, ok := v.(map[string]any)
	if !ok || name != "policy" && name != "policies" {
		return false
	}
	for _, v := range byName {
		policy, _ := v.(map[string]any)
		for field := range policy {
			if field == "message" || slices.Contains(schema.Kinds(), schema.Kind(field)) {
				return true
			}
		}
	}
	return false
}

const noHint = "a field for use within the package begins with _ or #"

// unknownKind says that kind is not the name of one.
func unknownKind(kind string) Problem {
	var kinds []string
	for _, k := range schema.Kinds() {
		kinds = append(kinds, string(k))
	}
	p := Problem{Rule: schema.RuleUnknownKind, Path: []string{kind}, Key: true, Expected: "one of " + strings.Join(kinds, ", ")}
	if slices.Contains(LaterKinds(), kind) {
		p.Rule, p.Message = schema.RuleUnsupported, fmt.Sprintf("kind %q is not supported yet", kind)
		return p
	}
	p.Message = fmt.Sprintf("unknown kind %q", short(kind))
	p.Hint = didYouMean(kind, kinds, kindAlias)
	if p.Hint == "" {
		p.Hint = noHint
	}
	return p
}

// unnamed reports a kind whose value is not a struct of objects by name.
func unnamed(kind schema.Kind, v any) (Problem, bool) {
	want := fmt.Sprintf("objects by name: %s: NAME: {…}", kind)
	switch v := v.(type) {
	case Broken:
		return Problem{}, false
	case map[string]any:
		r := Of(kind)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if !r.Has(name) {
				continue
			}
			switch v[name].(type) {
			case Broken, map[string]any:
			default: // an object may be called tasks; its value is then a struct
				return Problem{
					Rule: schema.RuleUnknownKind, Path: []string{string(kind)}, Unnamed: true, Message: fmt.Sprintf("the %s has no name", kind), Expected: want,
					Hint: fmt.Sprintf("%q is a field of a %s: put a name before it", name, kind),
				}, true
			}
		}
		return Problem{}, false
	case []any:
		return Problem{
			Rule: schema.RuleWrongType, Path: []string{string(kind)}, Message: "is a list", Expected: want,
			Hint: "objects are not a list: write each under its name",
		}, true
	}
	return Problem{Rule: schema.RuleWrongType, Path: []string{string(kind)}, Message: "is " + describe(v), Expected: want}, true
}

// tooDeep reports an object that has other objects in place of fields, as in
// job: USER: NAME: {…}.
func tooDeep(kind schema.Kind, r *Rule, data any) (Problem, bool) {
	m, ok := data.(map[string]any)
	if !ok || len(m) == 0 {
		return Problem{}, false
	}
	inner := ""
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if r.Has(name) {
			return Problem{}, false
		}
		if _, known := r.Alias[name]; known {
			return Problem{}, false
		}
		o, ok := m[name].(map[string]any)
		if !ok {
			return Problem{}, false
		}
		for f := range o {
			if r.Has(f) && inner == "" {
				inner = name
			}
		}
	}
	if inner == "" {
		return Problem{}, false
	}
	return Problem{
		Rule: schema.RuleUnknownKind, Path: []string{inner}, Key: true, Message: fmt.Sprintf("%q is one level too deep for a %s", short(inner), kind),
		Expected: fmt.Sprintf("%s: NAME: {…}", kind), Hint: "the name is the only level; user and cell are fields of the object",
	}, true
}
