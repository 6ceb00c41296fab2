package valid

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// Broken stands for a value that has no data. Why says what is wrong with it;
// if that is "" another error is in its place and nothing more is said.
type Broken struct {
	Why, Hint   string
	Constrained bool // see Problem
}

// maxProblems bounds what is reported of one object.
const maxProblems = 20

// Object returns the object's data with its defaults filled in and a built-in
// priority as its number, or the problems. Beside data all problems are warnings, such as of
// fields under a former name, which have their own in the data. data is decoded JSON with
// json.Number, and may hold Broken. The result shares nothing that is written with data.
func Object(kind schema.Kind, name string, data any) (map[string]any, []Problem) {
	r := Of(kind)
	if r == nil {
		return nil, []Problem{unknownKind(string(kind))}
	}
	c := &check{object: r}
	if schema.CheckName(name) != nil {
		c.add(Problem{
			Rule: schema.RuleInvalidName, Key: true, Message: fmt.Sprintf("invalid name %q of a %s", short(name), kind), Expected: nameGrammar,
			Hint: nameHint(name),
		})
	}
	if p, ok := tooDeep(kind, r, data); ok {
		c.add(p)
		return nil, c.problems
	}
	if found := plainSecrets(data); len(found) > 0 {
		return nil, found // nothing else: a message may quote the value
	}
	out, ok := c.value(nil, r, data).(map[string]any)
	if ok {
		c.related(kind, name, data, out)
	}
	if kind == schema.KindPriority {
		c.priorityName(name)
	}
	if len(c.problems) > 0 || !ok {
		for i, p := range c.problems {
			c.problems[i].Path = r.given(data, p.Path)
		}
		return nil, c.problems
	}
	if kind == schema.KindJob || kind == schema.KindAllocSet {
		band, _ := out["priority"].(string)
		if floor, ok := schema.Band(band).Floor(); ok {
			out["priority"] = num(int64(floor))
		}
	}
	out["name"] = name
	return out, c.warnings
}

// Partial returns the problems of data that is not yet a whole object, such as a
// definition that objects of a kind are made from: what is missing or undecided
// in it is none.
func Partial(kind schema.Kind, data any) []Problem {
	c := &check{partial: true, object: Of(kind)}
	if r := c.object; r != nil {
		c.value(nil, r, data)
	}
	return c.problems
}

// Draft returns the data of an object as far as it is right, with its defaults filled in, and
// Broken where it is not; nil if it must not be shown, since it has a secret in clear, or is no
// object at all. data is as for Object.
func Draft(kind schema.Kind, data any) map[string]any {
	r := Of(kind)
	if r == nil || len(plainSecrets(data)) > 0 {
		return nil
	}
	if _, ok := tooDeep(kind, r, data); ok {
		return nil
	}
	c := &check{partial: true, object: r}
	out, _ := c.value(nil, r, data).(map[string]any)
	return out
}

// Value returns the problems of one value of an object, at a path that leads from the
// object to it; what is missing in it is none.
func Value(kind schema.Kind, path []string, data any) []Problem {
	c := &check{partial: true, object: Of(kind)}
	r := c.object
	for _, name := range path {
		switch f := r.Field(name); {
		case f != nil:
			r = f.Rule
		case r != nil && r.Elem != nil:
			r = r.Elem
		default:
			return nil
		}
	}
	if r != nil {
		c.value(path, r, data)
	}
	return c.problems
}

// check walks one object.
type check struct {
	problems []Problem
	warnings []Problem
	object   *Rule    // of the whole object
	meant    []string // paths of fields that a misspelled one was probably meant to be
	partial  bool     // what is not there, or not decided, may come later
}

func (c *check) add(p Problem) {
	if len(c.problems) < maxProblems {
		p.Path = slices.Clone(p.Path) // the caller goes on with the array
		c.problems = append(c.problems, p)
	}
}

// all adds what is wrong with parts that were checked by themselves.
func (c *check) all(found problems) {
	for _, p := range found {
		c.add(p)
	}
}

