package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema/linkpb"
)

// dial returns a connection to the master that connects when it is used, once:
// the back-off is Run's. With a configuration it is over TCP.
func dial(address string, cfg *tls.Config) (*grpc.ClientConn, *handshakes, error) {
	connect := func(ctx context.Context, _ string) (net.Conn, error) { return connectUnix(ctx, address) }
	// The socket's directory and the kernel's word on the peer stand in for
	// TLS.
	shake := &handshakes{TransportCredentials: insecure.NewCredentials()}
	if cfg != nil {
		d := net.Dialer{Timeout: dialTimeout}
		connect = func(ctx context.Context, _ string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
		shake.TransportCredentials = credentials.NewTLS(cfg)
	}
	conn, err := grpc.NewClient("passthrough:///master",
		grpc.WithContextDialer(connect), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithTransportCredentials(shake),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(linkpb.MaxMessage), grpc.MaxCallSendMsgSize(linkpb.MaxMessage)),
	)
	return conn, shake, err
}

// handshakes remembers why the last handshake failed: in gRPC's own words it is
// hard to find.
type handshakes struct {
	credentials.TransportCredentials
	mu  sync.Mutex // guards err
	err error
}

// ClientHandshake makes a handshake.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	return c, info, err
}

// Clone returns the same, so that what it remembers is found.
func (h *handshakes) Clone() credentials.TransportCredentials { return h }

// explain returns err, or what is beneath it if that was a handshake.
func (h *handshakes) explain(address string, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil && status.Code(err) == codes.Unavailable {
		return fmt.Errorf("connect to %s: %w", address, h.err)
	}
	return err
}

// connectUnix connects, and errs unless this user or root serves the socket.
func connectUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(c.(*net.UnixConn)); err != nil { // it is one: the network is "unix"
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), c.Close())
	}
	return c, nil
}

func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return err
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("served by process %d of uid %d: want uid %d or root", cred.Pid, cred.Uid, os.Geteuid())
	}
	return nil
}
