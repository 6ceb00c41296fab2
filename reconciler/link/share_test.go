package link

import (
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/musterhq/muster/schema"
)

// TestShare: a report says what it said, and refers to what was known.
func TestShare(t *testing.T) {
	t.Parallel()
	job := schema.JobName{Cell: "c", User: "u", Job: "web"}
	copied := strings.Clone
	status := func(index int, state schema.TaskState) schema.TaskStatus {
		name := schema.JobName{Cell: copied(job.Cell), User: copied(job.User), Job: copied(job.Job)}
		return schema.TaskStatus{Task: name.Task(index), Generation: uint64(10 - index), State: state, Data: schema.Digest(copied("sha256:1")), Ports: schema.PortsOf(map[string]int{"http": index})}
	}
	report := func(tasks ...schema.TaskStatus) *schema.Report {
		return &schema.Report{Machine: schema.MachineInfo{Name: copied("m1"), Boot: copied("b"), Attributes: map[string]string{"rack": "r1"}, Notes: []string{"n"}}, Tasks: tasks}
	}
	last := report(status(0, schema.Running), status(1, schema.Starting), status(2, schema.Running))
	view := []schema.Assignment{{Task: job.Task(3), Generation: 7, Data: "sha256:1", Ports: schema.PortsOf(map[string]int{"http": 3})}}
	said := func() *schema.Report { // the first has gone, the next has changed, the last is new
		return report(status(1, schema.Running), status(2, schema.Running), status(3, schema.Starting), status(4, schema.Starting))
	}
	r := said()
	share(r, last, view)
	if !reflect.DeepEqual(r, said()) {
		t.Errorf("it says something else: %+v", r)
	}
	same := func(what string, a, b any) {
		t.Helper()
		if x, y := reflect.ValueOf(a), reflect.ValueOf(b); x.Kind() == reflect.String {
			if unsafe.StringData(x.String()) != unsafe.StringData(y.String()) {
				t.Errorf("%s: a copy", what)
			}
		} else if x.Pointer() != y.Pointer() {
			t.Errorf("%s: a copy", what)
		}
	}
	same("the machine's name", r.Machine.Name, last.Machine.Name)
	same("its attributes", r.Machine.Attributes, last.Machine.Attributes)
	same("its notes", r.Machine.Notes, last.Machine.Notes)
	same("the name of a task that has changed", r.Tasks[0].Task.Job, last.Tasks[1].Task.Job)
	same("its ports", r.Tasks[0].Ports, last.Tasks[1].Ports)
	same("the data of a task that has not", r.Tasks[1].Data, last.Tasks[2].Data)
	same("the ports of a task that was assigned", r.Tasks[2].Ports, view[0].Ports)
	same("its name", r.Tasks[2].Task.User, view[0].Task.User)
	u := &schema.MachineUsage{Tasks: []schema.TaskUsage{{Task: status(2, "").Task, Generation: 8}, {Task: status(5, "").Task, Generation: 5}}}
	shareUsage(u, r.Tasks)
	same("the name in a sample", u.Tasks[0].Task.Job, r.Tasks[1].Task.Job)
	if u.Tasks[1].Task != job.Task(5) {
		t.Errorf("a sample is of %v now", u.Tasks[1].Task)
	}
}