// value checks v against r and returns it with defaults.
func (c *check) value(path []string, r *Rule, v any) any {
	if b, broken := v.(Broken); broken {
		if b.Why != "" && !c.partial {
			c.add(Problem{Rule: schema.RuleNotSet, Path: path, Message: b.Why, Expected: r.String(), Hint: b.Hint, Constrained: b.Constrained})
		}
		return v
	}
	if out, ok := c.composite(path, r, v); ok {
		return out
	}
	switch r.Type {
	case Bool:
		s, _ := v.(string)
		if _, ok := v.(bool); ok || slices.Contains(r.Words, s) {
			return v
		}
	case Int, Priority:
		if n, ok := v.(json.Number); ok {
			c.integer(path, r, n)
			return v
		}
		if s, ok := v.(string); ok && r.Type == Priority {
			c.priority(path, r, s)
			return v
		}
	case Enum:
		if s, ok := v.(string); ok {
			c.word(path, r, s)
			return v
		}
	case String:
		if s, ok := v.(string); ok {
			c.text(path, r, s)
			return v
		}
	case Time:
		if s, ok := v.(string); ok {
			return c.time(path, r, s)
		}
	}
	c.add(Problem{Rule: schema.RuleWrongType, Path: path, Message: "is " + describe(v), Expected: r.String(), Hint: typeHint(r, v)})
	return Broken{} // its mistakes are reported
}

// composite checks what has parts; false if v is none, or is not what r wants.
func (c *check) composite(path []string, r *Rule, v any) (any, bool) {
	m, isMap := v.(map[string]any)
	l, isList := v.([]any)
	switch {
	case r.Type == Struct && isMap:
		return c.structure(path, r, m), true
	case r.Type == Map && isMap:
		return c.mapping(path, r, m), true
	case r.Type == Free && isMap:
		return c.free(path, r, m), true
	case r.Type == List && isList:
		return c.list(path, r, l), true
	}
	return nil, false
}

func (c *check) structure(path []string, r *Rule, m map[string]any) map[string]any {
	out := make(map[string]any, len(r.Fields))
	misplaced := c.misplaced(path, r, m)
	meant := maps.Clone(misplaced)
	var unknown []string // which are few, so that only these are put in order
	for name := range m {
		if !r.Has(name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		field := c.unknown(append(path, name), r)
		meant[field] = true
		c.meant = append(c.meant, strings.Join(append(slices.Clone(path), field), "."))
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		name := c.written(path, f, m)
		v, ok := m[name]
		switch {
		case ok && v == nil && !f.Required:
			c.add(Problem{Rule: schema.RuleWrongType, Path: append(path, name), Message: "is null", Expected: f.Rule.String(), Hint: "remove the field to use its default"})
			continue
		case ok && misplaced[name]:
			continue
		case ok:
		case f.Required && (c.partial || meant[f.Name]): // it is there, under another name
			continue
		case f.Required:
			c.add(Problem{
				Rule: schema.RuleMissingField, Path: append(path, f.Name), Missing: true,
				Message: fmt.Sprintf("required field %q is missing", f.Name), Expected: f.Rule.String(),
			})
			continue
		case meant[f.Name]:
			out[f.Name] = Broken{}
			continue
		default:
			if v = f.defaultIn(m); v == nil {
				continue
			}
		}
		out[f.Name] = c.value(append(path, name), f.Rule, v)
	}
	return out
}

// unknown reports a field that r does not have, and returns the name of the one
// that was meant, "" if nobody can say.
func (c *check) unknown(path []string, r *Rule) (meant string) {
	name := path[len(path)-1]
	p := Problem{Rule: schema.RuleUnknownField, Path: path, Key: true}
	if slices.Contains(r.Later, name) {
		p.Rule, p.Message = schema.RuleUnsupported, fmt.Sprintf("field %q is not supported yet", name)
		c.add(p)
		return firstOf(r.Alias[name])
	}
	if why, ok := r.Never[name]; ok {
		p.Rule, p.Message = schema.RuleNoEffect, why
		p.Hint = fmt.Sprintf("remove the field %q", name)
		c.add(p)
		return ""
	}
	names := make([]string, len(r.Fields))
	for i, f := range r.Fields {
		names[i] = f.Name
	}
	p.Message = fmt.Sprintf("unknown field %q", short(name))
	p.Expected = "one of " + strings.Join(names, ", ")
	p.Hint = didYouMean(name, names, r.Alias)
	if name == "name" && len(path) == 1 {
		p.Hint = "the name of an object is its key"
	}
	if p.Hint == "" {
		p.Hint = belongs(c.object, name)
	}
	c.add(p)
	if to, ok := r.Alias[name]; ok {
		return firstOf(to)
	}
	return Nearest(name, names)
}

func (c *check) mapping(path []string, r *Rule, m map[string]any) map[string]any {
	if int64(len(m)) > r.Max {
		c.add(Problem{Rule: schema.RuleOutOfRange, Path: path, Message: fmt.Sprintf("has %d entries", len(m)), Expected: fmt.Sprintf("at most %d", r.Max)})
	}
	out := make(map[string]any, len(m))
	var total int64
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if s, ok := m[k].(string); ok {
			total += int64(len(k) + len(s))
		}
		if want := r.Key(k); want != "" {
			c.add(Problem{Rule: schema.RuleInvalidName, Path: append(path, k), Key: true, Message: fmt.Sprintf("invalid key %q", short(k)), Expected: want, Hint: keyHint(r, k)})
		}
		out[k] = c.value(append(path, k), r.Elem, m[k])
	}
	c.total(path, r, "keys and values", total)
	return out
}

