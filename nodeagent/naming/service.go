package naming

import (
	"iter"

	"github.com/musterhq/muster/schema"
)

// Service is a service, and which jobs it picks. It never changes.
type Service struct {
	*schema.DirectoryService

	picks []pick // by job
}

// pick is a job that a service picks.
type pick struct {
	job    Name
	weight int // of each of its tasks, 0 to schema.MaxWeight
}

// Jobs returns which jobs a service picks, by name, and the weight of each of their tasks.
func (s *Service) Jobs() iter.Seq2[Name, int] {
	return func(yield func(Name, int) bool) {
		for _, p := range s.picks {
			if !yield(p.job, p.weight) {
				return
			}
		}
	}
}

// Endpoint is a task that is behind a service.
type Endpoint struct {
	Job    Name
	Weight int // 1 to schema.MaxWeight
	Task   *schema.DirectoryTask
}

// Sending says to which tasks of a service connections are sent.
type Sending int

// The values of Sending. A task counts if it has an address and its weight is above 0.
const (
	// ToReady is the ordinary case: to those that are ready.
	ToReady Sending = iota
	// ToAll is while none is ready, and the service does not refuse then.
	ToAll
	// NoneReady is while none is ready, and the service refuses connections then.
	NoneReady
	// NoTasks is while there are none: connections are refused.
	NoTasks
)

// Endpoints are the tasks to which connections to a service are sent. Whether they have the port
// that a port of the service needs is for the caller to look at.
type Endpoints struct {
	Sending Sending
	Count   int

	snapshot *Snapshot
	service  *Service
}

// Endpoints returns the endpoints of a service. It takes time in proportion to the jobs that the
// service picks.
func (s *Snapshot) Endpoints(v *Service) Endpoints {
	e := Endpoints{Sending: NoTasks, snapshot: s, service: v}
	ready, all := 0, 0
	for _, p := range v.picks {
		if j, ok := s.Job(p.job.User, p.job.Name); ok && p.weight > 0 {
			ready += j.Ready()
			all += j.addressed
		}
	}
	switch {
	case ready > 0:
		e.Sending, e.Count = ToReady, ready
	case all > 0 && v.WhenNoneReady == schema.Refuse:
		e.Sending = NoneReady
	case all > 0:
		e.Sending, e.Count = ToAll, all
	}
	return e
}

// From returns the endpoints, by job and index, without the first skip of them.
func (e Endpoints) From(skip int) iter.Seq[Endpoint] {
	return func(yield func(Endpoint) bool) {
		if e.Count == 0 {
			return
		}
		for _, p := range e.service.picks {
			j, ok := e.snapshot.Job(p.job.User, p.job.Name)
			if !ok || p.weight == 0 {
				continue
			}
			n, tasks := j.Ready(), j.ReadyFrom(skip)
			if e.Sending == ToAll {
				n, tasks = j.addressed, j.addressedFrom(skip)
			}
			if skip >= n {
				skip -= n
				continue
			}
			skip = 0
			for t := range tasks {
				if !yield(Endpoint{p.job, p.weight, t}) {
					return
				}
			}
		}
	}
}
