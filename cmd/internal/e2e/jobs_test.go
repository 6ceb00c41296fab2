package e2e_test

import (
	"cmp"
	"fmt"
	"strings"
)

// job is one of a cell's jobs, whose tasks run the script.
type job struct {
	name string
	kind string // "" is a service
	// mode and word are what the script gets.
	mode, word string
	tasks      int    // 0 is one
	more       string // further fields, as CUE
	task       string // further fields of task, as CUE
}

// pack returns a package of jobs.
func (c *cell) pack(name string, jobs ...job) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\nimport \"%s/muster\"\n", name, module)
	for _, j := range jobs {
		tasks := fmt.Sprintf("tasks: %d", max(1, j.tasks))
		if j.kind == "system" {
			tasks = "" // one on each machine
		}
		fmt.Fprintf(&b, `
job: %q: muster.#Job & {
	user: "crew", cell: %q, kind: %q
	%s
	task: {
		process: command: [%q, %q, %q, %q]
		resources: {cpuMilli: 5, ramBytes: 32Mi, diskBytes: 1Mi}
		graceSeconds: 1
		%s
	}
	%s
}
`, j.name, cellName, cmp.Or(j.kind, "service"), tasks, c.path("task.sh"), c.path("journals"), cmp.Or(j.mode, "polite"), cmp.Or(j.word, "same"), j.task, j.more)
	}
	return []byte(b.String())
}

// commitVersion commits a version of three jobs: one that stays as it is, one that
// is given the version, with more fields, and batch number count.
func (c *cell) commitVersion(version, count int, more string) string {
	c.t.Helper()
	word := fmt.Sprintf("commit-%d", version)
	return c.commit(word, map[string][]byte{teamFile: c.pack("crew",
		job{name: "steady", tasks: 3},
		job{name: "web", word: word, tasks: 2, more: more},
		job{name: fmt.Sprintf("count-%d", count), kind: "batch", mode: "batch", tasks: 2})})
}
