package valid

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// Where a task may run, and what it gets of the machine's devices.
const (
	maxConditions = 32
	maxValues     = 100
	maxAsked      = 64 // devices of one kind in one task
	maxKinds      = 8  // of devices in one task
	maxChoices    = 8  // alternatives of devices in one task
)

func matchAttribute(s string) string {
	if !schema.IsLabelKey(s) {
		return schema.LabelKeyGrammar
	}
	return ""
}

var valueRule = &Rule{Type: String, Max: schema.MaxLabelValue, Match: matchLine}

var operatorRule = func() *Rule {
	r := words(schema.Operators()...)
	r.Alias = map[string]string{
		"==": "=", "is": "=", "set_contains_any": "in", "notin": "not-in", "doesnotexist": "absent",
		"is_set": "exists", "is_not_set": "absent", "gt": ">=", ">": ">=", "version": ">=", "semver": ">=", "lt": "<",
	}
	return r
}()

var attributeRule = &Rule{Type: String, Min: 1, Max: schema.MaxLabelKey, Match: matchAttribute}

// conditionFields are what constraints and preferences have in common.
func conditionFields() []Field {
	return []Field{
		{Name: "attribute", Rule: attributeRule, Required: true},
		{Name: "operator", Rule: operatorRule, Default: string(schema.Equal)},
		{Name: "value", Rule: valueRule},
		{Name: "values", Rule: &Rule{Type: List, Max: maxValues, Unique: true, Elem: valueRule}},
	}
}

var conditionAlias = map[string]string{"key": "attribute", "label": "attribute", "name": "attribute", "op": "operator", "match": "value", "affinity": "weight"}

var constraintsRule = &Rule{Type: List, Max: maxConditions, Elem: &Rule{Type: Struct, Fields: conditionFields(), Alias: conditionAlias}}

var anyOfRule = &Rule{Type: List, Min: 1, Max: maxConditions, Elem: &Rule{
	Type: Struct,
	Fields: []Field{{
		Name: "constraints", Required: true,
		Rule: &Rule{Type: List, Min: 1, Max: maxConditions, Elem: &Rule{Type: Struct, Fields: conditionFields(), Alias: conditionAlias}},
	}},
	Alias: map[string]string{"matchExpressions": "constraints", "allOf": "constraints", "all": "constraints", "and": "constraints", "constraint": "constraints", "attribute": "constraints.attribute"},
}}

var preferencesRule = &Rule{Type: List, Max: maxConditions, Elem: &Rule{
	Type: Struct, Alias: conditionAlias,
	Fields: append(conditionFields(), Field{Name: "weight", Rule: integer(Count, -100, 100), Default: num(50)}),
}}

var taintValueRule = &Rule{Type: String, Min: 1, Max: schema.MaxLabelValue, Match: matchLine}

var taintsRule = &Rule{Type: Map, Max: maxConditions, Key: matchAttribute, Elem: &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "value", Rule: taintValueRule},
		{Name: "users", Rule: &Rule{Type: List, Max: maxList, Unique: true, Elem: nameRule}},
	},
	Alias: map[string]string{"user": "users", "tenants": "users", "owners": "users"},
	Never: noEffect,
}}

var tolerationsRule = &Rule{Type: List, Max: maxConditions, Elem: &Rule{
	Type:   Struct,
	Fields: []Field{{Name: "key", Rule: attributeRule}, {Name: "value", Rule: taintValueRule}},
	Alias:  map[string]string{"taint": "key", "name": "key", "attribute": "key"},
	Never:  noEffect,
}}

// noEffect are words of Kubernetes' taints and tolerations that say nothing here.
var noEffect = map[string]string{
	"effect":            "a taint keeps new tasks away, and what runs stays: preferences say what is only preferred, drain moves what runs",
	"operator":          "a toleration without value is of any value, and one without key of all taints",
	"tolerationSeconds": "silence says how long tasks stay on a machine that does not report",
}

var affinityRule = &Rule{Type: List, Max: maxConditions, Elem: &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "selector", Rule: jobSelectorRule, Required: true},
		{Name: "by", Rule: attributeRule, Default: schema.AttributeMachine},
		{Name: "weight", Rule: integer(Count, 1, 100)},
	},
	Alias: map[string]string{
		"topologyKey": "by", "topology": "by", "domain": "by", "labelSelector": "selector", "matchLabels": "selector", "match": "selector",
		"labels": "selector", "job": "selector", "jobs": "selector", "preference": "weight",
	},
	Never: map[string]string{
		"attribute": "affinity is about tasks of other jobs, which selector picks; attributes of machines stand in constraints and preferences",
		"user":      `write muster/user in the selector, as in "muster/user=ads,tier=cache"`, "namespaces": `write muster/user in the selector, as in "muster/user in (ads,search)"`,
	},
}}

var spreadRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "by", Rule: attributeRule, Default: "rack"},
		{Name: "targets", Rule: &Rule{Type: Map, Min: 1, Max: maxConditions, Key: matchTarget, Elem: integer(Count, 0, 100)}},
		{Name: "then", Rule: attributeRule},
		{Name: "max", Rule: &Rule{Type: Map, Max: maxConditions, Key: matchAttribute, Elem: integer(Count, 1, schema.MaxTasks)}},
		{Name: "maxSkew", Rule: &Rule{Type: Map, Max: maxConditions, Key: matchAttribute, Elem: integer(Count, 1, schema.MaxTasks)}},
		{Name: "minDomains", Rule: &Rule{Type: Map, Max: maxConditions, Key: matchAttribute, Elem: integer(Count, 1, schema.MaxTasks)}},
		{Name: "repair", Rule: &Rule{Type: Bool}},
	},
	Alias: map[string]string{
		"attribute": "by", "topologyKey": "by", "over": "by", "distinct_hosts": "max.machine", "distinct_property": "max",
		"target": "targets", "percent": "targets", "percentages": "targets", "weights": "targets", "within": "then", "nested": "then", "thenBy": "then",
		"maxPerDomain": "max", "perMachine": "max.machine", "rebalance": "repair", "skew": "maxSkew",
	},
	Never: map[string]string{
		"whenUnsatisfiable": `maxSkew always holds, as with "DoNotSchedule"; by is kept as far as there is room, as with "ScheduleAnyway"`,
	},
}

var devicesRule = &Rule{Type: Map, Max: maxKinds, Key: matchName, Elem: &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "count", Rule: integer(Count, 1, maxAsked), Default: num(1)},
		{Name: "milli", Rule: integer(Count, 1, schema.DeviceMilli), Default: num(schema.DeviceMilli)},
		{Name: "models", Rule: &Rule{Type: List, Max: maxValues, Unique: true, Elem: valueRule}},
		{Name: "constraints", Rule: constraintsRule},
		{Name: "same", Rule: attributeRule},
	},
	Alias: map[string]string{
		"model": "models", "number": "count", "gpuMilli": "milli", "share": "milli", "constraint": "constraints", "where": "constraints",
		"selectors": "constraints", "selector": "constraints", "affinity": "constraints", "matchAttribute": "same", "memory": "constraints", "numa": "same", "link": "same",
		"firstAvailable": "resources.firstOf", "firstOf": "resources.firstOf", "anyOf": "resources.firstOf", "alternatives": "resources.firstOf",
	},
}}

// firstOfRule is for alternatives of devices: what else a task has it has whatever the alternative.
var firstOfRule = &Rule{Type: List, Min: 1, Max: maxChoices, Elem: &Rule{
	Type:   Struct,
	Fields: []Field{{Name: "devices", Rule: devicesRule}},
	Later:  []string{"cpuMilli", "ramBytes", "diskBytes", "wholeCores", "ports", "portNumbers"},
	Alias:  map[string]string{"gpu": "devices.gpu", "gpus": "devices.gpu", "device": "devices", "cpu": "cpuMilli", "memory": "ramBytes"},
}}

// where checks what ties together the fields that say where tasks may run.
func (c *check) where(job map[string]any) {
	c.conditions([]string{"constraints"}, job["constraints"])
	c.conditions([]string{"preferences"}, job["preferences"])
	c.anyOf(job["anyOf"])
	c.affinity("affinity", job["affinity"])
	c.affinity("antiAffinity", job["antiAffinity"])
	if job["kind"] == string(schema.System) {
		for _, name := range []string{"preferences", "affinity", "antiAffinity", "spread"} {
			if _, ok := job[name]; ok {
				c.add(Problem{
					Rule: schema.RuleNoEffect, Path: []string{name}, Key: true,
					Message: fmt.Sprintf("a job of kind %q has one task on each machine, so %s would have no effect", schema.System, name),
					Hint:    "remove it; constraints say which machines get a task",
				})
			}
		}
	}
	c.skew(job)
	c.nested(job)
	c.rebalance(job)
	if job["kind"] == string(schema.Batch) {
		c.noRepair(job, "tasks of a batch job are not moved, since they would start again")
	}
	task, _ := job["task"].(map[string]any)
	resources, _ := task["resources"].(map[string]any)
	c.devices([]string{"task", "resources", "devices"}, resources["devices"])
	c.firstOf(resources)
}

