package compile_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/vendored"
)

// vendors adds a module to files, as muster vendor does.
func vendors(t *testing.T, files map[string]string, module string, of map[string]string) {
	t.Helper()
	lock, fault := vendored.Parse([]byte(files[vendored.File]))
	if fault != nil && files[vendored.File] != "" {
		t.Fatal(fault)
	}
	m := vendored.Module{Module: module, Source: "../x"}
	of["cue.mod/module.cue"] = "module: \"" + module + "\"\nlanguage: version: \"v0.17.0\"\n"
	bytes := map[string][]byte{}
	for name, s := range of {
		bytes[name] = []byte(s)
		files[m.Dir()+"/"+name] = s
	}
	m.Sum = vendored.Sum(module, bytes)
	lock.Put(m)
	data, err := lock.Encode()
	if err != nil {
		t.Fatal(err)
	}
	files[vendored.File] = string(data)
}

// vendoring is a repository with two modules of others, of which one needs the other.
func vendoring(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{
		"root.cue":    "package service\n\n_clash: 1\n", // which is none of the package of that name
		"teams/a.cue": "package teams\n\nimport \"example.org/lib/service\"\n\njob: web: service.#Service & {user: \"u\", task: process: command: [\"x\"]}\n",
		"other/b.cue": "package other\n\nimport \"example.com/config/muster\"\n\njob: b: muster.#Job & {user: \"u\", cell: \"c\", task: process: command: [\"x\"]}\n",
	}
	vendors(t, files, "example.org/base@v2", map[string]string{
		"b.cue":     "package base\n\n_clash: 2\n#Base: {cell: \"c\", tasks: *2 | int, ...}\n",
		"jobs.cue":  "package base\n\njob: none: {user: \"u\"}\n", // nothing runs because of it
		"x/deep.go": "no CUE",
	})
	vendors(t, files, "example.org/lib@v1", map[string]string{
		"service/s.cue": "package service\n\nimport \"example.org/base\"\n\n_clash: 3\n#Service: base.#Base & {labels: from: \"lib\", ...}\n",
	})
	return files
}

func compiled(t *testing.T, files map[string]string) string {
	t.Helper()
	c, err := compiler(t, compile.Config{}).Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	ruled(t, c)
	return show(c)
}

func TestVendored(t *testing.T) {
	t.Parallel()
	const want = "other: 1 objects\n\tother/b.cue:5:6: job c/u/b\nteams: 1 objects\n\tteams/a.cue:5:6: job c/u/web\n"
	if got := compiled(t, vendoring(t)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What can be wrong with it is one diagnostic, and stops only who imports it.
func TestVendoredWrong(t *testing.T) {
	t.Parallel()
	const lib, base = "cue.mod/pkg/example.org/lib/", "cue.mod/pkg/example.org/base/"
	for name, c := range map[string]struct {
		change map[string]string // "" removes
		want   string            // the position and the message
		hint   string
	}{
		"a file changed":    {map[string]string{lib + "service/s.cue": "package service\n"}, "cue.mod/vendor.json:10:17: error vendored\n\tthe files in cue.mod/pkg/example.org/lib are not those of example.org/lib: their sum is h1:", "muster vendor restores them"},
		"a file more":       {map[string]string{base + "y/more.txt": "x"}, "cue.mod/vendor.json:5:17: error vendored\n\tthe files in cue.mod/pkg/example.org/base are not those", "muster vendor restores them"},
		"a file less":       {map[string]string{base + "jobs.cue": ""}, "cue.mod/vendor.json:5:17: error vendored\n\tthe files in cue.mod/pkg/example.org/base are not those", "muster vendor restores them"},
		"no lock":           {map[string]string{vendored.File: ""}, "teams/a.cue:3:8: error import\n\tcannot find package \"example.org/lib/service\": it is in cue.mod/pkg, and cue.mod/vendor.json does not list it", "muster vendor DIR"},
		"a broken lock":     {map[string]string{vendored.File: "{\n\"version\" 1}"}, "cue.mod/vendor.json:2:1: error vendored\n\tis not the JSON that muster vendor writes", "restore it from git"},
		"beside replaced":   {map[string]string{"cue.mod/local-module.cue": "deps: {}\n"}, "cue.mod/local-module.cue:1:1: error vendored\n\tmodules are vendored in cue.mod/pkg and replaced here", "muster vendor DIR"},
		"a wrong directory": {map[string]string{"teams/a.cue": "package teams\n\nimport \"example.org/lib/servise\"\n\n_x: servise.#S\n"}, "teams/a.cue:3:8: error import\n\tcannot find package \"example.org/lib/servise\": example.org/lib has no CUE files there", `did you mean "example.org/lib/service"?`},
		"its root":          {map[string]string{"teams/a.cue": "package teams\n\nimport \"example.org/lib\"\n\n_x: lib.#S\n"}, "teams/a.cue:3:8: error import\n\tcannot find package \"example.org/lib\": example.org/lib has no CUE files there", "it has example.org/lib/service"},
		"below it":          {map[string]string{"teams/a.cue": "package teams\n\nimport \"example.org/lib/../base\"\n\n_x: base.#Base\n"}, "teams/a.cue:3:8: error import\n\timport path \"example.org/lib/../base\" is relative or absolute", "begin with the module's path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := vendoring(t)
			for at, s := range c.change {
				if files[at] = s; s == "" {
					delete(files, at)
				}
			}
			got := compiled(t, files)
			if !strings.HasPrefix(got, c.want) || !strings.Contains(got, c.hint) || strings.Count(got, ": error ") != 1 {
				t.Errorf("got\n%s\nwant one diagnostic: %s (%s)", got, c.want, c.hint)
			}
			if !strings.Contains(got, "job c/u/b") || strings.Contains(got, "job c/u/web") {
				t.Errorf("who imports it has data, or who does not has none:\n%s", got)
			}
		})
	}
}

// A mistake of the module itself is reported once, in it.
func TestVendoredMistake(t *testing.T) {
	t.Parallel()
	files := vendoring(t)
	files["third/c.cue"] = strings.ReplaceAll(files["teams/a.cue"], "teams", "third")
	vendors(t, files, "example.org/lib@v1", map[string]string{"service/s.cue": "package service\n\nimport (\n\t\"example.org/base\"\n\t\"example.org/none/x\"\n)\n\n#Service: base.#Base & {labels: from: x.y, ...}\n"})
	got := compiled(t, files)
	if !strings.HasPrefix(got, "cue.mod/pkg/example.org/lib/service/s.cue:5:2: error import\n") || !strings.Contains(got, "muster vendor") || strings.Count(got, ": error ") != 1 {
		t.Errorf("got\n%s", got)
	}
	vendors(t, files, "example.org/lib@v1", map[string]string{"service/s.cue": "package service\n\nimport \"example.org/base\"\n\n#Service: base.#Bas & {labels: from: \"x\", ...}\n"})
	got = compiled(t, files)
	if !strings.HasPrefix(got, "cue.mod/pkg/example.org/lib/service/s.cue:5:16: error ") || strings.Count(got, ": error ") != 1 {
		t.Errorf("got\n%s", got)
	}
}