// total checks what strings have together, in bytes.
func (c *check) total(path []string, r *Rule, what string, total int64) {
	if r.Total > 0 && total > r.Total {
		c.add(Problem{
			Rule: schema.RuleOutOfRange, Path: path, Message: fmt.Sprintf("%s have %d bytes together", what, total),
			Expected: fmt.Sprintf("at most %d", r.Total), Hint: r.Instead,
		})
	}
}

func (c *check) list(path []string, r *Rule, l []any) []any {
	if n := int64(len(l)); n < r.Min || n > r.Max {
		c.add(Problem{Rule: schema.RuleOutOfRange, Path: path, Message: fmt.Sprintf("has %d elements", n), Expected: r.String()})
	}
	out := make([]any, len(l))
	seen := map[string]int{}
	var total int64
	for i, v := range l {
		at := slices.Concat(path, []string{strconv.Itoa(i)})
		out[i] = c.value(at, r.Elem, v)
		s, ok := v.(string)
		total += int64(len(s))
		if first, again := seen[s]; ok && r.Unique && again {
			c.add(Problem{Rule: schema.RuleInvalidValue, Path: at, Message: fmt.Sprintf("%q is also element %d", short(s), first), Expected: "each element once"})
		} else if ok {
			seen[s] = i
		}
	}
	c.total(path, r, "its strings", total)
	return out
}

// free checks what is meant for another program, which is kept as it is: that all of it has data, and its
// size.
func (c *check) free(path []string, r *Rule, m map[string]any) any {
	before := len(c.problems)
	c.whole(path, m)
	if len(c.problems) > before || c.partial && incomplete(m) {
		return Broken{} // its mistakes are reported, or it is not decided yet
	}
	if n := len(schema.Canonical(m)); int64(n) > r.Max {
		c.add(Problem{Rule: schema.RuleOutOfRange, Path: path, Message: fmt.Sprintf("has %d bytes as JSON", n), Expected: fmt.Sprintf("at most %d", r.Max)})
	}
	return m
}

