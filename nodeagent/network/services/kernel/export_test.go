package kernel

import (
	"errors"

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
