package web_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// secureAPI is an API over TLS.
type secureAPI struct {
	t    *testing.T
	dir  *pki.Directory
	cell *cell
	url  string
}

func newSecureAPI(t *testing.T) *secureAPI {
	t.Helper()
	a := &secureAPI{t: t, cell: newCell(busy())}
	var err error
	if a.dir, err = pki.Init(filepath.Join(t.TempDir(), "pki"), "local", time.Now()); err != nil {
		t.Fatal(err)
	}
	a.issue(identity.Master, "master", a.dir.MasterFile(), time.Hour)
	ledger, err := store.NewMemory().Open("local")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.NewAuthority(t.Context(), pki.Config{Dir: a.dir, Ledger: ledger, Life: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := web.ListenSecure("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.url = "https://" + l.Addr().String()
	cfg := config(a.cell)
	cfg.Secure = &web.Secure{TLS: authority.TLS(false, "h2", "http/1.1"), Admit: authority.Admit}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- web.New(cfg).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a
}

func (a *secureAPI) issue(role identity.Role, name, file string, life time.Duration) {
	a.t.Helper()
	r := pki.Request{Name: identity.Name{Cell: "local", Role: role, Name: name}, Life: life, Now: time.Now()}
	if role == identity.Master {
		r.Hosts = []string{"127.0.0.1"}
	}
	if _, err := a.dir.Issue(r, file); err != nil {
		a.t.Fatal(err)
	}
}

// files returns what a client with these files shows and believes.
func files(t *testing.T, file string) *client.Secure {
	t.Helper()
	return &client.Secure{
		Certificate: func() (*tls.Certificate, error) { return pki.Pair(file, file) },
		Authorities: func() []*x509.Certificate {
			list, err := pki.Authorities(file)
			if err != nil {
				t.Error(err)
			}
			return list
		},
	}
}

func (a *secureAPI) client(role identity.Role, name string) *client.Client {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), name+".pem")
	a.issue(role, name, file, time.Hour)
	return a.dial(file)
}

func (a *secureAPI) dial(file string) *client.Client {
	a.t.Helper()
	c, err := client.NewSecure(a.url, files(a.t, file))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(c.Close)
	return c
}

func wantClientError(t *testing.T, err error, code int, text string) {
	t.Helper()
	var e *client.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, text) || e.Hint == "" {
		t.Errorf("error %v, want code %d with %q and a hint", err, code, text)
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	a := newSecureAPI(t)
	ctx := t.Context()
	look := func(c *client.Client) error {
		_, _, err := c.Status(ctx, client.StatusQuery{})
		return err
	}
	reconcile := func(c *client.Client) error {
		_, err := c.Reconcile(ctx)
		return err
	}
	operator, reader := a.client(identity.Operator, "ada"), a.client(identity.ReadOnly, "ben")
	if err := errors.Join(look(operator), reconcile(operator), look(reader)); err != nil {
		t.Error(err)
	}
	wantClientError(t, reconcile(reader), http.StatusForbidden, "reconcile needs the role operator; you are read-only/ben")
	if a.cell.looked != 1 {
		t.Errorf("looked %d times", a.cell.looked)
	}
	wantClientError(t, look(a.client(identity.Machine, "m1")), http.StatusForbidden, "machine/m1 may not use the API")
	if err := a.dir.Revoke(identity.Name{Cell: "local", Role: identity.ReadOnly, Name: "ben"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); look(reader) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the revocation is not seen")
		}
	}
	wantClientError(t, look(reader), http.StatusForbidden, "read-only/ben was revoked at")
}

// TestUpgrade keeps whoever may only read from taking a connection over.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	a := newSecureAPI(t)
	for role, want := range map[identity.Role]int{identity.ReadOnly: http.StatusForbidden, identity.Operator: http.StatusOK} {
		file := filepath.Join(t.TempDir(), "c.pem")
		a.issue(role, "ada", file, time.Hour)
		s := files(t, file)
		transport := &http.Transport{TLSClientConfig: identity.ClientTLS(identity.Client{Host: "127.0.0.1", Authorities: s.Authorities, Certificate: s.Certificate, Protocols: []string{"http/1.1"}})}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "tcp")
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		transport.CloseIdleConnections()
		if answer.StatusCode != want {
			t.Errorf("%s: %s, want %d", role, answer.Status, want)
		}
	}
}

