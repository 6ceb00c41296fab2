package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/linkpb"
)

// abilities are what older agents have not.
type abilities struct{ exec, copy bool }

// holding is what a machine has of images and packages.
type holding struct {
	content []schema.Digest
	mark    []byte // of it; never nil, which would be not to ask
}

// reading is a session's place in the directory; nil of one whose agent keeps none.
type reading struct {
	DirectoryReader
	acked uint64
}

// session is one machine's connection. Its fields belong to the goroutine of
// Session, but for those that others are said to use.
type session struct {
	server  *Server
	stream  linkpb.Link_SessionServer
	machine string
	epoch   uint64
	life    string    // of the agent's process; "" of an earlier release
	knows   abilities // what the agent has said that it knows

	end  context.CancelCauseFunc    // anyone: ends the session; the agent gets the cause
	wake chan struct{}              // anyone: the server has a newer view
	open chan *linkpb.MasterMessage // anyone: to be sent to the agent
	call chan chan<- struct{}       // anyone: for those who wait for a message of the agent
	busy atomic.Bool                // anyone: it hands something to the master
	done chan struct{}              // closed when the session has ended

	sent    map[schema.Digest]bool // data that the agent has
	sealed  map[string]bool        // versions of secrets that it has; false: it was refused one
	report  schema.Report          // the last one; before the first only what the machine is
	digest  []byte                 // of it; nil before the first
	reports linkpb.Decoder         // of which report is the last
	clock   *linkpb.Report         // the last one, for what it says of the agent's clock
	came    time.Time              // when it did

	pull    *time.Timer // when to ask next
	pulling bool        // asked, not answered
	hinted  bool        // a hint came while asking
	usageAt time.Time   // when usage was asked for last
	holding

	directory *reading

	callers []chan<- struct{} // of call, that have no answer yet
}

// notify says that there is a newer view. It never blocks.
func (c *session) notify() {
	select {
	case c.wake <- struct{}{}:
	default: // it is said already
	}
}

// inbox is what the receiving goroutine of a stream delivers.
type inbox struct {
	messages chan *linkpb.AgentMessage
	err      chan error // one, the last
}

// receive reads the stream until it ends.
func receive(stream linkpb.Link_SessionServer) inbox {
	in := inbox{make(chan *linkpb.AgentMessage), make(chan error, 1)}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				in.err <- err
				return
			}
			select {
			case in.messages <- m:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	return in
}

// Session serves one machine.
func (g service) Session(stream linkpb.Link_SessionServer) error {
	s := g.server
	ctx, end := s.lifetime(stream.Context())
	defer end(nil)
	in := receive(stream)
	info, h, err := s.hello(ctx, in)
	if err != nil {
		return err
	}
	if machine := caller(ctx); machine != "" && machine != info.Name {
		return s.refusals.caller(ctx, status.Errorf(codes.PermissionDenied, "the certificate is of machine %s, and the agent says that it is %s", machine, info.Name))
	}
	info.Link = connection(ctx)
	info.Link.Life, info.Link.Answers = h.GetLife(), s.Answers(ctx, info.Name, h.GetLife())
	epoch, joined, err := s.join(ctx, info)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return s.refused(info.Name, err)
	}
	c := &session{
		server: s, stream: stream, machine: info.Name, epoch: epoch, report: schema.Report{Machine: info}, life: h.GetLife(), knows: abilities{h.GetExec(), h.GetCopy()}, end: end, holding: holding{mark: []byte{}},
		wake: make(chan struct{}, 1), open: make(chan *linkpb.MasterMessage), call: make(chan chan<- struct{}), done: make(chan struct{}),
	}
	defer s.cfg.Master.Leave(c.machine, c.epoch)
	defer close(c.done)
	if ctx.Err() != nil { // gone while it joined; it must not supersede anyone
		joined()
		return context.Cause(ctx)
	}
	err = s.register(c)
	joined()
	if err != nil {
		return err
	}
	defer s.unregister(c)
	if c.directory, err = read(s.cfg.Directory, info.Name, h); err != nil {
		return err
	}
	log := s.cfg.Log.With("machine", c.machine, "epoch", c.epoch)
	log.Info("machine joined")
	err = c.run(ctx, in)
	log.Info("machine left", "reason", reason(err))
	return err
}