// devices checks what is asked of devices.
func (c *check) devices(at []string, v any) {
	devices, _ := v.(map[string]any)
	for _, kind := range slices.Sorted(maps.Keys(devices)) {
		d, _ := devices[kind].(map[string]any)
		path := append(slices.Clone(at), kind)
		c.deviceConstraints(append(path, "constraints"), d["constraints"])
		count, milli := intOf(d["count"]), intOf(d["milli"])
		if _, same := d["same"]; same && count == 1 {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: append(path, "same"), Key: true,
				Message: "one device is near itself, so same would have no effect", Hint: "remove it, or ask for more: count: 2",
			})
		}
		if count > 1 && milli > 0 && milli < schema.DeviceMilli {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: append(path, "milli"),
				Message: fmt.Sprintf("%d thousandths of each of %d devices", milli, count), Expected: "a share of one device, or whole devices",
				Hint: "remove milli, or use count: 1",
			})
		}
	}
}

// firstOf checks alternatives of devices: that each may be chosen.
func (c *check) firstOf(resources map[string]any) {
	always, _ := resources["devices"].(map[string]any)
	list, _ := resources["firstOf"].([]any)
	for i, v := range list {
		alternative, _ := v.(map[string]any)
		path := []string{"task", "resources", "firstOf", strconv.Itoa(i)}
		c.devices(append(slices.Clone(path), "devices"), alternative["devices"])
		devices, _ := alternative["devices"].(map[string]any)
		for _, kind := range slices.Sorted(maps.Keys(devices)) {
			if _, ok := always[kind]; ok {
				c.add(Problem{
					Rule: schema.RuleNoEffect, Path: append(slices.Clone(path), "devices", kind), Key: true, Message: fmt.Sprintf("%q is in resources.devices, too, which every task gets", short(kind)),
					Expected: "each kind in one of them", Hint: "move what resources.devices says of it into each alternative",
				})
			}
		}
		wrong := func(p Problem) bool { return len(p.Path) > len(path) && slices.Equal(p.Path[:len(path)], path) } // perhaps that is its devices
		switch none := len(devices) == 0 && alternative != nil && !slices.ContainsFunc(c.problems, wrong); {
		case none && len(list) == 1:
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: path, Message: "every machine has enough for an alternative without devices, so firstOf would have no effect",
				Expected: "alternatives with devices before it", Hint: "add them, or remove firstOf",
			})
		case none && i+1 < len(list):
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: path, Message: "every machine has enough for an alternative without devices, so those after it would have no effect",
				Expected: "it as the last one",
			})
		}
		if first := slices.IndexFunc(list[:i], func(before any) bool { return reflect.DeepEqual(before, v) }); first >= 0 && len(devices) > 0 {
			c.add(Problem{Rule: schema.RuleNoEffect, Path: path, Message: fmt.Sprintf("is the same as firstOf[%d], so it would have no effect", first), Hint: "remove it"})
		} else if first := slices.IndexFunc(list[:i], func(before any) bool { return asksLess(before, devices) }); first >= 0 {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: path, Message: fmt.Sprintf("every machine that has enough for it has enough for firstOf[%d], so it would have no effect", first),
				Hint: fmt.Sprintf("write it before firstOf[%d], or remove it", first),
			})
		}
	}
}

// asksLess reports whether an alternative wants no device that others do not have: fewer of each kind, perhaps, and of what
// else is asked of them some.
func asksLess(alternative any, than map[string]any) bool {
	a, _ := alternative.(map[string]any)
	devices, _ := a["devices"].(map[string]any)
	for kind := range devices {
		d, known := devices[kind].(map[string]any)
		o, asked := than[kind].(map[string]any)
		if !known || !asked || max(1, intOf(d["count"])) > max(1, intOf(o["count"])) || !reflect.DeepEqual(d["milli"], o["milli"]) {
			return false // of devices with shares, none is said to be less
		}
		for name, v := range d {
			if name != "count" && !reflect.DeepEqual(v, o[name]) {
				return false
			}
		}
	}
	return len(devices) > 0
}

// deviceConstraints checks the constraints of devices.
func (c *check) deviceConstraints(path []string, v any) {
	c.conditions(path, v)
	list, _ := v.([]any)
	for i := range list {
		if m, _ := list[i].(map[string]any); m["attribute"] == schema.DeviceModel {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: append(slices.Clone(path), strconv.Itoa(i), "attribute"),
				Message: "the model of a device is not one of its attributes", Hint: `list the accepted ones: models: ["A100", "H100"]`,
			})
		}
	}
}

