package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWhileRead: a context ends with the reader of a pipe, and with nothing else.
func TestWhileRead(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, stop := whileRead(t.Context(), w)
	defer stop()
	if ctx.Err() != nil {
		t.Fatal("it ends while it is read")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if err := unread(ctx, nil); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%v, want %v", err, syscall.EPIPE)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	outer, cancel := context.WithCancel(t.Context())
	ctx, stop = whileRead(outer, file)
	if ctx.Err() != nil {
		t.Error("a file ends it")
	}
	cancel()
	stop()
	if err := unread(ctx, nil); err != nil {
		t.Error(err)
	}
}
