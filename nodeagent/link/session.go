package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// session is one connection. Its fields belong to the goroutine of Run.
type session struct {
	client *Client
	link   linkpb.LinkClient
	stream linkpb.Link_SessionClient

	in  chan *linkpb.MasterMessage
	err chan error // one: how the stream ended

	epoch uint64
	sent  time.Time                     // when the last report was
	coded encoded                       // the last report
	jobs  map[schema.Digest]*schema.Job // what the master counts on us to have
	// secrets are those that it counts on us to have, by their versions.
	secrets map[string]schema.MachineSecret

	content []schema.Digest // as it was sent last
	mark    []byte          // of it

	directory *directory

	hint   *time.Timer
	hinted bool      // the timer runs
	last   time.Time // when a hint was sent

	logs    sync.WaitGroup // and what renews the certificate, and looks for the first choice
	ended   chan struct{}  // closed when the session has
	reading chan struct{}  // holds one for each open log
	running chan struct{}  // holds one for each open session of exec
}

// connect dials and speaks with the master until the session ends. It returns
// how long the session held after its welcome, and why it ended, never nil.
func (c *Client) connect(ctx context.Context) (held time.Duration, err error) {
	cfg, err := c.secure(ctx)
	if err != nil {
		return 0, err
	}
	conn, release, err := c.dial(cfg)
	if err != nil {
		return 0, err
	}
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{
		client: c, link: linkpb.NewLinkClient(conn),
		in: make(chan *linkpb.MasterMessage), err: make(chan error, 1),
		ended: make(chan struct{}), jobs: map[schema.Digest]*schema.Job{}, secrets: map[string]schema.MachineSecret{}, reading: make(chan struct{}, maxLogs), running: make(chan struct{}, maxExecs),
	}
	if s.stream, err = s.link.Session(ctx); err != nil {
		return 0, conn.handshakes.explain(c.address(), fmt.Errorf("connect to %s: %w", c.address(), err))
	}
	received := make(chan struct{})
	go func() {
		defer close(received)
		s.receive(ctx)
	}()
	start, err := s.run(ctx)
	if !start.IsZero() {
		held = time.Since(start)
	}
	cancel()
	close(s.ended)
	<-received
	s.logs.Wait()
	return held, conn.handshakes.explain(c.address(), err)
}

// receive reads the stream until it ends, and always says how it did: send waits
// for that.
func (s *session) receive(ctx context.Context) {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			s.err <- err
			return
		}
		select {
		case s.in <- m:
		case <-ctx.Done():
			s.err <- ctx.Err()
			return
		}
	}
}

// run says hello and then acts on what comes. It returns when it was welcomed,
// and why the session ended.
func (s *session) run(ctx context.Context) (welcomed time.Time, err error) {
	if err := s.hello(ctx); err != nil {
		return time.Time{}, err
	}
	welcomed = time.Now()
	s.client.linked.Store(true)
	defer s.unlinked()
	s.client.session.Store(s)
	defer s.client.session.Store(nil)
	s.client.cfg.Log.Info("linked to the master", "machine", s.client.cfg.Agent.Info().Name, "epoch", s.epoch)
	if s.client.cfg.Identity != nil {
		s.logs.Go(func() { s.renew(ctx) })
	}
	moved := make(chan struct{})
	if s.client.at > 0 {
		s.logs.Go(func() { s.awaitFirst(ctx, moved) })
	}
	s.hint = time.NewTimer(time.Hour)
	s.hint.Stop()
	defer s.hint.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return welcomed, ctx.Err()
		case err := <-s.err:
			return welcomed, ended(err)
		case m := <-s.in:
			err = s.take(ctx, m)
		case <-s.client.again:
			return welcomed, errAgain
		case <-moved:
			return welcomed, errReturn
		case <-s.client.hints:
			s.planHint()
		case version := <-s.directory.applied:
			err = s.send(&linkpb.AgentMessage{Message: &linkpb.AgentMessage_DirectoryAck{DirectoryAck: &linkpb.DirectoryAck{Version: version}}})
		case <-s.hint.C:
			s.hinted, s.last = false, time.Now()
			err = s.send(&linkpb.AgentMessage{Message: &linkpb.AgentMessage_Hint{Hint: &linkpb.Hint{}}})
		}
		if err != nil {
			return welcomed, err
		}
	}
}

