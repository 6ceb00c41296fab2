package git_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/git"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = certify(t, nil, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)})
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	return a
}

// certify makes a certificate of c, signed by a or by itself.
func certify(t *testing.T, a *authority, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(1), pkix.Name{CommonName: "test"}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-2 * time.Hour)
	}
	parent, signer := c, key
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// secured serves h under a certificate, which can be changed.
type secured struct {
	*httptest.Server
	ca   *authority
	cert atomic.Pointer[tls.Certificate]
}

func secure(t *testing.T, h http.Handler) *secured {
	t.Helper()
	s := &secured{ca: newAuthority(t)}
	s.use(t, s.ca, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)})
	s.Server = httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*s.cert.Load()}}, nil
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *secured) use(t *testing.T, ca *authority, c *x509.Certificate) {
	t.Helper()
	cert, key := certify(t, ca, c)
	s.cert.Store(&tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key})
}

// fresh has the next request make a connection of its own.
func (s *secured) fresh() { s.CloseClientConnections() }

// door serves a repository to those that bring the right Authorization, or
// answers with the handler that is set instead.
type door struct {
	mu       sync.Mutex // guards all below
	want     string     // Authorization; "" lets all in
	instead  http.HandlerFunc
	requests int
	bytes    int
	next     http.Handler
}

func (d *door) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	d.mu.Lock()
	d.requests++
	want, instead := d.want, d.instead
	d.mu.Unlock()
	switch got := req.Header.Get("Authorization"); {
	case instead != nil:
		instead(w, req)
	case want != "" && got != want:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(strings.Repeat("<p>"+got+"</p>", 100)))
	default:
		req.Header.Del("Authorization") // it has been dealt with
		d.next.ServeHTTP(&measured{w, d}, req)
	}
}

func (d *door) set(want string, instead http.HandlerFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want, d.instead = want, instead
}

// reset returns the counts of requests and bytes and sets them to zero.
func (d *door) reset() (requests, size int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	requests, size = d.requests, d.bytes
	d.requests, d.bytes = 0, 0
	return requests, size
}

type measured struct {
	http.ResponseWriter
	door *door
}

func (m *measured) Write(p []byte) (int, error) {
	m.door.mu.Lock()
	m.door.bytes += len(p)
	m.door.mu.Unlock()
	return m.ResponseWriter.Write(p)
}

// doored is hosted behind TLS and a door.
func doored(t *testing.T) (dir, head string, d *door, s *secured, url string) {
	t.Helper()
	dir, head, inner, _ := hosted(t, "")
	d = &door{next: inner.Config.Handler}
	s = secure(t, d)
	return dir, head, d, s, s.URL + "/x.git"
}

