package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var errSignal = errors.New("a signal of this test")

// TestComputed: what is computed does not keep a command from ending.
func TestComputed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	release := make(chan struct{})
	_, err := computed(ctx, func() (int, error) {
		cancel(errSignal)
		<-release
		return 1, nil
	})
	if !errors.Is(err, errSignal) {
		t.Errorf("%v, want %v", err, errSignal)
	}
	close(release)
	if n, err := computed(t.Context(), func() (int, error) { return 2, nil }); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestSimulationsEnd: all that computes for long ends with the first signal.
func TestSimulationsEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nodes, tasks := filepath.Join(dir, "nodes.csv"), filepath.Join(dir, "tasks.csv")
	for file, text := range map[string]string{
		nodes: "sn,cpu_milli,memory_mib\na,2000,1024\n",
		tasks: "name,cpu_milli,memory_mib\na,1000,512\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const saved = " --against ../../reconciler/checkpoint/testdata/v1.checkpoint"
	trace := " --nodes " + nodes + " --tasks " + tasks
	for _, line := range []string{
		"trace --machines 1 --until 1m", "experiment segregation --machines 2 --cells 1 --trials 1", "pack --seeds 1" + trace,
		"compact --seeds 1" + trace, "compact --seeds 1" + saved,
		"drain m1" + saved, "lose m1" + saved, "grow --cell-grows 1" + saved, "fit search/web" + saved,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errSignal)
		var out, complaint bytes.Buffer
		code := run(ctx, strings.Fields("simulate "+line), stdio{nil, &out, &complaint})
		if want := "muster: ended before it was done: " + errSignal.Error() + "\n"; code != exitCouldNot || out.Len() > 0 || complaint.String() != want {
			t.Errorf("%s: code %d, %q, %q, want code %d, %q", line, code, out.String(), complaint.String(), exitCouldNot, want)
		}
	}
}
