package placement

import (
	"slices"

	"github.com/musterhq/muster/placement/ports"
	"github.com/musterhq/muster/schema"
)

// numbersOf returns the numbers that an ask's ports ask for, sorted; nil if none
// does.
func numbersOf(a *Ask) []uint16 {
	var list []uint16
	for _, name := range a.Ports {
		if p, asks := a.PortNumbers[name]; asks {
			list = append(list, uint16(p))
		}
	}
	slices.Sort(list)
	return list
}

// narrow returns numbers of ports as the snapshot holds them; nil for none.
func narrow(numbers []int) (list []uint16) {
	for _, n := range numbers {
		list = append(list, uint16(n))
	}
	return list
}

// choosePorts gives the ask's ports numbers on a machine: those that it asks for, else free ones that are none of
// those for which the machine is held.
func (s *Snapshot) choosePorts(c *class, a *Ask, slot int32, seed uint64) schema.Ports {
	n := s.nodes.At(slot)
	book := &n.ports
	if s.rows.At(slot).heldAt >= 0 {
		if h := s.holdOn(slot); h != nil && h.c != c && len(h.c.numbers) > 0 {
			with := n.ports
			with.Detach()
			for _, p := range h.c.numbers {
				with.Take(int(p))
			}
			if with.Free(n.Ports.First, n.Ports.Last) >= c.ports {
				book = &with
			}
		}
	}
	return a.choosePorts(book, n.Ports, seed)
}

// choosePorts gives each name the number that it asks for, or a free port of the machine.
func (a *Ask) choosePorts(on *ports.Book, of schema.PortRange, seed uint64) schema.Ports {
	numbers := make([]int, 0, len(a.Ports))
	for _, name := range a.Ports {
		numbers = append(numbers, a.PortNumbers[name]) // 0 of one that may have any
	}
	on.Choose(numbers, of.First, of.Last, a.Name.String(), seed)
	out := make([]schema.Port, 0, len(a.Ports))
	for i, name := range a.Ports {
		out = append(out, schema.Port{Name: name, Port: numbers[i]})
	}
	return schema.NewPorts(out...)
}
