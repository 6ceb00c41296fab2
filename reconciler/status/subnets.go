package status

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
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

// listed returns subnets as a text that can be compared; "" of none.
func listed(lists ...[]netip.Prefix) string {
	var out []byte
	for _, list := range lists {
		for _, s := range list {
			out = append(s.AppendTo(out), ' ')
		}
	}
	return string(out)
}

// addressesOf returns which addresses tasks on a machine, nil if it is not known, may have: those of
// its subnets, and of what they were before.
func addressesOf(r *schema.MachineRecord) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		contains := func(s netip.Prefix) bool { return s.Contains(a) }
		return r != nil && (slices.ContainsFunc(r.Subnets, contains) || slices.ContainsFunc(r.Leaving, contains))
	}
}

// ownAddresses returns the addresses of a task on a machine that it may have, as TaskStatus has them.
func ownAddresses(n *schema.TaskNetwork, r *schema.MachineRecord) (first, second string) {
	may := addressesOf(r)
	for _, a := range n.At() {
		switch {
		case !may(a):
		case first == "":
			first = a.String()
		case second == "" && a.Is6() && strings.Contains(first, "."):
			second = a.String()
		}
	}
	return first, second
}

// foreignNote says of a machine that it reports tasks at addresses that it has not: nobody is sent
// there. h is its last report, nil if there is none.
func foreignNote(r *schema.MachineRecord, h *model.LastReport) []string {
	if h == nil {
		return nil
	}
	has := addressesOf(r)
	var first string
	count := 0
	for i := range h.Report.Tasks {
		t := &h.Report.Tasks[i]
		foreign := slices.IndexFunc(t.Own.At(), func(a netip.Addr) bool { return !has(a) })
		if t.State == schema.Dead || foreign < 0 {
			continue
		}
		if count++; first == "" {
			first = fmt.Sprintf("%s at %s", t.Task.Short(), t.Own.At()[foreign])
		}
	}
	switch count {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("it reports an address that is of none of its subnets, of %s: it is not used", first)}
	}
	return []string{fmt.Sprintf("it reports addresses that are of none of its subnets, of %d tasks, such as %s: they are not used", count, first)}
}
