package status

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Sends says to which tasks connections to a service are sent.
type Sends string

// The values of Sends.
const (
	// SendsToReady is the ordinary case.
	SendsToReady Sends = "to those that are ready"
	// SendsToAll is while none is ready, and the service does not refuse then.
	SendsToAll Sends = "to all, since none is ready"
	// SendsNowhere is while connections are refused: there is no task, or none is ready and the service
	// says whenNoneReady "refuse".
	SendsNowhere Sends = "nowhere: they are refused"
)

// Serving is a service, and how its tasks are.
type Serving struct {
	Name      string                        `json:"name"`   // user/name
	Domain    string                        `json:"domain"` // what it is called in DNS
	Addresses []netip.Addr                  `json:"addresses"`
	Ports     map[string]schema.ServicePort `json:"ports"`
	Selector  string                        `json:"selector"`
	Ready     int                           `json:"ready"` // endpoints that are ready
	All       int                           `json:"all"`   // endpoints
	Sends     Sends                         `json:"sends"`
	Reason    string                        `json:"reason"` // what is wrong with it, "" if nothing is
}

// ServingEndpoint is a task that a service picks.
type ServingEndpoint struct {
	Endpoint
	Weight int `json:"weight"`
	// Sent are the ports of the service, by name, at which connections are sent to it.
	Sent []string `json:"sent"`
	// Left says why no connections are sent to it, or not at all ports; "" if they are.
	Left string `json:"left"`
}

// Unserving is a machine whose own connections to services are not, or not as they should be, sent on.
type Unserving struct {
	Machine string `json:"machine"`
	Reason  string `json:"reason"`
}

// ServiceExplanation is what is behind a service, and why.
type ServiceExplanation struct {
	Serving
	Sticky        string   `json:"sticky,omitempty"`
	Prefer        string   `json:"prefer,omitempty"`
	WhenNoneReady string   `json:"whenNoneReady"`
	Jobs          []string `json:"jobs"` // that the selector picks
	// Endpoints are all tasks of these jobs.
	Endpoints []ServingEndpoint `json:"endpoints"`
	Machines  []Unserving       `json:"machines"`
}

// picked is a job that a service picks.
type picked struct {
	part   *Part
	weight int // of each of its tasks
}

// picks are the jobs that a service picks, by name.
func (s *Snapshot) picks(v *ServiceStatus) iter.Seq[picked] {
	selector, err := schema.ParseSelector(v.Selector)
	if err != nil {
		return func(func(picked) bool) {} // it was checked when it was declared
	}
	weights := make([]schema.Selector, len(v.Weights))
	for i, w := range v.Weights {
		weights[i], _ = schema.ParseSelector(w.Selector)
	}
	user := v.User + "/"
	from, _ := slices.BinarySearchFunc(s.parts, user, func(p *Part, name string) int { return model.CompareNames(p.Job.Name, name) })
	return func(yield func(picked) bool) {
		for _, p := range s.parts[from:] {
			if !strings.HasPrefix(p.Job.Name, user) {
				return
			}
			if p.Job.Kind == schema.Allocs || !selector.Matches(p.Job.Labels) {
				continue
			}
			weight := schema.DefaultWeight
			if i := slices.IndexFunc(weights, func(w schema.Selector) bool { return w.Matches(p.Job.Labels) }); i >= 0 {
				weight = v.Weights[i].Weight
			}
			if !yield(picked{p, weight}) {
				return
			}
		}
	}
}

// Serving returns how a service of the snapshot stands. It takes time in proportion to the jobs of its user
// and the tasks that it picks.
func (s *Snapshot) Serving(v *ServiceStatus) Serving {
	out := Serving{
		Name: v.Short(), Domain: s.domain(v), Addresses: slices.Concat([]netip.Addr{}, v.Addresses), Ports: v.Ports, Selector: v.Selector,
		Sends: SendsNowhere, Reason: v.Reason,
	}
	jobs := 0
	for p := range s.picks(v) {
		jobs++
		for i := range p.part.Tasks {
			e := EndpointOf(p.part.Job, &p.part.Tasks[i])
			if e == nil || v.unreachable(e) != "" || p.weight == 0 || !v.reaches(e) || p.part.Tasks[i].over() {
				continue
			}
			if out.All++; e.Ready {
				out.Ready++
			}
		}
	}
	switch {
	case out.Ready > 0:
		out.Sends = SendsToReady
	case out.All > 0 && v.WhenNoneReady != schema.Refuse:
		out.Sends = SendsToAll
	}
	out.Reason = cmp.Or(out.Reason, out.trouble(jobs))
	return out
}

// trouble says what is wrong with a service that picks so many jobs.
func (s *Serving) trouble(jobs int) string {
	switch {
	case jobs == 0:
		return "no job of its user has labels that match " + s.Selector
	case s.All == 0:
		return "none of the tasks that it picks is on a machine and has its ports"
	case s.Ready == 0:
		return "no task is ready"
	}
	return ""
}

// over reports whether the task has ended, so that it is nowhere.
func (t *TaskStatus) over() bool { return t.State == TaskDone || t.State == TaskDead }

// targets are the ports of a service, by name, with the names of the ports of tasks that they lead to.
func (v *ServiceStatus) targets() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(v.Ports)) {
			if !yield(name, cmp.Or(v.Ports[name].Target, name)) {
				return
			}
		}
	}
}

// reaches reports whether an endpoint has a port that one of the service leads to.
func (v *ServiceStatus) reaches(e *Endpoint) bool {
	for _, target := range v.targets() {
		if _, ok := e.Ports.Get(target); ok {
			return true
		}
	}
	return false
}