// skew checks that what goes with maxSkew does.
func (c *check) skew(o map[string]any) {
	spread, _ := o["spread"].(map[string]any)
	most, _ := spread["maxSkew"].(map[string]any)
	fewest, _ := spread["minDomains"].(map[string]any)
	for _, attribute := range slices.Sorted(maps.Keys(fewest)) {
		if most[attribute] == nil {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: []string{"spread", "minDomains", attribute}, Key: true,
				Message: fmt.Sprintf("minDomains of %s has no effect without maxSkew of %[1]s", attribute), Hint: fmt.Sprintf("add maxSkew: {%q: 1}, or remove it", attribute),
			})
		}
	}
}

// matchTarget says what a value of an attribute is.
func matchTarget(s string) string {
	if s == "" || len(s) > schema.MaxLabelValue || matchLine(s) != "" {
		return fmt.Sprintf("a value of the attribute that spread.by names, of 1 to %d bytes in one line", schema.MaxLabelValue)
	}
	return ""
}

// nested checks that what goes with spread.by does.
func (c *check) nested(o map[string]any) {
	spread, _ := o["spread"].(map[string]any)
	by, _ := spread["by"].(string)
	for _, name := range []string{"targets", "then"} {
		if _, ok := spread[name]; ok && by == schema.NoSpread {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: []string{"spread", name}, Key: true, Message: fmt.Sprintf("%s has no effect with by: %q", name, schema.NoSpread),
				Hint: fmt.Sprintf("say over which attribute, as in by: \"zone\", or remove %s", name),
			})
		}
	}
	if then, ok := spread["then"].(string); ok && then == by {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"spread", "then"}, Message: fmt.Sprintf("then is %q, as by is", then), Expected: "an attribute that divides the machines of one " + by,
			Hint: "remove then, or write another attribute",
		})
	}
	if then, ok := spread["then"].(string); ok && then == schema.NoSpread {
		c.add(Problem{Rule: schema.RuleNoEffect, Path: []string{"spread", "then"}, Message: fmt.Sprintf("then: %q has no effect", then), Expected: "an attribute of machines, such as rack", Hint: "remove it"})
	}
	targets, ok := spread["targets"].(map[string]any)
	sum := 0
	for _, v := range targets {
		sum += intOf(v)
	}
	if ok && sum != 100 {
		c.add(Problem{
			Rule: schema.RuleInvalidValue, Path: []string{"spread", "targets"}, Message: fmt.Sprintf("the targets are %d %% together", sum), Expected: "100 %",
			Hint: "list each " + by + " that is to get tasks; what is not listed gets some only where these have no room",
		})
		return
	}
	c.levelled(o, by, targets)
}

// levelled warns of shares that differ more than the limit of skew over the same attribute lets
// the tasks differ.
func (c *check) levelled(o map[string]any, by string, targets map[string]any) {
	spread, _ := o["spread"].(map[string]any)
	skews, _ := spread["maxSkew"].(map[string]any)
	limit, limited := skews[by]
	if !limited || len(targets) == 0 {
		return
	}
	most, fewest := 0, 100
	for _, v := range targets {
		most, fewest = max(most, intOf(v)), min(fewest, intOf(v))
	}
	if len(targets) == 1 {
		fewest = 0 // of any other value that machines have
	}
	differ := (most - fewest) * intOf(o["tasks"]) / 100
	if skew := intOf(limit); differ > skew {
		c.warnings = append(c.warnings, Problem{
			Rule: schema.RuleNoEffect, Path: []string{"spread", "targets"}, Key: true, Warning: true,
			Message: fmt.Sprintf("the targets differ by %s, and maxSkew of %s, which always holds, allows %d: they are not met", schema.Count(differ, "task"), by, skew),
			Hint:    fmt.Sprintf("remove maxSkew of %s, or allow more: maxSkew: {%q: %d}", by, by, differ),
		})
	}
}

// affinity checks the selectors of affinity, and that what must hold keeps nobody else's
// tasks from machines.
func (c *check) affinity(name string, v any) {
	var found problems
	list, _ := v.([]any)
	for i := range list {
		m, _ := list[i].(map[string]any)
		path := []string{name, strconv.Itoa(i), "selector"}
		found.selectorProblem(path, m["selector"])
		text, _ := m["selector"].(string)
		s, err := schema.ParseSelector(text)
		if _, weighs := m["weight"]; name == "antiAffinity" && err == nil && !weighs && s.About(schema.LabelUser) {
			found.add(Problem{
				Rule: schema.RuleUnsupported, Path: path,
				Message:  "anti-affinity to tasks of other users that must hold is not supported: it would keep these from machines",
				Expected: "a selector without " + schema.LabelUser, Hint: "add a weight, as in weight: 100: then it is preferred, and keeps nobody else away",
			})
		}
	}
	c.all(found)
}

