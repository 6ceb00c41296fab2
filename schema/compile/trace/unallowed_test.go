package trace_test

import (
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"github.com/musterhq/muster/schema/compile/trace"
)

func TestUnallowed(t *testing.T) {
	t.Parallel()
	library := `
#Each: {
	limit?: {milli?: int, whole?: int}
	limit?: matchN(1, [{milli!: >0}, {whole!: >0}])
}
#Plan: each: [string]: #Each
#Open: {
	limit?: {milli?: int, ...}
	limit?: matchN(1, [{milli!: >0}, {whole!: >0}])
}
`
	for given, want := range map[string]string{
		`_a: #Plan & {each: x: limit: mili: 3}`:            "_a.each.x.limit.mili",
		`_a: #Each & {limit: {milli: 3, what: 1}}`:         "",
		`_a: #Each & {limit: {}}`:                          "",
		`_a: #Each & {limit: milli: 3}`:                    "",
		`_a: #Open & {limit: mili: 3}`:                     "",
		`_b: {mili: 3}, _a: #Each & {limit: _b}`:           "_a.limit.mili",
		`_a: #Each & {limit: mili: 3} & {limit: milli: 1}`: "",
	} {
		ctx := cuecontext.New()
		lib := ctx.CompileString(library, cue.Filename("/lib/lib.cue"))
		v := ctx.CompileString(given, cue.Filename("/own/own.cue"), cue.Scope(lib))
		var got []string
		it, err := v.Fields(cue.Hidden(true))
		if err != nil {
			t.Errorf("%s: %v", given, err)
			continue
		}
		for it.Next() {
			for _, e := range trace.Unallowed(it.Value(), func(file string) bool { return strings.HasPrefix(file, "own/") }) {
				got = append(got, strings.Join(e.Path(), "."))
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s\nhas %q, want %q", given, s, want)
		}
	}
}
