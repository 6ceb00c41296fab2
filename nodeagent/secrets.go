package nodeagent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// secretMissing says which secret a task waits for that the master has not sent, "" for
// none.
func (d *decider) secretMissing(it item) string {
	secrets := it.job().Task.Secrets
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		has, ok := secretOf(d.in.View, secrets[name])
		if !ok || has.Sealed == "" {
			return fmt.Sprintf("its secret %s is not here: %s", name, cmp.Or(has.Refused, "the master has not sent it"))
		}
	}
	return ""
}

// reportRenewal says which secret a running task waits for that is to have another version of
// what it was given.
func (d *decider) reportRenewal(it item, s *schema.TaskStatus) {
	if s.State != schema.Running || it.assigned == nil {
		return
	}
	if _, changes := it.held.last().Given.renewal(d.in.Versions.changeables(it.assigned)); !changes {
		return
	}
	if why := d.secretMissing(it); why != "" {
		s.Note = joined(s.Note, schema.NoteNext+why)
	}
}

// secretOf returns what a view has of a task's secret; false for nothing.
func secretOf(v *schema.View, s schema.TaskSecret) (schema.MachineSecret, bool) {
	if v == nil || s.Sealed == nil {
		return schema.MachineSecret{}, false
	}
	has, ok := v.Secrets[s.Sealed.Version]
	return has, ok
}

// withSecrets returns x with those secrets of a view that its task is started with.
func withSecrets(x *schema.Assignment, view *schema.View) *schema.Assignment {
	if len(x.Job.Task.Secrets) == 0 {
		return x
	}
	with := *x
	with.Secrets = map[string]string{}
	for _, s := range x.Job.Task.Secrets {
		if has, ok := secretOf(view, s); ok {
			with.Secrets[s.Sealed.Version] = has.Sealed
		}
	}
	return &with
}
