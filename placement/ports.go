package placement

import (
	"hash/fnv"
	"slices"

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

// hasShared reports whether none of the tasks in an alloc has a port in the network that they
// share whose number the class asks for.
func (s *Snapshot) hasShared(c *class, id int32) bool {
	if len(c.shared) == 0 {
		return true
	}
	for t := s.nodes.At(s.tasks.At(id).slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		if h := s.tasks.At(t); h.inAlloc == id && slices.ContainsFunc(c.shared, func(n uint16) bool { return slices.Contains(h.shared, n) }) {
			return false
		}
	}
	return true
}

// portsOf returns how many ports of the machine's range the class takes.
func (s *Snapshot) portsOf(c *class, slot int32) int32 {
	n := c.ports
	if len(c.numbers) == 0 {
		return n
	}
	r := s.nodes.At(slot).Ports
	for _, p := range c.numbers {
		if int(p) >= r.First && int(p) <= r.Last {
			n++
		}
	}
	return n
}

// hasNumbers reports whether nobody on the machine has a port whose number the
// class asks for.
func (s *Snapshot) hasNumbers(c *class, slot int32) bool {
	for _, p := range c.numbers {
		if _, taken := slices.BinarySearch(s.nodes.At(slot).taken, p); taken {
			return false
		}
	}
	return true
}

// numbersWithout reports the same for when some of its tasks have gone.
func (s *Snapshot) numbersWithout(c *class, slot int32, gone []int32) bool {
	if len(c.numbers) == 0 || s.hasNumbers(c, slot) {
		return true
	}
	n := s.nodes.At(slot)
	for _, p := range c.numbers {
		if slices.Contains(n.BusyPorts, int(p)) {
			return false
		}
		for id := n.first; id >= 0; id = s.tasks.At(id).nextHere {
			if slices.Contains(s.tasks.At(id).ports, p) && !slices.Contains(gone, id) {
				return false
			}
		}
	}
	return true
}

// choosePorts gives each name the number that it asks for, or a free port,
// searching from a start that depends on the task and the seed, so that a port
// that was just released or refused is rarely the next one given.
func (n *node) choosePorts(a *Ask, seed uint64) schema.Ports {
	out := make([]schema.Port, 0, len(a.Ports))
	for _, name := range a.Ports {
		out = append(out, schema.Port{Name: name, Port: a.PortNumbers[name]}) // 0 of one that may have any
	}
	h := fnv.New64a()
	h.Write([]byte(a.Name.String()))
	count := uint64(n.Ports.Last - n.Ports.First + 1)
	at := (h.Sum64() ^ seed) % count
	for i := range out {
		for out[i].Port == 0 {
			port := n.Ports.First + int(at)
			at = (at + 1) % count
			chosen := slices.ContainsFunc(out, func(p schema.Port) bool { return p.Port == port })
			if _, taken := slices.BinarySearch(n.taken, uint16(port)); !taken && !chosen {
				out[i].Port = port
			}
		}
	}
	return schema.NewPorts(out...)
}
