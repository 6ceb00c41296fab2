package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/nodeagent/dial"
	"github.com/musterhq/muster/schema/linkpb"
)

// newConn returns a connection to the master that connects when it is used, once:
// the back-off is Run's. With a configuration it is over TCP.
func newConn(address string, cfg *tls.Config) (*grpc.ClientConn, *handshakes, error) {
	connect := func(ctx context.Context, _ string) (net.Conn, error) { return connectUnix(ctx, address) }
	// The socket's directory and the kernel's word on the peer stand in for
	// TLS.
	shake := &handshakes{TransportCredentials: insecure.NewCredentials()}
	if cfg != nil {
		d := net.Dialer{Timeout: dialTimeout}
		connect = func(ctx context.Context, _ string) (net.Conn, error) { return dial.TCP(ctx, d, address) }
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

// addressTowards returns the address of this machine from which it connects to a master:
// others reach it there unless there is something between that says otherwise. It is a
// loopback address towards a socket, and "" while there is no route.
func addressTowards(ctx context.Context, master string, tcp bool) string {
	if !tcp {
		return "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout) // names are looked up
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", master) // which sends nothing
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close() }() // nothing was written
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("").String()
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

// connectUnix connects, and errs unless this user or root serves the socket, or, to an
// agent that is root, the user whose directory it is in.
func connectUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(c.(*net.UnixConn), path); err != nil { // it is one: the network is "unix"
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), c.Close())
	}
	return c, nil
}

func checkPeer(c *net.UnixConn, path string) error {
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
	switch own := os.Geteuid(); {
	case cred.Uid == 0 || int(cred.Uid) == own:
		return nil
	case own != 0:
		return fmt.Errorf("served by process %d of uid %d: want uid %d or root", cred.Pid, cred.Uid, own)
	}
	if err := only(cred.Uid, path); err != nil {
		return fmt.Errorf("served by process %d of uid %d: %w", cred.Pid, cred.Uid, err)
	}
	return nil
}

// only errs if another user than root and the one named can have put what is at path:
// none of the directories above it may be theirs to write.
func only(uid uint32, path string) error {
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return err
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		var s unix.Stat_t
		if err := unix.Lstat(dir, &s); err != nil {
			return &os.PathError{Op: "lstat", Path: dir, Err: err}
		}
		if s.Uid != 0 && s.Uid != uid || s.Mode&0o022 != 0 {
			return fmt.Errorf("want root: others than that user and root can write to %s", dir)
		}
		if dir == "/" {
			return nil
		}
	}
}