// intOf returns a number that is an integer, 0 for anything else.
func intOf(v any) int {
	n, _ := v.(json.Number)
	i, err := strconv.Atoi(n.String())
	if err != nil {
		return 0
	}
	return i
}

// anyOf checks the constraints of alternatives.
func (c *check) anyOf(v any) {
	list, _ := v.([]any)
	for i := range list {
		m, _ := list[i].(map[string]any)
		c.conditions([]string{"anyOf", strconv.Itoa(i), "constraints"}, m["constraints"])
	}
}

// conditions checks a list of them at a path.
func (c *check) conditions(path []string, v any) {
	list, _ := v.([]any)
	for i := range list {
		at := append(slices.Clone(path), strconv.Itoa(i))
		unknown := func(p Problem) bool { // perhaps that is what is missing
			return p.Rule == schema.RuleUnknownField && len(p.Path) == len(at)+1 && slices.Equal(p.Path[:len(at)], at)
		}
		if m, ok := list[i].(map[string]any); ok && !slices.ContainsFunc(c.problems, unknown) {
			c.condition(at, m)
		}
	}
}

var versionForm = lazyregexp.New(`^v?[0-9]+(\.[0-9A-Za-z_+~-]+)*$`)

// condition checks that an operator has the operands that it takes.
func (c *check) condition(path []string, m map[string]any) {
	operator, _ := m["operator"].(string)
	at := func(field string) []string { return append(slices.Clone(path), field) }
	_, hasValue := m["value"]
	list, hasValues := m["values"].([]any)
	if _, given := m["values"]; given != hasValues {
		return // it is in error, and said to be
	}
	wants := map[schema.Operator]string{schema.In: "values", schema.NotIn: "values", schema.Exists: "", schema.Absent: ""}
	want, other := wants[schema.Operator(operator)]
	switch {
	case !slices.Contains(schema.Operators(), schema.Operator(operator)):
		return
	case !other:
		want = "value"
	}
	switch {
	case hasValue && want != "value":
		p := Problem{Rule: schema.RuleNoEffect, Path: at("value"), Key: true, Message: fmt.Sprintf("the operator %q takes no value", operator)}
		if want == "values" {
			p.Hint = fmt.Sprintf("write a list: values: [%q]", m["value"])
		}
		c.add(p)
	case hasValues && want != "values":
		p := Problem{Rule: schema.RuleNoEffect, Path: at("values"), Key: true, Message: fmt.Sprintf("the operator %q takes no list of values", operator)}
		if want == "value" {
			p.Hint = `for several values use operator: "in" or "not-in"`
		}
		c.add(p)
	case want == "value" && !hasValue:
		c.add(Problem{Rule: schema.RuleNoEffect, Path: at("value"), Missing: true, Message: fmt.Sprintf("the operator %q needs a value", operator), Expected: "a string"})
	case want == "values" && len(list) == 0:
		c.add(Problem{Rule: schema.RuleNoEffect, Path: at("values"), Missing: !hasValues, Message: fmt.Sprintf("the operator %q wants values", operator), Expected: "a list of at least one string"})
	}
	if s, ok := m["value"].(string); ok && (operator == string(schema.AtLeast) || operator == string(schema.Below)) && !versionForm.MatchString(s) {
		if _, _, amount := schema.ParseAmount(s); !amount {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: at("value"), Message: fmt.Sprintf("%q is neither a version nor an amount", short(s)),
				Expected: "numbers separated by dots, such as 5.10, or a number with a unit, such as 40Gi",
			})
		}
	}
	if n, ok := m["weight"].(json.Number); ok && n.String() == "0" {
		c.add(Problem{Rule: schema.RuleNoEffect, Path: at("weight"), Message: "a weight of 0 has no effect", Expected: "1 to 100, or -100 to -1 for machines to avoid"})
	}
}

// noRepair checks what is declared of the repair of a spread where there is none.
func (c *check) noRepair(o map[string]any, why string) {
	if spread, ok := o["spread"].(map[string]any); ok && spread["repair"] != nil {
		c.add(Problem{Rule: schema.RuleNoEffect, Path: []string{"spread", "repair"}, Key: true, Message: why + ", so repair would have no effect", Hint: "remove it"})
	}
}
