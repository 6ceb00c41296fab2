package link

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/musterhq/muster/schema/linkpb"
)

// openings are the streams of one kind that agents were asked for and have not
// opened yet. Its methods may be called at any time from anywhere.
type openings[T io.Closer] struct {
	mu  sync.Mutex // guards all
	all map[string]opening[T]
}

// opening is one of them.
type opening[T io.Closer] struct {
	machine  string
	attached chan T // holds one
}

// ask asks for a stream, with the message that is made of its id, and waits until
// the agent has opened it.
func (o *openings[T]) ask(ctx context.Context, c *session, message func(id string) *linkpb.MasterMessage) (stream T, err error) {
	id := rand.Text()
	p := opening[T]{machine: c.machine, attached: make(chan T, 1)}
	o.mu.Lock()
	if o.all == nil {
		o.all = map[string]opening[T]{}
	}
	o.all[id] = p
	o.mu.Unlock()
	if stream, err = p.wait(ctx, c, message(id)); err == nil {
		return stream, nil
	}
	o.mu.Lock()
	delete(o.all, id)
	o.mu.Unlock()
	select {
	case late := <-p.attached:
		_ = late.Close() // nobody has seen it
	default:
	}
	return stream, err
}

func (p opening[T]) wait(ctx context.Context, c *session, m *linkpb.MasterMessage) (stream T, err error) {
	timeout := time.NewTimer(attachTimeout)
	defer timeout.Stop()
	send := c.open
	for {
		select {
		case send <- m:
			send = nil
		case stream = <-p.attached:
			return stream, nil
		case <-c.done:
			return stream, ErrNotConnected
		case <-ctx.Done():
			return stream, context.Cause(ctx)
		case <-timeout.C:
			return stream, fmt.Errorf("the agent did not open it within %v", attachTimeout)
		}
	}
}

// attach hands a stream to whoever asked the caller for that with this id, and
// returns the machine that was asked; a caller of "" may be any machine.
func (o *openings[T]) attach(id, caller string, stream T) (machine string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, ok := o.all[id]
	if !ok || caller != "" && caller != p.machine {
		return "", false
	}
	delete(o.all, id)
	p.attached <- stream
	return p.machine, true
}
