package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/scaffold"
)

// belowLibrary is a company's library of three levels, the first of which is the one
// that muster init writes, and what a job is joined with at each of them.
func belowLibrary(t *testing.T) (files map[string]string, levels []level) {
	t.Helper()
	init, err := scaffold.Files(scaffold.DefaultModule, "local")
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{
		"lib/service.cue": string(init["lib/service.cue"]),
		"lib/web.cue": `package lib

#Web: #StandardService & {
	task: {
		resources: {
			cpuMilli: int | *50
			ports: [string, ...string] | *["http"]
		}
		env: {
			LEVEL: *"info" | string
			[string]: string
		}
		graceSeconds: *5 | int & >0
	}
	update: minHealthySeconds: *2 | int
}
`,
		"teams/lib/shop.cue": `package lib

import "example.com/config/lib"

#Shop: lib.#Web & {
	labels: team: *"shop" | string
	annotations: owner: *"shop@example.com" | string
	task: env: SHOP: "yes"
	if annotations.owner != "nobody" {
		task: logs: files: *3 | int
	}
}
`,
	}
	return files, []level{
		{"StandardService", `import "example.com/config/lib"`, "lib.#StandardService"},
		{"Web", `import "example.com/config/lib"`, "lib.#Web"},
		{"Shop", `import "example.com/config/teams/lib"`, "lib.#Shop"},
	}
}

type level struct{ name, imports, definition string }

// belowLibraryMistakes are what people write into a job. Each is reported in the same words
// whatever the job is made from.
var belowLibraryMistakes = []struct{ name, lines string }{
	{"tasks as text", `tasks: "3"`},
	{"tasks as a fraction", `tasks: 2.5`},
	{"tasks as a list", `tasks: [3]`},
	{"tasks as a struct", `tasks: {count: 3}`},
	{"tasks below 0", `tasks: -1`},
	{"too many tasks", `tasks: 100001`},
	{"tasks as a boolean", `tasks: true`},
	{"no tasks", `tasks: null`},
	{"a misspelled field of the job", `taks: 3`},
	{"a field of another system", `replicas: 3`},
	{"a misspelled struct", `tsk: env: A: "b"`},
	{"ramBytes as text", `task: resources: ramBytes: "512Mi"`},
	{"ramBytes too small", `task: resources: ramBytes: 512`},
	{"cpuMilli as a fraction", `task: resources: cpuMilli: 0.5`},
	{"cpuMilli as text", `task: resources: cpuMilli: "500m"`},
	{"cpuMilli below 0", `task: resources: cpuMilli: -5`},
	{"a misspelled resource", `task: resources: rambytes: 64Mi`},
	{"resources as text", `task: resources: "small"`},
	{"ports as text", `task: resources: ports: "http"`},
	{"a port as a number", `task: resources: ports: [8080]`},
	{"graceSeconds as text", `task: graceSeconds: "30s"`},
	{"a misspelled field of the task", `task: graceSecond: 30`},
	{"a misspelled field of a check", `task: {health: http: {port: "http", pth: "/x"}, resources: ports: ["http"]}`},
	{"the path of a check", `task: {health: http: {port: "http", path: "x"}, resources: ports: ["http"]}`},
	{"a check as text", `task: health: "http"`},
	{"the port of a check as a number", `task: health: http: {port: 8080, path: "/x"}`},
	{"a command as text", `task: process: command: "/bin/x"`},
	{"an empty command", `task: process: command: []`},
	{"a number in a command", `task: process: command: ["/bin/x", 8080]`},
	{"a misspelled command", `task: process: comand: ["/bin/x"]`},
	{"a file as text", `task: files: "/etc/a": "x"`},
	{"a misspelled field of a file", `task: files: "/etc/a": {contnt: "x"}`},
	{"a number in the environment", `task: env: A: 8080`},
	{"the environment as a list", `task: env: ["A=b"]`},
	{"a bad name in the environment", `task: env: "A-B": "x"`},
	{"a misspelled field of restart", `task: restart: {atempts: 3}`},
	{"a misspelled field of update", `update: maxParalel: 1`},
	{"maxParallel as text", `update: maxParallel: "1"`},
	{"a misspelled field of canary", `update: canary: {taks: 1}`},
	{"labels as a list", `labels: ["a"]`},
	{"a label as a number", `labels: version: 3`},
	{"a bad key of a label", `labels: "-x": "a"`},
	{"cell as a list", `cell: ["local"]`},
	{"cell as a number", `cell: 5`},
	{"a bad name of a cell", `cell: "Local"`},
	{"a misspelled constraint", `constraints: [{attribute: "arch", valeu: "amd64"}]`},
	{"a misspelled field of logs", `task: logs: {maxByte: 1Mi}`},
	{"an image and a process", `task: container: {image: "x"}`},
	{"a bad annotation", `annotations: x: 5`},
}

