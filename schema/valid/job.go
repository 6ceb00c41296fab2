package valid

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// job checks what ties fields of a job together: ports that are named must be
// declared. given is what its owner wrote.
func (c *check) job(given any, job map[string]any) {
	task, ok := job["task"].(map[string]any)
	if !ok {
		return
	}
	c.wholeCores(task)
	c.runs(given, task)
	c.mounts(task)
	c.all(kernelProblems(job, task, devicesOf(task)))
	c.all(capabilityProblems(task))
	ports, known := portNames(task)
	if !known && !c.meansPorts() {
		return
	}
	c.isolation(task, ports)
	c.all(policyProblems(job, task))
	env, _ := task["env"].(map[string]any)
	v := variables{ports: ports, devices: kindsOf(task), env: env}
	sticky, _ := task["sticky"].(bool)
	v.sticky = sticky || task["sticky"] == string(schema.StickyStay)
	c.health(task, v)
	c.numbers(task, ports)
	_, v.inside = job["allocset"].(string)
	if process, ok := task["process"].(map[string]any); ok {
		c.command([]string{"task", "process", "command"}, process["command"], v)
	}
	if container, ok := task["container"].(map[string]any); ok {
		c.command([]string{"task", "container", "command"}, container["command"], v)
		c.words([]string{"task", "container", "args"}, container["args"], v)
	}
	c.before(task, v)
	c.stop(task, v)
	c.files(task, v)
	c.secrets(task)
	for _, k := range slices.Sorted(maps.Keys(env)) {
		v.within = k
		c.references([]string{"task", "env", k}, env[k], v)
	}
}

// runs checks that a task has exactly one thing to run. given is what the job's owner
// wrote.
func (c *check) runs(given any, task map[string]any) {
	job, _ := given.(map[string]any)
	written, _ := job["task"].(map[string]any)
	_, process := written["process"]
	_, container := written["container"]
	switch {
	case process && container:
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"task", "container"}, Key: true, Message: `a task with "process" cannot also have "container"`,
			Expected: "one of process, container", Hint: "process.command runs a program of the machine, container.command one of the image",
		})
	case container:
		if isolation, _ := written["isolation"].(map[string]any); isolation["user"] == any(false) {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: []string{"task", "isolation", "user"}, Message: "a container always has a user namespace of its own",
				Expected: "true", Hint: `remove user; container.user chooses among the users of the image, as in user: "1000"`,
			})
		} else if filled, ok := task["isolation"].(map[string]any); ok {
			filled["user"] = true // this data is checked again where it is acted on
		}
	case !process && !slices.ContainsFunc(slices.Sorted(maps.Keys(written)), meansToRun):
		c.add(Problem{
			Rule: schema.RuleMissingField, Path: []string{"task", "process"}, Missing: true, Message: `required field "process", or "container", is missing`, Expected: "one of process, container",
			Hint: `write process: command: ["…"], or container: image: "…"`,
		})
	}
}

// meansToRun reports whether a field of a task says what it runs, also by another name,
// which is then in error.
func meansToRun(name string) bool {
	ways := []string{"process", "container"}
	meant := firstOf(taskRule.Alias[name])
	return slices.Contains(ways, name) || slices.Contains(ways, meant) || meant == "" && Nearest(name, ways) != ""
}

// wholeCores checks that what has cores of its own asks for whole ones.
func (c *check) wholeCores(task map[string]any) {
	resources, _ := task["resources"].(map[string]any)
	n, ok := wholeNumber(resources["cpuMilli"])
	if whole, _ := resources["wholeCores"].(bool); !whole || !ok || n%schema.CoreMilli == 0 {
		return
	}
	up := (n/schema.CoreMilli + 1) * schema.CoreMilli
	hint := fmt.Sprintf("cpuMilli: %d, or remove wholeCores", up)
	if down := up - schema.CoreMilli; down > 0 {
		hint = fmt.Sprintf("cpuMilli: %d or %d, or remove wholeCores", down, up)
	}
	c.add(Problem{
		Rule: schema.RuleNoEffect, Path: []string{"task", "resources", "cpuMilli"},
		Message:  fmt.Sprintf("%d thousandths of a core are not whole cores", n),
		Expected: fmt.Sprintf("a multiple of %d, since wholeCores is true", schema.CoreMilli), Hint: hint,
	})
}

