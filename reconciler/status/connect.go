package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Connecting is who may connect to the tasks of a job, and to whom they may, as far as policies
// refuse that. Only tasks with networks of their own are meant.
type Connecting struct {
	// Policy says in words who may connect to its tasks: its own policy, or the cell's.
	Policy string `json:"policy,omitempty"` // left out if everyone may
	// Refuses are the jobs whose tasks it refuses, and RefusedBy those that refuse its own.
	Refuses   []string `json:"refuses,omitempty"`
	RefusedBy []string `json:"refusedBy,omitempty"`
	// Unenforced are the machines of its tasks that refuse nobody all the same, and EveryPort
	// those that admit who is admitted at some of its ports at all of them.
	Unenforced []string `json:"unenforced,omitempty"`
	EveryPort  []string `json:"everyPort,omitempty"`
}

// connecting returns who may connect to a job, which has tasks; nil if there is nothing to say.
func (in *DescribeInput) connecting(job schema.JobName, tasks []TaskStatus) *Connecting {
	network := in.desired().Policy.Network
	self := in.State.Runs(job)
	if self == nil || !self.OwnNetwork(network) {
		return nil
	}
	var out Connecting
	mine := network.PolicyOf(self.Policy)
	switch {
	case mine != nil && self.Policy == nil:
		out.Policy = "nobody: the cell's network.policy is closed, and the job has no policy"
	case mine != nil:
		out.Policy = mine.String()
	}
	for i := range tasks {
		m := in.State.Machines[tasks[i].Machine]
		switch {
		case mine == nil || m == nil:
		case m.Attributes[schema.HasPolicies] != "true":
			out.Unenforced = withName(out.Unenforced, m.Name)
		case len(mine.Ports()) > 0 && m.Attributes[schema.HasPolicyPorts] != "true":
			out.EveryPort = withName(out.EveryPort, m.Name)
		}
	}
	labels := labelsOf(job, self)
	for _, name := range slices.SortedFunc(maps.Keys(in.State.Jobs), schema.JobName.Compare) {
		other := in.State.Runs(name)
		if other == nil || other.Kind == schema.Allocs || !other.OwnNetwork(network) {
			continue
		}
		if !mine.Admits(job.User, name.User, labelsOf(name, other)) {
			out.Refuses = append(out.Refuses, name.Short())
		}
		if name != job && !network.PolicyOf(other.Policy).Admits(name.User, job.User, labels) {
			out.RefusedBy = append(out.RefusedBy, name.Short())
		}
	}
	if out.Policy == "" && out.RefusedBy == nil {
		return nil
	}
	return &out
}

// maxConnecting is how many jobs a line lists.
const maxConnecting = 10

// connecting says who may connect.
func (l *lines) connecting(c *Connecting) {
	if c == nil {
		return
	}
	list := func(jobs []string) string {
		text := strings.Join(jobs[:min(len(jobs), maxConnecting)], ", ")
		if more := len(jobs) - maxConnecting; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return text
	}
	l.sayIf("  who may connect: %s", c.Policy)
	l.sayIf("  its policy refuses connections of: %s", list(c.Refuses))
	l.sayIf("  that is not enforced on machines without network.policy, until the tasks are elsewhere: %s", list(c.Unenforced))
	l.sayIf("  its policy holds for every port on machines without network.policyPorts, until the tasks are elsewhere: %s", list(c.EveryPort))
	l.sayIf("  it cannot connect to these, whose policy refuses it: %s", list(c.RefusedBy))
}

func withName(list []string, name string) []string {
	if slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}
