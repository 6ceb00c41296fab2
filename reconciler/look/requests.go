package look

import (
	"context"
	"sync"

	"github.com/musterhq/muster/reconciler/model"
)

// Requests are those who wait for a look.
type Requests struct {
	asked chan struct{} // holds one while a look is due

	mu      sync.Mutex // guards what follows
	waiting []chan model.Seen
}

// New returns Requests of nobody.
func New() *Requests { return &Requests{asked: make(chan struct{}, 1)} }

// Poke asks for a look and does not wait for it.
func (r *Requests) Poke() {
	select {
	case r.asked <- struct{}{}:
	default: // it is about to
	}
}

// Look asks for a look and returns what it found. It errs when ctx ends first.
func (r *Requests) Look(ctx context.Context) (model.Seen, error) {
	answer := make(chan model.Seen, 1)
	r.mu.Lock()
	r.waiting = append(r.waiting, answer)
	r.mu.Unlock()
	r.Poke()
	select {
	case s := <-answer:
		return s, nil
	case <-ctx.Done():
		r.forget(answer)
		return model.Seen{}, ctx.Err()
	}
}

// forget takes out a request that has no waiter any more.
func (r *Requests) forget(answer chan model.Seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, w := range r.waiting {
		if w == answer {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			return
		}
	}
}

// Asked is ready while a look is due; receiving from it takes that back.
func (r *Requests) Asked() <-chan struct{} { return r.asked }

// Begin is called before a look begins. The function that it returns is called when the
// result has been reported: it answers the requests that came before Begin.
func (r *Requests) Begin() (reported func(model.Seen)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	these := r.waiting
	r.waiting = nil
	return func(s model.Seen) {
		for _, answer := range these {
			answer <- s
		}
	}
}
