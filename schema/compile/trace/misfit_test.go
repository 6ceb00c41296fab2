package trace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"

	"github.com/musterhq/muster/schema/compile/trace"
)

func misfits(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("cue.mod/module.cue", "module: \"a.b/c@v0\"\nlanguage: version: \"v0.17.0\"\n")
	write("lib/lib.cue", library)
	own := filepath.Join(dir, "own.cue")
	write("own.cue", "package own\n\nimport \"a.b/c/lib\"\n\n"+body)
	in := load.Instances([]string{"."}, &load.Config{Dir: dir})[0]
	if in.Err != nil {
		t.Fatal(in.Err)
	}
	ctx := cuecontext.New()
	v := ctx.BuildInstance(in)
	if err := v.Validate(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range trace.LetsOf(ctx, in, v, map[string][]byte{strings.TrimPrefix(own, "/"): data}).Misfits {
		if !m.Value.Exists() || len(m.Below) != len(m.Path)-1 {
			t.Errorf("%v has the value %v, and %v below it", m.Path, m.Value, m.Below)
		}
		out = append(out, fmt.Sprint(strings.Join(m.Path, "."), " ", m.At.Line()))
	}
	return strings.Join(out, ", ")
}

const library = `package lib

#Make: {
	name:     string
	replicas: *1 | int
	deep: more: *1 | int
	out: {n: replicas, "name": name}
}
#Open: {
	n: *1 | int
	...
	out: n
}
`

func TestMisfits(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`let m = lib.#Make & {name: "a", replica: 3}
job: a: m.out`: "m.replica 5",
		`let m = lib.#Make & {name: "a", deep: mor: 3}
job: a: m.out`: "m.deep.mor 5",
		`job: {
	let m = lib.#Make & {name: "a", replica: 3}
	a: m.out
}`: "m.replica 6",
		`_apps: {a: 1, b: 2}
for n, c in _apps {
	let count = c
	let m = lib.#Make & {name: n, replica: count}
	job: (n): m.out
}`: "m.replica 8",
		`for n, c in {a: 1} let m = lib.#Make & {name: n, replica: c} {
	job: (n): m.out
}`: "m.replica 5",
		`job: {
	for n, c in {a: 1, b: 2} {
		let m = lib.#Make & {name: n, replica: c}
		(n): m.out
	}
}`: "m.replica 7",
		`let base = {replica: 3}
let m = lib.#Make & {name: "a"} & base
let j = m.out
job: a: j`: "m.replica 5",
		`let one = lib.#Make & {name: "a", rep: 3}
let two = lib.#Make & {name: "a", repl: 3}
job: {a: one.out, b: two.out}`: "one.rep 5, two.repl 6",

		// What is right, or not known to be wrong.
		`let m = lib.#Make & {name: "a", replicas: 3}
job: a: m.out`: "",
		`let m = {lib.#Make, name: "a", replica: 3}
job: a: m.out`: "", // embedded, a definition takes more
		`let m = lib.#Open & {nn: 3}
job: a: m.out`: "",
		`let m = lib.#Make & {name: "a", replica: 3}
job: a: [if m == _|_ {"no"}, "yes"][0]`: "", // somebody looks whether it is valid
		`let m = lib.#Make & {name: "a", replica: 3}
job: a: *m.out | "else"`: "",
		`let m = lib.#Make & {name: "a", replica: 3}
let k = m.out
if k != _|_ {job: a: 1}`: "",
		`let more = {tier: 1}
let m = lib.#Make & {name: "a"} & more
job: a: m.out
job: b: more.tier`: "", // it is used
		`#App: {
	let m = lib.#Make & {name: "a", replica: 3}
	job: m.out
}`: "", // a template
		`_x: [string]: {
	let m = lib.#Make & {name: "a", replica: 3}
	job: m.out
}`: "",
		`_x: {
	replica: "name"
	let m = lib.#Make & {(replica): "a"}
	job: m.out
}`: "", // what is around the clause says what it is
		`if 1 > 2 {
	let m = lib.#Make & {name: "a", replica: 3}
	job: a: m.out
}`: "",
		`let m = (lib.#Make & {name: "a"}) | {replica: 3}
job: a: (m & {replica: 3}).replica`: "",
	} {
		if got := misfits(t, body); got != want {
			t.Errorf("%s\nhas %q, want %q", body, got, want)
		}
	}
}
