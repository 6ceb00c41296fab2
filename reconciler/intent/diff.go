package intent

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Change is what new version does to a task that runs.
type Change string

// The changes, least first.
const (
	Unchanged Change = ""
	InPlace   Change = "in place" // the process goes on
	// Resize is InPlace where the machine has the room, and Restart elsewhere.
	Resize Change = "resize"
	// Move is InPlace where the machine will still do, and Restart elsewhere.
	Move    Change = "move"
	Restart Change = "restart" // a new process, on the same machine if it fits
)

// FieldChange is one field that differs.
type FieldChange struct {
	Field  string `json:"field"` // data path within the job
	Change Change `json:"change"`
}

// Diff says what the step from old to new version of a job does to its running
// tasks: the greatest of its fields' changes, and each of those.
func Diff(old, next *schema.Job) (Change, []FieldChange) {
	var d differences
	d.job(old, next)
	d.task(&old.Task, &next.Task)
	d.resources(next.Kind, &old.Task.Resources, &next.Task.Resources)
	slices.SortFunc(d, func(a, b FieldChange) int { return strings.Compare(a.Field, b.Field) })
	greatest := Unchanged
	for _, c := range d {
		if order[c.Change] > order[greatest] {
			greatest = c.Change
		}
	}
	return greatest, d
}

// differences are the fields that differ, as they are found.
type differences []FieldChange

func (d *differences) field(differs bool, name string, c Change) {
	if differs {
		*d = append(*d, FieldChange{name, c})
	}
}

// job finds the fields that differ of a job itself.
func (d *differences) job(old, next *schema.Job) {
	tasks := "tasks"
	if next.Kind == schema.Allocs {
		tasks = "allocs" // as an alloc set writes them
	}
	d.field(old.Priority != next.Priority, "priority", InPlace)
	d.field(old.Kind == next.Kind && old.Class() != next.Class(), "appclass", InPlace)
	d.field(old.Tasks != next.Tasks, tasks, InPlace)
	d.field(!maps.Equal(old.Labels, next.Labels), "labels", InPlace)
	d.field(!maps.Equal(old.Annotations, next.Annotations), "annotations", InPlace)
	d.field(Differ(old.Update, next.Update), "update", InPlace)
	d.field(Differ(old.Silence, next.Silence), "silence", InPlace)
	d.field(Differ(old.Disruption, next.Disruption), "disruption", InPlace)
	d.field(old.Kept() != next.Kept(), "prune", InPlace)
	d.field(Differ(old.Policy, next.Policy), "policy", InPlace)
	d.field(Differ(old.Preferences, next.Preferences), "preferences", InPlace)
	d.field(Differ(old.Tolerations, next.Tolerations), "tolerations", InPlace)
	d.field(Differ(old.Affinity, next.Affinity), "affinity", InPlace)
	d.field(Differ(old.AntiAffinity, next.AntiAffinity), "antiAffinity", InPlace)
	d.field(Differ(old.Spread, next.Spread), "spread", InPlace)
	d.field(old.Together != next.Together, "together", InPlace)
	d.field(old.Gang != next.Gang, "gang", InPlace)
	d.field(old.Moved() != next.Moved(), "rebalance", InPlace)
	d.field(old.NeverPreempted() != next.NeverPreempted(), "preemptible", InPlace)
	d.field(Differ(old.Constraints, next.Constraints), "constraints", Move)
	d.field(Differ(old.AnyOf, next.AnyOf), "anyOf", Move)
	d.field(old.Kind != next.Kind, "kind", Restart)
	d.field(old.AllocSet != next.AllocSet, "allocset", Restart)
}

// task finds the fields that differ of what each task runs.
func (d *differences) task(o, n *schema.TaskSpec) {
	d.field(o.GraceSeconds != n.GraceSeconds, "task.graceSeconds", InPlace)
	d.stop(o.Stop, n.Stop)
	d.field(Differ(o.Health, n.Health), "task.health", InPlace)
	d.field(o.Exceeds() != n.Exceeds(), "task.exceed", InPlace)
	d.field(Differ(o.Logs, n.Logs), "task.logs", InPlace)
	d.field(Differ(o.Restart, n.Restart), "task.restart", InPlace)
	d.field(o.Bounds().Processes != n.Bounds().Processes, "task.limits.processes", InPlace)
	d.field(o.Bounds().Files != n.Bounds().Files, "task.limits.files", Restart)
	d.field(o.Bounds().CoreBytes != n.Bounds().CoreBytes, "task.limits.coreBytes", Restart)
	d.field(requires(o) != requires(n), "task.isolation.require", Move)
	d.field(networkOf(o) != networkOf(n), "task.isolation.network", Restart)
	d.field(hasUser(o) != hasUser(n), "task.isolation.user", Restart)
	d.field(Differ(o.Capabilities, n.Capabilities), "task.capabilities", Restart)
	d.field(!maps.Equal(o.Files, n.Files), "task.files", filesChange(o, n))
	d.secrets(o.Secrets, n.Secrets)
	if o.Sticky.Has() == n.Sticky.Has() {
		d.field(o.Sticky != n.Sticky, "task.sticky", InPlace)
	} else {
		d.field(true, "task.sticky", Restart)
	}
	d.mounts(o, n)
	d.field(o.Process.Root != n.Process.Root, "task.process.root", Restart)
	d.field(!slices.Equal(o.Process.Command, n.Process.Command), "task.process.command", Restart)
	d.container(o.Container, n.Container)
	d.field(Differ(o.Before, n.Before), "task.before", Restart)
	d.field(!maps.Equal(o.Env, n.Env), "task.env", Restart)
}

