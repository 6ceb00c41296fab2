package compile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// setRepo is a repository with a library of three levels, and jobs that are made of it.
func setRepo() map[string]string {
	files := map[string]string{"cells/cell.cue": "package cells\n\ncell: local: {}\n"}
	files["lib/lib.cue"] = `package lib

import "example.com/config/muster"

#Base: muster.#Job & {
	cell:  *"local" | string
	kind:  "service"
	tasks: *2 | int
	labels: owner!: string
	task: resources: {cpuMilli: *50 | int, ramBytes: *32Mi | int, diskBytes: *16Mi | int}
}
#Web: #Base & {
	task: graceSeconds: 7
	labels: tier: *"front" | "back"
}
#Team: #Web & {user: "team-1", tasks: int & <=9}
`
	files["teams/t1/set.cue"] = `@extern(embed)

package t1

import "example.com/config/lib"

_versions: _ @embed(file=versions.yaml)
_shared: "1.0" // c1

// c2: the web
job: web: lib.#Team & {
	labels: owner: "us" // c3
	task: process: command: ["/bin/web", _versions.web]
	// c4
	task: env: {
		A: "a" // c5
		B: _versions.web
		C: _shared
	}
}
job: api: lib.#Team & {labels: owner: "us", task: process: command: ["/bin/api"], task: env: C: _shared, task: resources: cpuMilli: 2*_n.m+few}
_n: m: 20
let few = 10
job: row: lib.#Team & _rows.row
_rows: row: {tasks: 3, labels: owner: "us", task: process: command: ["/bin/row"]} // c6
`
	files["lib/par.cue"] = `package lib

#bounds: atOnce: *1 | int
#grace:  *20 | int
#Bound: {
	#bounds: most: *3 | int
	#grace: *30 | int
	...
}
#Par: #Base & #Bound & {
	#params: {
		many: *2 | int & <=50
		cpu: *50 | int, notes: x: *"a" | string
	}
	user: "team-1", annotations: #params.notes
	tasks: #params.many
	labels: {owner: "us", cpu: "\(#params.cpu)"}
	task: {process: command: ["/bin/par"], resources: cpuMilli: #params.cpu}
	update: maxParallel: #bounds.atOnce
	task: graceSeconds: #grace
}
`
	files["teams/t1/par.cue"] = "package t1\n\nimport \"example.com/config/lib\"\n\njob: par: lib.#Par & {\n\tkind: \"service\" // c7\n}\n" +
		"#here: *7 | int\njob: own: {user: \"team-1\", cell: \"local\", tasks: #here, task: process: command: [\"/bin/own\"]}\n"
	files["teams/t1/versions.yaml"] = "# c7\nweb: 1.0.0 # c8\nother: x\n"
	return files
}

// ours returns a compiler whose children are this test.
func ours(t *testing.T) *compile.Compiler {
	t.Helper()
	return compile.New(compile.Config{Exe: self(t), Args: []string{childArg}, Workers: 1})
}

// setIn calls Set, and then looks with another compiler at what it did.
func setIn(t *testing.T, files map[string]string, job, field, value string) (compile.Change, error) {
	t.Helper()
	key := schema.ObjectKey{Kind: schema.KindJob, Name: "local/team-1/" + job}
	c := ours(t)
	change, err := c.Set(t.Context(), tree(files), compile.Assignment{Dir: "teams/t1", Key: key, Field: field, Value: value})
	if err != nil {
		return change, err
	}
	if change.Path == "" || string(change.Old) != files[change.Path] {
		t.Fatalf("the change is of %q, which was another text", change.Path)
	}
	after := maps.Clone(files)
	after[change.Path] = string(change.New)
	comments := regexp.MustCompile(`[/#]+ c[0-9].*`)
	if diff := cmp.Diff(comments.FindAllString(string(change.Old), -1), comments.FindAllString(string(change.New), -1)); diff != "" {
		t.Errorf("comments (-before +after):\n%s", diff)
	}
	was, is := jobsOf(t, files), jobsOf(t, after)
	onlyField(t, was, is, "team-1/"+job, strings.Split(field, "."))
	return change, nil
}

// jobsOf compiles a repository anew and returns its jobs by user/name.
func jobsOf(t *testing.T, files map[string]string) map[string]map[string]any {
	t.Helper()
	out, err := ours(t).Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]map[string]any{}
	for _, p := range out.Packages {
		if p.Package == nil {
			continue
		}
		for i := range p.Package.Objects.Jobs {
			j := &p.Package.Objects.Jobs[i]
			var data map[string]any
			if err := json.Unmarshal(schema.Canonical(j), &data); err != nil {
				t.Fatal(err)
			}
			jobs[j.User+"/"+j.Name] = data
		}
	}
	return jobs
}

