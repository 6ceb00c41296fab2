package sim

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// picky reports whether the jobs of a seed's world say more of where their tasks may be: see picks. Those of half
// of the seeds do, so that the others are as they have always been.
func picky(seed uint64) bool { return seed/3%2 == 1 }

// Numbers of ports that jobs ask for: sharedNumber is one of those that the cell chooses from.
const (
	sharedNumber = 20007
	apiNumber    = 8080
	logsNumber   = 9100
	saverNumber  = 8090 // and the next one: allocs of different owners may be on one machine
	evenNumber   = 8081
	shortNumber  = 8082
)

// picks are what jobs of a picky world ask for, by user and name: numbers of ports that others ask for, too, to
// be near other tasks or apart from them, and devices by alternatives. Affinity that must hold goes one way, since
// jobs that need each other never start, as in Kubernetes. All of them have places when the cell is left alone.
var picks = map[string]func(j *schema.Job, d declared){
	"a/web":   onNumber(sharedNumber),
	"b/web":   onNumber(sharedNumber),
	"c/web":   apart("bulk", "machine"),
	"c/api":   onNumber(apiNumber),
	"d/api":   onNumber(apiNumber),
	"e/api":   apart("low", "machine"),
	"b/once":  onNumber(apiNumber),
	"a/logs":  onNumber(logsNumber),
	"c/saver": onNumber(saverNumber),
	"d/saver": onNumber(saverNumber + 1),
	"a/low":   near("web", "rack"),
	"b/low":   near("low", "rack"),
	"d/low":   apart("low", "machine"),
	"e/low":   near("web", "machine"),
	"b/count": apart("bulk", "machine"),
	"a/bulk":  firstOf(ask(1, schema.DeviceMilli), ask(1, 400), nil),
	"b/bulk":  firstOf(ask(2, schema.DeviceMilli), ask(1, 600)),
	"c/bulk":  firstOf(ask(1, schema.DeviceMilli), ask(1, 400), nil),
	"d/main":  firstOf(ask(1, schema.DeviceMilli), ask(1, 600)),
	// Those of a world in which room is scarce. Services leave machines without their number.
	"a/even":  onNumber(evenNumber),
	"b/short": onNumber(shortNumber),
	"c/short": onNumber(shortNumber),
	"d/long":  near("even", "machine"),
	"e/short": apart("long", "rack"),
	"e/huge":  firstOf(ask(2, schema.DeviceMilli), ask(1, 500), nil),
	"e/long":  firstOf(ask(1, schema.DeviceMilli), ask(1, 500)),
}

// specify has the jobs of a template that were added to a package, from the n-th on, ask for what they do in a picky
// world. Where a job is not there at first no other one has to be near it: it would wait when the cell is left alone.
func specify(p *schema.Package, n int, d declared, first func(job string) bool) {
	for i := n; i < len(p.Objects.Jobs); i++ {
		j := &p.Objects.Jobs[i]
		if f := picks[j.User+"/"+j.Name]; f != nil {
			f(j, d)
		}
		j.Affinity = slices.DeleteFunc(j.Affinity, func(a schema.Affinity) bool { return !first(j.User + "/" + a.Selector[len(jobWord):]) })
		for k := range p.Objects.AllocSets { // each of its allocs has the number for itself
			if set := &p.Objects.AllocSets[k]; len(j.Task.Resources.PortNumbers) > 0 && j.AllocSet == set.Name {
				set.AntiAffinity = []schema.Affinity{{Selector: jobWord + set.Name, By: schema.AttributeMachine}}
			}
		}
	}
}

// jobWord is what a selector begins with that picks the tasks of one job.
const jobWord = schema.LabelJob + "="

func onNumber(number int) func(*schema.Job, declared) {
	const port = "http"
	return func(j *schema.Job, _ declared) {
		j.Task.Resources.Ports, j.Task.Resources.PortNumbers = []string{port}, map[string]int{port: number}
	}
}

func near(job, by string) func(*schema.Job, declared) {
	return func(j *schema.Job, _ declared) { j.Affinity = []schema.Affinity{{Selector: jobWord + job, By: by}} }
}

func apart(job, by string) func(*schema.Job, declared) {
	return func(j *schema.Job, _ declared) {
		j.AntiAffinity = []schema.Affinity{{Selector: jobWord + job, By: by}}
	}
}

func ask(count, milli int) map[string]schema.DeviceAsk {
	return map[string]schema.DeviceAsk{"gpu": {Count: count, Milli: milli}}
}

// firstOf has a job ask for devices by alternatives, of which the first is left out at some priorities.
func firstOf(alternatives ...map[string]schema.DeviceAsk) func(*schema.Job, declared) {
	return func(j *schema.Job, d declared) {
		j.Task.Resources.Devices = nil
		for i, devices := range alternatives {
			if i > 0 || d.shift%4 != 3 {
				j.Task.Resources.FirstOf = append(j.Task.Resources.FirstOf, schema.ResourceAlternative{Devices: devices})
			}
		}
	}
}