// unlinked takes in that a session is over which the master had welcomed.
func (s *session) unlinked() {
	s.client.linked.Store(false)
	if s.client.cfg.Directory == nil {
		return
	}
	if err := s.client.cfg.Listed.Unlinked(); err != nil {
		s.client.cfg.Log.Debug("the end of the link is not taken in", "err", err)
	}
}

// ended turns the end of the stream into an error.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the master ended the session")
	}
	return err
}

// hello joins the cell: it returns when the master has welcomed the machine.
func (s *session) hello(ctx context.Context) error {
	cfg := s.client.cfg
	info := cfg.Agent.Info()
	if info.Address == "" {
		info.Address = addressTowards(ctx, s.client.address(), cfg.Identity != nil)
	}
	info.Seen.Epoch = max(info.Seen.Epoch, s.client.epoch)
	for _, t := range cfg.Agent.Report().Tasks {
		info.Seen.Generation = max(info.Seen.Generation, t.Generation)
	}
	s.directory = newDirectory(s)
	hello := &linkpb.Hello{Directory: s.directory.hello(), Cell: cfg.Cell, Machine: linkpb.EncodeMachine(&info), Yield: s.client.yield, Life: s.client.life, Exec: true, Copy: true}
	if err := s.send(&linkpb.AgentMessage{Message: &linkpb.AgentMessage_Hello{Hello: hello}}); err != nil {
		return err
	}
	timeout := time.NewTimer(helloTimeout)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-s.err:
		return ended(err)
	case <-timeout.C:
		return fmt.Errorf("no welcome within %v", helloTimeout)
	case m := <-s.in:
		w := m.GetWelcome()
		if w == nil {
			return status.Errorf(codes.InvalidArgument, "first message of the master is %T: want welcome", m.GetMessage())
		}
		if err := s.client.welcome(w.GetEpoch()); err != nil {
			return s.refuse(err)
		}
		s.epoch = w.GetEpoch()
		return nil
	}
}

// take acts on a message of the master.
func (s *session) take(ctx context.Context, m *linkpb.MasterMessage) error {
	switch m := m.GetMessage().(type) {
	case *linkpb.MasterMessage_Data:
		job, err := s.client.cfg.Jobs.decode(m.Data)
		if err != nil {
			return s.refuse(err)
		}
		s.jobs[schema.Digest(m.Data.GetDigest())] = job
		return nil
	case *linkpb.MasterMessage_Secret:
		s.secrets[m.Secret.GetVersion()] = schema.MachineSecret{Sealed: m.Secret.GetSealed(), Refused: m.Secret.GetRefused()}
		return nil
	case *linkpb.MasterMessage_View:
		return s.assign(m.View)
	case *linkpb.MasterMessage_Pull:
		return s.report(m.Pull)
	case *linkpb.MasterMessage_Directory:
		return s.directory.take(m.Directory)
	case *linkpb.MasterMessage_Unlisted:
		return s.directory.unlisted(m.Unlisted)
	case *linkpb.MasterMessage_OpenLogs:
		s.logs.Go(func() { s.openLog(ctx, m.OpenLogs) })
		return nil
	case *linkpb.MasterMessage_OpenExec:
		s.logs.Go(func() { s.openExec(ctx, m.OpenExec) })
		return nil
	default:
		return s.refuse(fmt.Errorf("unexpected message %T", m))
	}
}

// assign hands a view to the agent, and forgets the data and the secrets it does not refer to.
func (s *session) assign(m *linkpb.View) error {
	if m.GetEpoch() != s.epoch {
		return s.refuse(fmt.Errorf("%w: assignments of epoch %d in a session of epoch %d", errRefused, m.GetEpoch(), s.epoch))
	}
	view, err := linkpb.DecodeView(m, s.jobs)
	if err != nil {
		return s.refuse(err)
	}
	view.Secrets = view.Needs(s.secrets)
	if err := s.client.cfg.Agent.Assign(view); err != nil {
		return s.refuse(fmt.Errorf("assignments of version %d: %w", m.GetVersion(), err))
	}
	clear(s.jobs)
	maps.Insert(s.jobs, view.Jobs())
	s.secrets = maps.Clone(view.Secrets)
	if s.secrets == nil {
		s.secrets = map[string]schema.MachineSecret{}
	}
	return nil
}