// unreachable says why no machine could send connections to an endpoint; "" if they can. An address such
// as 127.0.0.1 is another machine's own there, so that no virtual address leads to it.
func (v *ServiceStatus) unreachable(e *Endpoint) string {
	at := e.Addresses()
	switch {
	case e.Address == "":
		return noAddress
	case len(v.Addresses) == 0:
		return ""
	case len(at) == 0 || !at[0].IsGlobalUnicast():
		return "its address " + e.Address + " means something else on each machine: start its agent with --address"
	case !slices.ContainsFunc(v.Addresses, func(a netip.Addr) bool { return hasFamily(at, a) }):
		return "its address " + e.Address + " is not of the family of the service's: " + v.Addresses[0].String()
	}
	return ""
}

// hasFamily reports whether one of some addresses is of the family of another.
func hasFamily(list []netip.Addr, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(o netip.Addr) bool { return o.Unmap().Is4() == a.Is4() })
}

// apart are the virtual addresses that do not lead to an endpoint: it has none of their family.
func (s *Serving) apart(e *Endpoint) []string {
	var out []string
	for _, a := range s.Addresses {
		if !hasFamily(e.Addresses(), a) {
			out = append(out, a.String())
		}
	}
	return out
}

// domain returns what a service is called in DNS.
func (s *Snapshot) domain(v *ServiceStatus) string {
	domain := schema.DefaultDomain
	if n := s.Network(); n != nil && n.Domain != "" {
		domain = n.Domain
	}
	return v.Name + "." + v.User + ".svc." + v.Cell + "." + domain
}

// Service returns a service by user/name; nil if there is none.
func (s *Snapshot) Service(name string) *ServiceStatus {
	all := s.Services()
	i := slices.IndexFunc(all, func(v *ServiceStatus) bool { return v.Short() == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// ExplainService returns what is behind a service, and why. Behind has since when machines have not
// acknowledged what has changed, as of now.
func (s *Snapshot) ExplainService(v *ServiceStatus, behind map[string]time.Time, now time.Time) *ServiceExplanation {
	out := &ServiceExplanation{
		Serving: s.Serving(v), Sticky: v.Sticky, Prefer: v.Prefer, WhenNoneReady: cmp.Or(v.WhenNoneReady, schema.SendAnyway),
		Jobs: []string{}, Endpoints: []ServingEndpoint{}, Machines: s.unserving(behind, now),
	}
	for p := range s.picks(v) {
		out.Jobs = append(out.Jobs, p.part.Job.Name)
		for i := range p.part.Tasks {
			out.Endpoints = append(out.Endpoints, out.endpoint(v, p, &p.part.Tasks[i]))
		}
	}
	return out
}

// Concerns returns which entries of the directory, by key, say where connections to a service go: its own, and
// the tasks of jobs that it picks, or that are no more.
func (s *Snapshot) Concerns(v *ServiceStatus) func(key string) bool {
	own, tasks := (&schema.DirectoryEntry{Service: &v.DirectoryService}).Key(), "tasks/"+v.User+"/"
	jobs := map[string]bool{}
	for p := range s.picks(v) {
		jobs[p.part.Job.Name] = true
	}
	return func(key string) bool {
		rest, ok := strings.CutPrefix(key, tasks)
		name, _, _ := strings.Cut(rest, "/")
		job := v.User + "/" + name
		return key == own || ok && (jobs[job] || s.Part(job) == nil)
	}
}

// endpoint returns a task that the service picks.
func (x *ServiceExplanation) endpoint(v *ServiceStatus, p picked, t *TaskStatus) ServingEndpoint {
	e := ServingEndpoint{Weight: p.weight, Sent: []string{}}
	e.Name, e.Labels, e.Machine, e.Address, e.Address6, e.Ports = t.Name, p.part.Job.Labels, t.Machine, t.Address, t.Address6, t.Ports
	if of := EndpointOf(p.part.Job, t); of != nil {
		e.Endpoint = *of
	}
	var missing []string
	for name, target := range v.targets() {
		if _, ok := t.Ports.Get(target); ok {
			e.Sent = append(e.Sent, name)
		} else {
			missing = append(missing, target)
		}
	}
	switch {
	case t.Machine == "" || t.over():
		e.Left = cmp.Or(t.Reason, "it is "+string(t.State))
	case len(e.Sent) == 0:
		e.Left = "it has no port " + strings.Join(missing, " and none ")
	case v.unreachable(&e.Endpoint) != "":
		e.Left = v.unreachable(&e.Endpoint)
	case p.weight == 0:
		e.Left = "its weight is 0"
	case !e.Ready && x.Sends != SendsToAll:
		e.Left = "it is not ready: " + e.Reason
	case len(missing) > 0:
		e.Left = "it has no port " + strings.Join(missing, " and none ")
		return e
	default:
		return e
	}
	e.Sent = []string{}
	return e
}

// unserving lists the machines that do not send connections on as they should.
func (s *Snapshot) unserving(behind map[string]time.Time, now time.Time) []Unserving {
	out := []Unserving{}
	for _, m := range s.Machines() {
		since, late := behind[m.Name]
		switch {
		case m.Attributes[schema.HasServices] != "true":
			out = append(out, Unserving{m.Name, "cannot send: " + m.cannotServe()})
		case m.Health != string(model.HealthUp):
			out = append(out, Unserving{m.Name, "is " + m.Health + ", and sends as it did last"})
		case late:
			out = append(out, Unserving{m.Name, "has not acknowledged what has changed, for " + now.Sub(since).Round(time.Millisecond).String()})
		}
	}
	return out
}

// cannotServe says why a machine sends nothing to services.
func (m *MachineStatus) cannotServe() string {
	const mark = "services: "
	for _, n := range m.Notes {
		if _, why, ok := strings.Cut(n, mark); ok {
			return why
		}
	}
	return "its agent is of an earlier release"
}
