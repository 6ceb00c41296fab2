package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

const (
	mostViews = 1 << 20 // bytes of views in one message, unless one is larger
	mostData  = 4096    // of jobs that both ends keep
	wrapping  = 32      // more bytes than a message adds to what is alone in it
)

// ServiceConfig is what a Service needs.
type ServiceConfig struct {
	Cell string
	Log  *slog.Logger
}

// Service is the hub of the leader for shards of other masters, as gRPC calls it. Only
// masters may reach it.
type Service struct {
	linkpb.UnimplementedRelayServer
	cfg     ServiceConfig
	tunnels tunnels
	digests linkpb.Digests

	mu  sync.Mutex // guards hub
	hub *Hub
}

// NewService returns a Service that does not lead.
func NewService(cfg ServiceConfig) *Service { return &Service{cfg: cfg} }

// Lead says which hub leads; nil for none. Shards of another one are let go when its
// loop ends.
func (s *Service) Lead(h *Hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub = h
}

// Attach serves the shard of another master.
func (s *Service) Attach(stream linkpb.Relay_AttachServer) error {
	s.mu.Lock()
	h := s.hub
	s.mu.Unlock()
	if h == nil {
		return status.Error(codes.Unavailable, "this master does not lead")
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if cell := first.GetHello().GetCell(); cell != s.cfg.Cell {
		return status.Errorf(codes.FailedPrecondition, "a master of cell %q, and this is cell %q", cell, s.cfg.Cell)
	}
	if err := stream.Send(&linkpb.LeaderMessage{Message: &linkpb.LeaderMessage_Attached{Attached: &linkpb.Attached{Term: h.cfg.Term}}}); err != nil {
		return err
	}
	r := &replica{
		service: s, stream: stream, wake: make(chan struct{}, 1), done: make(chan struct{}),
		views: map[string]schema.View{}, asked: map[uint64]chan bool{}, sent: map[schema.Digest]bool{},
	}
	a := h.attach(r)
	defer a.detach()
	defer close(r.done)
	failed := make(chan error, 2)
	go func() { failed <- r.receive(a) }()
	go func() { failed <- r.deliver() }()
	select {
	case err := <-failed:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case <-a.gone():
		return status.Error(codes.Unavailable, "this master leads no more")
	case <-stream.Context().Done():
		return context.Cause(stream.Context())
	}
}

// replica is the shard of another master, for the hub.
type replica struct {
	service *Service
	stream  linkpb.Relay_AttachServer
	wake    chan struct{} // there is something to send
	done    chan struct{} // closed when the call ends

	mu    sync.Mutex              // guards what follows
	out   []*linkpb.LeaderMessage // before the views
	order []string                // of machines in views
	views map[string]schema.View  // to be sent: the newest of each machine
	asked map[uint64]chan bool    // whether an agent answers
	last  uint64                  // key of asked

	sent map[schema.Digest]bool // data that the other end has; of deliver
}

// send queues a message. It never blocks.
func (r *replica) send(m *linkpb.LeaderMessage) {
	r.mu.Lock()
	r.out = append(r.out, m)
	r.mu.Unlock()
	r.notify()
}

func (r *replica) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *replica) view(machine string, view schema.View) {
	r.mu.Lock()
	if _, waits := r.views[machine]; !waits {
		r.order = append(r.order, machine)
	}
	r.views[machine] = view
	r.mu.Unlock()
	r.notify()
}

func (r *replica) drop(machine string, epoch uint64, why error) {
	s := status.Convert(why)
	r.send(&linkpb.LeaderMessage{Message: &linkpb.LeaderMessage_Drop{Drop: &linkpb.Drop{
		Machine: machine, Epoch: epoch, Reason: s.Message(), Code: uint32(s.Code()),
	}}})
}

// answers has the other master ask an agent whether it is there.
func (r *replica) answers(ctx context.Context, machine, life string) bool {
	answer := make(chan bool, 1)
	r.mu.Lock()
	r.last++
	id := r.last
	r.asked[id] = answer
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.asked, id)
		r.mu.Unlock()
	}()
	r.send(&linkpb.LeaderMessage{Message: &linkpb.LeaderMessage_Ask{Ask: &linkpb.Ask{Id: id, Machine: machine, Life: life}}})
	select {
	case yes := <-answer:
		return yes
	case <-ctx.Done():
	case <-r.done:
	}
	return false
}

func (r *replica) logs(ctx context.Context, machine string, q schema.LogRequest) (io.ReadCloser, error) {
	return r.open(ctx, &linkpb.Open{Machine: machine, What: &linkpb.Open_Logs{Logs: linkpb.EncodeLogRequest("", &q)}})
}

func (r *replica) exec(ctx context.Context, machine string, q schema.ExecRequest) (io.ReadWriteCloser, error) {
	return r.open(ctx, &linkpb.Open{Machine: machine, What: &linkpb.Open_Exec{Exec: linkpb.EncodeExecRequest("", &q)}})
}

func (r *replica) open(ctx context.Context, m *linkpb.Open) (*tunnel, error) {
	t, err := r.service.tunnels.open(ctx, r.done, func(id string) {
		m.Id = id
		r.send(&linkpb.LeaderMessage{Message: &linkpb.LeaderMessage_Open{Open: m}})
	})
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", m.GetMachine(), err)
	}
	return t, nil
}

