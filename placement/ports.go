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