// TestBelowLibrary makes the same mistakes in jobs of one's own and in jobs that are made
// from a library, and compares what is said.
func TestBelowLibrary(t *testing.T) {
	t.Parallel()
	lib, levels := belowLibrary(t)
	c := idling(t)
	said := func(imports, definition, lines string) string {
		process := "task: process: command: [\"/bin/x\"]"
		if strings.Contains(lines, "process") {
			process = ""
		}
		files := map[string]string{"teams/a/web.cue": fmt.Sprintf("package a\n\n%s\n\njob: web: %s & {\n\tuser: \"a\"\n\tlabels: tier: \"front\"\n\t%s\n\t%s\n}\n",
			imports, definition, lines, process)}
		if definition == "muster.#Job" {
			files["teams/a/web.cue"] = strings.Replace(files["teams/a/web.cue"], "\tuser: \"a\"\n", "\tuser: \"a\", cell: string | *\"local\"\n", 1)
		}
		for name, text := range lib {
			files[name] = text
		}
		out, err := c.Compile(t.Context(), tree(files))
		if err != nil {
			t.Fatal(err)
		}
		ruled(t, out)
		var b strings.Builder
		for _, d := range errorsOf(out) {
			fmt.Fprintf(&b, "%s: %s\n\t%s\n\twant %s\n\thint: %s\n", d.Position, d.Rule, d.Field+": "+d.Message, d.Expected, d.Hint)
		}
		return b.String()
	}
	same, all := 0, 0
	for _, m := range belowLibraryMistakes {
		want := said(`import "example.com/config/muster"`, "muster.#Job", m.lines)
		if want == "" {
			t.Errorf("%s: nothing is said", m.name)
		}
		for _, l := range levels {
			all++
			if diff := cmp.Diff(want, said(l.imports, l.definition, m.lines)); diff == "" {
				same++
			} else {
				t.Errorf("%s, from %s: -want +got\n%s", m.name, l.name, diff)
			}
		}
	}
	t.Logf("%d of %d are reported in the same words", same, all)
}

// TestFieldPlaces says where the fields stand that only all packages together can find a
// mistake in: in the job, in the library, in a row.
func TestFieldPlaces(t *testing.T) {
	t.Parallel()
	lib, _ := belowLibrary(t)
	lib["lib/disk.cue"] = `package lib

import "example.com/config/muster"

#Disk: muster.#Job & {
	#disks: [Name=string]: {at: string, from: string | *Name}
	cell: "local"
	task: process: command: ["/bin/x"]
	task: volumes: {for n, d in #disks {
		(n): {path: d.at, shared: d.from}
	}}
}
`
	lib["teams/a/a.cue"] = `package a

import "example.com/config/lib"

_rows: api: {user: "x", tier: "back"}

job: web: lib.#Web & {
	user: "a"
	labels: tier: "front"
	task: process: command: ["/bin/x"]
}
for k, v in _rows {
	job: (k): lib.#Web & {
		user: v.user
		cell: "lokal"
		labels: tier: v.tier
		task: process: command: ["/bin/x"]
	}
}
job: disk: lib.#Disk & {
	user: "a"
	#disks: maps: at: "/maps"
}
`
	out, err := compiler(t, compile.Config{}).Compile(t.Context(), tree(lib))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range out.Packages {
		if p.Package == nil {
			t.Fatalf("%s: %v", p.Dir, p.Diagnostics)
		}
		for key := range p.Package.Origins {
			if key.Name == "local/a/disk" {
				got["disk"] = p.Package.Place(key, "task.volumes.maps.shared").String()
				continue
			}
			for _, field := range []string{"user", "cell", "tasks"} {
				got[key.Name+" "+field] = p.Package.Place(key, field).String()
			}
		}
	}
	want := map[string]string{
		"disk": "teams/a/a.cue:22:10",

		"local/a/web user": "teams/a/a.cue:8:8", "local/a/web cell": "lib/service.cue:20:13", "local/a/web tasks": "teams/a/a.cue:7:6",
		"lokal/x/api user": "teams/a/a.cue:5:20", "lokal/x/api cell": "teams/a/a.cue:15:9", "lokal/x/api tasks": "teams/a/a.cue:13:7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A check of a library that names what is not in scope is a mistake of the library, reported
// once: it must not make the jobs of all who use it go.
func TestCheckOfNothing(t *testing.T) {
	t.Parallel()
	job := func(name string) string {
		return "package " + name + "\n\nimport \"example.com/config/lib\"\n\njob: " + name + ": lib.#App & {user: \"u\", task: process: command: [\"x\"]}\n"
	}
	got := compiled(t, map[string]string{
		"lib/lib.cue": "package lib\n\nimport \"example.com/config/muster\"\n\n#App: muster.#Job & {cell: \"c\", _check: true & (tasks <= 20)}\n",
		"a/a.cue":     job("a"), "b/b.cue": job("b"),
	})
	if !strings.HasPrefix(got, "lib/lib.cue:5:49: error undefined\n") || strings.Count(got, ": error ") != 1 || !strings.Contains(got, "a: no data\nb: no data\n") {
		t.Errorf("got\n%s", got)
	}
}
