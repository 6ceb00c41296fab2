package reconciler

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Change is what new data does to a task that runs.
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

// Diff says what the step from old to new data of a job does to its running
// tasks: the greatest of its fields' changes, and each of those.
func Diff(old, next *schema.Job) (Change, []FieldChange) {
	var out []FieldChange
	field := func(differs bool, name string, c Change) {
		if differs {
			out = append(out, FieldChange{name, c})
		}
	}
	o, n := &old.Task, &next.Task
	resources, tasks := "task.resources", "tasks"
	if next.Kind == schema.Allocs {
		resources, tasks = "resources", "allocs" // as an alloc set writes them
	}
	field(old.Priority != next.Priority, "priority", InPlace)
	field(old.Kind == next.Kind && old.Class() != next.Class(), "appclass", InPlace)
	field(old.Tasks != next.Tasks, tasks, InPlace)
	field(!maps.Equal(old.Labels, next.Labels), "labels", InPlace)
	field(!maps.Equal(old.Annotations, next.Annotations), "annotations", InPlace)
	field(old.Update != next.Update, "update", InPlace)
	field(old.Kept() != next.Kept(), "prune", InPlace)
	field(schema.DigestOf(old.Preferences) != schema.DigestOf(next.Preferences), "preferences", InPlace)
	field(schema.DigestOf(old.Spread) != schema.DigestOf(next.Spread), "spread", InPlace)
	field(schema.DigestOf(old.Constraints) != schema.DigestOf(next.Constraints), "constraints", Move)
	field(o.GraceSeconds != n.GraceSeconds, "task.graceSeconds", InPlace)
	field(schema.DigestOf(o.Health) != schema.DigestOf(n.Health), "task.health", InPlace)
	field(o.Exceeds() != n.Exceeds(), "task.exceed", InPlace)
	field(schema.DigestOf(o.Logs) != schema.DigestOf(n.Logs), "task.logs", InPlace)
	field(requires(o) != requires(n), "task.isolation.require", Move)
	field(networkOf(o) != networkOf(n), "task.isolation.network", Restart)
	field(hasUser(o) != hasUser(n), "task.isolation.user", Restart)
	field(!maps.Equal(o.Files, n.Files), "task.files", Restart)
	field(o.Sticky != n.Sticky, "task.sticky", Restart)
	field(o.Process.Root != n.Process.Root, "task.process.root", Restart)
	field(schema.DigestOf(o.Restart) != schema.DigestOf(n.Restart), "task.restart", InPlace)
	field(old.Kind != next.Kind, "kind", Restart)
	field(old.AllocSet != next.AllocSet, "allocset", Restart)
	field(!slices.Equal(o.Process.Command, n.Process.Command), "task.process.command", Restart)
	field(!maps.Equal(o.Env, n.Env), "task.env", Restart)
	for _, d := range schema.Dimensions() {
		was, is := o.Resources.Of(d), n.Resources.Of(d)
		change := Resize
		switch {
		case next.Kind == schema.Allocs:
			change = Restart // what runs inside was placed by it
		case is < was:
			change = InPlace // there is room for less
		}
		field(is != was, resources+"."+string(d), change)
	}
	field(!slices.Equal(o.Resources.Ports, n.Resources.Ports), "task.resources.ports", Restart)
	field(!maps.Equal(o.Resources.PortNumbers, n.Resources.PortNumbers), "task.resources.portNumbers", Restart)
	field(schema.DigestOf(o.Resources.Devices) != schema.DigestOf(n.Resources.Devices), "task.resources.devices", Restart)
	field(o.Resources.WholeCores != n.Resources.WholeCores, "task.resources.wholeCores", Restart)
	slices.SortFunc(out, func(a, b FieldChange) int { return strings.Compare(a.Field, b.Field) })
	greatest := Unchanged
	for _, c := range out {
		if order[c.Change] > order[greatest] {
			greatest = c.Change
		}
	}
	return greatest, out
}

func requires(t *schema.TaskSpec) bool { return t.Isolation != nil && t.Isolation.Require }

func hasUser(t *schema.TaskSpec) bool { return t.Isolation != nil && t.Isolation.User }

func networkOf(t *schema.TaskSpec) schema.Network {
	if t.Isolation == nil {
		return schema.HostNetwork
	}
	return t.Isolation.Network
}

// order says which of two changes is the greater.
var order = map[Change]int{Unchanged: 0, InPlace: 1, Resize: 2, Move: 3, Restart: 4}
