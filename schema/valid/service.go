package valid

import (
	"fmt"
	"maps"
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
