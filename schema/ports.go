package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Port is one port of a task.
type Port struct {
	Name string // as the job declares it
	Port int    // the number that the cell gave it on its machine, 1 to 65535
}

// Ports are the ports of a task, sorted by name, each name once. Several records may share
// them: they are never written once made. Two are compared with slices.Equal.
//
// In JSON they are an object with a number for each name, such as {"http":20001}; null if
// nil, and {} if empty. They are no map since each record and each status of a task has them,
// and a map of one port takes 200 bytes more.
type Ports []Port

// NewPorts returns the ports, which it sorts in place: the list is the caller's no more.
// No two may have one name.
func NewPorts(list ...Port) Ports {
	slices.SortFunc(list, func(a, b Port) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// PortsOf returns the ports with the numbers of m, by name; nil if m is.
func PortsOf(m map[string]int) Ports {
	if m == nil {
		return nil
	}
	list := make([]Port, 0, len(m))
	for name, port := range m {
		list = append(list, Port{name, port})
	}
	return NewPorts(list...)
}

// Get returns the number of the port with a name, and whether there is one.
func (p Ports) Get(name string) (int, bool) {
	i, ok := slices.BinarySearchFunc(p, name, func(port Port, name string) int { return strings.Compare(port.Name, name) })
	if !ok {
		return 0, false
	}
	return p[i].Port, true
}

// MarshalJSON writes an object with a member for each port, sorted by name.
func (p Ports) MarshalJSON() ([]byte, error) {
	if p == nil {
		return []byte("null"), nil
	}
	b := make([]byte, 0, 24*len(p)+2)
	b = append(b, '{')
	for i, port := range p {
		if i > 0 {
			b = append(b, ',')
		}
		if isPlain(port.Name) {
			b = append(append(append(b, '"'), port.Name...), '"')
		} else {
			b = append(b, encode(port.Name)...)
		}
		b = strconv.AppendInt(append(b, ':'), int64(port.Port), 10)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads what a map of numbers by name is read from, in any order.
func (p *Ports) UnmarshalJSON(b []byte) error {
	if list, ok := readPorts(b); ok {
		*p = list
		return nil
	}
	var m map[string]int
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*p = PortsOf(m)
	return nil
}

// readPorts reads what MarshalJSON writes of ports as jobs can have them; false of anything
// else. A master that starts reads as many as there are tasks, and a map of each would be
// made only to be dropped.
func readPorts(b []byte) (Ports, bool) {
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
		return nil, false
	}
	list := make(Ports, 0, 1+bytes.Count(b, []byte{','}))
	for more, rest := true, b[1:len(b)-1]; more; {
		var member []byte
		member, rest, more = bytes.Cut(rest, []byte{','})
		name, number, closed := bytes.Cut(member, []byte(`":`))
		name, opened := bytes.CutPrefix(name, []byte{'"'})
		port, err := strconv.ParseUint(string(number), 10, 16)
		if !opened || !closed || err != nil || !isPlain(name) {
			return nil, false
		}
		p := Port{string(name), int(port)}
		if n := len(list); n > 0 && list[n-1].Name >= p.Name {
			return nil, false
		}
		list = append(list, p)
	}
	return list, true
}

// isPlain reports whether a name has only what names of ports have, all of which means
// itself in JSON.
func isPlain[S string | []byte](name S) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// CheckAddress errs unless s is an IP address, in its canonical form, of one machine.
func CheckAddress(s string) error {
	a, err := netip.ParseAddr(s)
	if err != nil || a.String() != s || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
		return fmt.Errorf("%.80q: want the IP address of one machine, such as 10.1.2.3 or 2001:db8::7", s)
	}
	return nil
}
