package layout

import (
	"maps"
	"slices"
)

// Column is one attribute of all machines, its values numbered.
type Column struct {
	Values []string // the first is "", which stands for none
	ids    map[string]int32
	At     []int32 // value by slot
	shared bool    // with a fork, once: nobody writes to it
	// borrowed says that ids is that of a column which is shared.
	borrowed bool
}

// NewColumn returns the column of an attribute that none of so many machines has.
func NewColumn(machines int32) *Column {
	return &Column{Values: []string{""}, ids: map[string]int32{"": 0}, At: make([]int32, machines)}
}

// Share says that a fork has the column, too. It may be read already by other forks.
func (c *Column) Share() {
	if !c.shared {
		c.shared = true
	}
}

// IsShared reports whether a fork has, or had, the column, too: then it is not to be written to.
func (c *Column) IsShared() bool { return c.shared }

// Set gives a machine a value of the attribute.
func (c *Column) Set(slot int32, value string) {
	for int(slot) >= len(c.At) {
		c.At = append(c.At, 0)
	}
	id, ok := c.ids[value]
	if !ok {
		if c.borrowed {
			c.ids, c.borrowed = maps.Clone(c.ids), false
		}
		id = int32(len(c.Values))
		c.ids[value] = id
		c.Values = append(c.Values, value)
	}
	c.At[slot] = id
}

// ID returns the number of a value; false if no machine ever had it.
func (c *Column) ID(value string) (int32, bool) {
	id, ok := c.ids[value]
	return id, ok
}

// Copied returns a copy of a column that is shared. The names of values are not copied before
// there is a new one.
func (c *Column) Copied() *Column {
	return &Column{Values: slices.Clip(c.Values), ids: c.ids, At: slices.Clone(c.At), borrowed: true}
}

// Members are the machines of each value of a column, as they were once.
type Members struct {
	from  []int32 // in slots, by value; one more than there are
	slots []int32
}

// Members returns the machines by value.
func (c *Column) Members() *Members {
	m := &Members{from: make([]int32, len(c.Values)+1), slots: make([]int32, len(c.At))}
	for _, v := range c.At {
		m.from[v+1]++
	}
	for v := range c.Values {
		m.from[v+1] += m.from[v]
	}
	next := slices.Clone(m.from)
	for slot, v := range c.At {
		m.slots[next[v]] = int32(slot)
		next[v]++
	}
	return m
}

// Of returns the slots of the machines that have a value, in their order.
func (m *Members) Of(value int32) []int32 { return m.slots[m.from[value]:m.from[value+1]] }
