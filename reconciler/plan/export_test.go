package plan

import "github.com/musterhq/muster/reconciler/status"

// Moment is the cell as a checkpoint is made of it.
func (c *Cell) Moment() status.DescribeInput { return c.master.Snapshot(c.now) }
