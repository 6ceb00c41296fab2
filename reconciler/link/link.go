package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

const (
	defaultPullEvery = 2 * time.Second
	defaultUsage     = 5 * time.Second
	helloTimeout     = 10 * time.Second // for the first message of a connection
	answerTimeout    = 3 * time.Second  // for an agent to say something that was asked whether it is there
	attachTimeout    = 10 * time.Second // for an agent to open a log
	stopTimeout      = time.Second      // for sessions to end before they are cut
	keepaliveEvery   = 10 * time.Second // silence after which a peer is asked
	keepaliveTimeout = 10 * time.Second // without an answer it is gone
	readBuffer       = 8 << 10          // per connection, and there may be 10,000
)

// Master owns the cell's state. Its methods are called by the goroutines of
// sessions, at most one call at a time for each session.
type Master interface {
	// Join gives the machine its next epoch and returns when that is stored. A
	// *schema.BehindError is final, as long as the store is the same. It errs with
	// a *schema.TakenError when the name is another agent's: always when that one
	// answers, as info.Link says.
	Join(ctx context.Context, info schema.MachineInfo) (epoch uint64, err error)
	// Report takes a report. The machine is alive even when the report is the
	// one before; r is not to be written to. An epoch that is not the
	// machine's newest is to be ignored.
	Report(ctx context.Context, machine string, epoch uint64, r schema.Report) error
	// Usage takes what a machine and its tasks use, some seconds after the last;
	// u is not to be written to. It is no news: nothing is decided by it.
	Usage(ctx context.Context, epoch uint64, u *schema.MachineUsage) error
	// Content takes what a machine holds of images and packages, sorted: after the first
	// report of a session, if it holds any, and when that has changed. It is not to be
	// written to, must not block, and is no news.
	Content(machine string, epoch uint64, content []schema.Digest)
	// Leave says that the session with that epoch has ended; there are no more
	// reports of it. A newer session may have joined before.
	Leave(machine string, epoch uint64)
}

// Config is what a Server needs.
type Config struct {
	Cell   string
	Master Master
	// PullEvery is the time between two reports of a machine that has nothing new to say;
	// 2 s when 0. With many sessions it is longer, see pace.go.
	PullEvery time.Duration
	// UsageEvery is the least time between two samples of usage that a machine
	// is asked for; 5 s when 0, as agents take one. With many sessions it is longer.
	UsageEvery time.Duration
	Log        *slog.Logger
	// Audit, if it is set, gets an event for each refused connection or session. It must
	// not block.
	Audit func(schema.Event)
	// Secure is what a connection over TCP needs; nil when there is none.
	Secure *Secure
	// Secrets seals the secrets of jobs for machines; nil: none are sent.
	Secrets Sealer
	// Sources says from where machines get images and packages; nil: nobody does.
	Sources Sourcer
	// Directory is for agents that keep it; nil: there is none.
	Directory Directory
	// Relay and Replica, if set, are served to other masters, and to nobody else.
	Relay   linkpb.RelayServer
	Replica linkpb.ReplicaServer
}

// Sourcer says from where a machine gets an image or a package. It errs while nobody leads.
type Sourcer interface {
	Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error)
}

// Secure is how machines elsewhere are known.
type Secure struct {
	TLS       *tls.Config // TLS 1.3; lets in clients without a certificate too
	Authority Authority
}

// Server serves the agents of one cell.
type Server struct {
	cfg      Config
	refusals refusals
	logs     openings[*openLog]
	execs    openings[*execConn]

	data    encodedData
	digests linkpb.Digests

	whole, repeated atomic.Int64 // reports, see Counts

	mu       sync.Mutex // guards what follows
	sessions map[string]*session
	joining  map[string]int         // calls of Join in progress for each machine
	views    map[string]schema.View // the latest pushed for each machine, in whatever session
	pace     atomic.Pointer[pace]   // anyone
	running  context.Context        //nolint:containedctx // of Serve, for the sessions that gRPC starts; nil before
}

// service is what gRPC calls.
type service struct {
	linkpb.UnimplementedLinkServer
	server *Server
	peers  *peers
}

// New returns a server that serves nobody yet.
func New(cfg Config) *Server {
	if cfg.PullEvery == 0 {
		cfg.PullEvery = defaultPullEvery
	}
	if cfg.UsageEvery == 0 {
		cfg.UsageEvery = defaultUsage
	}
	s := &Server{
		cfg: cfg, refusals: newRefusals(cfg.Log, cfg.Audit), sessions: map[string]*session{}, joining: map[string]int{},
		views: map[string]schema.View{},
	}
	s.keepPace()
	return s
}

// Refusals counts who was refused, to be registered once.
func (s *Server) Refusals() prometheus.Collector { return s.refusals }

// Serve serves the agents that connect to the listeners, until ctx ends; then
// it closes them and all sessions and returns nil. Over a unix socket come
// processes of this user and root; over TCP, what Secure lets in. When it
// returns, the Master is called no more. It is called once, with at least one.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	running, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	s.mu.Lock()
	s.running = running
	s.mu.Unlock()

	g := s.rpc(running)
	served := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() {
			if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				served <- fmt.Errorf("serve agents on %s: %w", l.Addr(), err)
				return
			}
			served <- nil
		}()
	}
	left := len(listeners)
	var err error
	select {
	case err = <-served:
		left--
	case <-ctx.Done():
	}
	stop(status.Error(codes.Unavailable, "the master is stopping"))
	cut := time.AfterFunc(stopTimeout, g.Stop) // a peer that does not read
	defer cut.Stop()
	g.GracefulStop()
	for range left {
		err = errors.Join(err, <-served)
	}
	return err
}