// usageHeader is the most that a message grows by beyond the usage in it.
const usageHeader = 32

// encoded is a report as it is sent.
type encoded struct {
	of           *schema.Report
	body, digest []byte
}

// encode returns the agent's report as it is sent, which most often is the one before.
func (s *session) encode() (encoded, error) {
	r := s.client.cfg.Agent.Report()
	if s.coded.of != r {
		body, digest, err := linkpb.EncodeReport(r)
		if err != nil {
			return encoded{}, err
		}
		s.coded = encoded{r, body, digest}
	}
	return s.coded, nil
}

// report answers a pull.
func (s *session) report(m *linkpb.Pull) error {
	r, err := s.encode()
	if err != nil {
		return s.refuse(err)
	}
	if ahead, within, ok := m.GetClock().Offset(s.sent, time.Now()); ok && s.client.cfg.Clock != nil {
		s.client.cfg.Clock(ahead, within)
	}
	s.sent = time.Now()
	answer := &linkpb.Report{Digest: r.digest, Sent: timestamppb.New(s.sent)}
	if !bytes.Equal(r.digest, m.GetKnownDigest()) {
		answer.Body = r.body
	}
	message := &linkpb.AgentMessage{Message: &linkpb.AgentMessage_Report{Report: answer}}
	n := proto.Size(message)
	var u *schema.MachineUsage
	if m.GetUsage() {
		u = s.client.cfg.Usage()
	}
	if u != nil {
		// The report comes first: where both have no room, usage is left out.
		if usage := linkpb.EncodeUsage(u); n+proto.Size(usage)+usageHeader <= linkpb.MaxMessage {
			answer.Usage = usage
		}
	}
	if m.KnownContent != nil {
		if c := s.changed(m.GetKnownContent()); c != nil && proto.Size(message)+proto.Size(c)+usageHeader <= linkpb.MaxMessage {
			answer.Content = c
		}
	}
	if n > linkpb.MaxMessage {
		return s.refuse(fmt.Errorf("%w: the report on %d tasks has %d bytes: the link carries at most %d",
			errRefused, len(r.of.Tasks), n, linkpb.MaxMessage))
	}
	return s.send(message)
}

// changed returns what the machine holds beside what the master knows, whose mark is known;
// nil if it knows all.
func (s *session) changed(known []byte) *linkpb.ContentChange {
	was, mark := s.content, s.mark
	if is := s.client.cfg.Content(); len(is) != len(was) || len(is) > 0 && &is[0] != &was[0] {
		s.content, s.mark = is, linkpb.MarkContent(is)
	}
	if bytes.Equal(known, s.mark) {
		return nil
	}
	change := schema.ContentChange{Whole: true, Added: s.content}
	if bytes.Equal(known, mark) {
		change = schema.ChangeOfContent(was, s.content)
	}
	m := linkpb.EncodeContent(&change)
	m.Mark = s.mark
	return m
}

// planHint starts the timer of the next hint, which later ones share.
func (s *session) planHint() {
	if s.hinted {
		return
	}
	s.hinted = true
	s.hint.Reset(max(hintDelay, time.Until(s.last.Add(hintEvery))))
}

// send sends m. When the stream has ended the error is how it ended.
func (s *session) send(m *linkpb.AgentMessage) error {
	err := s.stream.Send(m)
	if !errors.Is(err, io.EOF) {
		return err
	}
	for { // gRPC has the reason for the receiver
		select {
		case <-s.in: // said before the end, and too late
		case err := <-s.err:
			return ended(err)
		}
	}
}

// refuse sends the master why the session ends, and returns that.
func (s *session) refuse(reason error) error {
	err := s.stream.Send(&linkpb.AgentMessage{Message: &linkpb.AgentMessage_Refuse{Refuse: &linkpb.Refuse{Reason: reason.Error()}}})
	if err != nil {
		return reason // the master left before
	}
	timeout := time.NewTimer(refuseTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-s.in:
		case _ = <-s.err:
			return reason
		case <-timeout.C:
			return reason
		}
	}
}
