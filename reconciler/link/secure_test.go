package link_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/linkpb"
)

const patience = 20 * time.Second

// master welcomes everyone.
type master struct{}

func (master) Join(context.Context, schema.MachineInfo) (uint64, error) { return 1, nil }

func (master) Report(context.Context, string, uint64, schema.Report) error { return nil }

func (master) Content(string, uint64, []schema.Digest) {}

func (master) Usage(context.Context, uint64, *schema.MachineUsage) error { return nil }

func (master) Leave(string, uint64) {}

// secureCell is a master that machines reach over TCP.
type secureCell struct {
	t      *testing.T
	dir    *pki.Directory
	server *link.Server
	addr   string

	mu     sync.Mutex // guards what follows
	log    bytes.Buffer
	events []string // their messages
}

func (c *secureCell) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

func (c *secureCell) audit(e schema.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e.Message)
}

func (c *secureCell) said(text string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		log := c.log.String()
		c.mu.Unlock()
		if strings.Contains(log, text) {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the master has not said %q:\n%s", text, log)
		}
	}
}

func newSecureCell(t *testing.T, life time.Duration) *secureCell {
	t.Helper()
	c := &secureCell{t: t}
	var err error
	if c.dir, err = pki.Init(filepath.Join(t.TempDir(), "pki"), "c", time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.dir.Issue(pki.Request{
		Name: identity.Name{Cell: "c", Role: identity.Master, Name: "master"}, Hosts: []string{"127.0.0.1"}, Life: time.Hour, Now: time.Now(),
	}, c.dir.MasterFile()); err != nil {
		t.Fatal(err)
	}
	ledger, err := store.NewMemory().Open("c")
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.Campaign(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(c, nil))
	authority, err := pki.NewAuthority(t.Context(), pki.Config{Dir: c.dir, Ledger: ledger, Life: life, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.addr = l.Addr().String()
	c.server = link.New(link.Config{
		Cell: "c", Master: master{}, PullEvery: time.Hour, Log: log, Audit: c.audit,
		Secure: &link.Secure{TLS: authority.TLS(true, "h2"), Authority: authority},
	})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- c.server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

// certificate issues one outside of a join, as whoever has the key can.
func (c *secureCell) certificate(role identity.Role, name string) *tls.Certificate {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "c.pem")
	_, err := c.dir.Issue(pki.Request{Name: identity.Name{Cell: "c", Role: role, Name: name}, Life: time.Hour, Now: time.Now()}, file)
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := pki.Pair(file, file)
	if err != nil {
		c.t.Fatal(err)
	}
	return pair
}

// dial connects with a certificate, or none.
func (c *secureCell) dial(certificate *tls.Certificate) linkpb.LinkClient {
	c.t.Helper()
	cfg := identity.Client{Host: "127.0.0.1", Pin: identity.Fingerprint(c.dir.CA)}
	if certificate != nil {
		cfg.Certificate = func() (*tls.Certificate, error) { return certificate, nil }
	}
	return c.dialWith(credentials.NewTLS(identity.ClientTLS(cfg)))
}

func (c *secureCell) dialWith(creds credentials.TransportCredentials) linkpb.LinkClient {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return linkpb.NewLinkClient(conn)
}

func (c *secureCell) context() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

// hello says that the caller is the machine, and returns the answer.
func (c *secureCell) hello(l linkpb.LinkClient, machine string) (linkpb.Link_SessionClient, error) {
	c.t.Helper()
	stream, err := l.Session(c.context())
	if err != nil {
		return nil, err
	}
	_ = stream.Send(&linkpb.AgentMessage{Message: &linkpb.AgentMessage_Hello{Hello: &linkpb.Hello{
		Cell: "c", Machine: &linkpb.MachineInfo{Name: machine},
	}}}) // what is wrong is said by Recv
	_, err = stream.Recv()
	return stream, err
}

func newRequest(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}

func wantStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want %v with %q", err, code, text)
	}
}

// TestSecureRefuses has all kinds of peers that may not be here.
func TestSecureRefuses(t *testing.T) {
	t.Parallel()
	c := newSecureCell(t, time.Hour)
	t.Run("another machine's name", func(t *testing.T) {
		_, err := c.hello(c.dial(c.certificate(identity.Machine, "m1")), "m2")
		wantStatus(t, err, codes.PermissionDenied, "the certificate is of machine m1, and the agent says that it is m2")
	})
	t.Run("no certificate", func(t *testing.T) {
		_, err := c.hello(c.dial(nil), "m1")
		wantStatus(t, err, codes.Unauthenticated, "no certificate: join with a token")
	})
	t.Run("no certificate, a log", func(t *testing.T) {
		stream, err := c.dial(nil).Logs(c.context())
		if err == nil {
			_, err = stream.Recv()
		}
		wantStatus(t, err, codes.Unauthenticated, "no certificate")
	})
	t.Run("an operator", func(t *testing.T) {
		_, err := c.hello(c.dial(c.certificate(identity.Operator, "m1")), "m1")
		wantStatus(t, err, codes.PermissionDenied, "operator/m1 is no machine")
	})
	t.Run("an operator who renews", func(t *testing.T) {
		_, der := newRequest(t)
		_, err := c.dial(c.certificate(identity.Operator, "m1")).Certify(c.context(), &linkpb.CertifyRequest{Request: der})
		wantStatus(t, err, codes.PermissionDenied, "operator/m1 is no machine")
	})
	t.Run("no token", func(t *testing.T) {
		_, der := newRequest(t)
		_, err := c.dial(nil).Certify(c.context(), &linkpb.CertifyRequest{Request: der})
		wantStatus(t, err, codes.PermissionDenied, "not a join token")
	})
	t.Run("another cell's authority", func(t *testing.T) {
		other := newSecureCell(t, time.Hour)
		_, err := c.hello(c.dial(other.certificate(identity.Machine, "m1")), "m1")
		wantStatus(t, err, codes.Unavailable, "") // the alert may come too late to be read
		c.said("signed by unknown authority")
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		_, err := c.hello(c.dialWith(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})), "m1")
		wantStatus(t, err, codes.Unavailable, "protocol version not supported")
	})
	t.Run("no TLS", func(t *testing.T) {
		_, err := c.hello(c.dialWith(insecure.NewCredentials()), "m1")
		wantStatus(t, err, codes.Unavailable, "")
	})
	t.Run("much without a certificate", func(t *testing.T) {
		_, err := c.dial(nil).Certify(c.context(), &linkpb.CertifyRequest{Token: strings.Repeat("x", 1<<20)})
		wantStatus(t, err, codes.Unavailable, "")
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, text := range []string{
		"agent refused (certificate): the certificate is of machine m1, and the agent says that it is m2",
		"agent refused (token): certificate for 127.0.0.1:", "agent refused (tls): connection from 127.0.0.1:",
	} {
		if len(c.events) != 3 || !strings.HasPrefix(c.events[i], text) {
			t.Errorf("events %q, want one of each reason: %q", c.events, text)
		}
	}
}

// TestForeignLog has a machine answer for a log that another was asked for.
func TestForeignLog(t *testing.T) {
	t.Parallel()
	c := newSecureCell(t, time.Hour)
	mine, theirs := c.dial(c.certificate(identity.Machine, "m1")), c.dial(c.certificate(identity.Machine, "m2"))
	session, err := c.hello(mine, "m1")
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		r   io.ReadCloser
		err error
	}
	asked := make(chan answer, 1)
	go func() {
		r, err := c.server.Logs(c.context(), "m1", schema.LogRequest{Task: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(0)})
		asked <- answer{r, err}
	}()
	var id string
	for id == "" {
		m, err := session.Recv()
		if err != nil {
			t.Fatal(err)
		}
		id = m.GetOpenLogs().GetId()
	}
	open := func(l linkpb.LinkClient) error {
		stream, err := l.Logs(c.context())
		if err != nil {
			return err
		}
		_ = stream.Send(&linkpb.LogChunk{Id: id}) // what is wrong is said by Recv
		_, err = stream.Recv()
		return err
	}
	wantStatus(t, open(theirs), codes.NotFound, "no request for this log is open")
	if err := open(mine); err != nil {
		t.Error(err)
	}
	a := <-asked
	if a.err != nil {
		t.Fatal(a.err)
	}
	_ = a.r.Close()
}

