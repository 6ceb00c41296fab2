package valid

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

var allocSetRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "user", Rule: nameRule, Required: true},
		{Name: "cell", Rule: nameRule, Required: true},
		{Name: "priority", Rule: jobPriorityRule, Default: string(schema.BandFree)},
		{Name: "allocs", Rule: integer(Count, 0, schema.MaxTasks), Default: num(1)},
		{Name: "labels", Rule: labelsRule},
		{Name: "annotations", Rule: annotationsRule},
		{Name: "constraints", Rule: constraintsRule},
		{Name: "anyOf", Rule: anyOfRule},
		{Name: "tolerations", Rule: tolerationsRule},
		{Name: "preferences", Rule: preferencesRule},
		{Name: "affinity", Rule: affinityRule},
		{Name: "antiAffinity", Rule: affinityRule},
		{Name: "spread", Rule: spreadRule},
		{Name: "resources", Rule: allocResourcesRule, Required: true},
		{Name: "update", Rule: allocUpdateRule, Default: map[string]any{}},
		{Name: "disruption", Rule: disruptionRule},
		{Name: "preemptible", Rule: &Rule{Type: Bool}},
		{Name: "prune", Rule: &Rule{Type: Bool}},
	},
	Never: map[string]string{
		"task":      "an alloc runs nothing itself: jobs that name the set run inside",
		"process":   "an alloc runs nothing itself: jobs that name the set run inside",
		"kind":      "an alloc set has no kind: its allocs last until it is removed",
		"network":   "allocs have no network of their own, which is not supported: the tasks inside have the machine's",
		"isolation": "an alloc runs nothing itself: set it in task.isolation of the jobs inside",
		"jobs":      "a job names the alloc set that it runs in, in its field allocset",

		"nonPreemptible": hintPreemptible, "non_preemptible": hintPreemptible,
	},
	Alias: map[string]string{
		"count": "allocs", "replicas": "allocs", "tasks": "allocs", "size": "allocs", "number": "allocs", "instances": "allocs",
		"owner": "user", "namespace": "user", "band": "priority", "reservation": "resources", "limits": "resources", "requests": "resources",
		"cpuMilli": "resources.cpuMilli", "ramBytes": "resources.ramBytes", "diskBytes": "resources.diskBytes",
		"cpu": "resources.cpuMilli", "memory": "resources.ramBytes", "ram": "resources.ramBytes", "disk": "resources.diskBytes",
		"constraint": "constraints", "strategy": "update", "tags": "labels", "meta": "labels",
		"preemptable": "preemptible", "preemption": "preemptible", "evictable": "preemptible",
	},
}

// allocResourcesRule has no defaults: what is reserved is said.
var allocResourcesRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "cpuMilli", Rule: integer(Milli, 1, maxCPUMilli), Required: true},
		{Name: "ramBytes", Rule: integer(Bytes, mib, maxRAMBytes), Required: true},
		{Name: "diskBytes", Rule: integer(Bytes, 0, maxDiskBytes), Required: true},
	},
	Never: map[string]string{
		"ports":   "an alloc has no ports: each task inside has its own",
		"devices": "an alloc has no devices: each task inside has its own",
		"firstOf": "an alloc has no devices: each task inside has its own",
	},
	Alias: map[string]string{
		"cpu": "cpuMilli", "cpus": "cpuMilli", "memory": "ramBytes", "mem": "ramBytes", "ram": "ramBytes", "disk": "diskBytes", "storage": "diskBytes",
		"port": "ports", "device": "devices", "gpu": "devices",
	},
}

// inSet checks a job that runs in an alloc set: what decides there is the set's.
// Its priority is left to be found with the set.
func (c *check) inSet(given, job map[string]any) {
	if _, ok := job["allocset"].(string); !ok {
		return
	}
	if _, ok := given["priority"]; ok {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"priority"}, Key: true, Message: "a job in an alloc set has the priority of the set",
			Hint: "remove priority, or change that of the alloc set",
		})
	}
	delete(job, "priority")
	for _, name := range []string{"tolerations", "preferences", "affinity", "antiAffinity", "spread"} {
		if _, ok := given[name]; ok {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: []string{name}, Key: true, Message: fmt.Sprintf("the allocs decide where a job in an alloc set runs, so %s would have no effect", name),
				Hint: "write it in the alloc set: its allocs are placed, and the tasks of jobs are distributed over them",
			})
		}
	}
	if task, _ := job["task"].(map[string]any); task["sticky"] == string(schema.StickyStay) {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"task", "sticky"}, Message: fmt.Sprintf("a task in an alloc moves with its alloc, so sticky: %q would have no effect", schema.StickyStay),
			Expected: "true or false", Hint: "use sticky: true, or remove allocset",
		})
	}
	if job["kind"] == string(schema.System) {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"allocset"}, Key: true, Message: fmt.Sprintf("a job of kind %q has one task on each machine, and runs in no alloc", schema.System),
			Hint: `remove allocset, or use kind: "service"`,
		})
	}
}
