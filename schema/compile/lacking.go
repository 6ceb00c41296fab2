package compile

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/valid"
)

// toLacking moves a mistake of what is looked up and is not there, in the data at a path, to where the package, or a file
// that it embeds, writes the struct that lacks it.
func (l *loaded) toLacking(d *mistake, at []string) {
	name := d.lacks
	if d.form == absentField {
		name = d.about
	}
	if name == "" || d.form == closedField || d.form == absentDefinition || !l.built {
		return
	}
	from, indexed := trace.SelectedFrom(trace.Lookup(l.value, at, l.inst.ID()), name)
	s, ok := l.writtenStruct(from, name)
	if !ok || d.form != absentField && !s.others && (!indexed || l.where.mine(d.Path) || d.Rule != schema.RuleUndefined) {
		return
	}
	if d.form != absentField {
		d.Message, d.Hint, d.Expected = fmt.Sprintf("there is no %s in it", name), fmt.Sprintf("it is looked up at %s", d.Position), ""
	}
	d.about, d.Position = name, s.label
	if s.at != nil {
		d.Field = fieldPath(s.at)
	}
	if s.near != "" {
		d.is, d.meant = s.near, name
		d.Hint = fmt.Sprintf("did you mean %s? %s", name, strings.Replace(d.Hint, "it is", "It is", 1))
	}
}

// lackingStruct is what a package writes of a struct that lacks a field.
type lackingStruct struct {
	label schema.Position
	at    []string // its data path, nil if it is in what has none
	near  string   // the label that the field probably has; label is where that stands
	// others is set if what is beside the struct has the field.
	others bool
}

// writtenStruct returns what the package, or a file that it embeds, writes of a struct that lacks a field of a name, or what
// others write of it if that has the field under a similar name. It reports false if there is nothing of the kind.
func (l *loaded) writtenStruct(v cue.Value, name string) (found lackingStruct, ok bool) {
	for _, part := range trace.Parts(v) {
		f, is := part.Source().(*ast.Field)
		if !is || !f.Label.Pos().IsValid() {
			continue
		}
		s := lackingStruct{label: position(f.Label.Pos()), at: labelsOf(part.Path())}
		if len(s.at) == 0 || slices.Contains(s.at, "") || decimal.MatchString(s.at[0]) {
			s.at = nil
		}
		s.others = l.besideHas(part, name)
		if s.near = valid.Nearest(name, trace.Names(part)); s.near != "" {
			if inner, is := part.LookupPath(cue.MakePath(cue.Str(s.near))).Source().(*ast.Field); is && inner.Label.Pos().IsValid() {
				s.label = position(inner.Label.Pos())
			}
			if s.at != nil {
				s.at = append(s.at, s.near)
			}
		}
		mine := l.where.mine(s.label.Path)
		if mine || s.near != "" && !ok && !l.where.schema(s.label.Path) {
			found, ok = s, true
		}
		if mine {
			return found, true
		}
	}
	return found, ok
}

// besideHas reports whether one of the structs beside another one has a field of a name.
func (l *loaded) besideHas(v cue.Value, name string) bool {
	at := v.Path().Selectors()
	in := instanceOf(l.inst, l.where.fileAt(v.Pos()))
	root := l.value
	switch {
	case in != nil && in != l.inst:
		root = l.context.BuildInstance(in)
	case len(at) < 2:
		return false
	}
	of := root.LookupPath(cue.MakePath(at[:len(at)-1]...))
	return slices.ContainsFunc(trace.Members(of), func(label string) bool {
		return of.LookupPath(cue.MakePath(cue.Str(label), cue.Str(name))).Exists()
	})
}
