package compile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/musterhq/muster/schema/compile"
)

// TestApart makes two of the mistakes of a style in one package, in different objects: each is said as
// it is without the other one.
func TestApart(t *testing.T) {
	t.Parallel()
	for style, pairs := range map[string][][2]string{
		"mixins": {
			{"a shard without a beginning", "an alloc set with too many slots"},
			{"a shard without a beginning", "a gang of nobody"},
			{"a shard without a beginning", "a quota of nobody"},
			{"encryption without a certificate", "a machine in a bad rack"}, // both were reported before
		},
		"tables": {
			{"an application without its name", "a row with a misspelled name"},
			{"a row without what it runs", "a size in capitals"},
		},
	} {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile("testdata/styles/" + style + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]string{}
			for _, f := range ar.Files {
				files[f.Name] = string(f.Data)
			}
			mistakes := ar.Files[len(ar.Files)-1].Name
			good, all := files[team], slips(t, files[mistakes])
			delete(files, team)
			delete(files, mistakes)
			named := func(name string) slip {
				i := slices.IndexFunc(all, func(s slip) bool { return s.name == name })
				if i < 0 {
					t.Fatalf("no mistake is %q", name)
				}
				return all[i]
			}
			for i, p := range pairs {
				files[fmt.Sprintf("teams/t%d/%s", i, team)] = named(p[1]).apply(t, named(p[0]).apply(t, good))
			}
			out := compiledTree(t, compiler(t, compile.Config{}), files)
			for i, p := range pairs {
				got := saidOf(out, fmt.Sprintf("teams/t%d", i))
				for _, name := range p {
					if want := named(name).want; !strings.Contains(got, want) {
						t.Errorf("%s is not reported beside another mistake:\n%s\nwant\n%s", name, got, want)
					}
				}
				if n := strings.Count("\n"+got, "\n") - strings.Count("\n"+got, "\n\t"); n != 3 {
					t.Errorf("%q: %d are reported:\n%s", p, n-1, got)
				}
			}
		})
	}
}

// TestApartAlone has mistakes whose places give what other objects use: without them these would
// have mistakes of their own, and each is reported alone.
func TestApartAlone(t *testing.T) {
	t.Parallel()
	const (
		limited = "_base: {user: \"a\", cell: \"local\", task: process: command: [\"x\"], if _env == \"dev\" {tasks: <5}}\n"
		mine    = "job: mine: _base & {tasks: 9}\n"
	)
	files := map[string]string{
		"parent/base.cue":     "package p\n_env: *\"dev\" | \"prod\"\n" + limited,
		"parent/a/a.cue":      "package p\n_env: \"prodd\"\n" + mine,
		"comprehension/a.cue": "package p\n_env: *\"dev\" | \"prod\"\nif true {_env: \"prod\", _bad: 1 & \"x\"}\n" + limited + mine,
		"follows/a.cue": "package p\n_kind: *\"small\" | \"large\"\n_kind: \"lage\"\n_n: *1 | int\nif _kind == \"large\" {_n: 7}\nif _kind != \"large\" {_n: 9}\n" +
			"job: mine: {user: \"a\", cell: \"local\", task: process: command: [\"x\"], tasks: 2, if _n == 1 {tasks: >5}}\n",
		"embedded/lib/l.cue":  "package lib\n#Prod: {#env: \"prod\", #zone: string, ...}\n",
		"embedded/jobs/a.cue": "package p\nimport \"example.com/x/embedded/lib\"\n#env: *\"dev\" | \"prod\"\nlib.#Prod & {#zone: 3}\n_env: #env\n" + limited + mine,
		"cue.mod/module.cue":  "module: \"example.com/x\"\nlanguage: version: \"v0.9.0\"\n",
	}
	out := compiledTree(t, compiler(t, compile.Config{}), files)
	for _, dir := range []string{"parent/a", "comprehension", "follows", "embedded/jobs"} {
		if got := saidOf(out, dir); strings.Count("\n"+got, "\n")-strings.Count("\n"+got, "\n\t") != 2 || strings.Contains(got, "tasks") {
			t.Errorf("%s:\n%s\nwant one mistake, and nothing of tasks", dir, got)
		}
	}
}

// TestManyMistakes has a mistake in each of hundreds of rows: as many are explained as are reported.
func TestManyMistakes(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	for i := range 400 {
		fmt.Fprintf(&rows, "\t{nam: \"r%d\", cmd: \"/bin/x\"},\n", i)
	}
	files := map[string]string{
		"cue.mod/module.cue": "module: \"example.com/x\"\nlanguage: version: \"v0.9.0\"\n",
		"lib/l.cue": "package lib\n#Table: {\n\trows: [...{name!: string, cmd!: string}]\n" +
			"\tout: {for r in rows {(r.name): {user: \"a\", cell: \"local\", task: process: command: [r.cmd]}}}\n}\n",
		"a/a.cue": "package a\nimport \"example.com/x/lib\"\n_t: lib.#Table & {rows: [\n" + rows.String() + "]}\njob: _t.out\n",
	}
	out := compileTree(t, compile.Config{Limits: compile.Limits{AllocBytes: 1 << 30}}, files)
	if n := strings.Count(out, "error unknown-field\n"); n != 100 || strings.Contains(out, "error limit") {
		t.Errorf("%d rows are reported, want 100:\n%.500s", n, out)
	}
}
