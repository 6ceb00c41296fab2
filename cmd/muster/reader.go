package main

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// whileRead returns a context that ends, with EPIPE as its cause, when nobody reads w any
// more: a command that waits for what may never come would not see it, for it writes nothing.
// stop must be called. What is no pipe and no socket always has a reader.
func whileRead(ctx context.Context, w io.Writer) (read context.Context, stop func()) {
	read, cancel := context.WithCancelCause(ctx)
	f, ok := w.(*os.File)
	if !ok {
		return read, func() { cancel(nil) }
	}
	woken, wake, err := os.Pipe()
	if err != nil { // then it ends with the next write
		return read, func() { cancel(nil) }
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd())}, {Fd: int32(woken.Fd())}} // their errors alone, and ends
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
				continue
			}
			if fds[0].Revents != 0 {
				cancel(syscall.EPIPE)
			}
			return
		}
	}()
	return read, func() {
		_ = wake.Close()
		<-over
		_ = woken.Close()
		cancel(nil)
	}
}

// unread returns EPIPE if that has ended ctx, and err if not.
func unread(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, syscall.EPIPE) {
		return cause
	}
	return err
}
