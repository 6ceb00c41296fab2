package synthetic

import (
	"fmt"
	"strings"

	schemacue "github.com/musterhq/muster/schema/cue"
)

// filesEach is the number of files of a package.
const filesEach = 10

// Files returns a repository of packages × jobs: a module with the definitions,
// a cell, and for each package a tenant. A job is about 1.2 KB of data.
func Files(packages, jobs int) map[string]string {
	files := map[string]string{
		"cue.mod/module.cue": "module: \"example.com/config@v0\"\nlanguage: version: \"v0.17.0\"\n",
		"cells/cell.cue":     "package cells\n\ncell: local: {}\n",
	}
	for name, b := range schemacue.Files() {
		files["muster/"+name] = string(b)
	}
	tenants := "package config\n\nimport \"example.com/config/muster\"\n"
	for p := range packages {
		tenants += fmt.Sprintf("tenant: \"team-%d\": muster.#Tenant & {paths: [\"teams/t%d\"], users: [\"team-%d\"]}\n", p, p, p)
		for f := range filesEach {
			var b strings.Builder
			fmt.Fprintf(&b, "package t%d\n\nimport \"example.com/config/muster\"\n", p)
			for n := f; n < jobs; n += filesEach {
				b.WriteString(job(p, n))
			}
			if jobs > f {
				files[File(p, f)] = b.String()
			}
		}
	}
	files["tenants.cue"] = tenants
	return files
}

// File returns the path of one of a package's files, of which there are ten.
func File(p, file int) string { return fmt.Sprintf("teams/t%d/f%d.cue", p, file) }

// Edit returns a file with one value changed, to another one for each n.
func Edit(text string, n int) string {
	return strings.Replace(text, "some words", fmt.Sprintf("some %d words", n), 1)
}

func job(team, n int) string {
	return fmt.Sprintf(`
job: "service-%d": muster.#Job & {
	user: "team-%d", cell: "local"
	priority: "free"
	tasks:    %d
	labels: {tier: "front", component: "search", stage: "production", owner: "team-%d", costcentre: "4711"}
	task: {
		process: command: ["/usr/bin/server", "--port=$(MUSTER_PORT_HTTP)", "--admin=$(MUSTER_PORT_ADMIN)", "--shard=$(MUSTER_TASK_INDEX)", "--log=info"]
		resources: {cpuMilli: 500, ramBytes: 256Mi, diskBytes: 1Gi, ports: ["http", "admin"]}
		env: {
			GREETING:     "hello from %d"
			BACKEND:      "local/team-%d/backend"
			FEATURE_A:    "on"
			FEATURE_B:    "off"
			CACHE_BYTES:  "1073741824"
			TRACE_SAMPLE: "0.01"
			DESCRIPTION:  "%s"
		}
		graceSeconds: 5
		health: http: {port: "http", path: "/healthz"}
	}
	update: {maxParallel: 2, minHealthySeconds: 5}
}
`, n, team, 1+n%7, team, n, team, strings.Repeat("some words ", 20))
}
