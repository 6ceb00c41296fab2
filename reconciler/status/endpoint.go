package status

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Endpoint is where a task that has ports is reached.
type Endpoint struct {
	Name    string            `json:"name"`    // of the task: user/job/index
	Labels  map[string]string `json:"labels"`  // of its job, as JobStatus has them
	Machine string            `json:"machine"` // that it is on
	Address string            `json:"address"` // its own, or that of the machine; "" if that is not known
	// Address6 is the task's own of IPv6 if it has one of IPv4, too.
	Address6 string       `json:"address6,omitempty"`
	Ports    schema.Ports `json:"ports"`
	// Ready says that it runs, that its health check passes if it has one, and that it is
	// not being stopped: requests may be sent to it.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason"` // why it is not ready, "" if it is
}

// noAddress is the reason of an endpoint whose machine has no address.
const noAddress = "the address of its machine is not known: its agent is of an earlier release, or has no route to the master"

// Addresses returns where it is reached: none if that is not known, at most one of IPv4 and one of IPv6.
func (e *Endpoint) Addresses() []netip.Addr {
	var out []netip.Addr
	for _, text := range []string{e.Address, e.Address6} {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// EndpointOf returns the endpoint of a task of a job; nil for a task without a machine, or
// without ports.
func EndpointOf(j *JobStatus, t *TaskStatus) *Endpoint {
	if j == nil || t == nil || t.Machine == "" || len(t.Ports) == 0 {
		return nil
	}
	e := &Endpoint{Name: t.Name, Labels: j.Labels, Machine: t.Machine, Address: t.Address, Address6: t.Address6, Ports: t.Ports}
	switch {
	case t.Works():
		if e.Ready = t.Address != ""; !e.Ready {
			e.Reason = noAddress
		}
	case t.Reason != "":
		e.Reason = t.Reason
	default:
		e.Reason = "it is " + string(t.State)
	}
	return e
}

// Works reports whether the task runs, with a health check that passes if it has one, and is not
// being stopped.
func (t *TaskStatus) Works() bool {
	return t.State == TaskRunning && t.Health != schema.Unhealthy && t.Health != schema.HealthUnknown
}

// Equal reports whether two endpoints are the same to those who use them.
func (e *Endpoint) Equal(o *Endpoint) bool {
	return e.Name == o.Name && e.Machine == o.Machine && e.Address == o.Address && e.Address6 == o.Address6 && e.Ready == o.Ready && e.Reason == o.Reason &&
		slices.Equal(e.Ports, o.Ports) && maps.Equal(e.Labels, o.Labels)
}

// Endpoints are those of all tasks, by name.
func (s *Snapshot) Endpoints() iter.Seq[*Endpoint] {
	return func(yield func(*Endpoint) bool) {
		for _, p := range s.parts {
			for i := range p.Tasks {
				if e := EndpointOf(p.Job, &p.Tasks[i]); e != nil && !yield(e) {
					return
				}
			}
		}
	}
}

// PicksEndpoint reports whether g picks the endpoint of a task of a job.
func (g Group) PicksEndpoint(j *JobStatus, e *Endpoint) bool {
	return g.PicksTask(j, &TaskStatus{Name: e.Name, Machine: e.Machine})
}
