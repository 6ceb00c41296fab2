package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
)

// peerCredentials lets in processes of the same user and of root, as the kernel
// names them. Over anything but a unix socket it lets in nobody.
type peerCredentials struct {
	log *slog.Logger
}

// peerInfo says that the peer was checked.
type peerInfo struct {
	credentials.CommonAuthInfo
}

func (peerInfo) AuthType() string { return "unix-peer" }

func (p peerCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := checkPeer(c); err != nil {
		p.log.Warn("connection refused", "err", err) // gRPC tells nobody
		return nil, nil, err
	}
	return c, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// ClientHandshake always errs: these are a server's credentials.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are checked by the server")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName does nothing: a unix socket has no server name.
func (peerCredentials) OverrideServerName(string) error { return nil }

// checkPeer errs unless the process that connected is of this user or root.
func checkPeer(c net.Conn) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("connection over %s: only a unix socket is supported until there is TLS", c.LocalAddr().Network())
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return fmt.Errorf("peer of a connection: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return fmt.Errorf("peer of a connection: %w", err)
	}
	return allowed(cred, os.Geteuid())
}

// allowed errs unless the peer is of user uid or root.
func allowed(peer *unix.Ucred, uid int) error {
	if peer.Uid == 0 || int(peer.Uid) == uid {
		return nil
	}
	return fmt.Errorf("peer is process %d of uid %d: want uid %d or root", peer.Pid, peer.Uid, uid)
}
