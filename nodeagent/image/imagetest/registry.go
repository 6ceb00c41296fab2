package imagetest

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// Registry is one on loopback, of images that are pulled by their digests. It can be shut
// down and come back at the same address.
type Registry struct {
	t    testing.TB
	addr string

	mu     sync.Mutex // guards what follows
	server *http.Server
	ended  chan error // what server.Serve returned
	blobs  map[string][]byte
	faults map[string]http.HandlerFunc
	asked  map[string]int // how often for what
	delay  time.Duration  // of each answer
	login  [2]string      // user and password; zero: none is asked for
}

// NewRegistry starts a registry that has no images.
func NewRegistry(t testing.TB) *Registry {
	t.Helper()
	g := &Registry{t: t, addr: "127.0.0.1:0", blobs: map[string][]byte{}, faults: map[string]http.HandlerFunc{}, asked: map[string]int{}}
	g.Up()
	t.Cleanup(g.Down)
	return g
}

// Up lets the registry answer.
func (g *Registry) Up() {
	g.t.Helper()
	l, err := net.Listen("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addr = l.Addr().String()
	server, ended := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}, make(chan error, 1)
	g.server, g.ended = server, ended
	go func() { ended <- server.Serve(l) }()
}

// Down ends all connections: nobody listens at its address any more.
func (g *Registry) Down() {
	g.mu.Lock()
	server, ended := g.server, g.ended
	g.server = nil
	g.mu.Unlock()
	if server == nil {
		return
	}
	err := server.Close()
	if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	if err != nil {
		g.t.Error(err)
	}
}

// Add puts an image into a repository, and returns the reference by which it is pulled.
func (g *Registry) Add(repository string, i Image) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blobs[repository+"/manifests/"+i.Digest.String()] = i.Manifest
	for d, b := range i.Blobs {
		g.blobs[repository+"/blobs/"+d.String()] = b
	}
	return g.addr + "/" + repository + "@" + i.Digest.String()
}

// Fault lets all requests for a repository be answered by f; nil: as they should be.
func (g *Registry) Fault(repository string, f http.HandlerFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults[repository] = f
}

// Delay lets each answer wait for so long.
func (g *Registry) Delay(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
}

// Most returns how often that was asked for that was asked for most.
func (g *Registry) Most() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	most := 0
	for _, n := range g.asked {
		most = max(most, n)
	}
	return most
}

// Require lets the registry answer who has the password alone.
func (g *Registry) Require(user, password string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.login = [2]string{user, password}
}

// ServeHTTP implements http.Handler.
func (g *Registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	g.mu.Lock()
	b, ok := g.blobs[path]
	var fault http.HandlerFunc
	for repository, f := range g.faults {
		if strings.HasPrefix(path, repository+"/") {
			fault = f
		}
	}
	login, delay := g.login, g.delay
	g.asked[path]++
	g.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
		}
	}
	user, password, _ := r.BasicAuth()
	switch {
	case fault != nil:
		fault(w, r)
	case login != [2]string{user, password} && login != [2]string{}:
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
	case !ok:
		http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`, http.StatusNotFound)
	default:
		if strings.Contains(path, "/manifests/") {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", digest.FromBytes(b).String())
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}
