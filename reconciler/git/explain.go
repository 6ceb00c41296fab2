package git

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/musterhq/muster/schema"
)

// explain says of a remote's error what it is and what to do about it. The text
// is the same for the same trouble: it names no port of ours and no time.
func (m *remote) explain(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		branch := m.branch
		if branch == "" {
			branch = "main"
		}
		return noBranch(m.name, branch, nil)
	}
	if strings.HasPrefix(err.Error(), "repository "+m.name) {
		return err // it says all that there is to say
	}
	var f *schema.HintedError
	if !errors.As(err, &f) {
		f = m.fault(err)
		f.Err = err
		if m.once {
			f.Hint = strings.TrimSuffix(f.Hint, "; it is tried again")
		}
	}
	return fmt.Errorf("repository %s: %w", m.name, f)
}

// fault returns what there is to say of an error.
func (m *remote) fault(err error) *schema.HintedError {
	var status *statusError
	var redirect *redirectError
	var content *contentError
	var large *tooLargeError
	var disk *storeError
	switch {
	case errors.As(err, &disk):
		return schema.Hintf("check the free space and the owner of --data-dir", "%v", disk)
	case errors.As(err, &status):
		return m.statusFault(status)
	case errors.As(err, &redirect):
		return schema.Hintf("credentials are not sent to another host; if the repository has moved, give its new URL", "%v", redirect)
	case errors.As(err, &content):
		return schema.Hintf("check the URL: it may be that of a web page, or a page to log in on", "%v", content)
	case errors.As(err, &large):
		return schema.Hintf("keep the config in a repository of its own", "the server sends %v", large)
	case errors.Is(err, errNoRepository):
		return schema.Hintf("check the URL; a private repository is reported like this too", "%s", oneLine(err.Error()))
	case errors.Is(err, errStalled), errors.Is(err, context.DeadlineExceeded):
		return schema.Hintf("check the server and the network; it is tried again", "no answer within %s", m.stall)
	}
	if f := m.trustFault(err); f != nil {
		return f
	}
	return networkFault(err)
}

func (m *remote) statusFault(e *statusError) *schema.HintedError {
	switch {
	case e.code == http.StatusUnauthorized && m.auth.TokenFile == "":
		return schema.Hintf("give --git-token-file FILE", "%v: authentication is required", e)
	case e.code == http.StatusUnauthorized:
		return schema.Hintf(fmt.Sprintf("check that the token in %s has not expired, and the user; a new token there is used at the next look", m.auth.TokenFile),
			"%v: the token is rejected", e)
	case e.code == http.StatusForbidden:
		return schema.Hintf("let the owner of the token read the repository", "%v: the token lacks permission", e)
	case e.code == http.StatusNotFound:
		return schema.Hintf("check the URL; a private repository is reported like this too", "%v: %v", e, errNoRepository)
	case e.code == http.StatusTooManyRequests:
		return schema.Hintf("it is tried again less often; give a longer --poll", "%v", e)
	case e.code >= http.StatusInternalServerError:
		return schema.Hintf("the server's log has details; it is tried again", "%v", e)
	}
	return schema.Hintf("check the URL", "%v", e)
}

// trustFault returns what there is to say when a server could not prove who it
// is, else nil.
func (m *remote) trustFault(err error) *schema.HintedError {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		if m.auth.CAFile != "" {
			return schema.Hintf("put the certificate of the authority that signed the server's there", "the server's certificate is not signed by an authority in %s", m.auth.CAFile)
		}
		return schema.Hintf("if it is an authority of your own, give its certificate with --git-ca-file FILE", "the server's certificate is signed by an unknown authority")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		if time.Now().Before(invalid.Cert.NotBefore) {
			return schema.Hintf("check the clock of this machine", "the server's certificate is not valid before %s", invalid.Cert.NotBefore.UTC().Format(time.RFC3339))
		}
		return schema.Hintf("have the server's certificate renewed; if it is not that old, check the clock of this machine", "the server's certificate expired at %s", invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &invalid):
		return schema.Hintf("have the server's certificate replaced", "%v", invalid)
	case errors.As(err, &host):
		return schema.Hintf("give the URL with a name that is in the certificate, or have the certificate replaced", "%s", oneLine(strings.TrimPrefix(host.Error(), "x509: ")))
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return schema.Hintf("check port and scheme of the URL", "the server does not speak TLS")
	}
	return nil
}

// networkFault returns what there is to say of what is left.
func networkFault(err error) *schema.HintedError {
	const again = "check the URL and the network; it is tried again"
	var op *net.OpError
	var name *net.DNSError
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return schema.Hintf("check the host in the URL; it is tried again", "host %s has no address", name.Name)
	case errors.As(err, &name):
		return schema.Hintf("check the DNS of this machine; it is tried again", "cannot resolve host %s: %s", name.Name, name.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return schema.Hintf(again, "connection refused")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.EPIPE):
		return schema.Hintf(again, "the connection was lost")
	case errors.As(err, &op): // without its addresses: a port of ours is another each time
		return schema.Hintf(again, "%s: %v", op.Op, op.Err)
	}
	var odd *plumbing.UnexpectedError
	if errors.As(err, &odd) {
		err = odd.Err
	}
	text := oneLine(err.Error())
	if strings.Contains(text, "unexpected EOF") { // of decoders that keep no type
		text = "the connection was lost"
	}
	if said, ok := strings.CutPrefix(text, "unexpected error: "); ok { // go-git's words for what the other side says
		return schema.Hintf("`git fsck` in the repository on the server shows details; a partial clone cannot serve others", "the server says: %s", said)
	}
	return schema.Hintf(again, "%s", text)
}
