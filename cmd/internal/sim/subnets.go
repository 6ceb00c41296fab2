package sim

import (
	"maps"
	"net/netip"
	"slices"
)

// checkSubnets: no address for tasks is of two machines.
func (w *World) checkSubnets() {
	of := map[netip.Prefix]string{}
	machines := w.master.state.Machines
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		for _, s := range slices.Concat(machines[name].Subnets, machines[name].Leaving) {
			for other, has := range of {
				if other.Overlaps(s) {
					w.violate("subnet %s is of %s, and %s of %s", s, name, other, has)
				}
			}
			of[s] = name
		}
	}
}
