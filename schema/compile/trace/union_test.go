package trace_test

import (
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema/compile/trace"
)

// TestNarrow finds the alternative that is meant by its values, and what is wrong with that one.
func TestNarrow(t *testing.T) {
	t.Parallel()
	const library = `
#Host: {from: "host", command!: [...string]}
#Image: {from: "image", image!: =~"^r"}
#Run: #Host | #Image
#In: {run: {on: "disk", gib: int} | *{on: "none"}}
`
	for _, tt := range []struct{ name, given, want string }{
		{"misspelled", `x: #Run & {from: "host", comand: []}`, "x.comand: field not allowed"},
		{"type", `x: #Run & {from: "host", command: 5}`, "x.command: conflicting values [...string] and 5 (mismatched types list and int)"},
		{"bound", `x: #Run & {from: "image", image: "a"}`, `x.image: invalid value "a" (out of bound =~"^r")`},
		{"no such value", `x: #Run & {from: "hots"}`, `x.from: one of "host" "image", not "hots"`},
		{"misspelled name of the value", `x: #Run & {form: "host", command: []}`, "x.form: field not allowed"},
		{"no struct", `x: #Run & "host"`, `x: one of "host" "image", not "host"`},
		{"default", `x: #In & {run: {on: "disk", gb: 1}}`, "x.run.gb: field not allowed"},
		{"other error", `x: 1, x: 2`, "x: conflicting values 2 and 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := cuecontext.New().CompileString(library + tt.given)
			var got []string
			for _, e := range trace.Narrow(errors.Errors(v.Validate()), func(at []string) cue.Value { return trace.Lookup(v, at, "") }) {
				format, args := e.Msg()
				text := errors.Newf(e.Position(), format, args...).Error()
				if n, ok := e.(*trace.NoAlternative); ok {
					given := n.Tag.Given
					if n.Given.Exists() {
						given = trace.Text(n.Given)
					}
					text = "one of " + strings.Join(n.Tag.Values, " ") + ", not " + given
				}
				got = append(got, strings.Join(e.Path(), ".")+": "+text)
			}
			if diff := cmp.Diff([]string{tt.want}, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestRequired finds where a required field should be that CUE misses where it is referred to.
func TestRequired(t *testing.T) {
	t.Parallel()
	v := cuecontext.New().CompileString(`
#App: {#in: {command!: [...string], size!: int}, task: command: #in.command, n: #in.size}
job: a: #App & {#in: size: 1}
job: b: #App & {#in: {size: 1, command: []}}
`)
	var got []string
	for _, e := range trace.Required(v, errors.Errors(v.Validate(cue.Concrete(true))), ownFile) {
		got = append(got, strings.Join(e.Path(), "."))
	}
	if diff := cmp.Diff([]string{"job.a.#in.command"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func ownFile(name string) bool { return name == "own.cue" }

// TestLacking finds where a value is to be given: in the struct that others are made from, if none of
// them has it, and else in those that have it not.
func TestLacking(t *testing.T) {
	t.Parallel()
	v := cuecontext.New().CompileString(`
#Base: {#key!: string, width: int, list: [...string]}
_all: #Base & {list: ["x"]}
_one: _all & {width: 1}
_two: _all & {width: 2}
_some: #Base & {#key: "k"}
_three: _some & {width: 3}
_four: _some & {list: [string]}
`, cue.Filename("own.cue"))
	for name, want := range map[string][]string{
		"#key":  {"_all.#key"},
		"width": {"_four.width"},
		"list":  {"_four.list"},
	} {
		var got []string
		for _, o := range trace.Lacking(v, name, ownFile) {
			got = append(got, o.Path.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}
