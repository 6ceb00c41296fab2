package compile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/edit"
	"github.com/musterhq/muster/schema/valid"
)

// Change is a file that Set changes.
type Change struct {
	schema.Position // of the value before; without a line of one that was not set

	Old, New []byte // the text of the file; the same if the field has the value already
}

// Assignment says which field of which job is to have which value.
type Assignment struct {
	Dir   string // of the job's package
	Key   schema.ObjectKey
	Field string // data path in the job
	Value string // a literal of CUE, or, for a field that is a text, the text
}

// assignment is one call of Set.
type assignment struct {
	c      *Compiler
	tree   schema.Tree
	before schema.Compiled
	dir    string
	key    schema.ObjectKey
	field  []string
	value  edit.Value
	want   []byte // the data of the object after it
	// parameter is what the change sets, if the field is that of a template, and where the field is
	// taken from it.
	parameter []string
	taken     schema.Position
}

// Set returns the change of one file after which one field of an object has a value, and
// the data of the repository is otherwise the same: that is compiled to make sure of it.
// The package of the object must be free of errors. It errs, with a hint, when there is no such change, such
// as when a template or a package of others sets the field, saying where.
func (c *Compiler) Set(ctx context.Context, tree schema.Tree, to Assignment) (Change, error) {
	a := &assignment{c: c, tree: tree, dir: to.Dir, key: to.Key}
	var err error
	if a.field, err = splitField(to.Field); err != nil {
		return Change{}, err
	}
	if a.value, err = a.read(to.Field, to.Value); err != nil {
		return Change{}, err
	}
	if a.before, err = c.Compile(ctx, tree); err != nil {
		return Change{}, err
	}
	resp, err := c.ask(ctx, tree, a.dir, question{Kind: a.key.Kind, Name: a.key.Declared(), Field: to.Field})
	if err == nil && len(resp.Diagnostics) > 0 {
		err = resp.Diagnostics[0]
	}
	if err != nil {
		return Change{}, err
	}
	if err := a.expect(resp.Given); err != nil {
		return Change{}, err
	}
	if bytes.Equal(a.data(a.before), a.want) {
		at := schema.Position{Path: a.origin().Path}
		for _, s := range resp.Sources {
			for _, p := range s.Places {
				if p.Role == Sets {
					at = p.Position
				}
			}
		}
		old := tree.Files[at.Path].Data
		return Change{Position: at, Old: old, New: old}, nil
	}
	change, err := a.edit(resp.Sources, resp.Definitions)
	if err != nil {
		return Change{}, err
	}
	err = a.check(ctx, change)
	if d := (schema.Diagnostic{}); errors.Is(err, errNoParameter) || a.parameter != nil && errors.As(err, &d) && d.Rule == schema.RuleUnknownField {
		a.parameter = nil
		if change, err = a.insert(a.field); err == nil {
			err = a.check(ctx, change)
		}
	}
	return change, err
}

// splitField returns the names in a data path.
func splitField(field string) (names []string, err error) {
	hint := "name it as muster explain does: task.resources.ramBytes, or labels.\"example.com/team\""
	for rest, more := field, true; more; {
		var name string
		if strings.HasPrefix(rest, `"`) {
			end := strings.Index(rest[1:], `"`)
			if end < 0 {
				return nil, schema.Hintf(hint, "%q is no field", field)
			}
			name, rest = rest[1:end+1], rest[end+2:]
			more = strings.HasPrefix(rest, ".")
			if rest = strings.TrimPrefix(rest, "."); !more && rest != "" {
				return nil, schema.Hintf(hint, "%q is no field", field)
			}
		} else {
			name, rest, more = strings.Cut(rest, ".")
		}
		switch {
		case name == "":
			return nil, schema.Hintf(hint, "%q is no field", field)
		case strings.Contains(name, "["):
			return nil, schema.Hintf("set the whole list: '[\"a\", \"b\"]'", "%s is an element of a list, which is set as a whole", field)
		}
		names = append(names, name)
	}
	return names, nil
}

