package placement

import (
	"maps"
	"slices"
)

// column is one attribute of all machines, its values numbered.
type column struct {
	values []string // the first is "", which stands for none
	ids    map[string]int32
	at     []int32 // value by slot
	shared bool    // with a fork, once: nobody writes to it
	// borrowed says that ids is that of a column which is shared.
	borrowed bool
}

func (c *column) set(slot int32, value string) {
	for int(slot) >= len(c.at) {
		c.at = append(c.at, 0)
	}
	id, ok := c.ids[value]
	if !ok {
		if c.borrowed {
			c.ids, c.borrowed = maps.Clone(c.ids), false
		}
		id = int32(len(c.values))
		c.ids[value] = id
		c.values = append(c.values, value)
	}
	c.at[slot] = id
}

// copied returns a copy of a column that is shared. The names of values are not copied before
// there is a new one.
func (c *column) copied() *column {
	return &column{values: slices.Clip(c.values), ids: c.ids, at: slices.Clone(c.at), borrowed: true}
}
