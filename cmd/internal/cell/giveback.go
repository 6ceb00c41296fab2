package cell

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A commit may take hundreds of megabytes for a moment: compiled data as it comes, as it is
// stored, and as the step before is kept for what it would have done. Nothing of that lives on, but at
// rest a master allocates so little that its next collection is minutes away, and the runtime keeps what
// it has for as much again. So a master that has come to rest after much work gives it back.
const (
	giveEvery = 5 * time.Second
	// giveIdle is how much a master allocates at most between two looks when it is at rest, in bytes.
	giveIdle = 16 << 20
	// giveAfter is how much it has allocated at least since it last gave back, in bytes: nothing
	// less is worth a collection.
	giveAfter = 64 << 20
)

// giver decides when memory is given back.
type giver struct {
	seen  uint64 // bytes that were allocated ever, at the last look
	given uint64 // at the time of the last gift
}

// due reports whether memory is to be given back now, after allocated bytes ever, of which live were
// found alive by the last collection. So it costs no more collections than there are anyway: those come
// when as much has been allocated as is alive.
func (g *giver) due(allocated, live uint64) bool {
	rest := allocated-g.seen <= giveIdle
	g.seen = allocated
	if !rest || allocated-g.given < max(giveAfter, live) {
		return false
	}
	g.given = allocated
	return true
}

// giveBack gives memory back to the machine when the process has come to rest, until ctx ends.
func giveBack(ctx context.Context) {
	tick := time.NewTicker(giveEvery)
	defer tick.Stop()
	var g giver
	use := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(use)
		if g.due(use[0].Value.Uint64(), use[1].Value.Uint64()) {
			runtime.GC() // of buffers that are kept for their next use: the next collection frees them
			debug.FreeOSMemory()
		}
	}
}
