package compile_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

//go:generate go test -count=1 -run ^TestReference$ . -update

// TestReference holds docs/reference/schema.md to the definitions: the comments
// of schema/cue, and the types, defaults and bounds of schema/valid. TestDrift
// holds those two together.
func TestReference(t *testing.T) {
	t.Parallel()
	const path = "../../docs/reference/schema.md"
	var b strings.Builder
	b.WriteString(`# What a repository may declare

This page is written by ` + "`make generate`" + ` from schema/cue and schema/valid. An object
is a top-level field, by kind and name: ` + "`job: web: muster.#Job & {…}`" + `. A name is 1 to
63 lower-case letters, digits and inner hyphens. Any other field is an error.

Defaults are filled in after CUE; ` + "`muster render`" + ` shows them. Bounds are of the
number, of the bytes of a text, or of the count of elements.
`)
	defs := definitions(t)
	for _, kind := range schema.Kinds() {
		def := defName(kind)
		v := defs.LookupPath(cue.ParsePath(def))
		text, example, _ := strings.Cut(comment(v, def), "Example:")
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", kind, strings.Join(strings.Fields("`"+def+"`"+strings.TrimPrefix(text, def)), " "))
		if example != "" {
			fmt.Fprintf(&b, "\n```cue\n%s\n```\n", dedent(example))
		}
		b.WriteString("\n| field | type | default | bounds | meaning |\n|---|---|---|---|---|\n")
		referenceRows(t, &b, "", v, valid.Of(kind))
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != b.String() {
		t.Errorf("%s is stale: run make generate (%v)", path, err)
	}
}

var saidInColumns = regexp.MustCompile(`Default: ("[^"]*"|\[\]|[0-9]+[A-Za-z]*|false|the defaults of its fields)\. ?|Beside [a-z]+: [0-9]+\. ?|Required\. ?`)

func referenceRows(t *testing.T, b *strings.Builder, at string, v cue.Value, r *valid.Rule) {
	t.Helper()
	it, err := v.Fields(cue.Optional(true))
	if err != nil {
		t.Fatal(err)
	}
	for it.Next() {
		name := it.Selector().Unquoted()
		f := r.Field(name)
		if f == nil {
			t.Fatalf("%s%s has no rule", at, name)
		}
		value := ""
		switch def := f.Default.(type) {
		case nil:
			if f.Required {
				value = "required"
			}
		case map[string]any:
			value = "of its fields"
		default:
			value = "`" + string(schema.Canonical(def)) + "`"
		}
		for _, name := range slices.Sorted(maps.Keys(f.DefaultBeside)) {
			value += ", beside " + name + " `" + string(schema.Canonical(f.DefaultBeside[name])) + "`"
		}
		doc := strings.Join(strings.Fields(comment(it.Value(), name)), " ")
		doc = strings.TrimSpace(saidInColumns.ReplaceAllString(strings.TrimPrefix(doc, name+" "), ""))
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s | %s |\n", at, name, typeText(f.Rule), value, boundsText(f.Rule), strings.ReplaceAll(doc, "|", `\|`))
		switch elem := f.Rule.Elem; {
		case f.Rule.Type == valid.Struct:
			referenceRows(t, b, at+name+".", it.Value(), f.Rule)
		case f.Rule.Type == valid.List && elem.Type == valid.Struct:
			referenceRows(t, b, at+name+"[].", it.Value().LookupPath(cue.MakePath(cue.AnyIndex)), elem)
		case f.Rule.Type == valid.Map && elem.Type == valid.Struct:
			k := strconv.Quote(sampleKey(f.Rule, "name"))
			entry := it.Value().Unify(cuecontext.New().CompileString("{" + k + ": _}")).LookupPath(cue.ParsePath(k))
			referenceRows(t, b, at+name+".NAME.", entry, elem)
		}
	}
}

// comment returns the comment of a definition or field that begins with name.
func comment(v cue.Value, name string) string {
	for _, g := range v.Doc() {
		if s := g.Text(); strings.HasPrefix(s, name+" ") {
			return s
		}
	}
	return ""
}

func typeText(r *valid.Rule) string {
	switch r.Type {
	case valid.List, valid.Map:
		return string(r.Type) + " of " + typeText(r.Elem)
	case valid.String:
		return "text"
	case valid.Priority:
		return "name or integer"
	case valid.Bool:
		if len(r.Words) > 0 {
			return "boolean or word"
		}
	}
	return string(r.Type)
}

func boundsText(r *valid.Rule) string {
	var words []string
	for _, w := range r.Words {
		words = append(words, "`"+w+"`")
	}
	list := strings.Join(words, ", ")
	switch r.Type {
	case valid.Struct:
		return ""
	case valid.Bool:
		return list
	case valid.Time:
		return fmt.Sprintf("years %d to %d", r.Min, r.Max)
	case valid.Enum:
		return list
	case valid.Priority:
		return fmt.Sprintf("%s, %d to %d", list, r.Min, r.Max)
	}
	return fmt.Sprintf("%d to %d", r.Min, r.Max)
}

func dedent(s string) string {
	var lines []string
	for line := range strings.SplitSeq(strings.Trim(s, "\n"), "\n") {
		lines = append(lines, strings.TrimPrefix(line, "\t"))
	}
	return strings.Join(lines, "\n")
}