// logged is an open Repo whose log can be read.
func logged(t *testing.T, cfg git.Config) (*git.Repo, func() string) {
	t.Helper()
	var mu sync.Mutex
	var b bytes.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return b.Write(p)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	r, err := git.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r, func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Each form of credentials is taken, from a file that may change.
func TestToken(t *testing.T) {
	t.Parallel()
	_, head, d, s, url := doored(t)
	ca := file(t, s.ca.pem)
	basic := func(user, pass string) string {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(user, pass)
		return r.Header.Get("Authorization")
	}
	token := file(t, "t0ken\n")
	for name, tt := range map[string]struct {
		url  string
		auth git.Auth
		want string
	}{
		"token":             {url, git.Auth{TokenFile: token}, basic("x-access-token", "t0ken")},
		"user":              {url, git.Auth{TokenFile: token, User: "oauth2"}, basic("oauth2", "t0ken")},
		"user of the URL":   {strings.Replace(url, "https://", "https://me@", 1), git.Auth{TokenFile: token}, basic("me", "t0ken")},
		"bearer":            {url, git.Auth{TokenFile: token, Bearer: true}, "Bearer t0ken"},
		"nothing is wanted": {url, git.Auth{}, ""},
	} {
		tt.auth.CAFile = ca
		d.set(tt.want, nil)
		if got, err := open(t, git.Config{URL: tt.url, Auth: tt.auth, Dir: t.TempDir()}).Head(t.Context()); err != nil || got != head {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	d.set("Bearer new", nil)
	r := open(t, git.Config{URL: url, Auth: git.Auth{TokenFile: token, Bearer: true, CAFile: ca}, Dir: t.TempDir()})
	_, err := r.Head(t.Context())
	wantError(t, err, "401 Unauthorized: the token is rejected", "a new token there is used at the next look")
	if err := os.WriteFile(token, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantHead(t, r, head)
	// So is the CA file.
	other := newAuthority(t)
	s.use(t, other, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)})
	s.fresh()
	_, err = r.Head(t.Context())
	wantError(t, err, "not signed by an authority in "+ca, "put the certificate")
	if err := os.WriteFile(ca, []byte(other.pem), 0o600); err != nil {
		t.Fatal(err)
	}
	wantHead(t, r, head)
}

// Whatever a server does, there is one error that says what to do, the last
// good commit stays, nothing of the token is logged, and all is well again when
// the server is.
func TestServerTrouble(t *testing.T) {
	t.Parallel()
	status := func(code int) func(*testing.T, *door, *secured) {
		return func(_ *testing.T, d *door, _ *secured) {
			d.set("", func(w http.ResponseWriter, req *http.Request) {
				w.WriteHeader(code)
				_, _ = w.Write([]byte(req.Header.Get("Authorization")))
			})
		}
	}
	cert := func(change func(*x509.Certificate)) func(*testing.T, *door, *secured) {
		return func(t *testing.T, _ *door, s *secured) {
			t.Helper()
			c := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
			change(c)
			s.use(t, s.ca, c)
		}
	}
	tests := map[string]struct {
		harm          func(*testing.T, *door, *secured)
		problem, hint string
	}{
		"401": {func(_ *testing.T, d *door, _ *secured) { d.set("Bearer x", nil) }, "401 Unauthorized: the token is rejected", "check that the token in "},
		"403": {status(403), "403 Forbidden: the token lacks permission", "let the owner of the token read"},
		"404": {status(404), "404 Not Found: there is no such repository", "check the URL"},
		"429": {status(429), "429 Too Many Requests", "--poll"},
		"500": {status(500), "500 Internal Server Error", "server's log"},
		"418": {status(418), "418 I'm a teapot", "check the URL"},
		"a web page": {func(_ *testing.T, d *door, _ *secured) {
			d.set("", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>log in</html>")) })
		}, `answers with "text/html; charset=utf-8", which is not git's`, "a page to log in on"},
		"expired":    {cert(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }), "the server's certificate expired at ", "renewed"},
		"not yet":    {cert(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(30 * time.Minute) }), "is not valid before ", "clock"},
		"other host": {cert(func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"git.example.com"} }), "127.0.0.1", "a name that is in the certificate"},
		"other CA": {func(t *testing.T, _ *door, s *secured) {
			s.use(t, newAuthority(t), &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)})
		}, "is not signed by an authority in", "put the certificate"},
		"cut off":             {truncate("/info/refs"), "the connection was lost", "tried again"},
		"half a pack":         {truncate("/git-upload-pack"), "the connection was lost", "tried again"},
		"silence":             {hang("/info/refs"), "no answer within 3s", "check the server"},
		"silence amid a pack": {hang("/git-upload-pack"), "no answer within 3s", "check the server"},
		"nonsense": {func(_ *testing.T, d *door, _ *secured) {
			d.set("", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				_, _ = w.Write([]byte("00zz nonsense"))
			})
		}, "repository https://127.0.0.1", "check the URL"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, first, d, s, url := doored(t)
			token, stall := file(t, "t0ken"), time.Minute
			if strings.Contains(tt.problem, "no answer") {
				stall = 3 * time.Second
			}
			r, log := logged(t, git.Config{URL: url, Branch: "main", Dir: t.TempDir(), Poll: time.Hour, Stall: stall, Auth: git.Auth{TokenFile: token, CAFile: file(t, s.ca.pem)}})
			heads := follow(t, r)
			if h := next(t, heads); h.Commit != first || h.Trouble != nil || h.At.IsZero() {
				t.Fatalf("%+v", h)
			}
			second := push(t, dir, "b.cue", "package a\n")
			good := s.cert.Load()
			tt.harm(t, d, s)
			s.fresh()
			r.Poke()
			h := next(t, heads)
			wantError(t, h.Trouble, tt.problem, tt.hint)
			if h.Commit != first {
				t.Errorf("the last good head is lost: %+v", h)
			}
			wantFiles(t, r, first, 1)
			if reported := h.Trouble.Error() + log(); strings.Contains(reported, "t0ken") || strings.Contains(reported, "x-access-token") || strings.Contains(reported, "eC1hY2Nlc3M") {
				t.Errorf("credentials are reported: %s", reported)
			}
			if n := strings.Count(log(), "cannot be read"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, log())
			}
			s.cert.Store(good)
			d.set("", nil)
			s.fresh()
			r.Poke()
			if h := next(t, heads); h.Commit != second || h.Trouble != nil {
				t.Errorf("afterwards: %+v", h)
			}
			wantFiles(t, r, second, 2)
		})
	}
}