// whole reports what has no data in a value.
func (c *check) whole(path []string, v any) {
	switch v := v.(type) {
	case Broken:
		if v.Why != "" && !c.partial {
			c.add(Problem{Rule: schema.RuleNotSet, Path: path, Message: v.Why, Expected: "a value", Hint: v.Hint, Constrained: v.Constrained})
		}
	case []byte: // which JSON has not
		c.add(Problem{Rule: schema.RuleWrongType, Path: path, Message: "is " + describe(v), Expected: "a value of JSON", Hint: `text is written in double quotes: "a"`})
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			c.whole(append(slices.Clone(path), k), v[k])
		}
	case []any:
		for i := range v {
			c.whole(append(slices.Clone(path), strconv.Itoa(i)), v[i])
		}
	}
}

// incomplete reports whether a part of a value has no data.
func incomplete(v any) bool {
	switch v := v.(type) {
	case Broken:
		return true
	case map[string]any:
		for _, e := range v {
			if incomplete(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, incomplete)
	}
	return false
}

var integerForm = lazyregexp.New(`^-?(0|[1-9][0-9]*)$`)

func (c *check) integer(path []string, r *Rule, n json.Number) {
	if !integerForm.MatchString(n.String()) {
		c.add(Problem{Rule: schema.RuleOutOfRange, Path: path, Message: fmt.Sprintf("%s is not an integer", short(n.String())), Expected: r.String(), Hint: fractionHint(r, n)})
		return
	}
	i, err := n.Int64()
	if err == nil && i >= r.Min && i <= r.Max {
		return
	}
	p := Problem{Rule: schema.RuleOutOfRange, Path: path, Message: fmt.Sprintf("%s is out of range", short(n.String())), Expected: r.String()}
	if r.Unit == Bytes && err == nil && i > 0 && i < r.Min {
		p.Hint = fmt.Sprintf("the unit is bytes: did you mean %dMi?", i)
		if i%1024 == 0 {
			p.Hint = fmt.Sprintf("%dKi is too little: did you mean %dMi?", i/1024, i/1024)
		}
	}
	c.add(p)
}

func (c *check) word(path []string, r *Rule, s string) {
	if why, ok := r.Never[s]; ok {
		c.add(Problem{Rule: schema.RuleNoEffect, Path: path, Message: why, Expected: r.String(), Hint: "use one of these, or remove the object"})
		return
	}
	if !slices.Contains(r.Words, s) {
		c.add(Problem{Rule: schema.RuleInvalidValue, Path: path, Message: fmt.Sprintf("unknown value %q", short(s)), Expected: r.String(), Hint: wordHint(s, r)})
	}
}

// priority checks the name of a priority: a built-in one, or one that some
// package may declare.
func (c *check) priority(path []string, r *Rule, s string) {
	if isPriorityName(s) {
		return
	}
	p := Problem{Rule: schema.RuleInvalidValue, Path: path, Message: fmt.Sprintf("invalid value %q", short(s)), Expected: r.String(), Hint: numberHint(r, s)}
	if p.Hint == "" {
		p.Hint = didYouMean(strings.ToLower(s), r.Words, r.Alias)
	}
	c.add(p)
}

// isPriorityName reports whether s can name a priority. A number cannot: it
// would mean something else with quotes than without.
func isPriorityName(s string) bool {
	return schema.CheckName(s) == nil && strings.Trim(s, "0123456789") != ""
}

// priorityName checks the name under which a priority is declared.
func (c *check) priorityName(name string) {
	floor, builtIn := schema.Band(name).Floor()
	switch {
	case builtIn:
		c.add(Problem{
			Rule: schema.RuleInvalidName, Key: true, Message: fmt.Sprintf("priority %q is built in: it is %d", name, floor),
			Expected: "a name other than " + quoted(bandRule.Words), Hint: "give it another name, which jobs then use",
		})
	case schema.CheckName(name) == nil && !isPriorityName(name):
		c.add(Problem{
			Rule: schema.RuleInvalidName, Key: true, Message: fmt.Sprintf("priority %q has a number as its name", name), Expected: "a name with a letter",
			Hint: fmt.Sprintf("jobs can use priority: %s without it", name),
		})
	}
}

func (c *check) text(path []string, r *Rule, s string) {
	var want string
	switch n := int64(len(s)); {
	case r.Match != nil && r.Match(s) != "":
		want = r.Match(s)
	case n < r.Min:
		want = r.String()
	case n > r.Max:
		want = fmt.Sprintf("at most %d bytes", r.Max)
	default:
		return
	}
	p := Problem{Rule: schema.RuleInvalidValue, Path: path, Message: fmt.Sprintf("invalid value %q", short(s)), Expected: want}
	switch {
	case want == nameGrammar && len(s) > schema.MaxNameLen:
		p.Rule, p.Message = schema.RuleOutOfRange, fmt.Sprintf("%q has %d bytes", short(s), len(s))
	case want == nameGrammar:
		p.Hint = nameHint(s)
	case want == pathGrammar:
		p.Hint = pathHint(s)
	case want == urlPathGrammar:
		p.Hint = urlPathHint(s)
	case want == schema.ImageGrammar:
		p.Message, p.Hint = imageProblem(s)
		p.Image = taggedImage(s)
	}
	c.add(p)
}

// describe says in words what v is.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprintf("the boolean %v", v)
	case json.Number:
		return "the number " + short(v.String())
	case string:
		return fmt.Sprintf("the string %q", short(v))
	case []any:
		return "a list"
	case map[string]any:
		return "a struct"
	}
	return "bytes" // what a CUE literal in single quotes is
}

