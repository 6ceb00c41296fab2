package link

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// What a child of BenchmarkSessions is given: the socket, how many sessions it opens, and how
// many of them share a connection.
const (
	envSocket  = "MUSTER_BENCH_SOCKET"
	envCount   = "MUSTER_BENCH_COUNT"
	envPerConn = "MUSTER_BENCH_PER_CONNECTION"
)

// BenchmarkSessions measures what a session takes of the server's memory, with ten tasks and a
// report each second: agents are another process, so that theirs is not counted.
func BenchmarkSessions(b *testing.B) {
	const count = 1000
	for _, perConn := range []int{1, 100} {
		b.Run(fmt.Sprintf("%d to a connection", perConn), func(b *testing.B) {
			for b.Loop() {
				heap, stack, cpu := sessions(b, count, perConn)
				b.ReportMetric(heap/count, "heap-B/session")
				b.ReportMetric(stack/count, "stack-B/session")
				b.ReportMetric(cpu/count, "ns/report")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

func sessions(b *testing.B, count, perConn int) (heap, stack, cpu float64) {
	b.Helper()
	dir := b.TempDir()
	path := dir + "/s"
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	heapBefore, stackBefore := inUse()
	m := &counter{}
	s := New(Config{Cell: "c", Master: m, PullEvery: time.Second, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(b.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestSessionsChild$")
	child.Env = append(os.Environ(), envSocket+"="+path, envCount+"="+strconv.Itoa(count), envPerConn+"="+strconv.Itoa(perConn))
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	for s.Counts().Sessions < count {
		time.Sleep(10 * time.Millisecond)
	}
	for i := range count {
		s.Push(machineName(i), schema.View{Epoch: epochOf(s, machineName(i)), Version: 1, Assignments: assignments()})
	}
	reported := func(n int) {
		for at := s.Counts(); s.Counts().Repeated < at.Repeated+int64(n); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	reported(2 * count)
	before := processorTime(b)
	reported(4 * count)
	cpu = float64(processorTime(b)-before) / 4
	heapAfter, stackAfter := inUse()
	cancel()
	_ = in.Close()
	_ = child.Wait()
	if err := <-served; err != nil {
		b.Fatal(err)
	}
	return heapAfter - heapBefore, stackAfter - stackBefore, cpu
}

func epochOf(s *Server, machine string) uint64 { return s.session(machine).epoch }

func machineName(i int) string { return fmt.Sprintf("m%d", i) }

func assignments() []schema.Assignment {
	out := make([]schema.Assignment, 10)
	for i := range out {
		job := schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("job-%d", i)}
		out[i] = schema.Assignment{Task: job.Task(0), Generation: uint64(i + 1), Data: "sha256:00", Job: &schema.Job{Cell: "c", User: "u", Name: job.Job}}
	}
	return out
}

func inUse() (heap, stack float64) {
	runtime.GC()
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64()), float64(s[1].Value.Uint64())
}

// TestSessionsChild is the agents of BenchmarkSessions.
func TestSessionsChild(t *testing.T) {
	path := os.Getenv(envSocket)
	if path == "" {
		return
	}
	count, _ := strconv.Atoi(os.Getenv(envCount))
	perConn, _ := strconv.Atoi(os.Getenv(envPerConn))
	var conn *grpc.ClientConn
	for i := range count {
		if i%perConn == 0 {
			var err error
			if conn, err = grpc.NewClient("passthrough:///s", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "unix", path)
				})); err != nil {
				t.Fatal(err)
			}
		}
		stream, err := linkpb.NewLinkClient(conn).Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go agentOf(stream, machineName(i))
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func agentOf(stream linkpb.Link_SessionClient, machine string) {
	r := schema.Report{Machine: schema.MachineInfo{Name: machine}}
	for _, a := range assignments() {
		r.Tasks = append(r.Tasks, schema.TaskStatus{Task: a.Task, Generation: a.Generation, Data: a.Data, State: schema.Running, Incarnation: 1, PID: 7, StartedAt: time.Unix(1, 0)})
	}
	body, digest, err := linkpb.EncodeReport(&r)
	if err != nil {
		panic(err)
	}
	_ = stream.Send(hello("c", machine))
	for {
		m, err := stream.Recv()
		if err != nil {
			return
		}
		if p := m.GetPull(); p != nil {
			r := &linkpb.Report{Digest: digest, Sent: nil}
			if len(p.GetKnownDigest()) == 0 {
				r.Body = body
			}
			_ = stream.Send(report(r))
		}
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
