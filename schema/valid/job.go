package valid

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// job checks what ties fields of a job together: ports that are named must be
// declared.
func (c *check) job(job map[string]any) {
	task, ok := job["task"].(map[string]any)
	if !ok {
		return
	}
	ports, known := portNames(task)
	if !known {
		return
	}
	set := variables(task, ports)
	c.health(task, ports)
	if process, ok := task["process"].(map[string]any); ok {
		if command, ok := process["command"].([]any); ok {
			for i, arg := range command {
				c.references([]string{"task", "process", "command", strconv.Itoa(i)}, arg, ports, set)
			}
		}
	}
	if env, ok := task["env"].(map[string]any); ok {
		for _, k := range slices.Sorted(maps.Keys(env)) {
			c.references([]string{"task", "env", k}, env[k], ports, set)
		}
	}
}

// system checks that a system job, which has one task on each machine, is given
// no number of them. The default would be one.
func (c *check) system(given, job map[string]any) {
	if job["kind"] != string(schema.System) {
		return
	}
	if _, ok := given["tasks"]; ok {
		c.add(Problem{
			Path: []string{"tasks"}, Key: true,
			Message: `a job of kind "system" has one task on each machine, and "tasks" says how many`,
			Hint:    `remove tasks, or take kind: "service"`,
		})
	}
	delete(job, "tasks")
}

// portNames returns the declared ports; false when they are in error and so
// nothing can be said of what refers to them.
func portNames(task map[string]any) (ports []string, known bool) {
	resources, ok := task["resources"].(map[string]any)
	if !ok {
		return nil, false
	}
	declared, ok := resources["ports"]
	if !ok {
		return nil, true
	}
	list, ok := declared.([]any)
	if !ok {
		return nil, false
	}
	for _, p := range list {
		s, ok := p.(string)
		if !ok {
			return nil, false
		}
		ports = append(ports, s)
	}
	return ports, true
}

func (c *check) health(task map[string]any, ports []string) {
	health, ok := task["health"].(map[string]any)
	if !ok {
		return
	}
	http, ok := health["http"].(map[string]any)
	if !ok {
		return
	}
	port, ok := http["port"].(string)
	if !ok || slices.Contains(ports, port) {
		return
	}
	p := Problem{
		Path:     []string{"task", "health", "http", "port"},
		Message:  fmt.Sprintf("no port %q is declared", short(port)),
		Expected: "a name from task.resources.ports",
		Hint:     didYouMean(port, ports, nil),
	}
	if len(ports) == 0 {
		p.Hint = fmt.Sprintf("add ports: [%q] to task.resources", short(port))
	}
	c.add(p)
}

// variables lists those that the cell sets for a task.
func variables(task map[string]any, ports []string) []string {
	names := []string{"MUSTER_CELL", "MUSTER_USER", "MUSTER_JOB", "MUSTER_TASK_INDEX"}
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, p := range ports {
		add(schema.PortVariable(p))
	}
	resources, _ := task["resources"].(map[string]any)
	devices, _ := resources["devices"].(map[string]any)
	for _, kind := range slices.Sorted(maps.Keys(devices)) {
		add(schema.DeviceVariable(kind))
	}
	return names
}

var reference = regexp.MustCompile(`\$+\((MUSTER_[A-Za-z0-9_]*)\)`)

// references checks the $(MUSTER_…) of a string: the cell sets these, so one
// that it does not set is a mistake, and would be found only at run time.
func (c *check) references(path []string, v any, ports, names []string) {
	s, ok := v.(string)
	if !ok || !strings.Contains(s, "$(MUSTER_") {
		return
	}
	for _, m := range reference.FindAllStringSubmatch(s, -1) {
		escaped := strings.IndexByte(m[0], '(')%2 == 0 // $$ stands for one $
		if escaped || slices.Contains(names, m[1]) {
			continue
		}
		p := Problem{
			Path: path, Message: fmt.Sprintf("$(%s) is not set for this task", short(m[1])),
			Expected: "one of " + strings.Join(names, ", "), Hint: didYouMean(m[1], names, nil),
		}
		if strings.HasPrefix(m[1], "MUSTER_PORT_") && len(ports) == 0 {
			port := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(m[1], "MUSTER_PORT_"), "_", "-"))
			p.Hint = fmt.Sprintf("add ports: [%q] to task.resources", short(port))
		}
		c.add(p)
	}
}
