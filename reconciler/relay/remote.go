package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// Security is how this master shows another one who it is.
type Security interface {
	// Client returns the configuration of a connection to a master at a host.
	Client(host string) (*tls.Config, error)
}

// unixPrefix begins the address of a leader on this machine.
const unixPrefix = "unix:"

// remote is a leader in another process, for the Shard here.
type remote struct {
	shard  *Shard
	conn   *grpc.ClientConn
	client linkpb.RelayClient
	stream linkpb.Relay_AttachClient
	cancel context.CancelFunc
	lost   chan struct{} // closed when the stream has ended
	work   sync.WaitGroup

	sending sync.Mutex // held during Send, which is for one at a time

	mu    sync.Mutex // guards what follows
	err   error      // why the stream has ended
	joins map[uint64]*asked
	last  uint64             // key of joins
	taken chan *linkpb.Taken // of the updates in flight

	jobs map[schema.Digest]*schema.Job // that the leader counts on us to have; of receive
}

// asked is a join in progress.
type asked struct {
	opened func(epoch uint64)
	answer chan error // one
}

// dial attaches to the leader at an address. Nothing is received before begin.
func (s *Shard) dial(ctx context.Context, address string, term uint64) (*remote, error) {
	conn, err := s.connect(address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &remote{
		shard: s, conn: conn, client: linkpb.NewRelayClient(conn), cancel: cancel, lost: make(chan struct{}),
		joins: map[uint64]*asked{}, taken: make(chan *linkpb.Taken, 1), jobs: map[schema.Digest]*schema.Job{},
	}
	if err := r.hello(ctx, term); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("attach to %s: %w", address, err), conn.Close())
	}
	return r, nil
}

// connect returns a connection to a master, which it makes when it is used.
func (s *Shard) connect(address string) (*grpc.ClientConn, error) {
	shake := insecure.NewCredentials() // the kernel says who serves a unix socket
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return connectUnix(ctx, strings.TrimPrefix(address, unixPrefix))
	}
	if !strings.HasPrefix(address, unixPrefix) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if s.cfg.Security == nil {
			return nil, errors.New("this master has no certificate")
		}
		secure, err := s.cfg.Security.Client(host)
		if err != nil {
			return nil, err
		}
		shake = credentials.NewTLS(secure)
		dial = func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	return grpc.NewClient("passthrough:///leader",
		grpc.WithContextDialer(dial), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithTransportCredentials(shake),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveEvery}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(linkpb.MaxMessage), grpc.MaxCallSendMsgSize(linkpb.MaxMessage)),
	)
}

// connectUnix connects to a master on this machine.
func connectUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	uid, err := local.ServerOf(c)
	if err == nil && uid != 0 && int(uid) != os.Geteuid() {
		err = fmt.Errorf("served by uid %d: want uid %d or root", uid, os.Geteuid())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), c.Close())
	}
	return c, nil
}

// hello waits until the leader has taken this shard.
func (r *remote) hello(ctx context.Context, term uint64) error {
	timeout, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	stop := context.AfterFunc(timeout, func() {
		if !errors.Is(timeout.Err(), context.Canceled) {
			r.cancel()
		}
	})
	defer stop()
	var err error
	if r.stream, err = r.client.Attach(ctx); err != nil {
		return err
	}
	if err := r.send(&linkpb.ShardMessage{Message: &linkpb.ShardMessage_Hello{Hello: &linkpb.ShardHello{Cell: r.shard.cfg.Cell}}}); err != nil {
		return err
	}
	m, err := r.stream.Recv()
	if err != nil {
		return err
	}
	if got := m.GetAttached().GetTerm(); got != term {
		return fmt.Errorf("it leads in term %d: want %d", got, term)
	}
	return nil
}

// begin has the leader's messages acted on.
func (r *remote) begin() {
	r.work.Go(func() {
		err := r.receive()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = err
		close(r.lost)
		for _, j := range r.joins {
			j.answer <- errGone
		}
		r.joins = nil
	})
}

// close ends the stream and waits for what runs over it.
func (r *remote) close() {
	r.cancel()
	r.work.Wait()
	_ = r.conn.Close() // it errs only when closed before
}

func (r *remote) gone() <-chan struct{} { return r.lost }

func (r *remote) send(m *linkpb.ShardMessage) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	return r.stream.Send(m)
}

// join gets a machine its next epoch from the leader.
func (r *remote) join(_ context.Context, info *schema.MachineInfo, opened func(epoch uint64)) error {
	j := &asked{opened, make(chan error, 1)}
	r.mu.Lock()
	if r.joins == nil {
		r.mu.Unlock()
		return errGone
	}
	r.last++
	id := r.last
	r.joins[id] = j
	r.mu.Unlock()
	m := &linkpb.ShardJoin{Id: id, Machine: linkpb.EncodeMachine(info), Link: encodeLink(&info.Link)}
	if err := r.send(&linkpb.ShardMessage{Message: &linkpb.ShardMessage_Join{Join: m}}); err != nil {
		return errGone // the stream has ended, and receive says so
	}
	return <-j.answer
}

