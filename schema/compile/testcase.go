package compile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/cases"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/valid"
)

// maxTests is the largest file of tests, in bytes. They are read outside of a child, too.
const maxTests = 128 << 10

// casesOf returns the tests of a request's package, in the order of their files, and what in
// these is no test.
func casesOf(req request) (out []cases.Case, wrong []schema.Diagnostic) {
	add := func(at token.Pos, message, hint string) {
		wrong = append(wrong, schema.Diagnostic{Severity: schema.Error, Rule: schema.RuleTest, Position: position(at), Message: message, Hint: hint})
	}
	for _, name := range testsOf(req) {
		if n := len(req.Files[name]); n > maxTests {
			wrong = append(wrong, schema.Diagnostic{
				Severity: schema.Error, Rule: schema.RuleLimit, Position: schema.Position{Path: name, Line: 1, Column: 1},
				Message: fmt.Sprintf("the file has %d bytes, more than %d", n, maxTests), Hint: "split it",
			})
			continue
		}
		f, err := parser.ParseFile("/"+name, req.Files[name])
		if err != nil {
			first := errors.Errors(err)[0]
			add(first.Position(), "the file does not parse: "+errorText(first), "")
			continue
		}
		for _, c := range cases.Of(f) {
			for _, w := range c.Wrong {
				add(w.At, w.Text, "")
			}
			if len(c.Wrong) > 0 {
				continue
			}
			if at := slices.IndexFunc(out, func(o cases.Case) bool { return o.Name == c.Name }); at >= 0 {
				add(c.At, fmt.Sprintf("the test %q is written twice, here and at %s", c.Name, position(out[at].At)), "rename one of them")
				continue
			}
			out = append(out, c)
		}
	}
	return out, wrong
}

// verdict is what is said of a test.
type verdict struct {
	test  cases.Case
	at    schema.Position
	from  *loaded
	diags []schema.Diagnostic
}

// judge says whether the test of a request passes: without an error it does. l is the
// package with the test, and resp what came of it.
func judge(req request, l *loaded, resp response) response {
	found, _ := casesOf(req)
	i := slices.IndexFunc(found, func(c cases.Case) bool { return c.Name == req.Test })
	if i < 0 {
		return response{Diagnostics: []schema.Diagnostic{firstOf(testsOf(req)[0], schema.RuleInternal, "the test is not there")}}
	}
	v := &verdict{test: found[i], at: position(found[i].At), from: l}
	switch failed := slices.ContainsFunc(resp.Diagnostics, isError); {
	case len(v.test.Fails) > 0:
		v.mistakes(resp.Diagnostics)
	case failed:
		v.diags = withExpectations(resp.Diagnostics)
	default:
		v.diags = resp.Diagnostics // warnings
		v.data(resp.Objects)
	}
	return response{Diagnostics: v.diags}
}

// withExpectations says of a field of a test that is no kind, and that probably stands for what the test
// expects, which of that it may be.
func withExpectations(found []schema.Diagnostic) []schema.Diagnostic {
	words := []string{cases.Want, cases.Has, cases.Lacks, cases.Fails}
	for i, d := range found {
		near := valid.Nearest(lastOf(d.Field), words)
		if d.Rule != schema.RuleUnknownKind || near == "" {
			continue
		}
		found[i].Message = fmt.Sprintf("a test has no field %q", lastOf(d.Field))
		found[i].Expected, found[i].Hint = d.Expected+", or what the test expects: "+strings.Join(words, ", "), fmt.Sprintf("did you mean %s?", near)
	}
	return found
}

func (v *verdict) add(at schema.Position, field, message, expected string) {
	v.diags = append(v.diags, schema.Diagnostic{Severity: schema.Error, Rule: schema.RuleTest, Position: at, Field: field, Message: message, Expected: expected})
}

// mistakes compares the errors that there are with those that are expected: each is
// expected, and each that is expected is there.
func (v *verdict) mistakes(found []schema.Diagnostic) {
	says := func(d schema.Diagnostic, text string) bool {
		said := d.Error() + "\n" + d.Hint // a test is about what people read
		return isError(d) && strings.Contains(said, text)
	}
	for _, want := range v.test.Fails {
		if !slices.ContainsFunc(found, func(d schema.Diagnostic) bool { return says(d, want.Text) }) {
			v.add(position(want.At), "", fmt.Sprintf("no error says %q", want.Text), "an error")
		}
	}
	for _, d := range found {
		if isError(d) && !slices.ContainsFunc(v.test.Fails, func(want cases.Text) bool { return says(d, want.Text) }) {
			v.diags = append(v.diags, d)
		}
	}
}