// TestSecureClientErrors has clients that cannot come in.
func TestSecureClientErrors(t *testing.T) {
	t.Parallel()
	a, other := newSecureAPI(t), newSecureAPI(t)
	foreign := filepath.Join(t.TempDir(), "foreign.pem")
	other.issue(identity.Operator, "eve", foreign, time.Hour)
	mine := filepath.Join(t.TempDir(), "mine.pem")
	a.issue(identity.Operator, "ada", mine, time.Hour)
	brief := filepath.Join(t.TempDir(), "brief.pem")
	if _, err := a.dir.Issue(pki.Request{
		Name: identity.Name{Cell: "local", Role: identity.Operator, Name: "ada"}, Life: time.Minute, Now: time.Now().Add(-5 * time.Minute),
	}, brief); err != nil {
		t.Fatal(err)
	}
	mixed := files(t, foreign)
	mixed.Authorities = files(t, mine).Authorities
	for name, tt := range map[string]struct {
		url    string
		secure *client.Secure
		want   string
	}{
		"another authority": {a.url, files(t, foreign), "it is signed by an authority that is not trusted here"},
		"another's client":  {a.url, mixed, "rejects the certificate of operator/eve, "},
		"expired":           {a.url, files(t, brief), "tls: expired certificate"},
		"no certificate":    {a.url, nil, "requires a client certificate, and none is given"},
		"http":              {"http" + strings.TrimPrefix(a.url, "https"), files(t, mine), "http cannot use it"},
		"plain":             {"http" + strings.TrimPrefix(a.url, "https"), nil, "speaks https"},
		"another host":      {strings.Replace(a.url, "127.0.0.1", "localhost", 1), files(t, mine), "the master's certificate is not for localhost: it is for [127.0.0.1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := client.NewSecure(tt.url, tt.secure)
			if err == nil {
				_, _, err = c.Status(t.Context(), client.StatusQuery{})
				c.Close()
			}
			var e *client.Error
			if !errors.As(err, &e) || !strings.Contains(e.Message, tt.want) || e.Hint == "" {
				t.Errorf("error %v, want %q and a hint", err, tt.want)
			}
		})
	}
}

// TestClientReload gives a client a new certificate in the same file.
func TestClientReload(t *testing.T) {
	t.Parallel()
	a := newSecureAPI(t)
	file := filepath.Join(t.TempDir(), "c.pem")
	if _, err := a.dir.Issue(pki.Request{
		Name: identity.Name{Cell: "local", Role: identity.ReadOnly, Name: "ada"}, Life: time.Minute, Now: time.Now().Add(-5 * time.Minute),
	}, file); err != nil {
		t.Fatal(err)
	}
	c := a.dial(file)
	if _, _, err := c.Status(t.Context(), client.StatusQuery{}); err == nil {
		t.Error("an expired certificate was taken")
	}
	a.issue(identity.ReadOnly, "ada", file, time.Hour)
	if _, _, err := c.Status(t.Context(), client.StatusQuery{}); err != nil {
		t.Error(err)
	}
}

// TestFollowedLog ends what is followed when the certificate ends, and when it
// is revoked.
func TestFollowedLog(t *testing.T) {
	t.Parallel()
	for name, life := range map[string]time.Duration{"expired": 3 * time.Second, "revoked": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newSecureAPI(t)
			ended := make(chan error, 1)
			a.cell.logs = func(ctx context.Context, w io.Writer) error {
				_, _ = fmt.Fprintln(w, "first")
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return context.Cause(ctx)
			}
			file := filepath.Join(t.TempDir(), "c.pem")
			a.issue(identity.ReadOnly, "ada", file, life)
			log, err := a.dial(file).Logs(t.Context(), "search/web/0", schema.LogRequest{Follow: true, Stream: schema.Stdout})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			want := context.DeadlineExceeded
			if name == "revoked" {
				want = context.Canceled
				if err := a.dir.Revoke(identity.Name{Cell: "local", Role: identity.ReadOnly, Name: "ada"}, time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = io.Copy(io.Discard, log) // until it ends
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("ended with %v, want %v", err, want)
			}
		})
	}
}