// String says in words what r accepts.
func (r *Rule) String() string {
	switch r.Type {
	case Int:
		s := fmt.Sprintf("an integer from %s to %s", amount(r.Unit, r.Min), amount(r.Unit, r.Max))
		if r.Unit == Bytes || r.Unit == Seconds || r.Unit == Percent {
			s += " (" + string(r.Unit) + ")"
		}
		return s
	case Bool:
		if len(r.Words) > 0 {
			return "true, false or " + quoted(r.Words)
		}
		return "true or false"
	case Priority:
		return fmt.Sprintf("%s, the name of a declared priority, or an integer from %d to %d", quoted(r.Words), r.Min, r.Max)
	case Enum:
		return quoted(r.Words)
	case List:
		if r.Min > 0 {
			return fmt.Sprintf("a list of %d to %d %s", r.Min, r.Max, r.Elem.plural())
		}
		return "a list of " + r.Elem.plural()
	case Map:
		return "a struct of " + r.Elem.plural()
	case Free:
		return "a struct"
	case Time:
		return `a time of RFC 3339, such as "2027-03-31T00:00:00Z"`
	case Struct:
		names := make([]string, len(r.Fields))
		for i, f := range r.Fields {
			names[i] = f.Name
		}
		return "a struct with " + strings.Join(names, ", ")
	}
	if r.Min > 0 && r.Match != nil {
		if want := r.Match(""); want != "" {
			return want
		}
	}
	return "a string"
}

// plural says in words what several of r are.
func (r *Rule) plural() string {
	switch r.Type {
	case Struct:
		return "structs with " + strings.TrimPrefix(r.String(), "a struct with ")
	case Int:
		return "integers"
	case Free:
		return "structs"
	}
	return "strings"
}

func quoted(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = strconv.Quote(w)
	}
	return strings.Join(q, ", ")
}

// amount writes n with a binary multiplier where it is exact and n is bytes.
func amount(u Unit, n int64) string {
	if u == Bytes && n > 0 {
		for i, suffix := range []string{"Pi", "Ti", "Gi", "Mi", "Ki"} {
			if unit := int64(1) << (50 - 10*i); n%unit == 0 {
				return fmt.Sprintf("%d%s", n/unit, suffix)
			}
		}
	}
	return big.NewInt(n).String()
}

// largest returns the name of the largest of some volumes of memory, "" if there is none.
func largest(volumes map[string]any) (name string) {
	most := int64(-1)
	for _, n := range slices.Sorted(maps.Keys(volumes)) {
		v, _ := volumes[n].(map[string]any)
		if size, ok := wholeNumber(v["tmpBytes"]); ok && size > most {
			name, most = n, size
		}
	}
	return name
}
