package quota

import (
	"math"
	"testing"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// Two jobs that each ask for more than half of what can be counted must not add
// up to little.
func TestAdmitDoesNotOverflow(t *testing.T) {
	t.Parallel()
	job := func(name string) intent.DesiredJob {
		return intent.DesiredJob{Job: &schema.Job{
			Name: name, User: "u", Cell: "c", Kind: schema.Service, Priority: 200, Tasks: 1,
			Task: schema.TaskSpec{Resources: schema.TaskResources{Resources: schema.Resources{RAMBytes: math.MaxInt64/2 + 10}}},
		}}
	}
	d := intent.Desired{
		Jobs:   map[schema.JobName]intent.DesiredJob{},
		Quotas: []schema.Quota{{Name: "q", User: "u", Cell: "c", Band: schema.BandProduction, Resources: schema.Resources{RAMBytes: math.MaxInt64}, Tasks: 10}},
		Policy: schema.Cell{Name: "c", Quota: "on"},
	}
	for _, name := range []string{"a", "b"} {
		j := job(name)
		d.Jobs[j.Job.ID()] = j
	}
	out := Admit(Input{Desired: d})
	if len(out.Rejected) != 1 || out.Rejected[schema.JobName{Cell: "c", User: "u", Job: "b"}] == nil {
		t.Errorf("rejected: %v, want b alone", out.Rejected)
	}
}
