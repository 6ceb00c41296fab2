package placement

// column is one attribute of all machines, its values numbered.
type column struct {
	values []string // the first is "", which stands for none
	ids    map[string]int32
	at     []int32 // value by slot
	shared bool    // with a fork, once: nobody writes to it
}

func (c *column) set(slot int32, value string) {
	for int(slot) >= len(c.at) {
		c.at = append(c.at, 0)
	}
	id, ok := c.ids[value]
	if !ok {
		id = int32(len(c.values))
		c.ids[value] = id
		c.values = append(c.values, value)
	}
	c.at[slot] = id
}
