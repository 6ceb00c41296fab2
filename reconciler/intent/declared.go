package intent

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// DesiredMachine is what an object says of a machine, or of all that it matches.
type DesiredMachine struct {
	schema.Machine
	Origin schema.Position
	picks  schema.Selector // of Match
}

// attributes returns what is known of a machine by name: what its agent reports,
// and over it the labels.
func (m DesiredMachine) attributes(info *schema.MachineInfo) map[string]string {
	if len(m.Labels) == 0 {
		return info.Attributes
	}
	out := make(map[string]string, len(info.Attributes)+len(m.Labels))
	maps.Copy(out, info.Attributes)
	maps.Copy(out, m.Labels)
	return out
}

// Key returns the key of the object.
func (m DesiredMachine) Key() schema.ObjectKey {
	return schema.ObjectKey{Kind: schema.KindMachine, Name: m.Cell + "/" + m.Name}
}

// NeverJoined warns of a machine that is declared and unknown to the cell. What
// is gone is not missed.
func (m DesiredMachine) NeverJoined() schema.Diagnostic {
	d := schema.Diagnostic{
		Severity: schema.Warning, Rule: schema.RuleUndefined, Position: m.Origin, Field: m.Key().Field(), Message: "no machine of this name has ever joined",
		Hint: "start its agent, or correct the name",
	}
	if m.Match != "" {
		d.Message, d.Hint = "no machine of the cell matches "+m.Match, "muster status MACHINE shows the attributes of one"
	}
	return d
}

// MachineSpec are all that is declared of one machine that the cell knows.
type MachineSpec struct {
	Attributes map[string]string // with the attribute machine
	cordon     bool
	Taints     map[string]schema.Taint // by key
	// Drain is what the object of its name says, or the first that matches it;
	// nil if none does. drainer is that object.
	Drain   *schema.Drain
	Drainer DesiredMachine
	Gone    *DesiredMachine // the first that says so; nil if none does
}

// Closed reports whether a machine shall get nothing new.
func (o *MachineSpec) Closed() bool { return o.cordon || o.Drain != nil }

// DeclaredOf returns what is declared of a machine: by the object of its name,
// and by those that match it, in the order of their names.
func (d *Desired) DeclaredOf(info *schema.MachineInfo) MachineSpec {
	own := d.Machines[info.Name]
	out := MachineSpec{Attributes: own.attributes(info)}
	out.add(own)
	if len(d.matching) == 0 {
		return out
	}
	attributes := selectable(out.Attributes, info.Name)
	for i := range d.matching {
		if m := &d.matching[i]; m.picks.Matches(attributes) {
			out.add(*m)
		}
	}
	return out
}

// SameMachines reports whether o declares the same of machines: DeclaredOf returns the same
// of each. Either may be nil.
func (d *Desired) SameMachines(o *Desired) bool {
	if d == nil || o == nil || d == o {
		return d == o
	}
	return reflect.DeepEqual(d.Machines, o.Machines) && reflect.DeepEqual(d.matching, o.matching)
}

// selectable returns the attributes of a machine as selectors see them: with its
// name, whatever else is known of it.
func selectable(attributes map[string]string, name string) map[string]string {
	out := make(map[string]string, len(attributes)+1)
	maps.Copy(out, attributes)
	out[schema.AttributeMachine] = name
	return out
}

func (o *MachineSpec) add(m DesiredMachine) {
	o.cordon = o.cordon || m.Cordon
	for key, t := range m.Taints {
		if _, has := o.Taints[key]; has {
			continue
		}
		if o.Taints == nil {
			o.Taints = map[string]schema.Taint{}
		}
		o.Taints[key] = t
	}
	if o.Drain == nil && m.Drain != nil {
		o.Drain, o.Drainer = m.Drain, m
	}
	if o.Gone == nil && m.Gone {
		o.Gone = &m
	}
}

// addMachine takes an object of kind machine.
func (d *Desired) addMachine(m schema.Machine, origin schema.Position) {
	o := DesiredMachine{Machine: m, Origin: origin}
	if m.Match == "" {
		d.Machines[m.Name] = o
		return
	}
	picks, err := schema.ParseSelector(m.Match)
	if err != nil {
		return // a release that knew more wrote it; it picks nothing here
	}
	o.picks = picks
	d.matching = append(d.matching, o)
}

// pickedBy returns the machines of the cell that an object speaks of, in no order.
func (d *Desired) pickedBy(m *schema.Machine, s *model.State) []string {
	if m.Match == "" {
		if s.Machines[m.Name] == nil {
			return nil
		}
		return []string{m.Name}
	}
	picks, err := schema.ParseSelector(m.Match)
	if err != nil {
		return nil // see addMachine
	}
	var out []string
	for name, r := range s.Machines {
		if picks.Matches(selectable(d.Machines[name].attributes(&r.MachineInfo), name)) {
			out = append(out, name)
		}
	}
	return out
}

// Unmatched returns the objects that speak of no machine of the cell, sorted by
// name.
func (d *Desired) Unmatched(s *model.State) []DesiredMachine {
	var out []DesiredMachine
	for name, m := range d.Machines {
		if s.Machines[name] == nil && !m.Gone {
			out = append(out, m)
		}
	}
	left := slices.DeleteFunc(slices.Clone(d.matching), func(m DesiredMachine) bool { return m.Gone })
	for name, r := range s.Machines {
		if len(left) == 0 {
			break
		}
		attributes := selectable(d.Machines[name].attributes(&r.MachineInfo), name)
		left = slices.DeleteFunc(left, func(m DesiredMachine) bool { return m.picks.Matches(attributes) })
	}
	out = append(out, left...)
	slices.SortFunc(out, func(a, b DesiredMachine) int { return a.Key().Compare(b.Key()) })
	return out
}

// machineSpecEvents returns an event for each machine whose spec a commit
// changes: whether it gets new tasks, is draining, or is
// gone.
func machineSpecEvents(s *model.State, was, is *Desired) []schema.Event {
	infos := map[string]*schema.MachineInfo{}
	for _, d := range []*Desired{was, is} {
		for name := range d.Machines {
			infos[name] = &schema.MachineInfo{Name: name}
		}
	}
	if len(was.matching)+len(is.matching) > 0 {
		for name := range s.Machines {
			infos[name] = nil
		}
	}
	for name := range infos {
		if r := s.Machines[name]; r != nil {
			infos[name] = &r.MachineInfo
		}
	}
	var out []schema.Event
	for _, name := range slices.Sorted(maps.Keys(infos)) {
		before, after := was.DeclaredOf(infos[name]), is.DeclaredOf(infos[name])
		for _, message := range after.changes(&before) {
			out = append(out, schema.Event{Kind: schema.EventMachine, Machine: name, Declared: true, Message: message})
		}
	}
	return out
}

// changes says what a commit changes of a machine's spec.
func (o *MachineSpec) changes(was *MachineSpec) []string {
	var out []string
	switch {
	case o.Drain != nil && was.Drain == nil:
		out = append(out, fmt.Sprintf("draining, by %s: it gets no new tasks, and its tasks are moved", o.Drainer.Key().Field()))
	case o.Drain == nil && was.Drain != nil && !o.cordon:
		out = append(out, "no longer drained")
	case o.Drain == nil && o.cordon && !was.cordon:
		out = append(out, "cordoned: it gets no new tasks")
	case !o.Closed() && was.Closed():
		out = append(out, "no longer cordoned")
	}
	if o.Gone != nil && was.Gone == nil {
		out = append(out, "declared gone: when it is silent, its tasks are rescheduled and it is forgotten")
	}
	return out
}
