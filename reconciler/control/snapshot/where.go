package snapshot

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// targetsOf returns how many of so many tasks a spread wants where; nil if it does not say.
func targetsOf(s *schema.Spread, tasks int) (out []placement.Target) {
	for _, x := range s.Shares(tasks) {
		out = append(out, placement.Target{Value: x.Value, Tasks: x.Tasks})
	}
	return out
}

// ofAll returns an ask of a job, or one like it, whose targets are of as many tasks as the job is
// to have: its record may say another number than the data that the task runs.
func (c *Cell) ofAll(a *placement.Ask, name schema.JobName, data *schema.Job) *placement.Ask {
	if a.Targets == nil {
		return a
	}
	want, sum := c.facts.Admitted(name), 0
	for _, t := range a.Targets {
		sum += t.Tasks
	}
	if want == nil || want.Tasks == sum {
		return a
	}
	out := *a
	out.Targets = targetsOf(data.Spread, want.Tasks)
	return &out
}

// where adds to an ask what its job says of the machines that it wants.
func where(a *placement.Ask, job *schema.Job) {
	for i := range job.Constraints {
		a.Constraints = append(a.Constraints, constraintOf(&job.Constraints[i]))
	}
	for i := range job.AnyOf {
		var all []placement.Constraint
		for k := range job.AnyOf[i].Constraints {
			all = append(all, constraintOf(&job.AnyOf[i].Constraints[k]))
		}
		a.AnyOf = append(a.AnyOf, all)
	}
	for _, t := range job.Tolerations {
		a.Tolerations = append(a.Tolerations, placement.Toleration{Key: t.Key, Value: t.Value})
	}
	for _, attribute := range schema.IsolationOf(&job.Task) {
		a.Constraints = append(a.Constraints, placement.Constraint{Attribute: attribute, Op: placement.OpIn, Values: []string{"true"}})
	}
	for i := range job.Preferences {
		p := &job.Preferences[i]
		a.Preferences = append(a.Preferences, placement.Preference{Constraint: constraintOf(&p.Constraint), Weight: p.Weight})
	}
	if s := job.Spread; s != nil {
		if a.Spread = s.By; s.By == schema.NoSpread {
			a.Spread = placement.NoSpread
		}
		a.Then = s.Then
		a.Targets = targetsOf(s, job.Tasks)
		for _, attribute := range slices.Sorted(maps.Keys(s.Max)) {
			a.PerDomain = append(a.PerDomain, placement.DomainLimit{Attribute: attribute, Max: s.Max[attribute]})
		}
		for _, attribute := range slices.Sorted(maps.Keys(s.MaxSkew)) {
			a.MaxSkew = append(a.MaxSkew, placement.SkewLimit{Attribute: attribute, Max: s.MaxSkew[attribute], MinDomains: s.MinDomains[attribute]})
		}
	}
	if job.Task.Resources.WholeCores {
		a.Constraints = append(a.Constraints, placement.Constraint{Attribute: schema.AttributeCPUSet, Op: placement.OpIn, Values: []string{"true"}})
	}
	for _, name := range job.Task.Brings() {
		a.Packages = append(a.Packages, string(schema.Content(name)))
	}
	a.Devices, a.FirstOf = devicesAsked(&job.Task.Resources)
}

// devicesAsked returns what a task asks of devices, whatever the alternative and by alternative.
func devicesAsked(r *schema.TaskResources) (always []placement.DeviceAsk, alternatives [][]placement.DeviceAsk) {
	if len(r.FirstOf) > 0 {
		alternatives = make([][]placement.DeviceAsk, len(r.FirstOf))
	}
	r.Each(func(alternative int, kind string, d schema.DeviceAsk) {
		ask := placement.DeviceAsk{Kind: kind, Models: d.Models, Count: d.Count, Milli: d.Milli, Same: d.Same}
		for i := range d.Constraints {
			ask.Constraints = append(ask.Constraints, constraintOf(&d.Constraints[i]))
		}
		if alternative < 0 {
			always = append(always, ask)
		} else {
			alternatives[alternative] = append(alternatives[alternative], ask)
		}
	})
	return always, alternatives
}

// AlternativeOf says which of its alternatives of devices a task has got that holds some on a machine,
// such as "2 of 3: 2 gpu"; "" if the job has none, or if the machine's devices have become others.
func AlternativeOf(job *schema.Job, m *schema.MachineRecord, devices []schema.DeviceUse) string {
	r := &job.Task.Resources
	if len(r.FirstOf) == 0 || m == nil {
		return ""
	}
	var a placement.Ask
	a.Devices, a.FirstOf = devicesAsked(r)
	groups := make([]placement.Device, len(m.Devices))
	for i, g := range m.Devices {
		groups[i] = placement.Device(g)
	}
	which := placement.Chosen(&a, groups, usesOf(m, devices))
	if which < 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d: %s", which+1, len(r.FirstOf), placement.Alternative(&a, which))
}

