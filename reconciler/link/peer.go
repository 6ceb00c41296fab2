package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/schema"
)

// peers checks who connects. Over a unix socket it lets in processes of the
// same user and of root, as the kernel names them; over TCP, whom TLS does.
type peers struct {
	cell     string
	tls      *tls.Config // nil: nobody over TCP
	log      *slog.Logger
	refusals refusals

	mu      sync.Mutex        // guards what follows
	open    map[*secured]bool // with a certificate
	joining map[*secured]bool // without
}

// peerInfo says that the peer was checked, and which process it is.
type peerInfo struct {
	credentials.CommonAuthInfo
	pid int
	uid uint32
}

func (peerInfo) AuthType() string { return "unix-peer" }

// ServerHandshake checks who connects.
func (p *peers) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		secure, info, err := p.handshake(c)
		if err != nil && !errors.Is(err, io.EOF) { // one that leaves before it says who it is was not refused
			p.refusals.Refused(refusedTLS, err, time.Now())
		}
		return secure, info, err
	}
	pid, uid, err := checkPeer(u)
	if err != nil {
		p.refusals.Refused(refusedUser, err, time.Now())
		return nil, nil, err
	}
	return c, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, pid, uid}, nil
}

// ClientHandshake always errs: these are a server's credentials.
func (*peers) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are checked by the server")
}

// Info names the protocol.
func (*peers) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer or tls"}
}

// Clone returns the same: a server never copies its credentials to change them.
func (p *peers) Clone() credentials.TransportCredentials { return p }

// OverrideServerName does nothing: it is for clients.
func (*peers) OverrideServerName(string) error { return nil }

// connection says where a call comes from, and what it has shown.
func connection(ctx context.Context) schema.Connection {
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return schema.Connection{}
	}
	switch conn := caller.AuthInfo.(type) {
	case peerInfo:
		return schema.Connection{From: fmt.Sprintf("process %d of uid %d on the master's machine", conn.pid, conn.uid)}
	case *secured:
		c := schema.Connection{From: conn.raw.RemoteAddr().String()}
		if p := conn.current(); p != nil {
			c.Key, c.Issued = p.Key, p.Issued
		}
		return c
	}
	return schema.Connection{}
}

// checkPeer returns the process that connected, and its user. It errs unless that is
// of this user or root.
func checkPeer(u *net.UnixConn) (pid int, uid uint32, err error) {
	uid, err = local.UserOf(u)
	if err != nil {
		return 0, 0, fmt.Errorf("peer of a connection: %w", err)
	}
	pid, err = local.ProcessOf(u)
	if err != nil {
		return 0, 0, fmt.Errorf("peer of a connection: %w", err)
	}
	return pid, uid, allowed(uid, os.Geteuid())
}

// allowed errs unless the peer is of user uid or root.
func allowed(peer uint32, uid int) error {
	if peer == 0 || int(peer) == uid {
		return nil
	}
	return fmt.Errorf("peer is of uid %d: want uid %d or root", peer, uid)
}
