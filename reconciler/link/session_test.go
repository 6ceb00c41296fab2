package link

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

const patience = time.Minute

// counter is a master that counts.
type counter struct {
	mu      sync.Mutex
	epoch   uint64
	reports int
	left    int
}

func (c *counter) Join(context.Context, schema.MachineInfo) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	return c.epoch, nil
}

func (c *counter) Report(context.Context, string, uint64, schema.Report) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports++
	return nil
}

func (*counter) Content(string, uint64, []schema.Digest) {}

func (*counter) Usage(context.Context, uint64, *schema.MachineUsage) error { return nil }

func (c *counter) Leave(string, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left++
}

// dialled is an agent that says what a test wants, and nothing else.
type dialled struct {
	t      *testing.T
	link   linkpb.LinkClient
	stream linkpb.Link_SessionClient
}

func start(t *testing.T, m Master, pull time.Duration) (*Server, *dialled) {
	t.Helper()
	path := socket(t)
	l := listen(t, path)
	var log bytes.Buffer
	s := New(Config{Cell: "c", Master: m, PullEvery: pull, Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	conn, err := grpc.NewClient("passthrough:///s", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
	d := &dialled{t: t, link: linkpb.NewLinkClient(conn)}
	timeout, stop := context.WithTimeout(context.Background(), patience)
	t.Cleanup(stop)
	if d.stream, err = d.link.Session(timeout); err != nil {
		t.Fatal(err)
	}
	return s, d
}

func (d *dialled) say(m *linkpb.AgentMessage) {
	d.t.Helper()
	if err := d.stream.Send(m); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dialled) receive() *linkpb.MasterMessage {
	d.t.Helper()
	m, err := d.stream.Recv()
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

// ends waits for the end of the session.
func (d *dialled) ends(code codes.Code, text string) {
	d.t.Helper()
	for {
		_, err := d.stream.Recv()
		if err == nil {
			continue
		}
		if status.Code(err) != code || !strings.Contains(err.Error(), text) {
			d.t.Errorf("got %v, want %v with %q", err, code, text)
		}
		return
	}
}

func (d *dialled) join() {
	d.t.Helper()
	d.say(hello("c", "m1"))
	if d.receive().GetWelcome() == nil {
		d.t.Fatal("no welcome")
	}
}

func hello(cell, machine string) *linkpb.AgentMessage {
	return &linkpb.AgentMessage{Message: &linkpb.AgentMessage_Hello{Hello: &linkpb.Hello{
		Cell: cell, Machine: &linkpb.MachineInfo{Name: machine}, Life: "of one process",
	}}}
}

func report(r *linkpb.Report) *linkpb.AgentMessage {
	return &linkpb.AgentMessage{Message: &linkpb.AgentMessage_Report{Report: r}}
}

func body(t *testing.T, machine string) *linkpb.Report {
	t.Helper()
	b, digest, err := linkpb.EncodeReport(&schema.Report{Machine: schema.MachineInfo{Name: machine}})
	if err != nil {
		t.Fatal(err)
	}
	return &linkpb.Report{Digest: digest, Body: b}
}

// bodyOf is a report that has b for its body.
func bodyOf(b []byte) *linkpb.Report {
	digest := sha256.Sum256(b)
	return &linkpb.Report{Digest: digest[:], Body: b}
}

func TestAgentThatMisbehaves(t *testing.T) {
	t.Parallel()
	hint := &linkpb.AgentMessage{Message: &linkpb.AgentMessage_Hint{Hint: &linkpb.Hint{}}}
	for _, tc := range []struct {
		name  string
		joins bool
		says  []*linkpb.AgentMessage
		code  codes.Code
		text  string
	}{
		{"no hello", false, []*linkpb.AgentMessage{hint}, codes.InvalidArgument, "want hello"},
		{"nothing", false, []*linkpb.AgentMessage{{}}, codes.InvalidArgument, "want hello"},
		{"another cell", false, []*linkpb.AgentMessage{hello("d", "m1")}, codes.FailedPrecondition, `of cell "d"`},
		{"bad name", false, []*linkpb.AgentMessage{hello("c", "M 1")}, codes.FailedPrecondition, "M 1"},
		{"two hellos", true, []*linkpb.AgentMessage{hello("c", "m1")}, codes.InvalidArgument, "unexpected message"},
		{"refusal", true, []*linkpb.AgentMessage{{Message: &linkpb.AgentMessage_Refuse{Refuse: &linkpb.Refuse{Reason: "no space"}}}}, codes.Canceled, "no space"},
		{"another machine", true, []*linkpb.AgentMessage{report(body(t, "m2"))}, codes.InvalidArgument, "machine m2 in a session of m1"},
		{"bad digest", true, []*linkpb.AgentMessage{report(&linkpb.Report{Body: []byte("x")})}, codes.InvalidArgument, "digest"},
		{"unknown digest", true, []*linkpb.AgentMessage{report(&linkpb.Report{Digest: []byte("x")})}, codes.InvalidArgument, "does not know"},
		{"nobody asked", true, []*linkpb.AgentMessage{report(body(t, "m1")), report(body(t, "m1"))}, codes.InvalidArgument, "nobody asked"},
		{"a report of too much", true, []*linkpb.AgentMessage{report(bodyOf(bytes.Repeat([]byte{0x22, 0}, 1<<16)))}, codes.InvalidArgument, "ReportBody.tasks: more than 32768 elements"},
		{"a long lie", true, []*linkpb.AgentMessage{report(bodyOf([]byte("\x0a\x81\x80\x04\x0a\xfd\xff\x03" + strings.Repeat("m", 1<<16-3))))}, codes.InvalidArgument, "has 65533 bytes"},
		{"usage of too much", true, []*linkpb.AgentMessage{report(&linkpb.Report{Usage: &linkpb.MachineUsage{Tasks: make([]*linkpb.TaskUsage, 1<<16)}})}, codes.Internal, "MachineUsage.tasks: more than 32768 elements"},
		{"a hello of too much", false, []*linkpb.AgentMessage{{Message: &linkpb.AgentMessage_Hello{Hello: &linkpb.Hello{Cell: "c", Machine: &linkpb.MachineInfo{Name: "m1", Notes: make([]string, 1000)}}}}}, codes.Internal, "MachineInfo.notes: more than 256 elements"},
		{"a hello of a long life", false, []*linkpb.AgentMessage{{Message: &linkpb.AgentMessage_Hello{Hello: &linkpb.Hello{Cell: "c", Life: strings.Repeat("x", 1000), Machine: &linkpb.MachineInfo{Name: "m1"}}}}}, codes.InvalidArgument, "life has 1000 bytes"},
		{"oversize", true, []*linkpb.AgentMessage{report(&linkpb.Report{Body: make([]byte, linkpb.MaxMessage+1)})}, codes.ResourceExhausted, "larger than max"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := &counter{}
			_, d := start(t, m, time.Hour)
			if tc.joins {
				d.join()
				if d.receive().GetPull() == nil {
					t.Fatal("no pull")
				}
			}
			for _, message := range tc.says {
				d.say(message)
			}
			d.ends(tc.code, tc.text)
			m.mu.Lock()
			defer m.mu.Unlock()
			if joined := m.epoch > 0; joined != tc.joins {
				t.Errorf("joined: %v", joined)
			}
		})
	}
}

// TestUnchangedReport sees on the wire that a report is sent once.
func TestUnchangedReport(t *testing.T) {
	t.Parallel()
	m := &counter{}
	_, d := start(t, m, time.Millisecond)
	d.join()
	if p := d.receive().GetPull(); p == nil || len(p.KnownDigest) != 0 {
		t.Fatalf("first pull: %v", p)
	}
	first := body(t, "m1")
	d.say(report(first))
	for range 3 {
		if p := d.receive().GetPull(); p == nil || !bytes.Equal(p.KnownDigest, first.Digest) {
			t.Fatalf("next pull: %v", p)
		}
		d.say(report(&linkpb.Report{Digest: first.Digest}))
	}
	d.receive()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reports != 4 {
		t.Errorf("the master received %d reports: want 4", m.reports)
	}
}

// TestDataIsSentOnce sees on the wire which job data goes with a view.
func TestDataIsSentOnce(t *testing.T) {
	t.Parallel()
	s, d := start(t, &counter{}, time.Hour)
	jobs := map[string]*schema.Job{}
	view := func(names ...string) (v []schema.Assignment) {
		for _, n := range names {
			if jobs[n] == nil {
				jobs[n] = &schema.Job{Cell: "c", User: "u", Name: n}
			}
			v = append(v, schema.Assignment{Task: jobs[n].ID().Task(len(v)), Data: schema.DigestOf(jobs[n]), Job: jobs[n]})
		}
		return v
	}
	d.join()
	if d.receive().GetPull() == nil {
		t.Fatal("no pull")
	}
	for i, tc := range []struct{ view, sent []string }{
		{[]string{"a", "a", "b"}, []string{"a", "b"}},
		{[]string{"a", "c"}, []string{"c"}},
		{[]string{"b"}, []string{"b"}}, // it was forgotten
		{[]string{"b"}, nil},
		{nil, nil},
		{[]string{"b"}, []string{"b"}},
	} {
		s.Push("m1", schema.View{Epoch: 1, Version: uint64(i + 1), Assignments: view(tc.view...)})
		for _, want := range tc.sent {
			if m := d.receive(); m.GetData().GetDigest() != string(schema.DigestOf(jobs[want])) {
				t.Fatalf("view %d: got %v, want data of %s", i, m, want)
			}
		}
		a := d.receive().GetView()
		if a.GetVersion() != uint64(i+1) || a.GetEpoch() != 1 || len(a.GetAssignments()) != len(tc.view) {
			t.Fatalf("view %d: %v", i, a)
		}
	}
	wrong := view("a")
	wrong[0].Data = "sha256:00"
	s.Push("m1", schema.View{Epoch: 1, Version: 98, Assignments: wrong})
	s.Push("m1", schema.View{Epoch: 1, Version: 99})
	if a := d.receive().GetView(); a.GetVersion() != 99 {
		t.Errorf("a view whose data has another digest: %v", a)
	}
}

// TestPushToADeafAgent pushes to an agent that reads nothing: no push waits,
// and what it reads at last is the latest view.
func TestPushToADeafAgent(t *testing.T) {
	t.Parallel()
	m := &counter{}
	s, d := start(t, m, time.Hour)
	d.join()
	job := &schema.Job{Cell: "c", User: "u", Name: "j"}
	const views = 500
	view := make([]schema.Assignment, 1000)
	for i := range view {
		view[i] = schema.Assignment{Task: job.ID().Task(i), Data: schema.DigestOf(job), Job: job}
	}
	for i := range uint64(views) { // the agent reads none of them before the last: one that waited for it would wait for ever
		s.Push("m1", schema.View{Epoch: 1, Version: i + 1, Assignments: view})
	}
	sent := 0
	for last := uint64(0); last < views; {
		if a := d.receive().GetView(); a != nil {
			if a.GetVersion() <= last {
				t.Fatalf("version %d after %d", a.GetVersion(), last)
			}
			last, sent = a.GetVersion(), sent+1
		}
	}
	t.Logf("%d of %d views were sent", sent, views)
	if sent > views/2 {
		t.Errorf("%d of %d views were sent", sent, views)
	}
}

// slowJoin is a master that knows of an epoch before Join returns.
type slowJoin struct {
	counter
	joined chan struct{} // receives when the second Join is in progress
	finish chan struct{}
}

func (m *slowJoin) Join(ctx context.Context, info schema.MachineInfo) (uint64, error) {
	epoch, err := m.counter.Join(ctx, info)
	if epoch == 2 {
		m.joined <- struct{}{}
		<-m.finish
	}
	return epoch, err
}

func (m *slowJoin) Report(_ context.Context, machine string, epoch uint64, _ schema.Report) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch != m.epoch {
		return fmt.Errorf("machine %s: report of epoch %d, but %d is connected", machine, epoch, m.epoch)
	}
	return nil
}

// TestSupersededWhileJoining reports in a session whose successor has its epoch
// and is not registered yet: the agent must learn that it is superseded, or it
// would come back and take the name again.
func TestSupersededWhileJoining(t *testing.T) {
	t.Parallel()
	m := &slowJoin{joined: make(chan struct{}), finish: make(chan struct{})}
	_, d := start(t, m, time.Hour)
	d.join()
	if d.receive().GetPull() == nil {
		t.Fatal("no pull")
	}
	second, err := d.link.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Send(hello("c", "m1")); err != nil {
		t.Fatal(err)
	}
	<-m.joined
	d.say(report(body(t, "m1")))
	d.ends(codes.Aborted, "another agent holds the name")
	close(m.finish)
	if w, err := second.Recv(); err != nil || w.GetWelcome().GetEpoch() != 2 {
		t.Errorf("the second agent: %v, %v", w, err)
	}
}

// TestLogThatNobodyWantsAnyMore opens a log after its reader has left.
func TestLogThatNobodyWantsAnyMore(t *testing.T) {
	t.Parallel()
	s, d := start(t, &counter{}, time.Hour)
	d.join()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	task := schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(0)
	go func() {
		_, err := s.Logs(ctx, "m1", schema.LogRequest{Task: task})
		failed <- err
	}()
	var open *linkpb.OpenLogs
	for open == nil {
		open = d.receive().GetOpenLogs()
	}
	cancel()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "log of task u/j/0 on machine m1") {
		t.Errorf("got %v", err)
	}
	stream, err := d.link.Logs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&linkpb.LogChunk{Id: open.GetId()}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("got %v", err)
	}
	s.logs.mu.Lock()
	defer s.logs.mu.Unlock()
	if len(s.logs.all) != 0 {
		t.Error("it is still waited for")
	}
}

