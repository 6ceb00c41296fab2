package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

const patience = time.Minute

// fake is an agent that counts.
type fake struct {
	mu       sync.Mutex
	welcomes []uint64
	assigned []uint64 // versions
}

func (f *fake) Refused() error { return nil }

func (f *fake) Info() schema.MachineInfo { return schema.MachineInfo{Name: "m1"} }

func (f *fake) Welcome(epoch uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.welcomes = append(f.welcomes, epoch)
	return nil
}

func (f *fake) Assign(view schema.View) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.assigned = append(f.assigned, view.Version)
	return nil
}

func (f *fake) Report() *schema.Report { return &schema.Report{Machine: f.Info(), View: 5} }

func (f *fake) Exec(_ context.Context, _ schema.ExecRequest, _ io.ReadWriter) {}

func (f *fake) Logs(context.Context, schema.LogRequest, io.Writer) error {
	return errors.New("no logs here")
}

// script is a master that a test plays; each session is a call.
type script struct {
	linkpb.UnimplementedLinkServer
	play func(linkpb.Link_SessionServer) error
}

func (s script) Session(stream linkpb.Link_SessionServer) error { return s.play(stream) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "link")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func serve(t *testing.T, play func(linkpb.Link_SessionServer) error) (path string) {
	t.Helper()
	l := listen(t)
	g := grpc.NewServer(grpc.WaitForHandlers(true))
	linkpb.RegisterLinkServer(g, script{play: play})
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func run(t *testing.T, cfg Config) (client *Client, stop func()) {
	t.Helper()
	cfg.Cell = "c"
	c := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return c, stop
}

func welcome(epoch uint64) *linkpb.MasterMessage {
	return &linkpb.MasterMessage{Message: &linkpb.MasterMessage_Welcome{Welcome: &linkpb.Welcome{Epoch: epoch}}}
}

func assignments(epoch, version uint64, list ...*linkpb.Assignment) *linkpb.MasterMessage {
	return &linkpb.MasterMessage{Message: &linkpb.MasterMessage_View{View: &linkpb.View{
		Epoch: epoch, Version: version, Assignments: list,
	}}}
}

func TestMasterThatMisbehaves(t *testing.T) {
	t.Parallel()
	bad := &linkpb.MasterMessage{Message: &linkpb.MasterMessage_Data{Data: &linkpb.Data{Digest: "sha256:00", Json: []byte("{}")}}}
	for _, tc := range []struct {
		name string
		says []*linkpb.MasterMessage
		want string // what the master is sent
	}{
		{"another epoch", []*linkpb.MasterMessage{welcome(4), assignments(3, 1)}, "assignments of epoch 3 in a session of epoch 4"},
		{"data that was not sent", []*linkpb.MasterMessage{welcome(4), assignments(4, 1, &linkpb.Assignment{Task: "c/u/j/0", Data: "sha256:00"})}, "was not sent"},
		{"data with another digest", []*linkpb.MasterMessage{welcome(4), bad}, "want \"sha256:00\""},
		{"two welcomes", []*linkpb.MasterMessage{welcome(4), welcome(5)}, "unexpected message"},
		{"nothing", []*linkpb.MasterMessage{welcome(4), {}}, "unexpected message"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			refusal := make(chan string, 1)
			var once sync.Once
			path := serve(t, func(s linkpb.Link_SessionServer) error {
				if m, err := s.Recv(); err != nil || m.GetHello().GetMachine().GetName() != "m1" {
					return fmt.Errorf("hello: %v, %w", m, err)
				}
				for _, m := range tc.says {
					if err := s.Send(m); err != nil {
						return err
					}
				}
				m, err := s.Recv()
				once.Do(func() { refusal <- fmt.Sprintf("%s %v", m.GetRefuse().GetReason(), err) })
				return nil
			})
			f := &fake{}
			run(t, Config{Dial: path, Agent: f, Log: slog.New(slog.DiscardHandler)})
			if got := <-refusal; !strings.Contains(got, tc.want) {
				t.Errorf("got %s, want %q", got, tc.want)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if len(f.assigned) != 0 {
				t.Error("the view was taken")
			}
		})
	}
}

func TestNoWelcome(t *testing.T) {
	t.Parallel()
	var sessions int
	path := serve(t, func(s linkpb.Link_SessionServer) error {
		sessions++ // one at a time
		if err := s.Send(assignments(1, 1)); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	})
	f := &fake{}
	var b syncBuffer
	_, stop := run(t, Config{Dial: path, Agent: f, Log: slog.New(slog.NewTextHandler(&b, nil))})
	b.wait(t, "want welcome")
	stop()
	if len(f.assigned) != 0 || sessions != 1 {
		t.Errorf("assigned %v in %d sessions", f.assigned, sessions)
	}
}

// TestLowerEpoch offers epochs; only those that do not fall are taken.
func TestLowerEpoch(t *testing.T) {
	t.Parallel()
	epochs := []uint64{7, 6, 1, 8}
	refused := make(chan string, len(epochs))
	done := make(chan struct{})
	i := 0
	path := serve(t, func(s linkpb.Link_SessionServer) error {
		if i >= len(epochs) {
			<-s.Context().Done()
			return nil
		}
		epoch := epochs[i]
		i++
		if i == len(epochs) {
			defer close(done)
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
		if err := s.Send(welcome(epoch)); err != nil {
			return err
		}
		if epoch >= 7 { // it is taken: a pull is answered
			if err := s.Send(&linkpb.MasterMessage{Message: &linkpb.MasterMessage_Pull{Pull: &linkpb.Pull{}}}); err != nil {
				return err
			}
		}
		m, err := s.Recv()
		refused <- m.GetRefuse().GetReason()
		return err
	})
	f := &fake{}
	quick := Backoff{Min: time.Millisecond, Max: time.Millisecond, Refused: time.Millisecond}
	_, stop := run(t, Config{Dial: path, Agent: f, Log: slog.New(slog.DiscardHandler), Backoff: quick})
	<-done
	stop()
	for _, epoch := range epochs {
		if why := <-refused; (why != "") != (epoch < 7) {
			t.Errorf("epoch %d: %q", epoch, why)
		}
	}
	if fmt.Sprint(f.welcomes) != "[7 8]" {
		t.Errorf("the agent was welcomed with %v", f.welcomes)
	}
}

// TestReportOnTheWire sees that an unchanged report is its digest.
func TestReportOnTheWire(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	path := serve(t, func(s linkpb.Link_SessionServer) error {
		result <- func() error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			if err := s.Send(welcome(1)); err != nil {
				return err
			}
			var known []byte
			for i := range 3 {
				pull := &linkpb.Pull{KnownDigest: known}
				if i == 2 {
					pull.KnownDigest = []byte("another")
				}
				if err := s.Send(&linkpb.MasterMessage{Message: &linkpb.MasterMessage_Pull{Pull: pull}}); err != nil {
					return err
				}
				m, err := s.Recv()
				if err != nil {
					return err
				}
				if whole := m.GetReport().GetBody() != nil; whole != (i != 1) {
					return fmt.Errorf("report %d has a body: %v", i, whole)
				}
				if i != 1 {
					r, err := linkpb.DecodeReport(m.GetReport())
					if err != nil || r.View != 5 {
						return fmt.Errorf("report %d: %+v, %w", i, r, err)
					}
				}
				known = m.GetReport().GetDigest()
			}
			return nil
		}()
		<-s.Context().Done()
		return nil
	})
	run(t, Config{Dial: path, Agent: &fake{}, Log: slog.New(slog.DiscardHandler)})
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestBackoff dials a socket whose owner hangs up.
func TestBackoff(t *testing.T) {
	t.Parallel()
	l := listen(t)
	dials := make(chan time.Time, 1000)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(dials)
				return
			}
			dials <- time.Now()
			_ = c.Close()
		}
	}()
	var b syncBuffer
	begin := time.Now()
	_, stop := run(t, Config{
		Dial: l.Addr().String(), Agent: &fake{}, Log: slog.New(slog.NewTextHandler(&b, nil)),
		Backoff: Backoff{Min: 8 * time.Millisecond, Max: 64 * time.Millisecond},
	})
	var last time.Time
	for range 12 {
		last = <-dials
	}
	// 16+32+64×9 ms between twelve dials, at least half of each.
	if d := last.Sub(begin); d < 300*time.Millisecond {
		t.Errorf("12 dials in %v", d)
	}
	stop()
	_ = l.Close()
	if n := strings.Count(b.String(), "no link to the master"); n != 1 {
		t.Errorf("said %d times:\n%s", n, b.String())
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	var b syncBuffer
	run(t, Config{Dial: path, Agent: &fake{}, Log: slog.New(slog.NewTextHandler(&b, nil)), Backoff: Backoff{Min: time.Millisecond, Max: time.Millisecond}})
	b.wait(t, "no such file or directory")
	time.Sleep(20 * time.Millisecond) // more dials
	if n := strings.Count(b.String(), "no link to the master"); n != 1 {
		t.Errorf("said %d times:\n%s", n, b.String())
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) wait(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(s.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never said %q:\n%s", text, s)
		}
	}
}