// data compares the objects with what is expected of them.
func (v *verdict) data(objects []object) {
	whole := map[string]any{}
	for _, o := range objects {
		data, err := valid.Parse(valid.WithFormer(o.Kind, o.Data))
		if err != nil {
			v.add(o.Origin, "", err.Error(), "")
			return
		}
		of, ok := whole[string(o.Kind)].(map[string]any)
		if !ok {
			of = map[string]any{}
			whole[string(o.Kind)] = of
		}
		of[o.Name] = data
	}
	noPath := func(h cases.Text) bool { // nothing lacks that
		err := cue.ParsePath(h.Text).Err()
		if err != nil {
			v.add(position(h.At), "", fmt.Sprintf("%q is no data path", h.Text), "one such as job.web.task.health")
		}
		return err != nil
	}
	for _, h := range v.test.Has {
		if _, ok := lookUp(whole, h.Text); !ok && !noPath(h) {
			v.add(position(h.At), "", h.Text+" is not there", "a value")
		}
	}
	for _, h := range v.test.Lacks {
		if got, ok := lookUp(whole, h.Text); !noPath(h) && ok {
			v.add(position(h.At), "", fmt.Sprintf("%s is %s", h.Text, terms.Clip(text(got))), "no value")
		}
	}
	if v.test.HasWant {
		_ = eachHidden(v.from, cases.Hidden, func(name string, w cue.Value) {
			if name == cases.Want {
				v.compare(nil, whole, w)
			}
		}) // it is a struct: Select makes it
	}
}

// compare compares data with what is expected: of a struct each field that is expected, all
// else as a whole.
func (v *verdict) compare(at []string, got any, want cue.Value) {
	if len(at) > maxDepth+2 {
		return
	}
	want, _ = want.Default()
	pos := v.place(at, want)
	if want.Kind() == cue.StructKind {
		m, ok := got.(map[string]any)
		if !ok {
			v.add(pos, fieldPath(at), "is "+terms.Clip(text(got)), "a struct")
			return
		}
		it, err := want.Fields()
		for err == nil && it.Next() {
			name, ok := label(it)
			if !ok {
				continue
			}
			value, there := m[name]
			full := append(slices.Clone(at), name)
			if !there {
				v.add(v.place(full, it.Value()), fieldPath(full), "is not there", terms.Clip(oneLine(it.Value())))
				continue
			}
			v.compare(full, value, it.Value())
		}
		return
	}
	x := &exporter{left: 1 << 20}
	expected := x.plain(want, 0)
	if _, open := expected.(valid.Broken); open {
		// A constraint: the value must be one that it takes.
		data, err := json.Marshal(got)
		if err == nil && want.Unify(cuecontext.New().CompileBytes(data)).Validate(cue.Concrete(true)) == nil {
			return
		}
		v.add(pos, fieldPath(at), "is "+terms.Clip(text(got)), terms.Clip(oneLine(want)))
		return
	}
	if word, ok := expected.(string); ok && len(at) > 0 && at[len(at)-1] == "priority" {
		if floor, known := schema.Band(word).Floor(); known { // as jobs say it
			expected = json.Number(strconv.Itoa(int(floor)))
		}
	}
	if text(expected) != text(got) {
		v.add(pos, fieldPath(at), "is "+terms.Clip(text(got)), terms.Clip(text(expected)))
	}
}

// place returns where the test says what the data at a path is to be.
func (v *verdict) place(at []string, want cue.Value) schema.Position {
	if f := v.from.where.written(slices.Concat([]string{cases.Hidden, cases.Want}, at)); f != nil {
		return edge(f, false)
	}
	if pos := valueAt(want); pos.Path != "" {
		return pos
	}
	return v.at
}

// oneLine returns a value as CUE without a line break.
func oneLine(v cue.Value) string {
	var b strings.Builder
	last := "{"
	for line := range strings.Lines(fmt.Sprint(v)) {
		line = strings.TrimSuffix(strings.TrimSpace(line), ",")
		opened := strings.HasSuffix(last, "{") || strings.HasSuffix(last, "[")
		if closes := strings.HasPrefix(line, "}") || strings.HasPrefix(line, "]"); !opened && !closes {
			b.WriteString(", ")
		}
		b.WriteString(line)
		last = line
	}
	return b.String()
}

// text returns data as JSON, without a line break.
func text(v any) string { return strings.TrimSpace(string(schema.Canonical(v))) }

// lookUp returns the data at a path: names joined by dots, quoted where they have dots.
func lookUp(v any, at string) (any, bool) {
	path := cue.ParsePath(at)
	if path.Err() != nil {
		return nil, false
	}
	for _, sel := range path.Selectors() {
		switch x := v.(type) {
		case map[string]any:
			if sel.LabelType() != cue.StringLabel {
				return nil, false
			}
			next, ok := x[sel.Unquoted()]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			if sel.LabelType() != cue.IndexLabel || sel.Index() >= len(x) {
				return nil, false
			}
			v = x[sel.Index()]
		default:
			return nil, false
		}
	}
	return v, true
}
