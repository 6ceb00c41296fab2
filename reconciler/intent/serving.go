package intent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Unreached warns of each port of the services of some objects that leads to a port which none of the jobs has that the
// service picks: nothing is sent anywhere then. It says nothing where these have no port at all, or there is none: what is to come
// may have it. It takes time in proportion to the jobs of the user, for each selector.
func Unreached(packages []*schema.Package, objects *schema.Objects) []schema.Diagnostic {
	type owner struct{ cell, user string }
	jobs := map[owner][]labelled{}
	if len(objects.Services) > 0 {
		for i := range objects.Jobs {
			j := &objects.Jobs[i]
			of := owner{j.Cell, j.User}
			jobs[of] = append(jobs[of], labelled{j.AllLabels(), j.Task.Resources.Ports})
		}
	}
	type picks struct {
		of       owner
		selector string
	}
	known := map[picks]map[string]bool{}
	var out []schema.Diagnostic
	for i := range objects.Services {
		v := &objects.Services[i]
		selector, err := schema.ParseSelector(v.Selector)
		if err != nil {
			continue // it is reported elsewhere
		}
		key := picks{owner{v.Cell, v.User}, v.Selector}
		ports, ok := known[key]
		if !ok {
			ports = portsOf(jobs[key.of], &selector)
			known[key] = ports
		}
		for _, name := range slices.Sorted(maps.Keys(v.Ports)) {
			target := cmp.Or(v.Ports[name].Target, name)
			if len(ports) == 0 || ports[target] {
				continue
			}
			key, field := schema.ObjectKey{Kind: schema.KindService, Name: v.ID()}, "ports."+name
			out = append(out, schema.Diagnostic{
				Severity: schema.Warning, Rule: schema.RuleNoEffect, Position: placeOf(packages, key, field+".target", field), Field: key.Field() + "." + field,
				Message:  fmt.Sprintf("leads to port %q, which no job has that the selector %q picks: nothing is sent to them", target, v.Selector),
				Expected: "one of " + strings.Join(slices.Sorted(maps.Keys(ports)), ", "),
				Hint:     fmt.Sprintf("add %q to task.resources.ports of a job, or set target to one of its ports", target),
			})
		}
	}
	return out
}

// labelled is a job as services pick it.
type labelled struct {
	labels map[string]string
	ports  []string
}

// portsOf returns the names of the ports of the jobs that a selector picks.
func portsOf(jobs []labelled, selector *schema.Selector) map[string]bool {
	ports := map[string]bool{}
	for i := range jobs {
		if !selector.Matches(jobs[i].labels) {
			continue
		}
		for _, name := range jobs[i].ports {
			ports[name] = true
		}
	}
	return ports
}
