package compile

import (
	"sync"
	"time"
)

// Starting a child costs more than most packages do, so one that has nothing to do is kept
// for a while: for the rest of a tree, and, by Config.Idle, for the next one.

// spares are children that have nothing to do. Safe for concurrent use.
type spares struct {
	mu    sync.Mutex // guards what follows
	idle  []*worker
	timer *time.Timer // nil before rest
}

// child returns a child that waits for a package: a spare one, or one that start begins.
func (s *spares) child(start func() (*worker, error)) (*worker, error) {
	for {
		w := s.take()
		switch {
		case w == nil:
			return start()
		case w.waits():
			return w, nil
		}
		w.kill()
	}
}

func (s *spares) take() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle)
	if n == 0 {
		return nil
	}
	w := s.idle[n-1]
	s.idle = s.idle[:n-1]
	return w
}

func (s *spares) put(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, w)
}

// rest keeps one of the children, for so long, and ends the others.
func (s *spares) rest(within time.Duration) {
	if within <= 0 {
		s.keep(0)
		return
	}
	s.keep(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(within, func() { s.keep(0) })
}

// keep ends all but n.
func (s *spares) keep(n int) {
	s.mu.Lock()
	n = min(n, len(s.idle))
	over := s.idle[n:]
	s.idle = s.idle[:n:n]
	s.mu.Unlock()
	for _, w := range over {
		w.close()
	}
}