// read reads the value by what the field may be.
func (a *assignment) read(field, text string) (edit.Value, error) {
	if slices.Contains([]string{"name", "user", "cell"}, a.field[0]) {
		return edit.Value{}, schema.Hintf("change it in the file", "%s is a part of the name: with another one it would be another %s", a.field[0], a.key.Kind)
	}
	r := valid.Of(a.key.Kind)
	for _, name := range a.field {
		var next *valid.Rule
		switch {
		case r == nil:
		case r.Has(name):
			f := r.Field(name)
			if f.Name != name {
				return edit.Value{}, schema.Hintf("name it "+strings.TrimSuffix(field, name)+f.Name, "%s", f.Replaced())
			}
			next = f.Rule
		case r.Type == valid.Map:
			next = r.Elem
		}
		r = next
	}
	if r != nil && (r.Type == valid.Struct || r.Type == valid.Map || r.Type == valid.Free) {
		return edit.Value{}, schema.Hintf("set its fields, such as "+field+".NAME", "%s has fields of its own, and one value is set at a time", field)
	}
	isText := r != nil && (r.Type == valid.String || r.Type == valid.Enum || r.Type == valid.Time)
	if isText && !edit.IsQuoted(text) {
		return edit.Text(text), nil
	}
	v, err := edit.Literal(text)
	if errors.Is(err, edit.ErrNoLiteral) {
		if meant := strings.TrimLeft(text, "0"); r != nil && r.Type == valid.Int && meant != text {
			if _, err := edit.Literal(cmp.Or(meant, "0")); err == nil {
				return edit.Value{}, schema.Hintf("did you mean "+cmp.Or(meant, "0")+"?", "%s is no number: it begins with 0", text)
			}
		}
		return edit.Text(text), nil // which may be right, and else expect says what is
	}
	return v, err
}

// expect computes the data of the object after the change, by what is given of it before.
func (a *assignment) expect(given []byte) error {
	data, err := valid.Parse(given)
	if err != nil {
		return err
	}
	at, ok := data.(map[string]any)
	for i, name := range a.field {
		switch next, isStruct := at[name].(map[string]any); {
		case !ok:
			return fmt.Errorf("%s: the compiler gave %T for an object", a.key, data)
		case i == len(a.field)-1:
			at[name] = a.value.Data
		case isStruct:
			at = next
		default:
			next = map[string]any{}
			at[name] = next
			at = next
		}
	}
	out, problems := valid.Object(a.key.Kind, a.key.Declared(), data)
	if out == nil && len(problems) > 0 {
		p := problems[0]
		d := schema.Diagnostic{Severity: schema.Error, Rule: p.Rule, Field: fieldPath(append([]string{string(a.key.Kind), a.key.Declared()}, p.Path...)), Message: p.Message, Expected: p.Expected}
		return schema.Hintf(cmp.Or(p.Hint, "muster explain lists the fields of a job, and what they may be"), "%w", d)
	}
	var o schema.Objects
	if err := valid.Append(&o, a.key.Kind, schema.Canonical(out)); err != nil {
		return err
	}
	a.want = schema.Canonical(o)
	return nil
}

// of returns the package of the object.
func (a *assignment) of(c schema.Compiled) *schema.Package {
	for i := range c.Packages {
		if c.Packages[i].Dir == a.dir {
			return c.Packages[i].Package
		}
	}
	return nil
}

// data returns the data of the object, nil if it is not there.
func (a *assignment) data(c schema.Compiled) []byte {
	p := a.of(c)
	if p == nil {
		return nil
	}
	mine, _ := apart(p.Objects, a.key)
	return mine
}

func (a *assignment) origin() schema.Position { return a.of(a.before).Origins[a.key] }

