package status

import (
	"net/netip"
	"strings"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// ServiceStatus is a service as it is declared, and where it is reached.
type ServiceStatus struct {
	schema.DirectoryService
	// Reason says why it has no virtual address, "" if it has one.
	Reason string `json:"reason,omitempty"`
}

// Served is what a Snapshot has of a cell's network. It is not written to.
type Served struct {
	Network  *schema.CellNetwork `json:"network,omitempty"`
	Services []*ServiceStatus    `json:"services"` // by user and name
}

// services is what there is Served of at one moment.
type services struct {
	desired   *intent.Desired
	addressed uint64
	served    *Served
}

// of returns what is Served of a cell: the value of before if nothing has changed.
func (k *services) of(desired *intent.Desired, s *model.State) *Served {
	if k.desired == desired && k.addressed == s.Addressed {
		return k.served
	}
	out := &Served{desired.Policy.Network, make([]*ServiceStatus, len(desired.Services))}
	for i, spec := range desired.Services {
		x := &ServiceStatus{DirectoryService: schema.DirectoryService{ServiceSpec: *spec}}
		if r := s.Services[spec.Short()]; r != nil {
			x.Addresses = r.Addresses
		} else {
			x.Reason = withoutAddress(desired.Policy.Network, len(s.Services))
		}
		out.Services[i] = x
	}
	*k = services{desired, s.Addressed, out}
	return out
}

// withoutAddress says why a service of a cell with a network, which may be nil, has no
// address, where so many services have one.
func withoutAddress(n *schema.CellNetwork, have int) string {
	var of []string
	room := false
	if n != nil {
		for _, p := range []netip.Prefix{n.Services, n.Services6} {
			if p.IsValid() {
				of = append(of, p.String())
				room = room || have < 1<<min(p.Addr().BitLen()-p.Bits(), 30)-2
			}
		}
	}
	switch ranges := strings.Join(of, " or "); {
	case len(of) == 0:
		return "the cell has no addresses for services: add network: services: \"10.80.0.0/16\" to it"
	case room:
		return "it is about to get an address of " + ranges
	default:
		return "no address of " + ranges + " is left"
	}
}
