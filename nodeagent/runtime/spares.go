package runtime

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/keeper"
)

// spares hold one keeper ready for the next start, where that is wanted. A start does not wait for
// it: where there is none yet, as of many starts at once, it has a keeper started as ever. None is made while
// tasks start: it would take the processors from these. Its methods may be called from any goroutine.
type spares struct {
	wanted bool
	keeper string // the program
	owner  string // the agent's state directory
	// program returns what the next container is most likely made by, as keeper.Launch has it.
	program func() *os.File
	log     *slog.Logger
	making  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	closed bool
	starts int                // that go on
	stop   context.CancelFunc // of what is being made; nil: nothing is
	spare  *keeper.Spare      // nil: there is none
}

// spareFor is how long one may take to get ready: then the machine has no time for it.
const spareFor = 10 * time.Second

// launch starts the keeper of dir, as keeper.Launch does; executes is that of keeper.Spare.
func (s *spares) launch(dir string, program *os.File, executes bool) (*keeper.Starting, error) {
	s.mu.Lock()
	spare := s.spare
	s.spare = nil
	s.mu.Unlock()
	switch {
	case spare == nil:
	case spare.Fits(dir, program, executes):
		started, err := spare.Launch(dir)
		if err == nil {
			return started, nil
		}
		s.log.Warn("a keeper that waited for a task is gone", "err", err)
	default:
		if err := spare.Close(); err != nil {
			s.log.Warn("cannot end a keeper that waited for a task", "err", err)
		}
	}
	return keeper.Launch(s.keeper, dir, program)
}

// begin begins a start.
func (s *spares) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
}

// end ends a start, and has the next one made, if there is none and no other start goes on.
func (s *spares) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts--
	if !s.wanted || s.closed || s.starts > 0 || s.stop != nil || s.spare != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), spareFor)
	s.stop = cancel
	s.making.Go(func() { s.make(ctx) })
}

// make makes the next one.
func (s *spares) make(ctx context.Context) {
	spare, err := keeper.NewSpare(ctx, s.keeper, s.owner, s.program())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	s.spare, s.stop = spare, nil
	if err != nil && !s.closed {
		s.log.Warn("no keeper waits for the next task, which starts later", "err", err)
	}
}

// close ends what there is, and makes nothing more.
func (s *spares) close() error {
	s.mu.Lock()
	s.closed = true
	if s.stop != nil {
		s.stop()
	}
	s.mu.Unlock()
	s.making.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	spare := s.spare
	if s.spare = nil; spare == nil {
		return nil
	}
	return spare.Close()
}