// apart returns the data of a job, and that of all other objects.
func apart(o schema.Objects, key schema.ObjectKey) (mine, others []byte) {
	var job schema.Objects
	rest := o
	rest.Jobs = nil
	for i := range o.Jobs {
		if id := o.Jobs[i].ID(); key.Kind == schema.KindJob && id.String() == key.Name {
			job.Jobs = append(job.Jobs, o.Jobs[i])
		} else {
			rest.Jobs = append(rest.Jobs, o.Jobs[i])
		}
	}
	return schema.Canonical(job), schema.Canonical(rest)
}

// edit makes the change: where the value is set, and else in the object's own struct, which has definitions.
func (a *assignment) edit(sources []FieldSource, definitions []string) (Change, error) {
	for _, s := range sources {
		var mine []schema.Position
		for _, p := range s.Places {
			if p.Role != Sets {
				continue
			}
			if dir := path.Dir(p.Path); strings.HasSuffix(p.Path, ".cue") && dir != a.dir {
				return Change{}, schema.Hintf("change it there, for all that is made from it; or have it give a default: *"+terse(p.Text)+" | TYPE",
					"%s of %s is set by %s: %s", s.Field, a.key.Field(), p.Position, p.Text)
			}
			mine = append(mine, p.Position)
		}
		if len(mine) > 1 {
			return Change{}, schema.Hintf("remove one of them", "%s of %s is set twice, at %s and %s", s.Field, a.key.Field(), mine[0], mine[1])
		}
		if len(mine) == 1 {
			old := a.tree.Files[mine[0].Path].Data
			text, err := edit.Replace(old, mine[0], a.value)
			return Change{Position: mine[0], Old: old, New: text}, err
		}
		if s.Field == fieldPath(a.field) {
			a.parameter, a.taken = parameterOf(s, definitions)
		}
	}
	if a.parameter != nil {
		if change, err := a.insert(a.parameter); err == nil {
			return change, nil
		}
		a.parameter = nil
	}
	return a.insert(a.field)
}

// parameterOf returns the parameter that a field is exactly, by the template, and where that says so; nil
// if it is none: a definition that the object does not have is one of a package, for other objects too.
func parameterOf(s FieldSource, definitions []string) ([]string, schema.Position) {
	for _, p := range s.Places {
		names := strings.Split(p.Text, ".")
		if p.Role == Refers && p.Field == "" && slices.Contains(definitions, names[0]) && !slices.ContainsFunc(names, func(n string) bool { return !identifier.MatchString(n) }) {
			return names, p.Position
		}
	}
	return nil, schema.Position{}
}

// terse returns a text that may stand in a hint.
func terse(s string) string {
	if len(s) > maxLabel {
		return "VALUE"
	}
	return s
}

// insert makes the change in the file of the package that says most of a field of the object.
func (a *assignment) insert(field []string) (Change, error) {
	best, most := Change{}, -1
	object := []string{string(a.key.Kind), a.key.Declared()}
	for _, name := range slices.Sorted(maps.Keys(a.tree.Files)) {
		if path.Dir(name) != a.dir || !strings.HasSuffix(name, ".cue") || ignored(name) {
			continue
		}
		old := a.tree.Files[name].Data
		text, matched, err := edit.Insert(name, old, object, field, a.value)
		if err != nil {
			return Change{}, fmt.Errorf("%s: %w", name, err)
		}
		if matched > most {
			most, best = matched, Change{Position: schema.Position{Path: name}, Old: old, New: text}
		}
	}
	if most < 0 {
		return best, schema.Hintf("change it there", "%s is computed at %s: there is no place for one field of it", a.key.Field(), a.origin())
	}
	return best, nil
}

// errNoParameter says that what a field is taken from is a definition of the template's package, and not that
// of the object, which has the same name.
var errNoParameter = errors.New("no parameter of the object")

