package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/musterhq/muster/schema"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestRefusals holds the kind of error for each way in which a registry gives nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	status := func(code int, header ...string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			return true
		}
	}
	tests := []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request) bool
		want   error
		after  time.Time
	}{
		{"500", status(500), ErrUnavailable, time.Time{}},
		{"503 for seconds", status(503, "Retry-After", "7"), ErrUnavailable, noon.Add(7 * time.Second)},
		{"429 until a time", status(429, "Retry-After", "Fri, 02 Jan 2026 12:01:00 GMT"), ErrUnavailable, noon.Add(time.Minute)},
		{"429 for ever", status(429, "Retry-After", "99999999999"), ErrUnavailable, noon.Add(24 * time.Hour)},
		{"401", status(401), ErrUnauthorized, time.Time{}},
		{"401 with Basic", status(401, "WWW-Authenticate", `Basic realm="x"`), ErrUnauthorized, time.Time{}},
		{"401 with a token server without https", status(401, "WWW-Authenticate", `Bearer realm="ftp://x/y"`), ErrUnauthorized, time.Time{}},
		{"403", status(403), ErrUnauthorized, time.Time{}},
		{"404", status(404), ErrNotFound, time.Time{}},
		{"redirects without end", status(307, "Location", "/v2/again"), ErrUnavailable, time.Time{}},
		{"a redirect to nowhere", status(307), ErrUnavailable, time.Time{}},
		{"another manifest", func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, `{"schemaVersion":2}`)
			return true
		}, ErrDigest, time.Time{}},
		{"a manifest without end", func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write(make([]byte, largestManifest+1))
			return true
		}, ErrInvalid, time.Time{}},
		{"a manifest that stalls", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", "100")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}, ErrSlow, time.Time{}},
		{"an answer that does not come", func(_ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return true
		}, ErrSlow, time.Time{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			b := g.image(t, gzipped, tarOf(t, reg("x", "")))
			g.answer(test.answer)
			s := newStore(t, g, func(c *Config) {
				if c.Stall = time.Minute; errors.Is(test.want, ErrSlow) {
					c.Stall = 100 * time.Millisecond
				}
				c.Now = func() time.Time { return noon }
			})
			_, err := s.Ensure(t.Context(), b.ref)
			if !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if at, _ := After(err); !at.Equal(test.after) {
				t.Errorf("to come back at %v, want %v", at, test.after)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		g := newRegistry(t)
		g.Close()
		_, err := newStore(t, g, nil).Ensure(t.Context(), schema.ImageRef{Registry: g.host(), Name: "x", Digest: schema.Digest(digest.FromString("x"))})
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("not asked by http", func(t *testing.T) {
		t.Parallel()
		g := newRegistry(t)
		b := g.image(t, gzipped, tarOf(t, reg("x", "")))
		if _, err := newStore(t, nil, nil).Ensure(t.Context(), b.ref); !errors.Is(err, ErrUnavailable) || g.asked("") != 0 {
			t.Errorf("error %v", err)
		}
	})
}

// TestBroken resumes blobs where they broke off.
func TestBroken(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("0123456789abcdef", 20_000)
	part := func(f func(w http.ResponseWriter, r *http.Request, b []byte)) func(g *registry, b built) func(w http.ResponseWriter, r *http.Request) bool {
		return func(g *registry, b built) func(w http.ResponseWriter, r *http.Request) bool {
			blob := g.blobs[b.layers[0]]
			n := 0
			return func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, b.layers[0].String()) {
					return false
				}
				if n++; n > 1 && r.Header.Get("Range") == "" {
					t.Error("it is asked for from the beginning")
				}
				if n > 3 {
					return false
				}
				f(w, r, blob)
				return true
			}
		}
	}
	cut := func(w http.ResponseWriter, b []byte, from int) {
		w.Header().Set("Content-Length", fmt.Sprint(len(b)-from))
		if from > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(b)-1, len(b)))
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(b[from:min(len(b), from+30_000)])
		_ = http.NewResponseController(w).Flush()
	}
	offset := func(r *http.Request) (n int) {
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &n)
		return n
	}
	tests := []struct {
		name string
		make func(g *registry, b built) func(w http.ResponseWriter, r *http.Request) bool
		want error
	}{
		{"cut short", part(func(w http.ResponseWriter, r *http.Request, b []byte) {
			cut(w, b, offset(r))
			panic(http.ErrAbortHandler)
		}), nil},
		{"cut short, without ranges", part(func(w http.ResponseWriter, _ *http.Request, b []byte) {
			cut(w, b, 0)
			panic(http.ErrAbortHandler)
		}), ErrUnavailable},
		{"stalls", part(func(w http.ResponseWriter, r *http.Request, b []byte) {
			cut(w, b, offset(r))
			<-r.Context().Done()
		}), nil},
		{"another range", part(func(w http.ResponseWriter, r *http.Request, b []byte) {
			if offset(r) == 0 {
				cut(w, b, 0)
				panic(http.ErrAbortHandler)
			}
			cut(w, b, offset(r)+1)
		}), ErrUnavailable},
		{"never anything", part(func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) }), ErrUnavailable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			b := g.image(t, func(b []byte) []byte { return b }, tarOf(t, reg("x", content)))
			g.answer(test.make(g, b))
			s := newStore(t, g, func(c *Config) {
				if c.Stall = time.Minute; test.name == "stalls" {
					c.Stall = 300 * time.Millisecond
				}
			})
			if _, err := s.Ensure(t.Context(), b.ref); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