// refused is the answer to an agent that may not join.
func (s *Server) refused(machine string, err error) error {
	if behind := new(schema.BehindError); errors.As(err, &behind) {
		s.refusals.Refused(refusedBehind, err, time.Now(), "machine", machine)
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if taken := new(schema.TakenError); errors.As(err, &taken) {
		s.refusals.WithLabelValues(refusedName).Inc() // the history has it, once
		return status.Error(codes.Aborted, err.Error())
	}
	if errors.Is(err, identity.ErrRefused) {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return status.Errorf(codes.Unavailable, "join machine %s: %v", machine, err)
}

// answers asks the agent for a report, and returns whether it says anything.
func (c *session) answers(ctx context.Context) bool {
	said := make(chan struct{})
	timeout := time.NewTimer(answerTimeout)
	defer timeout.Stop()
	call := c.call
	for {
		select {
		case call <- said:
			call = nil
		case <-said:
			return true
		case <-c.done:
			return false
		case <-ctx.Done():
			return true // nobody wants to know any more
		case <-timeout.C:
			return c.busy.Load() // with what the agent has said
		}
	}
}

// reason says in words why a session ended.
func reason(err error) string {
	if err == nil {
		return "the agent closed the session"
	}
	return status.Convert(err).Message()
}

// hello waits for the agent's first message.
func (s *Server) hello(ctx context.Context, in inbox) (info schema.MachineInfo, h *linkpb.Hello, err error) {
	timeout := time.NewTimer(helloTimeout)
	defer timeout.Stop()
	var m *linkpb.AgentMessage
	select {
	case m = <-in.messages:
	case err := <-in.err:
		return info, nil, closed(err)
	case <-ctx.Done():
		return info, nil, context.Cause(ctx)
	case <-timeout.C:
		return info, nil, status.Errorf(codes.DeadlineExceeded, "no hello within %v", helloTimeout)
	}
	h = m.GetHello()
	if h == nil {
		return info, nil, status.Errorf(codes.InvalidArgument, "first message is %T: want hello", m.GetMessage())
	}
	if err := linkpb.CheckHello(h); err != nil {
		return info, nil, status.Errorf(codes.InvalidArgument, "hello: %v", err)
	}
	if h.GetCell() != s.cfg.Cell {
		return info, nil, status.Errorf(codes.FailedPrecondition,
			"the agent is of cell %q, this is the master of cell %q", h.GetCell(), s.cfg.Cell)
	}
	info, err = linkpb.DecodeMachine(h.GetMachine())
	if err != nil {
		return info, nil, status.Error(codes.FailedPrecondition, brief(err).Error())
	}
	return info, h, nil
}

// closed turns the end of a stream into what the call returns.
func closed(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// run speaks with the agent until the session ends.
func (c *session) run(ctx context.Context, in inbox) error {
	var changed <-chan struct{} // of the directory
	if c.directory != nil {
		defer c.directory.Close()
		changed = c.directory.Wake()
	}
	welcome := &linkpb.MasterMessage{Message: &linkpb.MasterMessage_Welcome{Welcome: &linkpb.Welcome{Epoch: c.epoch}}}
	if err := c.stream.Send(welcome); err != nil {
		return err
	}
	c.pull = time.NewTimer(0)
	defer c.pull.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-in.err:
			return closed(err)
		case m := <-in.messages:
			err = c.take(ctx, m)
		case <-c.wake:
			err = c.push()
		case <-c.pull.C:
			err = c.ask()
		case <-changed:
			err = c.list()
		case m := <-c.open:
			err = c.stream.Send(m)
		case said := <-c.call:
			c.callers = append(c.callers, said)
			err = c.ask()
		}
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
	}
}

// take acts on a message of the agent.
func (c *session) take(ctx context.Context, m *linkpb.AgentMessage) error {
	for _, said := range c.callers {
		close(said)
	}
	c.callers = nil
	c.busy.Store(true)
	defer c.busy.Store(false)
	switch m := m.GetMessage().(type) {
	case *linkpb.AgentMessage_Report:
		return c.receive(ctx, m.Report)
	case *linkpb.AgentMessage_Hint:
		c.hinted = true
		if !c.pulling {
			return c.ask()
		}
		return nil
	case *linkpb.AgentMessage_DirectoryAck:
		if c.directory == nil {
			return status.Error(codes.InvalidArgument, "an acknowledgement of a directory that was not sent")
		}
		c.directory.acked = m.DirectoryAck.GetVersion()
		return c.list()
	case *linkpb.AgentMessage_Refuse:
		return status.Errorf(codes.Canceled, "the agent ended the session: %s", linkpb.Text(m.Refuse.GetReason()))
	default:
		return status.Errorf(codes.InvalidArgument, "unexpected message %T", m)
	}
}

// ask pulls a report, if none is on its way.
func (c *session) ask() error {
	if c.pulling {
		return nil
	}
	c.pulling, c.hinted = true, false
	now := time.Now()
	pull := &linkpb.Pull{KnownDigest: c.digest, KnownContent: c.mark, Clock: linkpb.EncodeClock(c.clock, now.Sub(c.came), now)}
	if now.Sub(c.usageAt) >= c.server.pace.Load().usage {
		pull.Usage, c.usageAt = true, now
	}
	return c.stream.Send(&linkpb.MasterMessage{Message: &linkpb.MasterMessage_Pull{Pull: pull}})
}

// receive hands a report to the master, and plans the next pull.
func (c *session) receive(ctx context.Context, m *linkpb.Report) error {
	if !c.pulling {
		return status.Error(codes.InvalidArgument, "a report that nobody asked for")
	}
	c.came, c.clock = time.Now(), &linkpb.Report{Sent: m.GetSent()}
	switch {
	case m.Body != nil:
		r, err := apart(func() (schema.Report, error) { return c.reports.Decode(m, &c.report) })
		if err != nil {
			err = brief(err)
			c.server.refusals.Refused(refusedReport, err, c.came, "machine", c.machine)
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if r.Machine.Name != c.machine {
			return status.Errorf(codes.InvalidArgument, "a report of machine %s in a session of %s", r.Machine.Name, c.machine)
		}
		v, _ := c.server.latest(c)
		share(&r, &c.report, v.Assignments)
		c.report, c.digest = r, m.GetDigest()
		c.server.whole.Add(1)
	case c.digest == nil || !bytes.Equal(m.GetDigest(), c.digest):
		return status.Error(codes.InvalidArgument, "an unchanged report that the master does not know")
	default:
		c.server.repeated.Add(1)
	}
	if err := c.server.cfg.Master.Report(ctx, c.machine, c.epoch, c.report); err != nil {
		if c.server.contested(c) { // the master knows of the newer session before we do
			return status.Errorf(codes.Aborted, "another agent holds the name of machine %s", c.machine)
		}
		return status.Errorf(codes.Unavailable, "report of machine %s: %v", c.machine, err)
	}
	if err := c.used(ctx, m.GetUsage()); err != nil {
		return err
	}
	c.holds(m.GetContent())
	c.pulling = false
	if c.hinted {
		return c.ask()
	}
	c.pull.Reset(c.server.pace.Load().wait(time.Now()))
	return nil
}

// brief returns an error that does not quote all that an agent has said.
func brief(err error) error { return errors.New(linkpb.Text(err.Error())) }

// used hands usage to the master. What cannot be read is left out: the report is
// good all the same.
func (c *session) used(ctx context.Context, m *linkpb.MachineUsage) error {
	if m == nil {
		return nil
	}
	u, err := apart(func() (schema.MachineUsage, error) { return linkpb.DecodeUsage(c.machine, m) })
	if err != nil {
		c.server.cfg.Log.Warn("usage left out", "machine", c.machine, "err", brief(err))
		return nil
	}
	shareUsage(&u, c.report.Tasks)
	if err := c.server.cfg.Master.Usage(ctx, c.epoch, &u); err != nil {
		return status.Errorf(codes.Unavailable, "usage of machine %s: %v", c.machine, err)
	}
	return nil
}

// holds hands to the master what the machine holds now. What cannot be, or is not what the
// agent says that it is, is left out, and the whole is asked for.
func (c *session) holds(m *linkpb.ContentChange) {
	if m == nil {
		return
	}
	change, err := c.server.digests.DecodeContent(m)
	content, ok := change.Apply(c.content)
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("more than %d images and packages", schema.MaxContent)
	case !bytes.Equal(linkpb.MarkContent(content), m.GetMark()):
		err = errors.New("it is not what the change leads to")
	}
	if err != nil {
		c.server.cfg.Log.Warn("what a machine holds is left out", "machine", c.machine, "err", err)
		content = nil
	}
	if len(content) == 0 && len(c.content) == 0 {
		return
	}
	c.content, c.mark = content, append([]byte{}, linkpb.MarkContent(content)...)
	c.server.cfg.Master.Content(c.machine, c.epoch, content)
}

// push sends the latest view, after the data and secrets in it that the agent lacks. A
// view that cannot be sent is left out, whole: less of it would read as an
// order to stop the rest.
func (c *session) push() error {
	v, ok := c.server.latest(c)
	if !ok {
		return nil
	}
	out, err := apart(func() (encoded, error) { return c.encode(&v) })
	if err != nil {
		c.server.cfg.Log.Error("view not sent", "machine", c.machine, "version", v.Version, "err", err)
		return nil
	}
	for _, m := range out.messages {
		if err := c.stream.Send(m); err != nil {
			return err
		}
	}
	c.sent, c.sealed = out.refers, out.sealed
	return nil
}

// encoded is the messages that carry a view, and the data and secrets that it refers to.
type encoded struct {
	messages []*linkpb.MasterMessage
	refers   map[schema.Digest]bool
	sealed   map[string]bool // by versions: false of one that was refused
}

// encode encodes a view, and the data and secrets in it that the agent lacks.
func (c *session) encode(v *schema.View) (encoded, error) {
	out := encoded{refers: make(map[schema.Digest]bool, len(c.sent))}
	for name, s := range v.Logins {
		c.seal(&out, s, "login", name)
	}
	for digest, job := range v.Jobs() {
		for _, name := range slices.Sorted(maps.Keys(job.Task.Secrets)) {
			c.seal(&out, job.Task.Secrets[name].Sealed, "job", job.ID(), "secret", name)
		}
		if out.refers[digest] = true; c.sent[digest] {
			continue
		}
		data, err := c.server.data.of(digest, job)
		if err != nil {
			return out, err
		}
		out.messages = append(out.messages, data)
	}
	out.messages = append(out.messages, &linkpb.MasterMessage{Message: &linkpb.MasterMessage_View{View: linkpb.EncodeView(v.Unsealed())}})
	for _, m := range out.messages {
		if n := proto.Size(m); n > linkpb.MaxMessage {
			return out, fmt.Errorf("view of machine %s: %d bytes in one message: the link carries at most %d",
				c.machine, n, linkpb.MaxMessage)
		}
	}
	return out, nil
}

// apart runs what needs much of a stack in a goroutine of its own. The stack of a session's own
// goroutine stays as large as it once had to be, and a master has 10,000 sessions.
func apart[T any](f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	r := <-done
	return r.value, r.err
}