// check compiles the repository with the change and compares the data.
func (a *assignment) check(ctx context.Context, change Change) error {
	tree := a.tree
	tree.Files = maps.Clone(tree.Files)
	tree.Files[change.Path] = schema.File{Hash: string(schema.DigestBytes(change.New)), Data: change.New}
	after, err := a.c.Compile(ctx, tree)
	if err != nil {
		return err
	}
	const hint = "nothing is written; change the file yourself"
	found := map[string]*schema.CompiledPackage{}
	for i := range after.Packages {
		found[after.Packages[i].Dir] = &after.Packages[i]
	}
	for i := range a.before.Packages {
		was := &a.before.Packages[i]
		is := found[was.Dir]
		switch {
		case was.Package == nil:
		case is == nil:
			return schema.Hintf(hint, "the package %s would be gone", was.Dir)
		case is.Package == nil:
			d := is.Diagnostics[slices.IndexFunc(is.Diagnostics, isError)]
			if d.Hint == "" {
				d.Hint = hint
			}
			return schema.Hintf(d.Hint, "with this value: %w", d)
		default:
			if err := a.same(was.Package, is.Package, change); err != nil {
				return err
			}
		}
	}
	if !bytes.Equal(a.data(after), a.want) {
		switch {
		case a.parameter == nil:
			return a.more(change, a.data(after))
		case bytes.Equal(a.data(after), a.data(a.before)):
			return errNoParameter
		}
		return schema.Hintf("set the parameter in the file if that is meant", "%s of %s is the parameter %s, at %s, and other fields follow from that, too",
			fieldPath(a.field), a.key.Field(), strings.Join(a.parameter, "."), a.taken)
	}
	return nil
}

// more says what a change does to the object that it is not to do.
func (a *assignment) more(change Change, after []byte) error {
	const hint = "nothing is written; change the file yourself"
	field := differing(decoded(a.want), decoded(after))
	switch {
	case field == nil: // the object is not there any more
		return schema.Hintf(hint, "with a change at %s there would be no %s", change.Position, a.key.Field())
	case slices.Equal(field, a.field):
		return schema.Hintf(hint, "with a change at %s, %s of %s would not be what is wanted: more contributes to it, which muster explain lists",
			change.Position, fieldPath(field), a.key.Field())
	}
	return schema.Hintf("change the file if that is meant; nothing is written", "%s is also for other fields of %s: it would change %s",
		change.Position, a.key.Field(), fieldPath(field))
}

// decoded returns the one job in data, nil if there is none.
func decoded(data []byte) any {
	var o struct{ Jobs []any }
	if err := json.Unmarshal(data, &o); err != nil || len(o.Jobs) == 0 {
		return nil
	}
	return o.Jobs[0]
}

// differing returns the path of the first field in which two values differ, nil if there is none within them.
func differing(a, b any) []string {
	x, isX := a.(map[string]any)
	y, isY := b.(map[string]any)
	if !isX || !isY {
		return nil
	}
	names := maps.Clone(x)
	maps.Copy(names, y)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !reflect.DeepEqual(x[name], y[name]) {
			return append([]string{name}, differing(x[name], y[name])...)
		}
	}
	return nil
}

// same errs if a package has other data than before, besides the object.
func (a *assignment) same(was, is *schema.Package, change Change) error {
	_, before := apart(was.Objects, a.key)
	_, after := apart(is.Objects, a.key)
	if bytes.Equal(before, after) {
		return nil
	}
	what := was.Dir
	for i := range was.Objects.Jobs {
		was, is := &was.Objects.Jobs[i], is.Objects.Jobs
		if id := was.ID(); id.String() != a.key.Name && (i >= len(is) || !bytes.Equal(schema.Canonical(was), schema.Canonical(is[i]))) {
			what = "job " + id.Short()
			break
		}
	}
	return schema.Hintf("change it in the file if that is meant", "%s is also for others: it would change %s", change.Position, what)
}