// updates hands over updates, in messages of a size that the link carries.
func (r *remote) updates(ctx context.Context, all []model.SessionUpdate) ([]error, error) {
	refused := make([]error, len(all))
	m, size, from := &linkpb.SessionUpdates{}, 0, 0
	for i := range all {
		w, err := encodeUpdate(&all[i])
		if err != nil {
			return nil, err
		}
		n := proto.Size(w)
		if size > 0 && size+n > linkpb.MaxMessage/2 {
			if err := r.hand(ctx, m, refused[from:i]); err != nil {
				return nil, err
			}
			m, size, from = &linkpb.SessionUpdates{}, 0, i
		}
		m.Updates, size = append(m.Updates, w), size+n
	}
	return refused, r.hand(ctx, m, refused[from:])
}

// hand sends updates and waits until the leader has taken them.
func (r *remote) hand(ctx context.Context, m *linkpb.SessionUpdates, refused []error) error {
	if err := r.send(&linkpb.ShardMessage{Message: &linkpb.ShardMessage_Updates{Updates: m}}); err != nil {
		return r.why(err)
	}
	select {
	case taken := <-r.taken:
		for _, x := range taken.GetRefused() {
			if i := int(x.GetIndex()); i < len(refused) {
				refused[i] = errors.New(x.GetReason())
			}
		}
		return nil
	case <-r.lost:
		return r.why(errGone)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// why returns why the stream has ended, if that is known, or err.
func (r *remote) why(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	return err
}

// receive acts on what the leader says, until the stream ends.
func (r *remote) receive() error {
	for {
		m, err := r.stream.Recv()
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *linkpb.LeaderMessage_Joined:
			r.joined(m.Joined)
		case *linkpb.LeaderMessage_Taken:
			r.taken <- m.Taken
		case *linkpb.LeaderMessage_Views:
			if err := r.views(m.Views); err != nil {
				return err
			}
		case *linkpb.LeaderMessage_Ask:
			r.work.Go(func() { r.ask(m.Ask) })
		case *linkpb.LeaderMessage_Open:
			r.work.Go(func() { r.open(m.Open) })
		case *linkpb.LeaderMessage_Drop:
			d := m.Drop
			r.shard.drop(d.GetMachine(), d.GetEpoch(), status.Error(codes.Code(d.GetCode()), d.GetReason()))
		default:
			return fmt.Errorf("unexpected message %T of the leader", m)
		}
	}
}

func (r *remote) joined(m *linkpb.Joined) {
	r.mu.Lock()
	j := r.joins[m.GetId()]
	delete(r.joins, m.GetId())
	r.mu.Unlock()
	if j == nil {
		return
	}
	err := refusal(m)
	if err == nil {
		j.opened(m.GetEpoch())
	}
	j.answer <- err
}

// views hands views on.
func (r *remote) views(m *linkpb.Views) error {
	if m.GetForget() {
		clear(r.jobs)
	}
	for _, d := range m.GetData() {
		job, err := linkpb.DecodeJob(d)
		if err != nil {
			return err
		}
		r.jobs[schema.Digest(d.GetDigest())] = job
	}
	for _, v := range m.GetViews() {
		view, err := linkpb.DecodeView(v.GetView(), r.jobs)
		if err != nil {
			return fmt.Errorf("view of machine %s: %w", v.GetMachine(), err)
		}
		r.shard.view(v.GetMachine(), view)
	}
	return nil
}

// ask asks an agent of this shard whether it is there.
func (r *remote) ask(m *linkpb.Ask) {
	yes := r.shard.answers(r.stream.Context(), m.GetMachine(), m.GetLife())
	_ = r.send(&linkpb.ShardMessage{Message: &linkpb.ShardMessage_Answer{Answer: &linkpb.Answer{Id: m.GetId(), Answers: yes}}}) // receive says so when it fails
}

// open carries a log or a session of an agent of this shard to the leader.
func (r *remote) open(m *linkpb.Open) {
	ctx, cancel := context.WithCancel(r.stream.Context())
	defer cancel()
	stream, err := r.client.Tunnel(ctx)
	if err != nil {
		return // the leader is gone
	}
	if err := stream.Send(&linkpb.TunnelChunk{Id: m.GetId()}); err != nil {
		return
	}
	conn, err := r.opened(ctx, m)
	if err != nil {
		_ = stream.Send(tunnelEnd(err)) // nobody is there when it fails
		_ = stream.CloseSend()
		_, _ = stream.Recv() // until the leader has read it
		return
	}
	defer func() { _ = conn.Close() }()
	go func() { // what comes from the leader, and that it has gone
		_ = receiveTunnel(conn, stream.Recv)
		cancel()
		_ = conn.Close()
	}()
	err = sendTunnel(stream.Send, conn)
	_ = stream.Send(tunnelEnd(err))
	_ = stream.CloseSend()
	<-ctx.Done()
}

// opened asks the link server for a log or a session.
func (r *remote) opened(ctx context.Context, m *linkpb.Open) (io.ReadWriteCloser, error) {
	switch what := m.GetWhat().(type) {
	case *linkpb.Open_Logs:
		q, err := linkpb.DecodeLogRequest(what.Logs)
		if err != nil {
			return nil, err
		}
		log, err := r.shard.logs(ctx, m.GetMachine(), q)
		return readOnly{log}, err
	case *linkpb.Open_Exec:
		q, err := linkpb.DecodeExecRequest(what.Exec)
		if err != nil {
			return nil, err
		}
		return r.shard.exec(ctx, m.GetMachine(), q)
	}
	return nil, errors.New("this master does not know what is asked for")
}

// readOnly is a log: who reads it has nothing to say.
type readOnly struct{ io.ReadCloser }

// Write always errs.
func (readOnly) Write([]byte) (int, error) { return 0, errors.New("a log is not written to") }