// TestLogWithoutAnAgent loses the session while the agent is asked.
func TestLogWithoutAnAgent(t *testing.T) {
	t.Parallel()
	s, d := start(t, &counter{}, time.Hour)
	d.join()
	failed := make(chan error, 1)
	go func() {
		_, err := s.Logs(t.Context(), "m1", schema.LogRequest{Task: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(0)})
		failed <- err
	}()
	for d.receive().GetOpenLogs() == nil {
	}
	if err := d.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), ErrNotConnected.Error()) {
		t.Errorf("got %v", err)
	}
}

// TestViewIsOfItsSession: what was pushed for an earlier session is not sent in the
// next, of which it would confirm what may have been rescheduled since.
func TestViewIsOfItsSession(t *testing.T) {
	t.Parallel()
	s, d := start(t, &counter{epoch: 6}, time.Hour)
	s.Push("m1", schema.View{Epoch: 6, Version: 41})
	d.join() // epoch 7
	if m := d.receive(); m.GetPull() == nil {
		t.Fatalf("first comes %v, want a pull", m)
	}
	s.Push("m1", schema.View{Epoch: 6, Version: 42}) // of a master that does not know that the machine has joined again
	s.Push("m1", schema.View{Epoch: 7, Version: 1})
	s.Push("m1", schema.View{Epoch: 6, Version: 43})
	if a := d.receive().GetView(); a.GetEpoch() != 7 || a.GetVersion() != 1 {
		t.Errorf("the first view is %v, want version 1 of epoch 7", a)
	}
}
