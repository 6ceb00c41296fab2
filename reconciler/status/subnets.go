package status

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// subnetNote says of a machine that it could give tasks networks of their own, and has no
// addresses for them, in a cell with that network, nil if it has none.
func subnetNote(r *schema.MachineRecord, n *schema.CellNetwork) []string {
	if r.Attributes[schema.HasOwnNetwork] != "true" || !n.HasAddresses() || n.Gives(r.Subnets) {
		return nil
	}
	which := n.Range
	if v4 := (&schema.CellNetwork{Range: n.Range}); n.Range6.IsValid() && (!n.Range.IsValid() || v4.Gives(r.Subnets)) {
		which = n.Range6
	}
	return []string{fmt.Sprintf("no subnet of %s is left for it: no task with a network of its own starts here until the cell's network has a larger range, or smaller subnets, or a machine is forgotten", which)}
}