// had returns the machine on which a task was before it was stopped to run again, and the devices that it held there; none
// unless its job has the same alternatives now: what it would have more is for those that wait for it.
func (c *Cell) had(t *schema.TaskRecord, want *schema.Job) placement.Had {
	machine, alternatives := facts.RanOn(t), want.Task.Resources.FirstOf
	if machine == "" || t.Machine != "" || len(t.Had)+len(alternatives) == 0 || !reflect.DeepEqual(c.facts.Data(t.Data).Task.Resources.FirstOf, alternatives) {
		return placement.Had{}
	}
	return placement.Had{On: machine, Devices: usesOf(c.facts.Base.Machines[machine], t.Had)}
}

// relationsOf returns what a job says of other tasks, and what others pick it by. A
// selector that does not name users picks tasks of the job's own.
func relationsOf(job *schema.Job) *placement.Relations {
	convert := func(list []schema.Affinity) []placement.Affinity {
		out := make([]placement.Affinity, 0, len(list))
		for _, a := range list {
			s, err := schema.ParseSelector(a.Selector)
			if err != nil { // of data that validation lets pass by a later version only
				continue
			}
			w := placement.Affinity{Selector: s, By: a.By, Weight: a.Weight}
			if !s.About(schema.LabelUser) {
				w.User = job.User
			}
			out = append(out, w)
		}
		return out
	}
	return &placement.Relations{Labels: job.AllLabels(), Affinity: convert(job.Affinity), AntiAffinity: convert(job.AntiAffinity)}
}

func constraintOf(c *schema.Constraint) placement.Constraint {
	out := placement.Constraint{Attribute: c.Attribute, Values: []string{c.Value}}
	switch c.Operator {
	case schema.Equal:
		out.Op = placement.OpIn
	case schema.NotEqual:
		out.Op = placement.OpNotIn
	case schema.In:
		out.Op, out.Values = placement.OpIn, c.Values
	case schema.NotIn:
		out.Op, out.Values = placement.OpNotIn, c.Values
	case schema.Exists:
		out.Op, out.Values = placement.OpExists, nil
	case schema.Absent:
		out.Op, out.Values = placement.OpAbsent, nil
	case schema.AtLeast:
		out.Op = placement.OpAtLeast
	case schema.Below:
		out.Op = placement.OpBelow
	}
	return out
}

// usesOf returns devices as placement counts them: through all groups of the
// machine. Those that the machine does not have any more are left out.
func usesOf(m *schema.MachineRecord, devices []schema.DeviceUse) []placement.DeviceUse {
	var out []placement.DeviceUse
	for _, d := range devices {
		if m == nil {
			break
		}
		first, left := 0, d.Index
		for _, g := range m.Devices {
			if g.Kind == d.Kind && left < g.Count {
				out = append(out, placement.DeviceUse{Kind: d.Kind, Index: first + left, Milli: d.Milli})
				break
			}
			if g.Kind == d.Kind {
				left -= g.Count
			}
			first += g.Count
		}
	}
	return out
}

// DevicesOf returns devices as they are recorded: counted by kind, so that the
// task finds the numbers that the kind's own tools use.
func (c *Cell) DevicesOf(machine string, uses []placement.DeviceUse) []schema.DeviceUse {
	var out []schema.DeviceUse
	for _, u := range uses {
		left, before := u.Index, map[string]int{}
		for _, g := range c.facts.Base.Machines[machine].Devices {
			if left < g.Count {
				out = append(out, schema.DeviceUse{Kind: g.Kind, Index: before[g.Kind] + left, Milli: u.Milli})
				break
			}
			left -= g.Count
			before[g.Kind] += g.Count
		}
	}
	return out
}

// superseded returns the generations that are alive on a machine and are not assigned to it any more: a machine
// that was given up and has returned stops them, and until it has, nobody else gets their ports and devices.
// What is assigned there has its own, which are free for it, and for those that it makes way for, once it stops.
func (c *Cell) superseded(machine string) (out []*schema.TaskStatus) {
	h := c.facts.Observed.Last(machine)
	if h == nil {
		return nil
	}
	for i := range h.Report.Tasks {
		t := &h.Report.Tasks[i]
		if t.State == schema.Dead || len(t.Devices)+len(t.Ports) == 0 {
			continue
		}
		if r := c.facts.Task(t.Task); r == nil || r.Generation != t.Generation || r.Machine != machine {
			out = append(out, t)
		}
	}
	return out
}