// onlyField fails unless two sets of jobs differ in nothing but a field of one of them.
func onlyField(t *testing.T, was, is map[string]map[string]any, job string, field []string) {
	t.Helper()
	for _, jobs := range []map[string]map[string]any{was, is} {
		without(jobs[job], field)
	}
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("besides %s of %s (-before +after):\n%s", strings.Join(field, "."), job, diff)
	}
}

// without takes a field out of data, and what holds nothing else.
func without(data map[string]any, field []string) {
	if within, ok := data[field[0]].(map[string]any); ok && len(field) > 1 {
		if without(within, field[1:]); len(within) > 0 {
			return
		}
	}
	delete(data, field[0])
}

func TestSet(t *testing.T) {
	t.Parallel()
	files := setRepo()
	for _, tt := range []struct{ job, field, value, at, line string }{
		{"web", "tasks", "5", "teams/t1/set.cue", "\ttasks: 5"},
		{"web", "labels.owner", "you", "teams/t1/set.cue:12:17", "\tlabels: owner: \"you\" // c3"},
		{"web", "labels.tier", "back", "teams/t1/set.cue", "\tlabels: tier: \"back\""},
		{"web", "task.env.A", "true", "teams/t1/set.cue:16:6", "\t\tA: \"true\" // c5"},
		{"web", "task.env.D", "4", "teams/t1/set.cue", "\t\tD: \"4\""},
		{"web", "task.resources.ramBytes", "64Mi", "teams/t1/set.cue", "\ttask: resources: ramBytes: 64Mi"},
		{"web", "priority", "batch", "teams/t1/set.cue", "\tpriority: \"batch\""},
		{"web", "priority", "7", "teams/t1/set.cue", "\tpriority: 7"},
		{"row", "tasks", "4", "teams/t1/set.cue:25:21", "_rows: row: {tasks: 4, labels: owner: \"us\", task: process: command: [\"/bin/row\"]} // c6"},
		{"row", "update.maxParallel", "2", "teams/t1/set.cue", "job: row: lib.#Team & _rows.row & {update: maxParallel: 2}"},
		{"api", "tasks", "2", "teams/t1/set.cue", ""},
		{"par", "tasks", "5", "teams/t1/par.cue", "\t#params: many: 5"},
		{"par", "annotations.x", "y", "teams/t1/par.cue", "\tannotations: x: \"y\""},
		{"par", "update.maxParallel", "2", "teams/t1/par.cue", "\tupdate: maxParallel: 2"}, // of definitions of the template's package
		{"par", "task.graceSeconds", "9", "teams/t1/par.cue", "\ttask: graceSeconds: 9"},
	} {
		change, err := setIn(t, files, tt.job, tt.field, tt.value)
		if err != nil || change.Position.String() != tt.at {
			t.Errorf("%s %s: %v, at %s, want %s", tt.job, tt.field, err, change.Position, tt.at)
			continue
		}
		before, after := strings.Split(string(change.Old), "\n"), strings.Split(string(change.New), "\n")
		if tt.line == "" && !bytes.Equal(change.Old, change.New) || tt.line != "" && (slices.Contains(before, tt.line) || !slices.Contains(after, tt.line)) {
			t.Errorf("%s %s = %s: no line %q in\n%s", tt.job, tt.field, tt.value, tt.line, change.New)
		}
	}
}

