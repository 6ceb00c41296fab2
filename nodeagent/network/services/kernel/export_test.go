package kernel

import (
	"errors"
	"net/netip"

	"github.com/musterhq/muster/nodeagent/network/services"
)

// Read returns what the kernel has in the table of a cell: nothing, if that is not there.
func Read(cell string) (services.State, error) {
	state, err := newTable(cell).readWhole()
	if errors.Is(err, errMissing) {
		return state, nil
	}
	return state, err
}

// Have returns what p takes the kernel to have.
func (p *Programmer) Have() services.State { return p.plan.Have() }

// Way is what leads to virtual addresses.
type Way struct{ *way }

// NewWay returns that of a cell.
func NewWay(cell string) Way { return Way{newWay(cell)} }

// Set is way.set.
func (w Way) Set(ranges []netip.Prefix, from netip.Addr) ([]netip.Prefix, error) {
	return w.set(ranges, from)
}

// Name is that of the link.
func (w Way) Name() string { return w.name }

// Close is way.close.
func (w Way) Close() { w.close() }
