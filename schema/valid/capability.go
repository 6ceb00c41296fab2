package valid

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// capabilityNames are all that a task can say.
func capabilityNames() []string {
	names := append(schema.ContainerCapabilities(), schema.MachineCapabilities()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// addedOf returns the capabilities that a task wants to have more, and those it wants to lack.
func addedOf(task map[string]any) (add, drop []any) {
	capabilities, _ := task["capabilities"].(map[string]any)
	add, _ = capabilities["add"].([]any)
	drop, _ = capabilities["drop"].([]any)
	return add, drop
}

// capable is a task that asks for capabilities.
type capable struct {
	process, container bool // it runs such, at last or before
	user               bool // with a user namespace
	kernel             bool // by runsc
	network            string
	drop               []any
}

// capabilityProblems says which capabilities a task asks for that what it runs cannot have.
func capabilityProblems(task map[string]any) (found problems) {
	add, drop := addedOf(task)
	isolation, _ := task["isolation"].(map[string]any)
	of := capable{drop: drop}
	of.user, _ = isolation["user"].(bool)
	of.network, _ = isolation["network"].(string)
	_, of.kernel = kernelOf(task)
	list, _ := task["before"].([]any)
	for _, x := range append(list[:len(list):len(list)], any(task)) {
		runs, _ := x.(map[string]any)
		of.process = of.process || runs["process"] != nil
		of.container = of.container || runs["container"] != nil
	}
	for i, x := range add {
		name, ok := x.(string)
		if !ok || !slices.Contains(capabilityNames(), name) {
			continue // the rule says so
		}
		if p := of.problem(name); p.Message != "" {
			p.Path = []string{"task", "capabilities", "add", strconv.Itoa(i)}
			found.add(p)
		}
	}
	return found
}

// problem says why the task cannot have a capability; without a message it can.
func (t *capable) problem(name string) Problem {
	p := Problem{Rule: schema.RuleUnsupported}
	networks := slices.Contains(schema.NetworkCapabilities(), name)
	switch {
	case slices.Contains(t.drop, any(name)):
		p.Rule, p.Message, p.Expected = schema.RuleConflict, fmt.Sprintf("%s is to be added, and dropped", name), "one of add, drop"
	case t.process && t.user:
		p.Message, p.Expected = "a process with isolation.user has no capability", "no capabilities, or no isolation.user"
		p.Hint = "it has its own user alone, so there is nothing that it could have more rights over"
	case t.process && !slices.Contains(schema.MachineCapabilities(), name):
		p.Message = fmt.Sprintf("a process cannot have %s, a right over the other users of its machine", name)
		p.Expected = "one of " + strings.Join(schema.MachineCapabilities(), ", ")
		p.Hint = "root of a container has it, over the container's own users"
	case t.container && !networks && !slices.Contains(schema.ContainerCapabilities(), name):
		p.Message = fmt.Sprintf("a container cannot have %s, which the kernel gives over the machine alone", name)
		p.Expected = "one of " + strings.Join(append(schema.ContainerCapabilities(), schema.NetworkCapabilities()...), ", ")
		p.Hint = "a process can have it"
	case t.container && networks && t.kernel && !t.process && t.network == string(schema.OwnNetwork): // what its kernel sends is checked by the machine
	case t.container && networks && t.kernel && !t.process && t.network != string(schema.NoNetwork):
		p.Message = fmt.Sprintf("a container by runsc can have %s over a network of its own alone", name)
		p.Expected = fmt.Sprintf("isolation.network: %q, or %q", schema.OwnNetwork, schema.NoNetwork)
	case t.container && networks && t.network != string(schema.NoNetwork):
		p.Message = fmt.Sprintf("a container can have %s over a network of its own making alone", name)
		p.Expected = fmt.Sprintf("isolation.network: %q, or a process", schema.NoNetwork)
	case t.process && name == "NET_ADMIN" && t.network != string(schema.NoNetwork):
		p.Message = "with NET_ADMIN the task decides about the network of its machine"
		p.Expected = fmt.Sprintf("isolation.network: %q", schema.NoNetwork)
		if t.network == string(schema.OwnNetwork) {
			p.Hint = "from an own network, too, a process reaches the machine's by the other end of its link"
		}
	}
	return p
}
