package demo

import (
	"fmt"
	"strings"
)

// The names that the demo's config repository uses.
const (
	cellName = "demo"
	module   = "example.com/demo"
	shopFile = "teams/shop/shop.cue"
	adsFile  = "teams/ads/ads.cue"
)

// tenants is the demo's tenants.cue and quotas in one: two teams, each with
// users and paths of its own, and the quota that step 4 runs into.
const tenantsCUE = `package config

import "` + module + `/muster"

tenant: shop: muster.#Tenant & {paths: ["teams/shop"], users: ["shop"]}
tenant: ads: muster.#Tenant & {paths: ["teams/ads"], users: ["ads"]}

quota: "shop-production": muster.#Quota & {
	user: "shop", cell: "` + cellName + `", band: "production"
	cpuMilli:  1000
	ramBytes:  4Gi
	diskBytes: 4Gi
	tasks:     10
}
`

// cellCUE declares the cell.
const cellCUE = `package cells

import "` + module + `/muster"

cell: ` + cellName + `: muster.#Cell & {}
`

// shop is what varies in the shop team's file between the demo's commits.
type shop struct {
	tasks    int    // of the service
	greeting string // an argument of the service
	extra    string // appended as it is
}

// cue returns the shop team's file: a service that answers HTTP, a small one
// beside it that no commit of the demo changes, and a batch job.
func (s shop) cue(muster string) string {
	return fmt.Sprintf(`package shop

import "%s/muster"

job: web: muster.#Job & {
	user: "shop", cell: "%s", priority: "production"
	tasks: %d
	task: {
		process: command: [%q, "serve", "--port", "$(MUSTER_PORT_HTTP)", "--greeting", %q]
		resources: {cpuMilli: 50, ramBytes: 128Mi, diskBytes: 16Mi, ports: ["http"]}
		graceSeconds: 5
		health: http: {port: "http", path: "/"}
	}
	update: maxParallel: 2
}

job: clock: muster.#Job & {
	user: "shop", cell: "%s", priority: "production"
	tasks: 1
	task: {
		process: command: ["/bin/sh", "-c", "while :; do date; sleep 1 & wait; done"]
		resources: {cpuMilli: 10, ramBytes: 16Mi, diskBytes: 16Mi}
		graceSeconds: 1
	}
}

job: report: muster.#Job & {
	user: "shop", cell: "%s", kind: "batch"
	tasks: 5
	task: {
		process: command: ["/bin/sh", "-c", "echo counted shelf $MUSTER_TASK_INDEX"]
		resources: {cpuMilli: 10, ramBytes: 16Mi, diskBytes: 16Mi}
	}
}
%s`, module, cellName, s.tasks, muster, s.greeting, cellName, cellName, s.extra)
}

// roundJobs is how many jobs one of the commits has that are timed.
const roundJobs = 5

// roundCUE returns the ads team's file with rounds × roundJobs services of one
// task each.
func roundCUE(rounds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package ads\n\nimport \"%s/muster\"\n", module)
	for r := range rounds {
		for i := range roundJobs {
			fmt.Fprintf(&b, `
job: "round%d-%d": muster.#Job & {
	user: "ads", cell: "%s", tasks: 1
	task: {
		process: command: ["/bin/sleep", "86400"]
		resources: {cpuMilli: 5, ramBytes: 16Mi, diskBytes: 1Mi}
		graceSeconds: 1
	}
}
`, r, i, cellName)
		}
	}
	return b.String()
}
