package link

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

const (
	helloTimeout     = 60 * time.Second      // the master stores the epoch before it answers
	sourcesTimeout   = 5 * time.Second       // for an answer, without which registries are asked
	refuseTimeout    = time.Second           // for the master to take a Refuse
	settled          = time.Second           // a session of that age resets the back-off
	hintDelay        = 2 * time.Millisecond  // what changes at once is one report
	hintEvery        = 50 * time.Millisecond // at most 20 hints a second
	keepaliveEvery   = 10 * time.Second      // silence after which the master is asked
	keepaliveTimeout = 10 * time.Second      // without an answer it is gone
	logChunk         = 32 << 10
	maxLogs          = 64          // open at once
	maxExecs         = 64          // likewise
	sayEvery         = time.Minute // the same trouble
)

// Agent owns the machine's state.
type Agent interface { //nolint:interfacebloat // it is all that a master can ask of a machine
	// Info says what the machine is; it is asked before each connection.
	Info() schema.MachineInfo
	// Welcome takes the epoch of a new session and keeps it on disk. It errs
	// when it has seen a higher one; the session is then closed.
	Welcome(epoch uint64) error
	// Refused says that the master has another agent for this machine. It errs when the
	// agent could not take that.
	Refused() error
	// Assign replaces the view. It errs when the view could not be kept; the
	// session is then closed, and the next one gets the view again.
	Assign(view schema.View) error
	// Report says all that the agent knows. It must not block. What it returns is not
	// written to, and another value if it says anything else.
	Report() *schema.Report
	// Logs writes a log to w until it ends or ctx does. The error reaches the
	// reader; one that is fs.ErrNotExist says that there is no such log.
	Logs(ctx context.Context, r schema.LogRequest, w io.Writer) error
	// Exec runs a command beside a task, and speaks frames over conn, the last
	// of which says how it ended. It returns when nothing of it is left. A Read
	// that errs says that nobody is there any more.
	Exec(ctx context.Context, r schema.ExecRequest, conn io.ReadWriter)
}

// Directory is the cell's directory as the machine keeps it. Its methods are called by one
// goroutine at a time.
type Directory interface {
	// Rests says that nobody on the machine acts by it while the cell has no service. It is asked
	// before each session.
	Rests() bool
	// Digests are those of what the machine has.
	Digests() schema.DirectoryDigests
	// Apply takes in a change, and has done called, from any goroutine, as soon as everything on
	// the machine acts by it. It must not block for long.
	Apply(c schema.DirectoryChange, done func())
}

// Listed is what an Agent also is where there is a Directory.
type Listed interface {
	// Listing takes in that the master says when nothing is sent to tasks of the machine any
	// more.
	Listing() error
	// Unlisted takes in generations of tasks of which it says so; a generation of 0 is any, of a
	// master of an earlier release.
	Unlisted(tasks []schema.TaskRef) error
	// Unlinked takes in that the session is over in which this was said.
	Unlinked() error
}

// Identity is what the machine shows a master over TCP. Its methods may be
// called from several goroutines.
type Identity interface {
	// Connect returns the configuration of a connection on which the machine
	// shows its certificate; it errs when there is none that can be used.
	Connect(host string) (*tls.Config, error)
	// Enroll returns what to join with; no token when there is no need or no
	// way. again says that the master refuses the present certificate.
	Enroll(again bool) (token string, request []byte, err error)
	// Unknown returns the configuration of a connection to join over, without
	// a certificate.
	Unknown(host, token string) (*tls.Config, error)
	// Accept keeps a certificate that the master gave, durably.
	Accept(certificate []byte, authorities [][]byte) error
	// Renewal returns when to ask for the next certificate, and the request.
	Renewal() (at time.Time, request []byte, err error)
}

// Backoff is the time between connections; half of it is random.
type Backoff struct {
	Min time.Duration // after a session that held; 50 ms when 0
	// Max bounds the doubling while nobody answers. When 0 it is 500 ms over a
	// unix socket, where asking costs nothing and a restarted master waits for
	// us, and 5 s over TCP.
	Max time.Duration
	// Refused is for a master that does not want this agent; 5 s when 0.
	Refused time.Duration
	// Return is how long a session lasts with a master that is not the machine's first
	// choice before that one is looked for, half of it random; 10 min when 0. Machines
	// whose master was away come back to it in that time, and not all at once.
	Return time.Duration
}

