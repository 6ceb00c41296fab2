package services

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

// View is what a machine has seen of its cell's directory.
type View struct {
	machine string
	was     *naming.Snapshot
}

// NewView returns the view of a machine that has seen nothing yet.
func NewView(machine string) *View { return &View{machine: machine} }

// Turn is what follows from a new snapshot.
type Turn struct {
	Set     []*Service
	Removed []string // keys
	// Ended are where tasks were reached that are no more, or not there.
	Ended map[netip.AddrPort]struct{}
	// Left are where tasks are reached that were ready and are not any more, or that are no more.
	Left map[netip.AddrPort]struct{}
}

// Turn returns what is different since the snapshot before: of the services in touched, which
// are all that may differ. Of the first snapshot it returns all services, and nothing has ended.
func (v *View) Turn(now *naming.Snapshot, touched []naming.Name) Turn {
	t := Turn{Ended: map[netip.AddrPort]struct{}{}, Left: map[netip.AddrPort]struct{}{}}
	if v.was == nil {
		for s := range now.Services() {
			t.Set = append(t.Set, Of(now, s, v.machine))
		}
		slices.SortFunc(t.Set, func(a, b *Service) int { return cmp.Compare(a.Key, b.Key) })
		v.was = now
		return t
	}
	for _, n := range touched {
		if s, ok := now.Service(n.User, n.Name); ok {
			t.Set = append(t.Set, Of(now, s, v.machine))
		} else {
			t.Removed = append(t.Removed, keyOf(n))
		}
		if s, ok := v.was.Service(n.User, n.Name); ok {
			v.ended(now, s, &t)
		}
	}
	v.was = now
	return t
}

// ended collects where tasks of a service were reached, and are not any more, or are not ready any more.
func (v *View) ended(now *naming.Snapshot, s *naming.Service, into *Turn) {
	for name := range s.Jobs() {
		job, ok := v.was.Job(name.User, name.Name)
		if !ok {
			continue
		}
		for old := range job.Tasks() {
			is, there := now.Task(name.User, name.Name, old.Index)
			if !there {
				is = nil
			}
			into.compare(old, is)
		}
	}
}

// compare collects what a task is not any more, of what it was; is is nil if it is no more.
func (t *Turn) compare(was, is *schema.DirectoryTask) {
	for _, p := range was.Ports {
		stays := is != nil && slices.ContainsFunc(is.Ports, func(q schema.Port) bool { return q.Port == p.Port })
		for at := range reached(was, p.Port) {
			ended := !stays || !is.At(at.Addr())
			if ended {
				t.Ended[at] = struct{}{}
			}
			if was.Ready && (ended || !is.Ready) {
				t.Left[at] = struct{}{}
			}
		}
	}
}

// Alive returns where all tasks of a snapshot are reached, ready or not. It takes time in
// proportion to all tasks.
func Alive(s *naming.Snapshot) map[netip.AddrPort]struct{} {
	out := map[netip.AddrPort]struct{}{}
	for job := range s.Jobs() {
		for t := range job.Tasks() {
			for _, p := range t.Ports {
				for at := range reached(t, p.Port) {
					out[at] = struct{}{}
				}
			}
		}
	}
	return out
}

// reached returns where a port of a task is reached, at each of its addresses.
func reached(t *schema.DirectoryTask, port int) iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		if port < 1 || port >= 1<<16 {
			return
		}
		for a := range t.Addresses() {
			if !yield(netip.AddrPortFrom(a.Unmap(), uint16(port))) {
				return
			}
		}
	}
}

// Of returns a service of a snapshot, as a machine programs it.
func Of(now *naming.Snapshot, v *naming.Service, machine string) *Service {
	s := &Service{
		Key: keyOf(naming.Name{User: v.User, Name: v.Name}), Addresses: v.Addresses,
		Sticky: v.Sticky == schema.StickyClient, PreferLocal: v.Prefer == schema.PreferMachine,
	}
	endpoints := now.Endpoints(v)
	for _, name := range slices.Sorted(maps.Keys(v.Ports)) {
		p := v.Ports[name]
		target := p.Target
		if target == "" {
			target = name
		}
		port := Port{Protocol: TCP, Port: uint16(p.Port)}
		if p.Protocol == schema.UDP {
			port.Protocol = UDP
		}
		for e := range endpoints.From(0) {
			number, ok := e.Task.Ports.Get(target)
			if !ok {
				continue
			}
			for at := range reached(e.Task, number) {
				port.Backends = append(port.Backends, Backend{At: at, Weight: e.Weight, Local: e.Task.Machine == machine})
			}
		}
		s.Ports = append(s.Ports, port)
	}
	return s
}

func keyOf(n naming.Name) string { return n.User + "/" + n.Name }