// variables are those that a string may refer to.
type variables struct {
	ports   []string
	devices []string // kinds
	sticky  bool
	inside  bool           // of an alloc
	env     map[string]any // what the job declares
	within  string         // the variable whose value the string is; "" for the command
}

// devicesOf returns where a task asks for devices, of each alternative; what comes last is the kind.
func devicesOf(task map[string]any) (paths [][]string) {
	resources, _ := task["resources"].(map[string]any)
	add := func(v any, at ...string) {
		devices, _ := v.(map[string]any)
		for _, kind := range slices.Sorted(maps.Keys(devices)) {
			paths = append(paths, append(append([]string{"task", "resources"}, at...), "devices", kind))
		}
	}
	add(resources["devices"])
	list, _ := resources["firstOf"].([]any)
	for i := range list {
		alternative, _ := list[i].(map[string]any)
		add(alternative["devices"], "firstOf", strconv.Itoa(i))
	}
	return paths
}

// kindsOf returns the kinds of devices that a task asks for, sorted.
func kindsOf(task map[string]any) (kinds []string) {
	for _, path := range devicesOf(task) {
		kinds = append(kinds, path[len(path)-1])
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// names returns the variables that the cell sets.
func (v variables) names() []string {
	names := []string{"MUSTER_CELL", "MUSTER_USER", "MUSTER_JOB", "MUSTER_TASK_INDEX"}
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if v.sticky {
		add(schema.StickyVariable)
	}
	for _, p := range v.ports {
		add(schema.PortVariable(p))
	}
	if v.inside {
		add(schema.AllocVariable)
		add(schema.AllocDirVariable)
	}
	for _, kind := range v.devices {
		add(schema.DeviceVariable(kind))
	}
	return names
}

// system checks that a system job, which has one task on each machine, is given
// no number of them. The default would be one.
func (c *check) system(given, job map[string]any) {
	if job["kind"] != string(schema.System) {
		return
	}
	if _, ok := given["tasks"]; ok {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"tasks"}, Key: true,
			Message: `a job of kind "system" has one task on each machine: "tasks" has no effect`,
			Hint:    `remove tasks, or use kind: "service"`,
		})
	}
	delete(job, "tasks")
}

// together checks that places are looked for for the tasks of a job that gets all or none, alone
// or with its gang.
func (c *check) together(job map[string]any) {
	field := "together"
	gang, ganged := job["gang"].(string)
	if ganged {
		field = "gang"
	} else if job["together"] != any(true) {
		return
	}
	why := ""
	switch _, inside := job["allocset"].(string); {
	case inside:
		why = "the tasks of a job with an allocset run where its allocs are"
	case job["kind"] == string(schema.System):
		why = `a job of kind "system" has one task on each machine`
	}
	if why != "" {
		c.add(Problem{Rule: schema.RuleNoEffect, Path: []string{field}, Key: true, Message: fmt.Sprintf("%s: %q has no effect", why, field), Hint: "remove " + field})
	}
	if ganged && job["together"] != nil {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"together"}, Key: true, Message: fmt.Sprintf(`the tasks of gang %q get places together: "together" has no effect`, short(gang)),
			Hint: "remove together",
		})
	}
}

