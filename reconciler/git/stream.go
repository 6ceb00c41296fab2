package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/schema"
)

// errNoRepository says that the server has no such repository, or does not show
// it.
var errNoRepository = errors.New("there is no such repository")

// uploadPack is the program that a remote runs to serve a fetch.
const uploadPack = "git-upload-pack"

// stream is a session over one connection, as ssh and git have it.
type stream struct {
	in      io.Writer
	out     io.ReadCloser
	parting func() string // what the remote says for people before it leaves
	release func()
}

// dial connects to the remote. Nothing outlives ctx.
func (m *remote) dial(ctx context.Context, w *wire) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", m.address())
	if err != nil {
		return nil, w.fail(err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return &link{conn, w}, nil
}

// link is a connection under a wire.
type link struct {
	net.Conn
	wire *wire
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if over := l.wire.count(n); over != nil {
		err = over
	}
	return n, l.wire.fail(err)
}

// openDaemon begins a conversation with git-daemon(1).
func (m *remote) openDaemon(ctx context.Context, w *wire) (session, error) {
	conn, err := m.dial(ctx, w)
	if err != nil {
		return nil, err
	}
	hello := packp.GitProtoRequest{RequestCommand: uploadPack, Pathname: m.path, Host: m.host}
	if err := hello.Encode(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return &stream{in: conn, out: conn, parting: func() string { return "" }, release: func() { conn.Close() }}, nil
}

// openShell begins a conversation over ssh. It reads the files that Auth names.
func (m *remote) openShell(ctx context.Context, w *wire) (session, error) {
	signer, err := m.auth.signer()
	if err != nil {
		return nil, err
	}
	hosts, err := m.auth.hosts(m)
	if err != nil {
		return nil, err
	}
	conn, err := m.dial(ctx, w)
	if err != nil {
		return nil, err
	}
	c, chans, requests, err := ssh.NewClientConn(conn, m.address(), &ssh.ClientConfig{
		User: m.login(), Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyAlgorithms: hosts.algorithms,
		HostKeyCallback: func(address string, from net.Addr, key ssh.PublicKey) error {
			return w.fail(hosts.verify(address, from, key))
		},
	})
	if err != nil {
		conn.Close()
		return nil, m.shellError(err, hosts, signer.PublicKey())
	}
	client := ssh.NewClient(c, chans, requests)
	s, err := m.run(client)
	if err != nil {
		hangUp(client)
		return nil, err
	}
	return s, nil
}

// shellError says why no one was let in.
func (m *remote) shellError(err error, h *hosts, key ssh.PublicKey) error {
	var kinds *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(err, &kinds) && len(h.algorithms) > 0 && strings.Contains(err.Error(), "host key"):
		return schema.Hintf("compare the keys that it has with what its administrator says, and add one: "+m.keyscan(),
			"the server has no key of the kinds that %s lists for it (%s)", h.file, strings.Join(h.algorithms, ", "))
	case strings.Contains(err.Error(), "unable to authenticate"): // it has no type
		return schema.Hintf(fmt.Sprintf("let the public key (%s.pub) read the repository, as a deploy key; check the user too", m.auth.KeyFile),
			"the server rejects user %s with the key %s", m.login(), fingerprint(key))
	}
	return err
}

// login returns the user to log in as.
func (m *remote) login() string { return cmp.Or(m.user, m.auth.User, sshUser) }

// run starts the remote's side.
func (m *remote) run(client *ssh.Client) (*stream, error) {
	s, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	said := &opening{}
	s.Stderr = said
	st := &stream{release: func() { hangUp(client) }, parting: func() string {
		_ = s.Wait() // all that it has written is read then; that it failed is known
		return oneLine(string(said.text))
	}}
	if st.in, err = s.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	st.out = io.NopCloser(out)
	// As a shell takes it, and the programs that stand in for one.
	return st, s.Start(uploadPack + " '" + strings.NewReplacer(`'`, `'\''`, `!`, `'\!'`).Replace(m.path) + "'")
}

// AdvertisedReferencesContext returns what the remote has.
func (s *stream) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	err := refs.Decode(s.out)
	var line *pktline.ErrorLine
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && refs.IsEmpty():
		return nil, transport.ErrEmptyRemoteRepository
	case errors.As(err, &line):
		return nil, refused(line.Text)
	case errors.Is(err, packp.ErrEmptyInput):
		return nil, refused(s.parting())
	case err != nil:
		return nil, err
	}
	transport.FilterUnsupportedCapabilities(refs.Capabilities)
	return refs, nil
}

// refused is the error of a remote that says text and leaves.
func refused(text string) error {
	text = strings.TrimSpace(text)
	low := strings.ToLower(text)
	for _, s := range []string{"does not appear to be a git repository", "not found", "does not exist", "no such", "access denied or repository not exported"} {
		if strings.Contains(low, s) {
			return fmt.Errorf("%w (the server says: %s)", errNoRepository, text)
		}
	}
	if text == "" {
		return errors.New("the server ends the connection")
	}
	return fmt.Errorf("the server says: %s", text)
}

// UploadPack asks for objects. The response is to be closed.
func (s *stream) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	var b bytes.Buffer
	if err := req.UploadRequest.Encode(&b); err != nil {
		return nil, err
	}
	if err := req.UploadHaves.Encode(&b, false); err != nil {
		return nil, err
	}
	if err := pktline.NewEncoder(&b).EncodeString("done\n"); err != nil {
		return nil, err
	}
	if _, err := s.in.Write(b.Bytes()); err != nil {
		return nil, err
	}
	resp := packp.NewUploadPackResponse(req)
	return resp, resp.Decode(s.out)
}

// Close ends the conversation.
func (s *stream) Close() error {
	s.release()
	return nil
}

// opening keeps the beginning of what is written to it. It has one writer.
type opening struct{ text []byte }

func (o *opening) Write(p []byte) (int, error) {
	const most = 400
	o.text = append(o.text, p[:min(len(p), most-len(o.text))]...)
	return len(p), nil
}

// oneLine makes text of another's one line that is safe to print.
func oneLine(text string) string {
	const most = 400
	text = text[:min(len(text), most)]
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
}
