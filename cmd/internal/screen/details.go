package screen

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// details writes what is shown only for objects that were asked for by name: the attributes
// of a machine, the labels and annotations of a job, the history of tasks.
func (v *View) details(b *strings.Builder, s *status.Status) {
	if v.machine() && len(s.Machines) == 1 {
		v.machineDetails(b, &s.Machines[0])
	}
	if strings.Contains(v.Name, "/") && len(s.Jobs) == 1 {
		j := &s.Jobs[0]
		if j.Image != "" {
			Printf(b, "image %s\n", schema.ShortImage(j.Image))
		}
		for _, k := range slices.Sorted(maps.Keys(j.Labels)) {
			Printf(b, "label %s: %s\n", k, j.Labels[k])
		}
		for _, k := range slices.Sorted(maps.Keys(j.Annotations)) {
			text := strings.TrimSuffix(PrintableLines(strings.ReplaceAll(j.Annotations[k], "\r\n", "\n")), "\n")
			Printf(b, "annotation %s: %s\n", k, Painted(strings.ReplaceAll(text, "\n", "\n    ")))
		}
	}
	v.usageOf(b, s.Usage)
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if len(t.Inside) > 0 {
			v.para(b, t.Name+": ", "", "inside run "+Names(t.Inside, 0))
		}
		for _, h := range t.History {
			v.para(b, t.Name+": ", "", h)
		}
	}
}

func (v *View) machineDetails(b *strings.Builder, m *status.MachineStatus) {
	if !m.Place.Since.IsZero() {
		v.para(b, "agent: ", "", m.Place.String())
	}
	if r := m.Reserved; r != (schema.Resources{}) {
		v.para(b, "", "", fmt.Sprintf("kept for the system: %s of CPU, %s of RAM, %s of disk", schema.CPU(r.CPUMilli), schema.Bytes(r.RAMBytes), schema.Bytes(r.DiskBytes)))
	}
	v.draining(b, m.Draining)
	for _, c := range m.Conditions {
		v.para(b, "", "", fmt.Sprintf("condition %s, since %s", c, c.Since.Format(time.RFC3339)))
	}
	for _, k := range slices.Sorted(maps.Keys(m.Attributes)) {
		Printf(b, "attribute %s: %s\n", k, m.Attributes[k])
	}
}

// draining writes how far a machine is emptied, if it is to be.
func (v *View) draining(b *strings.Builder, d *control.Draining) {
	if d == nil {
		return
	}
	left := schema.Count(d.Left, "task") + " left"
	switch {
	case d.Left == 0:
		left = "drained"
	case d.Turn:
		left += ", others go first"
	}
	v.para(b, "", "", fmt.Sprintf("drained by %s at %s: %s", d.Object, d.Origin, left))
	if !d.Deadline.IsZero() {
		v.para(b, "", "", fmt.Sprintf("deadline %s, and then the %s wins", d.Deadline.Format(time.RFC3339), map[string]string{schema.DeadlineStop: "drain", schema.DeadlineBudget: "budget"}[d.AtDeadline]))
	}
	for _, line := range d.Waits {
		v.para(b, "waits: ", "", line)
	}
}