// rebalance checks that there are tasks that would be moved.
func (c *check) rebalance(job map[string]any) {
	why := ""
	switch _, inside := job["allocset"].(string); {
	case job["rebalance"] == nil:
		return
	case inside:
		why = "the tasks of a job with an allocset run where its allocs are"
	case job["kind"] == string(schema.System):
		why = `a job of kind "system" has one task on each machine`
	case job["kind"] == string(schema.Batch):
		why = "tasks of a batch job are not moved, since they would start again"
	}
	if why != "" {
		c.add(Problem{Rule: schema.RuleNoEffect, Path: []string{"rebalance"}, Key: true, Message: why + `: "rebalance" has no effect`, Hint: "remove rebalance"})
	}
}

// batch checks that a job of kind batch, each of whose tasks is done for itself,
// has no policy for a rollout as a whole.
func (c *check) batch(job map[string]any) {
	update, _ := job["update"].(map[string]any)
	if job["kind"] != string(schema.Batch) {
		return
	}
	for _, name := range []string{"canary", "onFailure", "progressDeadlineSeconds"} {
		if _, ok := update[name]; ok {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: []string{"update", name}, Key: true,
				Message: fmt.Sprintf("a job of kind %q runs each index until it is done; %s is for services", schema.Batch, name),
				Hint:    fmt.Sprintf("remove %s, or use kind: \"service\"", name),
			})
		}
	}
}

// rollout checks that times of a rollout can pass, and count.
func (c *check) rollout(job map[string]any) {
	update, _ := job["update"].(map[string]any)
	progress, ok := wholeNumber(update["progressDeadlineSeconds"])
	if healthy, _ := wholeNumber(update["minHealthySeconds"]); ok && progress > 0 && progress <= healthy {
		c.add(Problem{
			Rule: schema.RuleOutOfRange, Path: []string{"update", "progressDeadlineSeconds"}, Message: fmt.Sprintf("%d is out of range", progress),
			Expected: fmt.Sprintf("more than minHealthySeconds, which is %d", healthy),
			Hint:     "no new task is healthy before minHealthySeconds, so every rollout would fail; add the time that a task takes to start",
		})
	}
	canary, _ := update["canary"].(map[string]any)
	// The default is there, too.
	if wait, ok := wholeNumber(canary["waitSeconds"]); ok && wait != defaultCanaryWait && canary["promote"] == string(schema.PromoteCommit) {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"update", "canary", "waitSeconds"}, Key: true, Message: `waitSeconds has no effect with promote: "commit"`,
			Hint: "remove one: without waitSeconds the rollout waits for a commit, without promote it continues after that time",
		})
	}
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