// TestTokens gets in with a token, and with a password, which go nowhere else.
func TestTokens(t *testing.T) {
	t.Parallel()
	password := func(registry string) (string, string, bool) { return "me", "secret of " + registry, true }
	for _, scheme := range []string{"Bearer", "Basic"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			b := g.image(t, gzipped, tarOf(t, reg("x", "1")))
			blobs := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "" {
					t.Errorf("another host is sent %q", r.Header.Get("Authorization"))
				}
				g.mu.Lock()
				_, _ = w.Write(g.blobs[digest.Digest(r.URL.Path[1:])])
				g.mu.Unlock()
			})
			other := httptest.NewServer(blobs)
			t.Cleanup(other.Close)
			g.answer(func(w http.ResponseWriter, r *http.Request) bool {
				user, secret, basic := r.BasicAuth()
				known := user == "me" && secret == "secret of "+g.host()
				if r.URL.Path == "/token" {
					if r.URL.Query().Get("scope") != "repository:team/app:pull" || r.URL.Query().Get("service") != "a,b" {
						t.Errorf("asked for %s", r.URL)
					}
					if !known {
						w.WriteHeader(http.StatusUnauthorized)
						return true
					}
					fmt.Fprint(w, `{"access_token":"t0"}`)
					return true
				}
				if scheme == "Bearer" && r.Header.Get("Authorization") != "Bearer t0" || scheme == "Basic" && (!basic || !known) {
					w.Header().Add("WWW-Authenticate", fmt.Sprintf(`%s realm="%s/token", service="a,b",scope="repository:team/app:pull"`, scheme, g.URL))
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
				if i := strings.Index(r.URL.Path, "/blobs/"); i >= 0 {
					http.Redirect(w, r, other.URL+"/"+r.URL.Path[i+7:], http.StatusTemporaryRedirect)
					return true
				}
				return false
			})
			if _, err := newStore(t, g, nil).Ensure(t.Context(), b.ref); !errors.Is(err, ErrUnauthorized) {
				t.Errorf("without credentials: %v", err)
			}
			s := newStore(t, g, func(c *Config) { c.Credentials = password })
			if _, err := s.Ensure(t.Context(), b.ref); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShortTokens: a token that is good for a few requests is fetched again, whoever of the layers
// has used it up, also in the middle of a layer.
func TestShortTokens(t *testing.T) {
	t.Parallel()
	for _, uses := range []int{1, 2, 3} {
		g := newRegistry(t)
		var tars [][]byte
		for i := range 3 { // at once
			tars = append(tars, tarOf(t, reg(fmt.Sprintf("x%d", i), strings.Repeat(fmt.Sprint(i), 100_000))))
		}
		b := g.image(t, func(b []byte) []byte { return b }, tars...)
		var mu sync.Mutex
		var together sync.WaitGroup // those of the layers, with tokens for one request
		together.Add(3)
		left, broken, blobs := map[string]int{}, map[digest.Digest]bool{}, g.blobs
		g.answer(func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Path == "/token" {
				n := len(left)
				token := fmt.Sprintf("t%d", n)
				left["Bearer "+token] = uses
				if uses == 1 && n >= 2 && n < 5 { // after the manifest's and the configuration's
					together.Done()
					mu.Unlock()
					together.Wait()
					mu.Lock()
				}
				fmt.Fprintf(w, `{"token":%q,"expires_in":3600}`, token)
				return true
			}
			by := r.Header.Get("Authorization")
			if left[by] == 0 {
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token"`, g.URL))
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			left[by]--
			name := digest.Digest(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
			if !slices.Contains(b.layers, name) || broken[name] {
				return false
			}
			broken[name] = true
			w.Header().Set("Content-Length", fmt.Sprint(len(blobs[name])))
			_, _ = w.Write(blobs[name][:30_000])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		if _, err := newStore(t, g, nil).Ensure(t.Context(), b.ref); err != nil {
			t.Errorf("good for %d requests: %v", uses, err)
		}
		t.Logf("good for %d requests: %d tokens", uses, len(left))
	}
}

// TestMirrors asks those of a registry first, and it when they lie or are down.
func TestMirrors(t *testing.T) {
	t.Parallel()
	g, lies, good := newRegistry(t), newRegistry(t), newRegistry(t)
	down := newRegistry(t)
	down.Close()
	b := g.image(t, gzipped, tarOf(t, reg("x", strings.Repeat("x", 1000))))
	for d, blob := range g.blobs {
		good.blobs[d] = blob
		lies.blobs[d] = append([]byte("x"), blob[1:]...)
	}
	use := func(mirrors ...*registry) *Store {
		return newStore(t, g, func(c *Config) {
			c.Mirrors = map[string][]string{}
			for _, m := range mirrors {
				c.Mirrors[g.host()] = append(c.Mirrors[g.host()], m.host())
				c.Insecure = append(c.Insecure, m.host())
			}
		})
	}
	if _, err := use(down, lies).Ensure(t.Context(), b.ref); err != nil {
		t.Error(err)
	}
	before := g.asked("")
	if _, err := use(good).Ensure(t.Context(), b.ref); err != nil || g.asked("") != before {
		t.Errorf("%v; the registry was asked %d times", err, g.asked("")-before)
	}
}

// TestGivenUp ends a pull when it has no waiter any more.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	g := newRegistry(t)
	b := g.image(t, gzipped, tarOf(t, reg("x", "")))
	asked, ended := make(chan struct{}), make(chan struct{})
	g.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		close(asked)
		<-r.Context().Done()
		close(ended)
		return true
	})
	s := newStore(t, g, nil)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() { _, err := s.Ensure(ctx, b.ref); errs <- err }()
	<-asked
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	<-ended
}
