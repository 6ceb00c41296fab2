package image

import (
	"context"
	"sync"
)

// flights are pieces of work that several callers may wait for: the first starts it,
// and it is cancelled when none of them waits any more.
type flights[T any] struct {
	// drop, if set, is called with what was made when nobody takes it any more.
	drop func(T)

	mu      sync.Mutex // guards what follows
	running map[string]*flight[T]
}

type flight[T any] struct {
	waiting int  // guarded by flights.mu
	ended   bool // likewise
	cancel  context.CancelFunc
	done    chan struct{}
	value   T // once done is closed
	err     error
}

// do returns what work returns, which runs once for all that ask for the same key at
// the same time, in a goroutine of its own. first says that it was started for this call.
func (f *flights[T]) do(ctx context.Context, key string, work func(context.Context) (T, error)) (value T, first bool, err error) {
	f.mu.Lock()
	if f.running == nil {
		f.running = map[string]*flight[T]{}
	}
	one, ok := f.running[key]
	if !ok {
		shared, cancel := context.WithCancel(context.WithoutCancel(ctx))
		one = &flight[T]{cancel: cancel, done: make(chan struct{})}
		f.running[key] = one
		go func() {
			defer cancel()
			one.value, one.err = work(shared)
			f.mu.Lock()
			if f.running[key] == one {
				delete(f.running, key)
			}
			one.ended = true
			close(one.done)
			unwanted := one.waiting == 0
			f.mu.Unlock()
			f.ended(one, unwanted)
		}()
	}
	one.waiting++
	f.mu.Unlock()
	select {
	case <-one.done:
		return one.value, !ok, one.err
	case <-ctx.Done():
	}
	f.mu.Lock()
	one.waiting--
	left := one.waiting == 0
	if left {
		one.cancel()
		if f.running[key] == one {
			delete(f.running, key) // the next one starts anew
		}
	}
	unwanted := left && one.ended
	f.mu.Unlock()
	f.ended(one, unwanted)
	return value, !ok, context.Cause(ctx)
}

// ended drops what a flight has made, if nobody wants it.
func (f *flights[T]) ended(one *flight[T], unwanted bool) {
	if unwanted && one.err == nil && f.drop != nil {
		f.drop(one.value)
	}
}