// Config is what a Client needs.
type Config struct {
	Cell string
	// Dial is the path of the master's unix socket or, with an Identity,
	// HOST:PORT.
	Dial string
	// Others are further masters of the cell. The machine's name says in which order
	// they are tried when there is no session: see rank.
	Others   []string
	Identity Identity
	// Shared, if set, is the connection to use, over a unix socket; it goes with no
	// Identity.
	Shared *Shared
	// Jobs, if set, has the data of jobs that other clients of this process hold, too.
	Jobs  *Jobs
	Agent Agent
	// Usage, if set, returns the newest sample of what machine and tasks use, nil
	// before the first. It must not block; what it returns is not written to.
	Usage func() *schema.MachineUsage
	// Content, if set, returns what the machine holds of images and packages, sorted, at most
	// schema.MaxContent. It must not block; what it returns is not written to, and has
	// another first element or length if it is anything else.
	Content func() []schema.Digest
	// Directory, if set, is the cell's as the machine keeps it, and Listed is to know of it.
	Directory Directory
	Listed    Listed
	Log       *slog.Logger
	Backoff   Backoff
	// Clock, if set, is called with each pull: by how much the master's clock is
	// ahead, and how far that may be off. It must not block.
	Clock func(ahead, within time.Duration)
}

// Client is one machine's link.
type Client struct {
	cfg   Config
	hints chan struct{}
	again chan struct{} // the session is to end and another to begin

	masters []string // in the order in which they are tried
	at      int      // index of the one to try next

	linked  atomic.Bool
	session atomic.Pointer[session] // that was welcomed; nil: none
	epoch   uint64                  // the highest welcome
	yield   bool                    // superseded: ask for the name only if it is free
	life    string                  // distinguishes this process from others
	denied  bool                    // the master refuses our certificate
}

// New returns a client that has not dialled yet.
func New(cfg Config) *Client {
	if cfg.Content == nil {
		cfg.Content = func() []schema.Digest { return nil }
	}
	if cfg.Usage == nil {
		cfg.Usage = func() *schema.MachineUsage { return nil }
	}
	b := &cfg.Backoff
	most := 500 * time.Millisecond
	if cfg.Identity != nil {
		most = 5 * time.Second
	}
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{{&b.Min, 50 * time.Millisecond}, {&b.Max, most}, {&b.Refused, 5 * time.Second}, {&b.Return, 10 * time.Minute}} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	return &Client{cfg: cfg, hints: make(chan struct{}, 1), again: make(chan struct{}, 1), life: rand.Text()}
}

// address returns the master to connect to.
func (c *Client) address() string { return c.masters[c.at] }

// Hint asks the master to pull a report soon. Many hints become one.
func (c *Client) Hint() {
	select {
	case c.hints <- struct{}{}:
	default:
	}
}

// Rejoin ends the session and begins another, in which the machine is described to the
// master again. It does not block.
func (c *Client) Rejoin() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// errAgain ends a session for Rejoin, and errReturn one for another with the master that
// is the machine's first choice.
var (
	errAgain  = errors.New("the machine has changed")
	errReturn = errors.New("the machine's first choice of a master is there")
)

// Linked reports whether a master has welcomed the machine and is still there.
func (c *Client) Linked() bool { return c.linked.Load() }

var errNotLinked = errors.New("no master is connected")

// Sources asks the master from where this machine gets an image or a package. It may be called
// from any goroutine, and errs while no master is connected, when the session ends, and when the
// master knows no such question.
func (c *Client) Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
	s := c.session.Load()
	if s == nil {
		return schema.SourceAnswer{}, errNotLinked
	}
	ctx, cancel := context.WithTimeout(ctx, sourcesTimeout)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the connection may be that of others, too, and outlast the session
		select {
		case <-s.ended:
			cancel()
		case <-stop:
		}
	}()
	q.Machine = c.cfg.Agent.Info().Name
	a, err := s.link.Sources(ctx, linkpb.EncodeQuestion(&q))
	if err != nil {
		return schema.SourceAnswer{}, fmt.Errorf("ask the master: %s", status.Convert(err).Message())
	}
	return linkpb.DecodeAnswer(a), nil
}

