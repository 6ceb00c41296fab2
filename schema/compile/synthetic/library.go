package synthetic

import (
	"fmt"
	"strings"
)

// libraries are the three levels that a job of Library is made through, each in a package
// of its own.
var libraries = map[string]string{
	"lib/base/base.cue": `package base

import "example.com/config/muster"

#Base: muster.#Job & {
	cell:     *"local" | string
	priority: *"production" | "batch" | "free"
	labels: {owner!: string, costcentre: *"4711" | string}
	task: {
		graceSeconds: *5 | int
		env: TRACE_SAMPLE: *"0.01" | string
	}
}
`,
	"lib/web/web.cue": `package web

import "example.com/config/lib/base"

#Web: base.#Base & {
	kind:  "service"
	tasks: *2 | int & >=1
	_port: *"http" | string
	labels: tier: *"front" | "back"
	task: {
		resources: {
			cpuMilli:  *500 | int
			ramBytes:  *256Mi | int
			diskBytes: *1Gi | int
			ports: [_port, "admin"]
		}
		health: http: {port: _port, path: *"/healthz" | string}
	}
}
`,
	"lib/lib.cue": `package lib

import "example.com/config/lib/web"

#Service: web.#Web & {
	#greeting: string
	task: env: {
		GREETING:  "hello from \(#greeting)"
		LOG_LEVEL: *"info" | "debug"
	}
	update: {maxParallel: *2 | int, minHealthySeconds: *5 | int}
}
`,
}

// Library returns what Files does, with jobs that are made of a definition of lib, which is
// made of one of lib/web, which is made of one of lib/base, which is made of #Job. A job is
// about 500 bytes as it is written.
func Library(packages, jobs int) map[string]string {
	files := Files(packages, 0)
	for name, text := range libraries {
		files[name] = text
	}
	for p := range packages {
		for f := range filesEach {
			var b strings.Builder
			fmt.Fprintf(&b, "package t%d\n\nimport \"example.com/config/lib\"\n", p)
			for n := f; n < jobs; n += filesEach {
				b.WriteString(service(p, n))
			}
			if jobs > f {
				files[File(p, f)] = b.String()
			}
		}
	}
	return files
}

func service(team, n int) string {
	return fmt.Sprintf(`
job: "service-%d": lib.#Service & {
	#greeting: "%d"
	user:      "team-%d"
	tasks:     %d
	priority:  "free"
	labels: {component: "search", owner: "team-%d"}
	task: {
		process: command: ["/usr/bin/server", "--port=$(MUSTER_PORT_HTTP)", "--log=info"]
		env: {
			BACKEND:     "local/team-%d/backend"
			FEATURE_A:   "on"
			DESCRIPTION: "%s"
		}
	}
}
`, n, n, team, 1+n%7, team, team, strings.Repeat("some words ", 12))
}
