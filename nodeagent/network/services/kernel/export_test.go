package kernel

import "github.com/musterhq/muster/nodeagent/network/services"

// Read returns what the kernel has in the table of a cell.
func Read(cell string) (services.State, error) { return newTable(cell).readWhole() }

// Have returns what p takes the kernel to have.
func (p *Programmer) Have() services.State { return p.plan.Have() }
