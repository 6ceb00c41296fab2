package intent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// asks reports whether a job asks for anything that its tenant must allow.
func asks(j *schema.Job) bool {
	return j.Task.Capabilities != nil || len(j.Task.Resources.Devices)+len(j.Task.Resources.FirstOf) > 0 || len(j.Task.Volumes) > 0
}

// allows finds what a job of p asks of machines that the tenant may not have.
func (t *tenant) allows(p *schema.Package, j *schema.Job, declared volumes, found *Findings) {
	var allow schema.Allow
	if t.Allow != nil {
		allow = *t.Allow
	}
	key := KeyOf(j)
	for _, name := range schema.GrantedCapabilities(&j.Task) {
		if !slices.Contains(allow.Capabilities, name) {
			i := slices.Index(j.Task.Capabilities.Add, name)
			t.disallow(p, key, found, refusal{
				field: fmt.Sprintf("task.capabilities.add[%d]", i), place: "task.capabilities.add." + strconv.Itoa(i), what: "the capability " + name,
				has: allow.Capabilities, list: "capabilities", name: name,
			})
		}
	}
	j.Task.Resources.Each(func(alternative int, kind string, _ schema.DeviceAsk) {
		if allow.Devices == nil || slices.Contains(allow.Devices, kind) {
			return
		}
		field, place := "task.resources.devices."+kind, "task.resources.devices."+kind
		if alternative >= 0 {
			field = fmt.Sprintf("task.resources.firstOf[%d].devices.%s", alternative, kind)
			place = fmt.Sprintf("task.resources.firstOf.%d.devices.%s", alternative, kind)
		}
		t.disallow(p, key, found, refusal{field: field, place: place, what: "devices of kind " + kind, has: allow.Devices, list: "devices", name: kind})
	})
	for _, name := range slices.Sorted(maps.Keys(j.Task.Volumes)) {
		shared := j.Task.Volumes[name].Shared
		if declared.lack(j.Cell, shared) {
			continue // which is said of it
		}
		if shared != "" && allow.Volumes != nil && !slices.Contains(allow.Volumes, shared) {
			field := "task.volumes." + name + ".shared"
			t.disallow(p, key, found, refusal{field: field, place: field, what: "the shared volume " + shared, has: allow.Volumes, list: "volumes", name: shared})
		}
	}
}

// refusal is something that a job may not ask for.
type refusal struct {
	field, place string // place is as Package.Place has it
	what         string
	has          []string // that it may
	list, name   string   // where it would have to be
}

func (t *tenant) disallow(p *schema.Package, key schema.ObjectKey, found *Findings, r refusal) {
	expected := "none"
	if len(r.has) == 1 {
		expected = "only " + r.has[0]
	} else if len(r.has) > 1 {
		expected = "one of " + strings.Join(r.has, ", ")
	}
	granted := strings.ReplaceAll(fmt.Sprintf("%q", append(slices.Clone(r.has), r.name)), `" "`, `", "`)
	found.Add(r.list+" "+r.name, key, schema.Diagnostic{
		Rule: schema.RuleOwnership, Position: p.Place(key, r.place), Field: key.Field() + "." + r.field,
		Message:  fmt.Sprintf("directory %s belongs to tenant %q, whose jobs may not have %s", p.Dir, t.Name, r.what),
		Expected: expected,
		Hint:     fmt.Sprintf("remove it, or have the platform team grant it: allow: %s: %s at %s", r.list, granted, t),
	})
}
