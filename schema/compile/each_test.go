package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/scaffold"
)

// TestMistakeOfEach: what a package with a mistake in each of many objects allocates goes with how many there are. The
// limits are about twice what it takes, and half of what it took when each mistake looked at all objects.
func TestMistakeOfEach(t *testing.T) {
	t.Parallel()
	init, err := scaffold.Files(scaffold.DefaultModule, "local")
	if err != nil {
		t.Fatal(err)
	}
	const objects = 400
	each := func(format string) string {
		all := &strings.Builder{}
		for i := range objects {
			fmt.Fprintf(all, format, i)
		}
		return all.String()
	}
	web := "package web\n\nimport \"example.com/config/lib\"\n\n"
	for name, m := range map[string]struct {
		mib  int
		want string
		own  map[string]string
	}{
		"parameters out of bounds": {
			1000, "job.web0.#copies: 99 is out of bounds",
			map[string]string{"web.cue": web + each("job: web%d: lib.#Web & {#copies: 99}\n")},
		},
		"misspelled fields": {
			900, "did you mean graceSeconds?",
			map[string]string{"web.cue": web + each("job: web%d: lib.#Web & {#copies: 3, task: graceSecond: 3}\n")},
		},
		"rows of one name": {
			400, "teams/example/rows.yaml:2:",
			map[string]string{
				"rows.yaml": each("- {name: web, copies: %d}\n"),
				"web.cue":   "@extern(embed)\n\n" + web + "_rows: _ @embed(file=rows.yaml)\nfor r in _rows {job: (r.name): lib.#Web & {#copies: r.copies}}\n",
			},
		},
		"an entry of a definition": {
			200, "teams/example/web.cue:12:",
			map[string]string{"web.cue": web + each("#apps: web%d: {#n: %[1]d, job: lib.#Web & {#copies: 3}, _few: true & (job.tasks+#n != 10)}\n") +
				"for n, a in #apps {job: (n): a.job}\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{
				"lib/service.cue": string(init["lib/service.cue"]),
				"lib/web.cue": `package lib

#Web: #StandardService & {
	#copies!: int & >=0 & <=50
	user:     "example"
	labels: tier: "front"
	tasks: #copies
	task: process: command: ["/usr/bin/web"]
}
`,
			}
			for file, text := range m.own {
				files["teams/example/"+file] = text
			}
			got := compileTree(t, compile.Config{Limits: compile.Limits{AllocBytes: m.mib << 20}}, files)
			if !strings.Contains(got, m.want) {
				t.Errorf("want %q: %s", m.want, clipped(got))
			}
		})
	}
}
