package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// errStalled ends a conversation in which the other side has fallen silent.
var errStalled = errors.New("no answer")

// tooLargeError says that the other side sent more than is taken.
type tooLargeError struct{ limit int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("more than %d MiB", e.limit>>20)
}

// wire watches over one conversation with a remote. Decoders above it drop the
// causes of errors, so it keeps the first. Its methods may be called from any
// goroutine.
type wire struct {
	stall  time.Duration // without a byte before it is given up
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu    sync.Mutex // guards all below
	limit int64      // bytes that are taken from now on
	taken int64
	cause error
}

// newWire returns a wire and a context that ends when the other side stalls.
func newWire(ctx context.Context, stall time.Duration) (context.Context, *wire) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &wire{stall: stall, cancel: cancel}
	w.timer = time.AfterFunc(stall, func() {
		cancel(w.fail(errStalled))
	})
	return ctx, w
}

func (w *wire) close() {
	w.timer.Stop()
	w.cancel(context.Canceled)
}

// expect limits what is taken from now on.
func (w *wire) expect(limit int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit, w.taken = limit, 0
	w.timer.Reset(w.stall)
}

// fail remembers err if it is the first, and returns it. Ends, and what we have
// closed ourselves, are none.
func (w *wire) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil && err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		w.cause = err
	}
	return err
}

// why returns the first cause of err, an error of this conversation.
func (w *wire) why(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.cause != nil {
		return w.cause
	}
	return err
}

// broken says whether the conversation has failed.
func (w *wire) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause != nil
}

// count counts received bytes. Each sets the clock back.
func (w *wire) count(n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken += int64(n)
	if w.taken > w.limit {
		return &tooLargeError{w.limit}
	}
	if n > 0 {
		w.timer.Reset(w.stall)
	}
	return nil
}

// reader counts what is read from in.
func (w *wire) reader(in io.ReadCloser) io.ReadCloser { return &counted{in, w} }

type counted struct {
	io.ReadCloser
	wire *wire
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if over := c.wire.count(n); over != nil {
		err = over
	}
	return n, c.wire.fail(err)
}
