package valid

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

var machineRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "cell", Rule: nameRule, Required: true},
		{Name: "labels", Rule: &Rule{
			Type: Map, Max: maxLabels, Key: matchMachineLabel,
			Elem: &Rule{Type: String, Max: 255, Match: matchLine},
		}},
		{Name: "match", Rule: selectorRule},
		{Name: "taints", Rule: taintsRule},
		{Name: "cordon", Rule: &Rule{Type: Bool}, Default: false},
		{Name: "drain", Rule: drainRule},
		{Name: "gone", Rule: &Rule{Type: Bool}},
	},
	Alias: map[string]string{
		"attributes": "labels", "meta": "labels", "tags": "labels", "taint": "taints", "dedicated": "taints", "unschedulable": "cordon",
		"schedulable": "cordon", "cordoned": "cordon", "eligibility": "cordon", "datacenter": "cell", "cluster": "cell",
		"selector": "match", "matchLabels": "match", "where": "match", "draining": "drain", "evict": "drain", "maintenance": "drain",
		"lost": "gone", "dead": "gone", "removed": "gone", "forget": "gone", "deadline": "drain.deadline", "atDeadline": "drain.atDeadline", "atOnce": "drain.atOnce",
	},
}

// maxSelector bounds the text of a selector, in bytes.
const maxSelector = 1024

func matchSelector(s string) string {
	if s == "" {
		return `a selector, such as "rack=r3"; "machine" selects every machine`
	}
	return ""
}

// selectorRule is the rule of selectors of machines. What is wrong with one is
// said by selector: its column matters.
var selectorRule = &Rule{Type: String, Min: 1, Max: maxSelector, Match: matchSelector}

var drainRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "atOnce", Rule: integer(Count, 1, schema.MaxDrainAtOnce), Default: num(1)},
		{Name: "deadline", Rule: timeRule},
		{Name: "atDeadline", Rule: atDeadlineRule, Default: schema.DeadlineBudget},
	},
	Alias: map[string]string{
		"parallel": "atOnce", "maxParallel": "atOnce", "machines": "atOnce", "max": "atOnce", "maxUnavailable": "atOnce", "until": "deadline",
		"by": "deadline", "timeout": "deadline", "force": "atDeadline", "wins": "atDeadline", "onDeadline": "atDeadline",
	},
}

var atDeadlineRule = aliased(words(schema.DeadlineBudget, schema.DeadlineStop), map[string]string{
	"drain": schema.DeadlineStop, "force": schema.DeadlineStop, "kill": schema.DeadlineStop, "wait": schema.DeadlineBudget, "budgets": schema.DeadlineBudget,
})

// machine checks what ties the fields of a machine together: given is what its
// owner wrote, machine the same with defaults.
func (c *check) machine(given, machine map[string]any) {
	match, matches := machine["match"].(string)
	if matches {
		if _, err := schema.ParseSelector(match); match != "" && err != nil {
			c.add(Problem{Rule: schema.RuleInvalidValue, Path: []string{"match"}, Message: fmt.Sprintf("invalid value: %s", err), Expected: `a selector, such as "rack=r3" or "rack in (r3,r4)"`})
		}
		if _, labels := given["labels"]; labels {
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: []string{"labels"}, Key: true, Message: "labels have no effect together with match", Expected: "one of them",
				Hint: "labels are given to one machine, in the object of its name",
			})
		}
	}
	drain, ok := given["drain"].(map[string]any)
	if !ok {
		return
	}
	// The default is there, too, when data is checked again that has all defaults.
	if n, waves := drain["atOnce"]; waves && !matches && fmt.Sprint(n) != "1" {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"drain", "atOnce"}, Key: true, Message: "without match, atOnce has no effect", Expected: "match together with drain, or no atOnce",
			Hint: "an object without match drains the one machine of its name",
		})
	}
	if _, deadline := drain["deadline"]; !deadline && drain["atDeadline"] == schema.DeadlineStop {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"drain", "atDeadline"}, Key: true, Message: "without deadline, atDeadline has no effect", Expected: "a deadline",
			Hint: `add one, such as deadline: "2027-03-31T06:00:00Z"; one in the past applies at once`,
		})
	}
}

// lostRule is what a cell says of lost machines.
var lostRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "domain", Rule: attributeRule, Default: schema.DefaultLossDomain},
		{Name: "maxPercent", Rule: integer(Percent, 1, 100), Default: num(schema.DefaultLossPercent)},
		{Name: "tasksPerMinute", Rule: integer(Count, 1, schema.MaxTasks), Default: num(schema.DefaultTasksPerMinute)},
		{Name: "burst", Rule: integer(Count, 1, schema.MaxTasks), Default: num(schema.DefaultLossBurst)},
	},
	Alias: map[string]string{
		"share": "maxPercent", "percent": "maxPercent", "max": "maxPercent", "unhealthyZoneThreshold": "maxPercent", "rate": "tasksPerMinute",
		"perMinute": "tasksPerMinute", "label": "domain", "by": "domain", "zone": "domain", "rack": "domain",
	},
	Never: map[string]string{
		"afterSeconds": "how long a machine may be silent is set with --lost-after of the master, or in silence of a job",
	},
}

// moves warns of a cell that empties machines, and moves no tasks, and of one with quiet hours that
// are none.
func (c *check) moves(cell map[string]any) {
	r, _ := cell["rebalance"].(map[string]any)
	if quiet, _ := r["quiet"].(map[string]any); quiet != nil && quiet["from"] == quiet["to"] {
		c.warnings = append(c.warnings, Problem{
			Rule: schema.RuleNoEffect, Path: []string{"rebalance", "quiet"}, Key: true, Warning: true,
			Message: fmt.Sprintf("quiet has no effect: it ends at %s, when it begins", quiet["to"]),
			Hint:    "write when it ends; where no task is ever to move, write movesPerHour: 0 in its place",
		})
	}
	if below, ok := r["emptyBelow"]; !ok || below == num(0) || r["movesPerHour"] != num(0) {
		return
	}
	c.warnings = append(c.warnings, Problem{
		Rule: schema.RuleNoEffect, Path: []string{"rebalance", "emptyBelow"}, Key: true, Warning: true,
		Message: "emptyBelow has no effect with movesPerHour: 0, since tasks move so that a machine is empty", Hint: "allow some moves, such as movesPerHour: 60, or remove emptyBelow",
	})
}
