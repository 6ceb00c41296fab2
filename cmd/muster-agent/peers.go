package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/musterhq/muster/nodeagent/credential"
	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/nodeagent/image/peer"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
)

// sharing is what the machine gets from others and gives to them: images and packages.
type sharing struct {
	client   *peer.Client // nil: without a certificate nobody is believed
	listener net.Listener // nil: it gives nothing
	address  string       // where others reach that: MachineInfo.Shares
	server   *peer.Server // nil: as listener
}

// openImages opens the images of the state directory dir, and the way to those of other machines.
func (a *agent) openImages(ctx context.Context, f *flags, dir string, cfg *loop.Config) error {
	var err error
	if a.sharing, err = newSharing(ctx, f, a.id, func(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
		return a.link.Sources(ctx, q)
	}); err != nil {
		return err
	}
	if a.images, err = openImages(dir, &f.images, a.sharing.peers(), cfg.Log); err != nil {
		return err
	}
	if a.sharing.listener != nil {
		a.sharing.server = peer.NewServer(a.images.store, a.id, cfg.Log)
	}
	for _, m := range peer.NewMetrics(peer.Traffic{
		FromHosts: func() int64 { return a.images.store.Traffic().Hosts }, FromMachines: func() int64 { return a.images.store.Traffic().Peers }, Sent: a.sharing.sent,
	}) {
		if err := cfg.Metrics.Register(m); err != nil {
			return err
		}
	}
	return nil
}

// newSharing opens the socket for other machines, if there is to be one. ask asks the master.
func newSharing(ctx context.Context, f *flags, id *credential.Store, ask asker) (*sharing, error) {
	s := &sharing{}
	if id != nil {
		s.client = peer.NewClient(ask, id)
	}
	if f.images.listen == "" {
		return s, nil
	}
	if id == nil {
		return nil, usageError{errors.New("--peer-listen is for machines with a certificate, and --master is a socket"), "leave it out, or give --master HOST:PORT"}
	}
	var lc net.ListenConfig
	var err error
	if s.listener, err = lc.Listen(ctx, "tcp", f.images.listen); err != nil {
		return nil, fmt.Errorf("--peer-listen: %w", err)
	}
	if s.address = s.listener.Addr().String(); listensEverywhere(s.listener) {
		_, port, _ := net.SplitHostPort(s.address) // it is an address
		s.address = ":" + port
	}
	return s, nil
}

// listensEverywhere reports whether a listener is at all addresses of this machine.
func listensEverywhere(l net.Listener) bool { return l.Addr().(*net.TCPAddr).IP.IsUnspecified() }

// peers returns other machines as a store asks them; nil if there are none.
func (s *sharing) peers() image.Peers {
	if s.client == nil {
		return nil
	}
	return s.client
}

// serve serves other machines until ctx ends.
func (s *sharing) serve(ctx context.Context) error { return s.server.Serve(ctx, s.listener) }

// sent returns how many bytes other machines were sent.
func (s *sharing) sent() int64 {
	if s.server == nil {
		return 0
	}
	bytes, _ := s.server.Sent()
	return bytes
}

// asker asks the master, once there is a link.
type asker func(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error)

// Sources implements peer.Asker.
func (a asker) Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
	return a(ctx, q)
}