// filesChange is what a change of the files of a task does.
func filesChange(o, n *schema.TaskSpec) Change {
	if maps.Equal(o.RunFiles(), n.RunFiles()) {
		return InPlace
	}
	return Restart
}

// secrets finds what differs of the secrets of a task. Another ciphertext of the same
// plaintext is in place; whether it is the same, only a master knows that has opened both.
func (d *differences) secrets(o, n map[string]schema.TaskSecret) {
	for name, next := range n {
		was, had := o[name]
		change := Restart
		if had && was.Path(name) == next.Path(name) && was.Env == next.Env && fileMode(&was) == fileMode(&next) &&
			was.OnChange.InPlace() == next.OnChange.InPlace() && (next.OnChange.InPlace() || was.Content() == next.Content()) {
			change = InPlace
		}
		d.field(!had || Differ(was, next), "task.secrets."+schema.Label(name), change)
	}
	for name := range o {
		if _, has := n[name]; !has {
			d.field(true, "task.secrets."+schema.Label(name), Restart)
		}
	}
}

func fileMode(s *schema.TaskSecret) string { return cmp.Or(s.Mode, schema.DefaultSecretMode) }

// stop finds what differs of how a task is stopped.
func (d *differences) stop(o, n *schema.Stop) {
	if o == nil {
		o = &schema.Stop{}
	}
	if n == nil {
		n = &schema.Stop{}
	}
	d.field(!slices.Equal(o.Command, n.Command), "task.stop.command", InPlace)
	d.field(o.TimeoutSeconds != n.TimeoutSeconds, "task.stop.timeoutSeconds", InPlace)
	d.field(o.DelaySeconds != n.DelaySeconds, "task.stop.delaySeconds", InPlace)
	d.field(o.Signal != n.Signal, "task.stop.signal", Restart)
}

// mounts finds what differs of packages and volumes. What a package is called, and where it
// comes from, is nothing to a task that has it.
func (d *differences) mounts(o, n *schema.TaskSpec) {
	if maps.Equal(o.PackagePaths(), n.PackagePaths()) {
		d.field(!slices.Equal(o.Packages, n.Packages), "task.packages", InPlace)
	} else {
		d.field(true, "task.packages", Restart)
	}
	d.field(!maps.Equal(o.Volumes, n.Volumes), "task.volumes", Restart)
}

// container finds what differs of a container.
func (d *differences) container(o, n *schema.Container) {
	if o == nil || n == nil {
		d.field(o != n, "task.container", Restart)
		return
	}
	d.field(o.Image != n.Image, "task.container.image", Restart)
	d.field(!slices.Equal(o.Command, n.Command), "task.container.command", Restart)
	d.field(!slices.Equal(o.Args, n.Args), "task.container.args", Restart)
	d.field(o.Workdir != n.Workdir, "task.container.workdir", Restart)
	d.field(o.User != n.User, "task.container.user", Restart)
	d.field(o.ReadOnly != n.ReadOnly, "task.container.readOnly", Restart)
	d.field(o.Runtime != n.Runtime, "task.container.runtime", Restart)
}

// resources finds what differs of what a task, or an alloc, may use.
func (d *differences) resources(kind schema.JobKind, o, n *schema.TaskResources) {
	path := "task.resources."
	if kind == schema.Allocs {
		path = "resources." // as an alloc set writes them
	}
	for _, dim := range schema.Dimensions() {
		was, is := o.Of(dim), n.Of(dim)
		change := Resize
		switch {
		case kind == schema.Allocs:
			change = Restart // what runs inside was placed by it
		case is < was:
			change = InPlace // there is room for less
		}
		d.field(is != was, path+string(dim), change)
	}
	d.field(!slices.Equal(o.Ports, n.Ports), path+"ports", Restart)
	d.field(!maps.Equal(o.PortNumbers, n.PortNumbers), path+"portNumbers", Restart)
	d.field(Differ(o.Devices, n.Devices), path+"devices", Restart)
	d.field(Differ(o.FirstOf, n.FirstOf), path+"firstOf", Restart)
	d.field(o.WholeCores != n.WholeCores, path+"wholeCores", Restart)
}

// Differ compares by what is stored. What is the same in memory, as it is nearly
// always, is stored the same.
func Differ(a, b any) bool {
	return !reflect.DeepEqual(a, b) && schema.DigestOf(a) != schema.DigestOf(b)
}

func requires(t *schema.TaskSpec) bool { return t.Isolation != nil && t.Isolation.Require }

func hasUser(t *schema.TaskSpec) bool { return t.Isolation != nil && t.Isolation.User }

func networkOf(t *schema.TaskSpec) schema.Network {
	switch {
	case t.Isolation != nil:
		return t.Isolation.Network
	case t.Container != nil:
		return "" // as one that does not say
	}
	return schema.HostNetwork
}

// order says which of two changes is the greater.
var order = map[Change]int{Unchanged: 0, InPlace: 1, Resize: 2, Move: 3, Restart: 4}