// errRefused marks what only time or an operator can resolve.
var errRefused = errors.New("refused")

// ErrNotJoined is returned by Run when the master refuses the token of a machine
// that has never joined: nothing runs there that would need an agent.
var ErrNotJoined = errors.New("this machine has not joined the cell")

// Run keeps the machine linked until ctx ends; then it returns nil. It returns
// before only with ErrNotJoined.
func (c *Client) Run(ctx context.Context) error {
	c.masters = rank(c.cfg.Agent.Info().Name, append([]string{c.cfg.Dial}, c.cfg.Others...))
	var trouble outage
	delay, failed := c.cfg.Backoff.Min, 0
	for {
		held, err := c.connect(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // what ended it is ctx
		}
		if errors.Is(err, ErrNotJoined) {
			return err
		}
		switch {
		case held == 0:
			c.at, failed = (c.at+1)%len(c.masters), failed+1
		case !errors.Is(err, errAgain):
			c.at = c.after(err)
			fallthrough
		default:
			trouble, failed = outage{}, 0
		}
		more := failed%len(c.masters) != 0 // masters that were not asked yet
		switch {
		case more:
		case c.refused(err):
			delay = c.cfg.Backoff.Refused
		case held >= settled || delay > c.cfg.Backoff.Max: // the latter: it was refused before
			delay = c.cfg.Backoff.Min
		default:
			delay = min(2*delay, c.cfg.Backoff.Max)
		}
		if !errors.Is(err, errAgain) && !errors.Is(err, errReturn) && trouble.news(err, time.Now()) {
			c.cfg.Log.Warn("no link to the master", "machine", c.cfg.Agent.Info().Name, "err", err)
		}
		wait := delay
		if more {
			wait = c.cfg.Backoff.Min
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + mathrand.N(wait/2+1)):
		}
	}
}

// after returns the index of the master to try first when a session has ended.
func (c *Client) after(err error) int {
	// Whichever it was with, the machine's own order is what spreads machines. But a
	// master that hangs takes connections, so it costs 20 s to try the same one again.
	if c.at == 0 && !errors.Is(err, errReturn) {
		return 1 % len(c.masters)
	}
	return 0
}

// outage is a time without a link.
type outage struct {
	code codes.Code // of the trouble that was said last
	said time.Time  // when
}

// news returns whether trouble is worth a line: the first, another kind, or
// the same after a while. gRPC has many words for one kind.
func (o *outage) news(err error, now time.Time) bool {
	code := status.Code(err)
	if code == o.code && now.Sub(o.said) < sayEvery {
		return false
	}
	o.code, o.said = code, now
	return true
}

// refused returns whether trying again at once is useless.
func (c *Client) refused(err error) bool {
	switch status.Code(err) {
	case codes.Aborted:
		c.yield = true
		if err := c.cfg.Agent.Refused(); err != nil {
			c.cfg.Log.Error("cannot report that another agent has the machine's name", "err", err)
		}
		return true
	case codes.PermissionDenied:
		c.denied = true
		return true
	case codes.FailedPrecondition, codes.InvalidArgument, codes.Unimplemented:
		return true
	}
	return errors.Is(err, errRefused)
}

// welcome takes the epoch of a new session.
func (c *Client) welcome(epoch uint64) error {
	if epoch < c.epoch {
		return fmt.Errorf("%w: epoch %d of the master is older than %d, which this machine has seen", errRefused, epoch, c.epoch)
	}
	if err := c.cfg.Agent.Welcome(epoch); err != nil {
		return fmt.Errorf("%w: epoch %d: %w", errRefused, epoch, err)
	}
	c.epoch, c.yield, c.denied = epoch, false, false
	return nil
}