// TestSetRefused: what cannot be set says why, and where it is set.
func TestSetRefused(t *testing.T) {
	t.Parallel()
	files := setRepo()
	for _, tt := range []struct{ job, field, value, says string }{
		{"web", "task.graceSeconds", "9", "task.graceSeconds of job.web is set by lib/lib.cue:13:22: 7"},
		{"web", "tasks", "10", "with this value: teams/t1/set.cue:"},
		{"web", "tasks", "many", "job.web.tasks"},
		{"web", "taks", "3", "unknown field"},
		{"par", "task.resources.cpuMilli", "70", "task.resources.cpuMilli of job.par is the parameter #params.cpu, at lib/par.cue:18:"},
		{"own", "tasks", "8", "job.own is computed at teams/t1/par.cue:9:6"},
		{"web", "task", "3", "task has fields of its own"},
		{"web", "task.env", "{}", "task.env has fields of its own"},
		{"web", "user", "you", "user is a part of the name"},
		{"web", "task.process.command[0]", "x", "is an element of a list"},
		{"web", "labels.", "x", "is no field"},
		{"web", "task.env.C", "x", "teams/t1/set.cue:8:10 is also for others: it would change job team-1/api"},
		{"web", "task.env.B", "2.0.0", "teams/t1/versions.yaml:2:6 is also for other fields of job.web: it would change task.process.command"},
		{"api", "task.resources.cpuMilli", "9", "the value is computed, from _n, few"},
		{"web", "kind", "batch", "kind of job.web is set by lib/lib.cue:7:9"},
	} {
		change, err := setIn(t, files, tt.job, tt.field, tt.value)
		if err == nil {
			t.Errorf("%s %s = %s: changed %s to\n%s", tt.job, tt.field, tt.value, change.Path, change.New)
			continue
		}
		message, hint := schema.HintOf(err)
		if !strings.Contains(message, tt.says) || hint == "" {
			t.Errorf("%s %s = %s: %s (hint %q), want %q", tt.job, tt.field, tt.value, message, hint, tt.says)
		}
	}
}

// TestSetEmbedded: a value of an embedded file is changed there.
func TestSetEmbedded(t *testing.T) {
	t.Parallel()
	files := setRepo()
	files["teams/t1/set.cue"] = strings.Replace(files["teams/t1/set.cue"], ", _versions.web]", "]", 1)
	change, err := setIn(t, files, "web", "task.env.B", "1.10")
	if want := "# c7\nweb: \"1.10\" # c8\nother: x\n"; err != nil || string(change.New) != want || change.Position.String() != "teams/t1/versions.yaml:2:6" {
		t.Errorf("%v, at %s: %q, want %q", err, change.Position, change.New, want)
	}
}

// TestSetAny: whatever the form in which a job is written, Set does what it says or
// nothing.
func TestSetAny(t *testing.T) {
	t.Parallel()
	fields := []struct{ field, cue, value string }{
		{"tasks", "2", "3"},
		{"priority", `"batch"`, "free"},
		{"labels.owner", `"us"`, "them"},
		{"labels.tier", `"front"`, "back"},
		{"task.graceSeconds", "7", "9"},
		{"task.resources.cpuMilli", "60", "70"},
		{"task.resources.ramBytes", "64Mi", "128Mi"},
		{"task.env.A", `"a"`, "b"},
		{"task.env.B", `"\(_x)-b"`, "b"},
		{"update.maxParallel", "1", "2"},
		{"annotations.note", `"n"`, "m"},
	}
	done, refused := 0, 0
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 20))
		files := setRepo()
		template := []string{"lib.#Base", "lib.#Web", "lib.#Team"}[r.IntN(3)]
		var lines []string
		for i, f := range fields {
			names := strings.Split(f.field, ".")
			switch {
			case f.field == "task.graceSeconds", f.field != "labels.owner" && r.IntN(2) == 0:
				continue
			}
			line := strings.Join(names, ": ") + ": " + f.cue
			if r.IntN(2) == 0 {
				line = names[0] + ": {" + strings.Join(names[1:], ": ") + ": " + f.cue + "}"
			}
			if len(names) == 1 || r.IntN(2) == 0 {
				line = strings.Join(names, ": ") + ": " + f.cue
			}
			if r.IntN(2) == 0 {
				line += fmt.Sprintf(" // c%d", i)
			}
			if r.IntN(3) == 0 {
				line = fmt.Sprintf("// c%d before\n\t%s", i, line)
			}
			lines = append(lines, "\t"+line+"\n")
		}
		r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		split := r.IntN(len(lines) + 1)
		head := "job: any: " + template + " & {\n\tuser: \"team-1\"\n\ttask: process: command: [\"x\"]\n"
		files["teams/t1/any.cue"] = "package t1\n\nimport \"example.com/config/lib\"\n\n_x: \"x\"\n" + head + strings.Join(lines[:split], "") + "}\n" +
			"job: any: {\n" + strings.Join(lines[split:], "") + "\t// c99\n}\n"
		f := fields[r.IntN(len(fields))]
		if _, err := setIn(t, files, "any", f.field, f.value); err != nil {
			refused++
			if _, hint := schema.HintOf(err); hint == "" {
				t.Errorf("seed %d: %s: %v\n%s", seed, f.field, err, files["teams/t1/any.cue"])
			}
			continue
		}
		done++
	}
	if done < 7 || refused == 0 {
		t.Errorf("%d were set and %d refused", done, refused)
	}
}