// truncate ends answers at path in their middle, hang falls silent there.
func truncate(path string) func(*testing.T, *door, *secured) {
	return midway(path, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
}

func hang(path string) func(*testing.T, *door, *secured) {
	return midway(path, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
}

func midway(path string, then http.HandlerFunc) func(*testing.T, *door, *secured) {
	return func(_ *testing.T, d *door, _ *secured) {
		d.set("", func(w http.ResponseWriter, req *http.Request) {
			req.Header.Del("Authorization")
			rec := httptest.NewRecorder()
			d.next.ServeHTTP(rec, req)
			if !strings.HasSuffix(req.URL.Path, path) {
				for k, v := range rec.Header() {
					w.Header()[k] = v
				}
				_, _ = w.Write(rec.Body.Bytes())
				return
			}
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
			_ = http.NewResponseController(w).Flush()
			then(w, req)
		})
	}
}

// Credentials do not follow to another address, on the same host neither. A
// redirect within it is followed.
func TestRedirect(t *testing.T) {
	t.Parallel()
	_, head, d, s, url := doored(t)
	var got atomic.Value
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got.Store(req.Header.Clone()) }))
	defer thief.Close()
	auth := git.Auth{TokenFile: file(t, "t0ken"), CAFile: file(t, s.ca.pem)}
	r := open(t, git.Config{URL: url, Dir: t.TempDir(), Auth: auth})
	for _, to := range []string{thief.URL, strings.Replace(thief.URL, "http:", "https:", 1)} {
		d.set("", func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, to+req.URL.RequestURI(), http.StatusMovedPermanently)
		})
		_, err := r.Head(t.Context())
		wantError(t, err, "the server redirects to "+to+"/x.git", "credentials are not sent to another host")
	}
	if h := got.Load(); h != nil {
		t.Errorf("the other host was asked with %v", h)
	}
	d.set("", func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/old/") {
			http.Redirect(w, req, strings.TrimPrefix(req.URL.RequestURI(), "/old"), http.StatusFound)
			return
		}
		if _, pass, _ := req.BasicAuth(); pass != "t0ken" {
			t.Error("the credentials were lost within their origin")
		}
		req.Header.Del("Authorization")
		d.next.ServeHTTP(w, req)
	})
	wantHead(t, open(t, git.Config{URL: s.URL + "/old/x.git", Dir: t.TempDir(), Auth: auth}), head)
}

// A head that did not move costs one small request.
func TestCostOfALook(t *testing.T) {
	t.Parallel()
	dir, head, d, s, url := doored(t)
	r := open(t, git.Config{URL: url, Dir: t.TempDir(), Auth: git.Auth{CAFile: file(t, s.ca.pem)}})
	wantHead(t, r, head)
	const looks, branches = 10, 100
	look := func(what string, most int) {
		t.Helper()
		d.reset()
		begin := time.Now()
		for range looks {
			wantHead(t, r, head)
		}
		took := time.Since(begin)
		requests, size := d.reset()
		if requests != looks || size > looks*most {
			t.Errorf("%d looks: %d requests and %d bytes, want %d and at most %d", looks, requests, size, looks, looks*most)
		}
		t.Logf("a look at an unchanged remote with %s: %d request, %d bytes, %s", what, requests/looks, size/looks, took/looks)
	}
	look("1 branch", 1000)
	for i := range branches {
		run(t, dir, "branch", fmt.Sprintf("side%03d", i))
	}
	run(t, dir, "push", "-q", "--all", "origin")
	look(fmt.Sprintf("%d branches", branches+1), 1000+branches*100)
}