// The clocks are compared with each pull: by the answer to the last report, not
// by one to another, and not at all with a master that knows of no such thing.
func TestClocksAreCompared(t *testing.T) {
	t.Parallel()
	const ahead = time.Hour
	path := serve(t, func(s linkpb.Link_SessionServer) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		if err := s.Send(welcome(1)); err != nil {
			return err
		}
		clock := func(*linkpb.Report) *linkpb.MasterClock { return nil }
		for i := 0; ; i++ {
			pull := &linkpb.Pull{}
			if i > 0 {
				m, err := s.Recv()
				if err != nil {
					return err
				}
				pull.Clock = clock(m.GetReport())
			}
			clock = func(r *linkpb.Report) *linkpb.MasterClock {
				return linkpb.EncodeClock(r, 0, time.Now().Add(ahead))
			}
			if i == 2 { // of another time
				clock = func(*linkpb.Report) *linkpb.MasterClock {
					return linkpb.EncodeClock(&linkpb.Report{Sent: timestamppb.New(time.Unix(1, 0))}, 0, time.Now())
				}
			}
			if err := s.Send(&linkpb.MasterMessage{Message: &linkpb.MasterMessage_Pull{Pull: pull}}); err != nil {
				return err
			}
		}
	})
	type sample struct{ ahead, within time.Duration }
	samples := make(chan sample, 1000)
	_, stop := run(t, Config{Dial: path, Agent: &fake{}, Log: slog.New(slog.DiscardHandler), Clock: func(ahead, within time.Duration) {
		select {
		case samples <- sample{ahead, within}:
		default:
		}
	}})
	defer stop()
	for range 10 {
		if s := <-samples; (s.ahead-ahead).Abs() > s.within || s.within > patience {
			t.Errorf("ahead by %v within %v, want %v", s.ahead, s.within, ahead)
		}
	}
}