// TestJoiningBound holds many connections without a certificate open: they are
// bounded, and others are served.
func TestJoiningBound(t *testing.T) {
	t.Parallel()
	c := newSecureCell(t, time.Hour)
	cfg := identity.ClientTLS(identity.Client{Host: "127.0.0.1", Pin: identity.Fingerprint(c.dir.CA), Protocols: []string{"h2"}})
	refused := 0
	for range link.MaxJoining + 3 {
		conn, err := tls.Dial("tcp", c.addr, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d were refused, want 3", refused)
	}
	if _, err := c.hello(c.dial(c.certificate(identity.Machine, "m1")), "m1"); err != nil {
		t.Error(err)
	}
}

// TestRevokedSession ends what a machine has open when it is revoked, and says
// why when it comes again.
func TestRevokedSession(t *testing.T) {
	t.Parallel()
	c := newSecureCell(t, time.Hour)
	l := c.dial(c.certificate(identity.Machine, "m1"))
	session, err := c.hello(l, "m1")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.dir.Revoke(identity.Name{Cell: "c", Role: identity.Machine, Name: "m1"}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = session.Recv()
	}
	wantStatus(t, err, codes.Unavailable, "")
	c.said("connection closed")
	_, err = c.hello(l, "m1")
	wantStatus(t, err, codes.PermissionDenied, "machine/m1 was revoked at")
}

// TestExpiredSession ends a session whose certificate is not renewed, and lets
// one go on that is.
func TestExpiredSession(t *testing.T) {
	t.Parallel()
	c := newSecureCell(t, pki.MinLife)
	type joined struct {
		l       linkpb.LinkClient
		der     []byte
		session linkpb.Link_SessionClient
		ended   chan error
	}
	join := func(machine string) *joined {
		t.Helper()
		token, err := c.dir.Token(machine, time.Now(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		key, der := newRequest(t)
		answer, err := c.dial(nil).Certify(c.context(), &linkpb.CertifyRequest{Token: token, Request: der})
		if err != nil {
			t.Fatal(err)
		}
		j := &joined{l: c.dial(&tls.Certificate{Certificate: [][]byte{answer.GetCertificate()}, PrivateKey: key}), der: der, ended: make(chan error, 1)}
		if j.session, err = c.hello(j.l, machine); err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				if _, err := j.session.Recv(); err != nil {
					j.ended <- err
					return
				}
			}
		}()
		return j
	}
	idle, renewed := join("m1"), join("m2")
	for {
		if _, err := renewed.l.Certify(c.context(), &linkpb.CertifyRequest{Request: renewed.der}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-idle.ended:
			c.said("the certificate of machine/m1 expired at")
			_, err := c.hello(idle.l, "m1")
			wantStatus(t, err, codes.Unavailable, "") // the alert may come too late to be read
			c.said("certificate has expired")
			if _, err := renewed.l.Certify(c.context(), &linkpb.CertifyRequest{Request: renewed.der}); err != nil {
				t.Error(err)
			}
			return
		case err := <-renewed.ended:
			t.Fatalf("a session whose certificate was renewed has ended: %v", err)
		case <-time.After(pki.MinLife / 4):
		}
	}
}