var reference = lazyregexp.New(`\$+\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// references checks the $(NAME) of a string. The cell sets what begins with
// MUSTER_, so one that it does not set is a mistake, and would be found only at
// run time. Any other may be meant for a shell and is left alone, unless it is
// nearly the name of a variable.
func (c *check) references(path []string, v any, vars variables) {
	s, ok := v.(string)
	if !ok || !strings.Contains(s, "$(") {
		return
	}
	names := vars.names()
	for _, m := range reference.FindAllStringSubmatch(s, -1) {
		escaped := strings.IndexByte(m[0], '(')%2 == 0 // $$ stands for one $
		if escaped || slices.Contains(names, m[1]) {
			continue
		}
		_, declared := vars.env[m[1]]
		switch {
		case strings.HasPrefix(m[1], "MUSTER_"):
			c.unset(path, m[1], vars)
		case declared && vars.within != "":
			c.add(Problem{
				Rule: schema.RuleUndefined, Path: path, Message: fmt.Sprintf("$(%s) is not replaced here: variables of env cannot refer to each other", short(m[1])),
				Expected: "one of " + strings.Join(names, ", "), Hint: "write its value, or use it in the command",
			})
		case declared, len(m[1]) < 4, len(m[1]) > maxWord:
		default:
			if vars.within == "" {
				names = append(names, slices.Sorted(maps.Keys(vars.env))...)
			}
			if near := Nearest(m[1], names); near != "" {
				c.add(Problem{
					Rule: schema.RuleUndefined, Path: path, Message: fmt.Sprintf("$(%s) is not set for this task", short(m[1])), Expected: "one of " + strings.Join(names, ", "),
					Hint: fmt.Sprintf("did you mean $(%s)? $$(%s) is the literal text", near, m[1]),
				})
			}
		}
	}
}

// portPrefix is how the variables begin that hold the numbers of ports.
const portPrefix = "MUSTER_PORT_"

// meansPorts reports whether ports may be declared under a misspelled name: then nothing is known of
// which there are.
func (c *check) meansPorts() bool {
	return slices.Contains(c.meant, "task.resources") || slices.Contains(c.meant, "task.resources.ports")
}

// unset reports a MUSTER_ variable that the cell does not set.
func (c *check) unset(path []string, name string, vars variables) {
	if strings.HasPrefix(name, portPrefix) && c.meansPorts() {
		return
	}
	names := vars.names()
	p := Problem{
		Rule: schema.RuleUndefined, Path: path, Message: fmt.Sprintf("$(%s) is not set for this task", short(name)),
		Expected: "one of " + strings.Join(names, ", "), Hint: didYouMean(name, names, nil),
	}
	if strings.HasPrefix(name, portPrefix) && len(vars.ports) == 0 {
		port := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, portPrefix), "_", "-"))
		p.Hint = fmt.Sprintf("add ports: [%q] to task.resources", short(port))
	}
	switch name {
	case schema.StickyVariable:
		p.Hint = "add sticky: true to task"
	case schema.AllocVariable, schema.AllocDirVariable:
		p.Hint = `only a task in an alloc has it: name an alloc set, as in allocset: "pair"`
	}
	c.add(p)
}

// silenceRule is what a job says of silent machines.
var silenceRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "afterSeconds", Rule: integer(Seconds, schema.MinSilence, schema.MaxSilence)},
		{Name: "neverTwice", Rule: &Rule{Type: Bool}},
	},
	Alias: map[string]string{
		"after": "afterSeconds", "seconds": "afterSeconds", "tolerate": "afterSeconds", "tolerationSeconds": "afterSeconds", "lost_after": "afterSeconds",
		"replace": "neverTwice", "once": "neverTwice", "exactlyOnce": "neverTwice", "atMostOnce": "neverTwice", "fence": "neverTwice",
	},
}

// silence checks what a job says of silent machines: given is what its owner
// wrote.
func (c *check) silence(given map[string]any) {
	s, ok := given["silence"].(map[string]any)
	if !ok {
		return
	}
	if given["kind"] == string(schema.System) {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"silence"}, Key: true, Message: `a job of kind "system" has one task on each machine, which is never moved`,
			Hint: "remove silence",
		})
		return
	}
	never, _ := s["neverTwice"].(bool)
	if _, after := s["afterSeconds"]; never && after {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"silence", "afterSeconds"}, Key: true, Message: "afterSeconds has no effect together with neverTwice: true",
			Expected: "one of them", Hint: "remove afterSeconds (then the task waits for proof that the old one is gone), or neverTwice (then it is replaced after that time)",
		})
	}
}

// related checks what ties the fields of an object together; data is what Object was given.
func (c *check) related(kind schema.Kind, name string, data any, out map[string]any) {
	given, isMap := data.(map[string]any)
	switch kind {
	case schema.KindJob:
		if isMap {
			c.system(given, out)
			c.silence(given)
			c.where(out)
			c.inSet(given, out)
		}
		c.together(out)
		c.batch(out)
		c.rollout(out)
		c.job(data, out)
	case schema.KindAllocSet:
		c.where(out)
		c.noRepair(out, "an alloc is not moved, since all that runs inside would be")
	case schema.KindMachine:
		if isMap {
			c.machine(given, out)
		}
	case schema.KindSecret:
		c.all(secretProblems(out))
	case schema.KindService:
		c.all(serviceProblems(name, out))
	case schema.KindQuota:
		c.quota(out)
	case schema.KindCell:
		c.all(networkProblems(out))
		c.moves(out)
	}
}
