package linktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentlink "github.com/musterhq/muster/nodeagent/link"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/schema"
)

// logCell has one master and one agent that writes logs with f.
func logCell(t *testing.T, f func(context.Context, schema.LogRequest, io.Writer) error) (*masterlink.Server, *master, func()) {
	t.Helper()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	a.logs = f
	s, _ := serve(t, path, masterlink.Config{Master: m, PullEvery: 5 * time.Millisecond})
	_, stop := run(t, path, agentlink.Config{Agent: a})
	eventually(t, "the machine joined", func() bool { return m.count() > 0 })
	return s, m, stop
}

func request() schema.LogRequest {
	return schema.LogRequest{
		Task:       schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(3),
		Generation: 4, Incarnation: 2, Stream: schema.Stderr, Tail: 10, Previous: true, Framed: true,
		Since: time.Unix(1_700_000_000, 7).UTC(), From: &schema.LogPosition{Generation: 3, Incarnation: 1, Offset: 1 << 40},
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	asked := make(chan schema.LogRequest, 1)
	long := strings.Repeat("a line of a log\n", 20_000) // many chunks
	s, _, _ := logCell(t, func(_ context.Context, r schema.LogRequest, w io.Writer) error {
		asked <- r
		_, err := io.WriteString(w, long)
		return err
	})
	log, err := s.Logs(t.Context(), "m1", request())
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(log)
	if err != nil || string(got) != long {
		t.Errorf("read %d bytes, %v: want %d", len(got), err, len(long))
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(request(), <-asked); diff != "" {
		t.Error(diff)
	}
}

func TestLogErrors(t *testing.T) {
	t.Parallel()
	missing := fmt.Errorf("task u/web/3: no such generation: %w", fs.ErrNotExist)
	for _, tc := range []struct {
		name     string
		err      error
		notFound bool
	}{{"trouble", errors.New("the disk is on fire"), false}, {"missing", missing, true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, _, _ := logCell(t, func(_ context.Context, _ schema.LogRequest, w io.Writer) error {
				if !tc.notFound {
					_, _ = io.WriteString(w, "some")
				}
				return tc.err
			})
			log, err := s.Logs(t.Context(), "m1", request())
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			got, err := io.ReadAll(log)
			if err == nil || err.Error() != "machine m1: "+tc.err.Error() || errors.Is(err, fs.ErrNotExist) != tc.notFound {
				t.Errorf("got %v", err)
			}
			if !tc.notFound && string(got) != "some" {
				t.Errorf("what came before the error: %q", got)
			}
		})
	}
}

func TestLogOfAnUnknownMachine(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, socket(t), masterlink.Config{Master: newMaster()})
	if _, err := s.Logs(t.Context(), "m1", request()); !errors.Is(err, masterlink.ErrNotConnected) {
		t.Errorf("got %v", err)
	}
}

// follow writes what comes from lines, at once, until the reader leaves.
func follow(lines <-chan string, left chan<- struct{}) func(context.Context, schema.LogRequest, io.Writer) error {
	return func(ctx context.Context, _ schema.LogRequest, w io.Writer) error {
		defer close(left)
		for {
			select {
			case l := <-lines:
				if _, err := io.WriteString(w, l); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func TestFollowUntilClosed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.CancelFunc, io.Closer){
		"closed":    func(_ context.CancelFunc, log io.Closer) { _ = log.Close() },
		"cancelled": func(cancel context.CancelFunc, _ io.Closer) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines, left := make(chan string), make(chan struct{})
			s, _, _ := logCell(t, follow(lines, left))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			log, err := s.Logs(ctx, "m1", request())
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			for i := range 3 {
				want := fmt.Sprintf("line %d\n", i)
				lines <- want
				got := make([]byte, len(want))
				if _, err := io.ReadFull(log, got); err != nil || string(got) != want {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			end(cancel, log)
			select {
			case <-left:
			case <-time.After(patience):
				t.Fatal("the agent goes on writing")
			}
			if _, err := log.Read(make([]byte, 1)); err == nil {
				t.Error("a closed log can be read")
			}
		})
	}
}

func TestLogIsCutOffWithTheAgent(t *testing.T) {
	t.Parallel()
	lines, left := make(chan string, 1), make(chan struct{})
	s, _, stop := logCell(t, follow(lines, left))
	log, err := s.Logs(t.Context(), "m1", request())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	lines <- "x"
	if _, err := io.ReadFull(log, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	stop()
	// The agent may just have time to say that it was interrupted.
	if _, err := io.ReadAll(log); err == nil || !strings.Contains(err.Error(), "machine m1") {
		t.Errorf("got %v", err)
	}
}

func TestSlowReaderStopsNothingElse(t *testing.T) {
	t.Parallel()
	var written atomic.Int64
	left := make(chan struct{})
	s, m, _ := logCell(t, func(_ context.Context, _ schema.LogRequest, w io.Writer) error {
		defer close(left)
		line := strings.Repeat("x", 1024)
		for {
			n, err := io.WriteString(w, line)
			written.Add(int64(n))
			if err != nil {
				return err
			}
		}
	})
	log, err := s.Logs(t.Context(), "m1", request())
	if err != nil {
		t.Fatal(err)
	}
	// Nobody reads: the writer stops when the window is full.
	eventually(t, "the writer blocks", func() bool {
		before := written.Load()
		n := m.count()
		eventually(t, "reports go on", func() bool { return m.count() > n+5 })
		return before > 0 && written.Load() == before
	})
	if n := written.Load(); n > 4<<20 {
		t.Errorf("%d bytes are under way", n)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-left:
	case <-time.After(patience):
		t.Fatal("the agent goes on writing")
	}
}

func TestTooManyLogs(t *testing.T) {
	t.Parallel()
	s, _, _ := logCell(t, func(ctx context.Context, _ schema.LogRequest, w io.Writer) error {
		_, _ = io.WriteString(w, "x")
		<-ctx.Done()
		return ctx.Err()
	})
	for range 64 {
		log, err := s.Logs(t.Context(), "m1", request())
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if _, err := io.ReadFull(log, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	log, err := s.Logs(t.Context(), "m1", request())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := io.ReadAll(log); err == nil || !strings.Contains(err.Error(), "64 logs of this machine are open") {
		t.Errorf("got %v", err)
	}
}
