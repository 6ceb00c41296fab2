package cell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/strike"
)

// program writes a shell script that stands in for an agent; $0 is in a
// directory of its own.
func program(t *testing.T, script string) (a agentProcess, dir string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "agent")
	if err := strike.Program(t.Context(), path, []byte("#!/bin/sh\ncd "+dir+"\n"+script)); err != nil {
		t.Fatal(err)
	}
	return agentProcess{exe: path, stderr: t.Output(), log: slog.New(slog.DiscardHandler)}, dir
}

// count returns how many lines the script wrote to starts.
func count(dir string) int {
	data, _ := os.ReadFile(filepath.Join(dir, "starts")) // none yet: 0
	return strings.Count(string(data), "\n")
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
	}
}

// An agent that ends is started again; at the end it is interrupted, and what
// it has to do then is waited for.
func TestAgentIsKeptRunning(t *testing.T) {
	t.Parallel()
	a, dir := program(t, `
trap 'sleep 0.2; echo done >stopped; exit 0' INT
echo x >>starts
[ $(wc -l <starts) -ge 3 ] || exit 1
while :; do sleep 0.01; done
`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx) }()
	await(t, "the third start", func() bool { return count(dir) == 3 })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "stopped")); err != nil {
		t.Errorf("it was not waited for: %v", err)
	}
}

// What will not get better is not tried again, or not for ever.
func TestAgentThatCannotRun(t *testing.T) {
	t.Parallel()
	for code, starts := range map[int]int{agentInvalid: 1, 1: maxAgentStarts, 0: maxAgentStarts} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			a, dir := program(t, fmt.Sprintf("echo x >>starts\nexit %d\n", code))
			err := a.run(t.Context())
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("ended %d times in a row", starts)) || count(dir) != starts {
				t.Errorf("%d starts: %v", count(dir), err)
			}
			if code == 0 && !errors.Is(err, errEnded) {
				t.Errorf("it ended by itself: %v", err)
			}
		})
	}
	a := agentProcess{exe: filepath.Join(t.TempDir(), "nothing"), log: slog.New(slog.DiscardHandler)}
	if err := a.run(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no program: %v", err)
	}
}

// An end between two starts says that nobody stopped the tasks.
func TestAgentEndsWhileItIsDown(t *testing.T) {
	t.Parallel()
	a, dir := program(t, "echo x >>starts\nexit 1\n")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx) }()
	await(t, "a start", func() bool { return count(dir) >= 1 })
	cancel()
	if err := <-ended; err == nil {
		t.Error("nothing was said")
	}
}
