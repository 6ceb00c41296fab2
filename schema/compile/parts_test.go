package compile_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/compile/synthetic"
	"github.com/musterhq/muster/schema/turns"
)

// together is a file that has a package evaluated whole: it looks at all jobs.
const together = "package t0\n\n_all: [for name, _ in job {name}]\n"

// manyJobs returns a package of hundreds of jobs that are written in all ways in which they
// can be separated. Each of changes is a pair of what is written and what is to be in its
// place.
func manyJobs(changes ...string) map[string]string {
	files := synthetic.Library(1, 300)
	var beside, lines strings.Builder
	for n := range 60 {
		fmt.Fprintf(&beside, "\t\"beside-%d\": lib.#Service & {#greeting: \"b\", _common, labels: component: strings.ToLower(\"B%d\")} ,\n", n, n)
		fmt.Fprintf(&lines, "job: \"line-%d\": {lib.#Service & {#greeting: \"l\", _common}}, quota: \"q-%d\": muster.#Quota & {user: \"team-0\", cell: \"local\", band: \"batch\", ramBytes: 1Gi}\n", n, n)
	}
	files["teams/t0/beside.cue"] = "package t0\n\nimport (\n\t\"strings\"\n\t\"example.com/config/lib\"\n)\n\n// All of them.\njob: {\n" + beside.String() + "\t[string]: labels: team: \"zero\"\n}\n"
	files["teams/t0/lines.cue"] = "package t0\n\nimport \"example.com/config/lib\"\nimport \"example.com/config/muster\"\n" + lines.String()
	files["teams/t0/common.cue"] = `package t0

let command = ["/usr/bin/common"]

_common: {
	user:     "team-0"
	priority: "free"
	labels: owner: "team-0"
	task: process: "command": command
	...
}
`
	files["teams/t0/again.cue"] = "package t0\n\nimport \"strings\"\n\njob: \"service-3\": labels: again: strings.ToUpper(\"x\")\njob: \"service-299\": labels: again: \"y\"\n"
	for i := 0; i < len(changes); i += 2 {
		for name := range files {
			files[name] = strings.ReplaceAll(files[name], changes[i], changes[i+1])
		}
	}
	return files
}

// TestParts compiles packages of many jobs, which are evaluated in parts, and checks that
// the outcome is that of the whole.
func TestParts(t *testing.T) {
	t.Parallel()
	all := map[string][]string{
		"right":                nil,
		"a wrong job":          {"#greeting: \"7\"\n", "#greeting: \"7\"\n\ttasksss: 3\n"},
		"a wrong type":         {"#greeting: \"299\"\n", "#greeting: 299\n"},
		"a quota":              {"quota: \"q-7\": muster.#Quota & {", "quota: \"q-7\": muster.#Quota & {ram: 1, "},
		"an unused import":     {"import \"example.com/config/muster\"\njob", "import \"example.com/config/muster\"\nimport \"list\"\njob"},
		"a missing name":       {"\"beside-9\": lib.#Service", "\"beside-9\": lib.#Servic"},
		"a pattern":            {"team: \"zero\"", "team: 7"},
		"jobs that conflict":   {"again: \"y\"", "owner: \"y\""},
		"a syntax error":       {"job: \"line-9\"", "job: \"line-9\" ="},
		"a job uses another":   {"labels: again: \"y\"", "labels: again: job[\"service-3\"].labels.owner"},
		"a job uses its own":   {"labels: again: \"y\"", "labels: {again: b, b: \"c\"}"},
		"a job beside another": {"\t\"beside-9\": lib.#Service & {", "\tnine: \"beside-9\"\n\t\"beside-9\": nine & {"},
	}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if !turns.Takes(i) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := manyJobs(all[name]...)
			got := compileTree(t, compile.Config{}, files)
			files["teams/t0/together.cue"] = together
			if want := compileTree(t, compile.Config{}, files); got != want {
				t.Errorf("in parts:\n%s\nas a whole:\n%s", clipped(got), clipped(want))
			}
			if right := !strings.Contains(got, ": error "); right != (strings.HasPrefix(name, "right") || strings.HasPrefix(name, "a job uses")) {
				t.Errorf("%s", clipped(got))
			}
		})
	}
}

// clipped returns the beginning of a text.
func clipped(s string) string { return s[:min(len(s), 4000)] }

func compileTree(t *testing.T, cfg compile.Config, files map[string]string) string {
	t.Helper()
	out, err := compiler(t, cfg).Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	return show(out)
}

// TestPartsMemory compiles a package whose jobs together take more memory than it may have.
func TestPartsMemory(t *testing.T) {
	t.Parallel()
	files := synthetic.Library(1, 1000)
	limits := compile.Limits{HeapBytes: 64 << 20}
	if got := compileTree(t, compile.Config{Limits: limits}, files); strings.Contains(got, ": error ") {
		t.Error(clipped(got))
	}
	files["teams/t0/together.cue"] = together
	if got := compileTree(t, compile.Config{Limits: limits}, files); !strings.Contains(got, "more than 64 MiB of memory") {
		t.Error("so much memory is enough for the whole:", clipped(got))
	}
}

// TestAllocated: what a package allocates is bounded alike in parts and at once, and is not
// tried again.
func TestAllocated(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{"in parts": "package t0\n", "at once": together} {
		files := synthetic.Library(1, 500)
		files["teams/t0/together.cue"] = more
		for limit, good := range map[int]bool{64 << 20: false, 1 << 30: true} {
			c := compiler(t, compile.Config{Limits: compile.Limits{AllocBytes: limit}})
			out, err := c.Compile(t.Context(), tree(files))
			if err != nil {
				t.Fatal(err)
			}
			got := show(out)
			if taken := !strings.Contains(got, ": error "); taken != good || !good && !strings.Contains(got, "allocated more than 64 MiB") {
				t.Errorf("%s, %d MiB: %s", name, limit>>20, clipped(got))
			}
			if order := c.Order(tree(files)); len(order) > 0 {
				t.Errorf("%s, %d MiB: evaluated again: %v", name, limit>>20, order)
			}
		}
	}
}

// BenchmarkLibrary compiles one package of 10,000 jobs that are made through three levels of
// libraries.
func BenchmarkLibrary(b *testing.B) {
	const jobs = 10_000
	whole := tree(synthetic.Library(1, jobs))
	m := startMeter(b)
	for b.Loop() {
		compileAll(b, compiler(b, compile.Config{}), whole, jobs)
	}
	m.report()
}
