package valid

import "github.com/musterhq/muster/schema"

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
