package link

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// Directory is the cell's directory, for agents that keep it. Its method is called from any
// goroutine.
type Directory interface {
	// Read begins to read the directory for a machine that has one with the given digests. If
	// it rests, there is nothing for it until the cell has a service, or addresses for tasks.
	Read(machine string, have *schema.DirectoryDigests, rests bool) DirectoryReader
}

// DirectoryReader is an agent's place in the directory. Its methods but Wake are called by one
// goroutine at a time.
type DirectoryReader interface {
	// Wake returns a channel that receives when Next may have something.
	Wake() <-chan struct{}
	// Next takes in which version the agent has acknowledged, 0 for none, and returns what it is
	// to be sent; false if that is nothing.
	Next(acked uint64) (schema.DirectoryUpdate, bool)
	// Close ends the reading.
	Close()
}

// maxPiece is how many bytes of entries are in one message, so that a large directory holds up
// nothing else of the session for long.
const maxPiece = 256 << 10

// read begins to read d for the agent that has said h; nil if it keeps none, or this
// master has none.
func read(d Directory, machine string, h *linkpb.Hello) (*reading, error) {
	if h.GetDirectory() == nil || d == nil {
		return nil, nil
	}
	have, err := linkpb.DecodeDigests(h.GetDirectory().GetDigests())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &reading{DirectoryReader: d.Read(machine, have, h.GetDirectory().GetResting())}, nil
}

// list sends what is new of the directory.
func (c *session) list() error {
	u, ok := c.directory.Next(c.directory.acked)
	if !ok {
		return nil
	}
	if u.Version != 0 {
		for _, m := range pieces(&u) {
			if err := c.stream.Send(&linkpb.MasterMessage{Message: &linkpb.MasterMessage_Directory{Directory: m}}); err != nil {
				return err
			}
		}
	}
	if len(u.Unlisted) > 0 { // after the changes, since it is about an earlier version, and after the view that stops the tasks
		select {
		case <-c.wake:
			if err := c.push(); err != nil {
				return err
			}
		default: // it is sent
		}
		return c.stream.Send(&linkpb.MasterMessage{Message: &linkpb.MasterMessage_Unlisted{Unlisted: linkpb.EncodeUnlisted(u.Unlisted)}})
	}
	return nil
}

// pieces divides an update into messages.
func pieces(u *schema.DirectoryUpdate) []*linkpb.DirectoryChange {
	m := &linkpb.DirectoryChange{Version: u.Version, Removed: u.Removed}
	for _, i := range u.Shards {
		m.Shards = append(m.Shards, uint32(i)) //nolint:gosec // below schema.DirectoryShards
	}
	out, size := []*linkpb.DirectoryChange{m}, 0
	for _, e := range u.Set {
		if size > 0 && size+len(e) > maxPiece {
			m.More = true
			m, size = &linkpb.DirectoryChange{Version: u.Version}, 0
			out = append(out, m)
		}
		m.Set, size = append(m.Set, e), size+len(e)
	}
	return out
}
