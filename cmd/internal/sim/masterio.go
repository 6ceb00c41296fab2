package sim

import (
	"context"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// masterIO is what reconciler/loop has around a master: its store, event log and
// link, and the clock of its host.
type masterIO struct {
	*World
	intended []schema.Event // published when they are stored
}

// Load is that of the store.
func (io *masterIO) Load(ctx context.Context) (map[string][]byte, error) {
	return io.master.store.Load(ctx)
}

// Commit stores writes; the memory's hook decides where the master dies.
func (io *masterIO) Commit(ctx context.Context, writes []model.Write) error {
	w := io.World
	if w.now.Before(w.slow) {
		w.master.busy = w.now.Add(slowCommit)
	}
	w.moved = true
	return w.master.store.Commit(ctx, writes)
}

// cut stores the first of the writes, in transactions as small as the world wants them,
// and returns the last of these, which are left.
func (io *masterIO) cut(ctx context.Context, writes []model.Write) ([]model.Write, error) {
	w := io.World
	for w.cfg.Cut > 0 && len(writes) > w.cfg.Cut {
		for _, batch := range model.Batches(writes[:w.cfg.Cut]) {
			if err := io.Commit(ctx, batch); err != nil {
				return nil, err
			}
			if err := w.master.Stored(batch); err != nil {
				return nil, err
			}
		}
		writes = writes[w.cfg.Cut:]
	}
	return writes, nil
}

// Append logs what has happened.
func (io *masterIO) Append(events []schema.Event) { io.noteEvents(events) }

// Intend keeps what is published once it is stored.
func (io *masterIO) Intend(events []schema.Event) { io.intended = events }

// Settle logs it, unless it could not be stored.
func (io *masterIO) Settle(err error) {
	if err == nil {
		io.noteEvents(io.intended)
	}
}

// Last is asked for by readers, of which a world has none.
func (*masterIO) Last() uint64 { return 0 }

// Push sends a machine its view.
func (io *masterIO) Push(machine string, view schema.View) {
	w := io.World
	w.checkView(machine, &view)
	w.master.version = view.Version
	w.sendView(w.named(machine), view)
}

// now is what the master's host reads: later than the world's time while the master
// waits for its store.
func (io *masterIO) now() time.Time {
	w := io.World
	if w.now.Before(w.master.busy) {
		return w.clock.read(w.master.busy)
	}
	return w.clock.read(w.now)
}