// rpc returns the server that gRPC has; what it starts ends with running.
func (s *Server) rpc(running context.Context) *grpc.Server {
	who := &peers{cell: s.cfg.Cell, log: s.cfg.Log, refusals: s.refusals, open: map[*secured]bool{}, joining: map[*secured]bool{}}
	if secure := s.cfg.Secure; secure != nil {
		who.tls = secure.TLS
		go who.watch(running, secure.Authority.Admit)
	}
	g := grpc.NewServer(
		grpc.Creds(who), grpc.StreamInterceptor(s.checkStream()),
		grpc.ForceServerCodecV2(newCodec(s.refusals)), grpc.MaxRecvMsgSize(linkpb.MaxMessage), grpc.MaxSendMsgSize(linkpb.MaxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveEvery, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveEvery / 2, PermitWithoutStream: true}),
		grpc.ReadBufferSize(readBuffer),
		grpc.WaitForHandlers(true),
	)
	linkpb.RegisterLinkServer(g, service{server: s, peers: who})
	if s.cfg.Relay != nil {
		linkpb.RegisterRelayServer(g, s.cfg.Relay)
	}
	if s.cfg.Replica != nil {
		linkpb.RegisterReplicaServer(g, s.cfg.Replica)
	}
	return g
}

// Push gives a machine its view in the session that has the view's epoch: it is sent at
// once, or when that session begins, and in no other: the next gets what its master knows
// then, since to an agent that has started again the first view of a session confirms what
// it holds. A view that was not sent yet is replaced.
func (s *Server) Push(machine string, view schema.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.views[machine].Epoch > view.Epoch {
		return
	}
	s.views[machine] = view
	if c := s.sessions[machine]; c != nil {
		c.notify()
	}
}

// latest returns the session's latest view, and false when none was pushed.
func (s *Server) latest(c *session) (schema.View, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.views[c.machine]
	return v, v.Epoch == c.epoch
}

// Counts counts the sessions and reports of a Server.
type Counts struct {
	Sessions int
	// Whole and Repeated are the reports that came with all that they say, and those
	// that were only the digest of the one before.
	Whole, Repeated int64
}

// Counts returns how many sessions there are, and how many reports have come so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{len(s.sessions), s.whole.Load(), s.repeated.Load()}
}

// session returns the machine's session, nil if it has none.
func (s *Server) session(machine string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[machine]
}

// join gives the machine its next epoch.
func (s *Server) join(ctx context.Context, info schema.MachineInfo) (epoch uint64, done func(), err error) {
	s.mu.Lock()
	s.joining[info.Name]++
	s.mu.Unlock()
	done = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.joining[info.Name]--; s.joining[info.Name] == 0 {
			delete(s.joining, info.Name)
		}
	}
	if epoch, err = s.cfg.Master.Join(ctx, info); err != nil {
		done()
		return 0, nil, err
	}
	return epoch, done, nil
}

// End ends the session of an epoch, if there is one; the agent gets the reason.
func (s *Server) End(machine string, epoch uint64, why error) {
	if c := s.session(machine); c != nil && c.epoch == epoch {
		c.end(why)
	}
}

// Answers returns whether another agent with a name is connected and answers. One
// whose machine or network has died does not, and neither does the same agent in a
// session that it has left.
func (s *Server) Answers(ctx context.Context, machine, life string) bool {
	c := s.session(machine)
	return c != nil && (life == "" || c.life != life) && c.answers(ctx)
}

// contested returns whether another session has the name of c, or is about to.
func (s *Server) contested(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[c.machine] != c || s.joining[c.machine] > 0
}

// register makes c the machine's session and closes the one before. It errs
// when a session with a higher epoch was faster.
func (s *Server) register(c *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.sessions[c.machine]
	if old != nil && old.epoch >= c.epoch {
		return superseded(c.machine, old.epoch)
	}
	if old != nil {
		old.end(superseded(c.machine, c.epoch))
	}
	s.sessions[c.machine] = c
	s.keepPace()
	c.notify() // there may be a view already
	return nil
}

// keepPace sets the pace after a change of the sessions. The caller has the lock, but in
// New.
func (s *Server) keepPace() {
	if now := paceOf(&s.cfg, len(s.sessions)); s.pace.Load() == nil || *s.pace.Load() != now {
		s.pace.Store(&now)
	}
}

// unregister forgets c, unless a newer session took its place.
func (s *Server) unregister(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[c.machine] == c {
		delete(s.sessions, c.machine)
		s.keepPace()
	}
}

// lifetime returns a context that ends with the stream or with Serve, whose cause is sent
// to the agent.
func (s *Server) lifetime(stream context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(stream)
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	stop := context.AfterFunc(running, func() { cancel(context.Cause(running)) })
	return ctx, func(cause error) { stop(); cancel(cause) }
}

func superseded(machine string, epoch uint64) error {
	return status.Errorf(codes.Aborted, "another agent holds the name of machine %s, since epoch %d", machine, epoch)
}
