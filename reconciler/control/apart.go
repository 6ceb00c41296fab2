package control

import (
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// keepApart remembers, in the records of both, that a task of a job made one of another wait
// for the processors of a machine. An agent is believed of tasks that its machine has, and of those
// that decision 0048 is about.
func (s pass) keepApart(noisy schema.JobName, machine string, o *schema.Overload) {
	suffers := s.Task(o.Suffers)
	if suffers == nil || suffers.Machine != machine || noisy == o.Suffers.JobName {
		return
	}
	if data := s.Data(suffers.Data); !data.Priority.Prod() || data.Class() != schema.ClassLatencySensitive {
		return
	}
	a := schema.Apart{Job: noisy, Suffers: true, Machine: machine, Message: o.Message, Until: s.Now.Add(facts.ApartFor)}
	s.addApart(o.Suffers.JobName, a)
	a.Job, a.Suffers = o.Suffers.JobName, false
	s.addApart(noisy, a)
}

func (s pass) addApart(job schema.JobName, a schema.Apart) {
	if was := s.Job(job); was != nil {
		r := *was
		r.Apart = withApart(was.Apart, a, s.Now)
		s.SetJob(job, &r)
	}
}

// withApart returns a list with a in place of what it has of the same job, without what is over,
// and without those that end first of more than schema.MaxApart.
func withApart(list []schema.Apart, a schema.Apart, now time.Time) []schema.Apart {
	out := slices.DeleteFunc(slices.Clone(list), func(o schema.Apart) bool {
		return o.Job == a.Job || !facts.Ahead(now, o.Until, facts.ApartFor)
	})
	out = append(out, a)
	slices.SortStableFunc(out, func(x, y schema.Apart) int { return x.Until.Compare(y.Until) })
	return out[max(0, len(out)-schema.MaxApart):]
}
