package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/musterhq/muster/schema/linkpb"
)

// dial returns a connection to the master's socket that connects when it is
// used, once: the back-off is Run's.
func dial(path string) (*grpc.ClientConn, error) {
	connect := func(ctx context.Context, _ string) (net.Conn, error) { return connectUnix(ctx, path) }
	return grpc.NewClient("passthrough:///master",
		grpc.WithContextDialer(connect), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		// The socket's directory and the kernel's word on the peer stand in
		// for TLS.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(linkpb.MaxMessage), grpc.MaxCallSendMsgSize(linkpb.MaxMessage)),
	)
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