// receive acts on the messages of the other master. Updates are handed to the loop one message
// after the other: whoever has more to say waits.
func (r *replica) receive(a *attachment) error {
	for {
		m, err := r.stream.Recv()
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *linkpb.ShardMessage_Join:
			go r.join(a, m.Join)
		case *linkpb.ShardMessage_Updates:
			if err := r.updates(a, m.Updates); err != nil {
				return err
			}
		case *linkpb.ShardMessage_Answer:
			r.mu.Lock()
			if answer := r.asked[m.Answer.GetId()]; answer != nil {
				answer <- m.Answer.GetAnswers()
				delete(r.asked, m.Answer.GetId())
			}
			r.mu.Unlock()
		default:
			return status.Errorf(codes.InvalidArgument, "unexpected message %T", m)
		}
	}
}

// join gets a machine its next epoch.
func (r *replica) join(a *attachment, m *linkpb.ShardJoin) {
	answer := func(j *linkpb.Joined) {
		j.Id = m.GetId()
		r.send(&linkpb.LeaderMessage{Message: &linkpb.LeaderMessage_Joined{Joined: j}})
	}
	info, err := linkpb.DecodeMachine(m.GetMachine())
	info.Link = decodeLink(m.GetLink())
	if err == nil {
		err = a.join(context.Background(), &info, func(epoch uint64) { answer(&linkpb.Joined{Epoch: epoch}) })
	}
	if err == nil {
		return
	}
	j, fault := encodeRefusal(err)
	if fault != nil {
		j = &linkpb.Joined{Error: fault.Error()}
	}
	answer(j)
}

// updates hands updates of sessions to the loop. One that cannot be read ends its
// session, and no other.
func (r *replica) updates(a *attachment, m *linkpb.SessionUpdates) error {
	updates := make([]model.SessionUpdate, len(m.GetUpdates()))
	unread := map[int]error{}
	for i, x := range m.GetUpdates() {
		var err error
		if updates[i], err = decodeUpdate(x, &r.service.digests); err != nil {
			unread[i] = err
			updates[i] = model.SessionUpdate{Machine: x.GetMachine(), Epoch: x.GetEpoch(), Left: true}
		}
	}
	refused, err := a.updates(r.stream.Context(), updates)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	taken := &linkpb.Taken{}
	for i := range updates {
		err := refused[i]
		if unread[i] != nil {
			err = unread[i]
		}
		if err != nil {
			taken.Refused = append(taken.Refused, &linkpb.Refusal{Index: uint32(i), Reason: err.Error()})
		}
	}
	r.send(&linkpb.LeaderMessage{Message: &linkpb.LeaderMessage_Taken{Taken: taken}})
	return nil
}

// deliver sends what is queued: messages in their order, views after them. So a machine
// has joined at the other end before it has a view.
func (r *replica) deliver() error {
	for {
		select {
		case <-r.done:
			return nil
		case <-r.wake:
		}
		for {
			r.mu.Lock()
			out := r.out
			r.out = nil
			var machines []string
			var views []schema.View
			if len(out) == 0 {
				machines, views = r.someViews()
			}
			r.mu.Unlock()
			if len(out)+len(views) == 0 {
				break
			}
			for _, m := range out {
				if err := r.stream.Send(m); err != nil {
					return err
				}
			}
			if err := r.sendViews(machines, views); err != nil {
				return err
			}
		}
	}
}

// someViews takes views out of the queue. The caller has the lock.
func (r *replica) someViews() (machines []string, views []schema.View) {
	n := min(len(r.order), mostUpdates)
	machines = r.order[:n:n]
	r.order = r.order[n:]
	for _, machine := range machines {
		views = append(views, r.views[machine])
		delete(r.views, machine)
	}
	return machines, views
}

// sendViews sends views, after the data that the other end lacks, in messages of a size
// that the link carries. One that cannot be sent is left out, whole.
func (r *replica) sendViews(machines []string, views []schema.View) error {
	m, size := &linkpb.Views{}, 0
	flush := func() error {
		if size == 0 {
			return nil
		}
		err := r.stream.Send(&linkpb.LeaderMessage{Message: &linkpb.LeaderMessage_Views{Views: m}})
		m, size = &linkpb.Views{}, 0
		return err
	}
	room := func(n int) error {
		if size+n <= linkpb.MaxMessage/2 {
			return nil
		}
		return flush() // what is larger goes alone
	}
	for i := range views {
		v := &views[i]
		if size > mostViews || len(r.sent) > mostData {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(r.sent) > mostData {
			clear(r.sent)
			m.Forget = true
		}
		data, err := linkpb.EncodeJobs(v, r.sent)
		x := &linkpb.MachineView{Machine: machines[i], View: linkpb.EncodeView(v)}
		if err == nil {
			err = carried(x, data)
		}
		if err != nil {
			r.service.cfg.Log.Error("view not sent", "machine", machines[i], "err", err)
			continue
		}
		for _, d := range data {
			n := proto.Size(d)
			if err := room(n); err != nil {
				return err
			}
			m.Data, size = append(m.Data, d), size+n
			r.sent[schema.Digest(d.GetDigest())] = true
		}
		n := proto.Size(x)
		if err := room(n); err != nil {
			return err
		}
		m.Views, size = append(m.Views, x), size+n
	}
	return flush()
}

// carried errs when a view, or data that it refers to, is too large for a message.
func carried(v *linkpb.MachineView, data []*linkpb.Data) error {
	most := proto.Size(v)
	for _, d := range data {
		most = max(most, proto.Size(d))
	}
	if most > linkpb.MaxMessage-wrapping {
		return fmt.Errorf("%d bytes in one message: the link carries at most %d", most, linkpb.MaxMessage)
	}
	return nil
}
