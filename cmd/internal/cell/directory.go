package cell

import (
	"time"

	"github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/naming"
	"github.com/musterhq/muster/schema"
)

// settle is how long requests that tasks have got are given to be answered, once no more are sent to these.
const settle = 500 * time.Millisecond

// otherMasters is how long the agents that are connected to other masters are given to know what
// those of this one have acknowledged. These have the same changes a moment later, and no master
// knows what the agents of another one have acknowledged.
const otherMasters = time.Second

// directory is the cell's directory, for the link.
type directory struct{ *naming.Directory }

// Read begins to read the directory for a machine.
func (d directory) Read(machine string, have *schema.DirectoryDigests, rests bool) link.DirectoryReader {
	return d.Directory.Read(machine, have, rests)
}
