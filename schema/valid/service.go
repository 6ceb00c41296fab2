package valid

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// selectorProblem adds what is wrong with a selector of jobs.
func (p *problems) selectorProblem(path []string, v any) {
	s, _ := v.(string)
	if _, err := schema.ParseSelector(s); s != "" && err != nil {
		p.add(Problem{Rule: schema.RuleInvalidValue, Path: path, Message: fmt.Sprintf("invalid value: %s", err), Expected: `a selector, such as "tier=front" or "muster/job in (web,web-next)"`})
	}
}

// serviceProblems checks a service's name, and what ties its fields together.
func serviceProblems(name string, out map[string]any) (found problems) {
	if schema.CheckName(name) == nil && strings.Trim(name, "0123456789") == "" {
		found.add(Problem{
			Rule: schema.RuleInvalidName, Key: true, Message: fmt.Sprintf("service %q has a number as its name", name), Expected: "a name with a letter",
			Hint: "in DNS a number before a job's name is one of its tasks",
		})
	}
	found.selectorProblem([]string{"selector"}, out["selector"])
	ports, _ := out["ports"].(map[string]any)
	if ports != nil && len(ports) == 0 {
		found.add(Problem{Rule: schema.RuleOutOfRange, Path: []string{"ports"}, Message: "has no entries", Expected: "at least one port", Hint: "write ports: http: {port: 80}"})
	}
	taken := map[string]string{}
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		of, _ := ports[port].(map[string]any)
		number := fmt.Sprint(of["protocol"], " port ", of["port"])
		if other, twice := taken[number]; twice && of["port"] != nil {
			found.add(Problem{Rule: schema.RuleDuplicate, Path: []string{"ports", port, "port"}, Message: fmt.Sprintf("%s is that of %q, too", number, other), Expected: "another number, or another protocol"})
		}
		taken[number] = port
	}
	weights, _ := out["weights"].([]any)
	for i := range weights {
		if w, ok := weights[i].(map[string]any); ok {
			found.selectorProblem([]string{"weights", strconv.Itoa(i), "selector"}, w["selector"])
		}
	}
	return found
}

// matchUser takes the name of a user, or that of all.
func matchUser(s string) string {
	if s == schema.AnyUser || schema.CheckName(s) == nil {
		return ""
	}
	return fmt.Sprintf("the name of a user, or %q for all", schema.AnyUser)
}

// matchRange takes ranges of addresses from which packets can come.
func matchRange(s string) string {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() || p.Addr().IsMulticast() {
		return `a range of addresses as ADDRESS/BITS, such as "192.0.2.0/24" or "2001:db8::/32"`
	}
	if m := p.Masked(); m.String() != s {
		return fmt.Sprintf("%q", m)
	}
	return ""
}

// policyProblems checks who may connect to the tasks of a job.
func policyProblems(job, task map[string]any) (found problems) {
	policy, ok := job["policy"].(map[string]any)
	if !ok {
		return nil
	}
	isolation, _ := task["isolation"].(map[string]any)
	if isolation["network"] != string(schema.OwnNetwork) {
		p := Problem{
			Rule: schema.RuleUnsupported, Path: []string{"policy"}, Key: true, Message: "a policy is not supported for tasks that do not have isolation.network \"own\"",
			Expected: "no policy", Hint: `add task: isolation: network: "own", or remove policy`,
		}
		if task["container"] != nil && isolation["network"] == nil {
			p.Message = `a policy is not supported for a container that does not say isolation.network "own"`
			p.Hint += ": a container that does not say it is on its machine's network where the cell has no network.range, and until it starts again where that is new"
		}
		found.add(p)
	}
	resources, _ := task["resources"].(map[string]any)
	ports, _ := resources["ports"].([]any)
	from, _ := policy["from"].([]any)
	for i := range from {
		peer, _ := from[i].(map[string]any)
		path := []string{"policy", "from", strconv.Itoa(i)}
		found.selectorProblem(append(path[:3:3], "selector"), peer["selector"])
		_, users := peer["users"]
		_, selector := peer["selector"]
		_, ranges := peer["ranges"]
		switch {
		case peer != nil && !users && !selector && !ranges:
			found.add(Problem{
				Rule: schema.RuleMissingField, Path: path, Message: "the entry says nobody", Expected: "users, selector or ranges",
				Hint: `everyone is ranges: ["0.0.0.0/0", "::/0"]`,
			})
		case ranges && (users || selector):
			found.add(Problem{
				Rule: schema.RuleNoEffect, Path: append(path, "ranges"), Key: true, Message: "ranges beside users or selector would admit more, and not less", Expected: "an entry with ranges alone",
				Hint: "make two entries of it: each admits for itself",
			})
		}
		at, _ := peer["ports"].([]any)
		for k, port := range at {
			if name, ok := port.(string); ok && schema.CheckName(name) == nil && !slices.Contains(ports, port) {
				found.add(Problem{
					Rule: schema.RuleNoEffect, Path: append(path[:3:3], "ports", strconv.Itoa(k)), Message: fmt.Sprintf("the task has no port %q", name),
					Expected: "names of task.resources.ports", Hint: fmt.Sprintf("add %q to task: resources: ports, with a number in portNumbers if it has one", name),
				})
			}
		}
	}
	return found
}
