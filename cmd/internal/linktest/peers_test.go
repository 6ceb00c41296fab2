package linktest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/credential"
	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/nodeagent/image/imagetest"
	"github.com/musterhq/muster/nodeagent/image/peer"
	agentlink "github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// The machines of TestPeers, their image, and where they have their stores.
var (
	peersMachines = flag.Int("peers.machines", 50, "machines of TestPeers")
	peersLayers   = flag.Uint64("peers.layers", 10, "layers of the image of TestPeers")
	peersBytes    = flag.Int("peers.bytes", 64<<10, "bytes of each of them, which repeat each KiB")
	peersDir      = flag.String("peers.dir", "", "directory for the stores of its machines, each of which keeps the image twice (default: in memory)")
)

// newImage adds an image of layers with content that layer makes to the registry.
func newImage(t *testing.T, g *imagetest.Registry, layers uint64, layer func(t testing.TB, seed uint64, size int) imagetest.Layer, size int) schema.ImageRef {
	t.Helper()
	var all []imagetest.Layer
	for i := range layers {
		all = append(all, layer(t, i, size))
	}
	ref, err := image.ParseReference(g.Add("app", imagetest.OfLayers(t, imagetest.Settings{}, all...)))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// sharer is a machine that gives others what it holds.
type sharer struct {
	name    string
	store   *image.Store
	server  *peer.Server
	id      *credential.Store
	address string
	stop    func() // its server
	gone    func() // its session
}

// memory returns a directory in memory where there is one, since what is measured is no disk, if no
// other was named.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(cmp.Or(*peersDir, "/dev/shm"), "muster-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// sharer joins a machine to the cell.
func (c *secure) sharer(name string) *sharer {
	t := c.t
	t.Helper()
	dir := t.TempDir()
	c.write(filepath.Join(dir, "token"), c.token(name))
	a := newAgent(name)
	cfg := c.config(dir, a, slog.New(slog.DiscardHandler))
	s := &sharer{name: name, id: cfg.Identity.(*credential.Store)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	a.info.Shares = s.address
	var client *agentlink.Client
	cfg.Content = func() []schema.Digest { return s.store.Content(schema.MaxContent) }
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	others := peer.NewClient(asks(func(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
		if q.Stalled {
			c.stalled.Add(1)
		}
		c.without.Add(int64(len(q.Without)))
		return client.Sources(ctx, q)
	}), s.id)
	t.Cleanup(others.Close)
	s.store, err = image.Open(image.Config{
		Dir: filepath.Join(memory(t), "images"), Platform: image.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Log: slog.New(slog.DiscardHandler), Transport: transport, InsecureLoopback: true, Stall: c.stall, Peers: others, Share: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.server = peer.NewServer(s.store, s.id, c.said.log())
	s.stop = background(t, func(ctx context.Context) error { return s.server.Serve(ctx, l) })
	client = agentlink.New(cfg)
	s.gone = background(t, client.Run)
	return s
}

// asks is a function as a master.
type asks func(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error)

// Sources implements peer.Asker.
func (f asks) Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
	return f(ctx, q)
}

// sharers joins so many machines, all of which the master knows.
func (c *secure) sharers(n int) []*sharer {
	c.t.Helper()
	out := make([]*sharer, n)
	for i := range out {
		out[i] = c.sharer(fmt.Sprint("m", i))
	}
	eventually(c.t, "all machines at the master", func() bool {
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		for _, s := range out {
			if (holdings{c.m}).Address(s.name) == "" {
				return false
			}
		}
		return true
	})
	return out
}

// bring has all machines bring an image at once.
func bring(t *testing.T, ref schema.ImageRef, all ...*sharer) {
	t.Helper()
	var wait sync.WaitGroup
	for _, s := range all {
		wait.Go(func() {
			if _, err := s.store.Ensure(t.Context(), ref); err != nil {
				t.Errorf("machine %s: %v", s.name, err)
			}
		})
	}
	wait.Wait()
}

// Fifty machines get an image at once: two of them from the registry, and the others from each
// other, of which none has more than three uploads at once. The tests that run in parallel come
// after this one, which leaves them too little of the processor.
func TestPeers(t *testing.T) {
	machines := *peersMachines
	c, g := newSecure(t, time.Hour), imagetest.NewRegistry(t)
	g.Delay(20 * time.Millisecond)
	c.serve()
	ref := newImage(t, g, *peersLayers, imagetest.Repeated, *peersBytes)
	all := c.sharers(machines)
	began := time.Now()
	bring(t, ref, all...)
	took := time.Since(began)
	if n := g.Most(); n > 2 {
		t.Errorf("the registry was asked %d times for the same: want at most 2", n)
	}
	var fromPeers, fromHosts, sent, uploads int64
	for _, s := range all {
		traffic := s.store.Traffic()
		fromPeers, fromHosts = fromPeers+traffic.Peers, fromHosts+traffic.Hosts
		bytes, most := s.server.Sent()
		uploads = max(uploads, most)
		if sent += bytes; most > peer.Most {
			t.Errorf("machine %s had %d uploads at once: want at most %d", s.name, most, peer.Most)
		}
	}
	t.Logf("%d machines in %v: %d KiB from the registry, which was asked at most %d times for a blob, %d KiB from machines, of which none had more than %d uploads at once; %d questions of who got nothing, and %d times a machine that was not asked any more",
		machines, took, fromHosts>>10, g.Most(), fromPeers>>10, uploads, c.stalled.Load(), c.without.Load())
	if least := int64(machines-2) * int64(*peersLayers) * int64(*peersBytes); fromPeers < least || sent < least {
		t.Errorf("%d bytes came from machines, which have sent %d: want at least %d", fromPeers, sent, least)
	}

	// Without a registry, from those that have it.
	g.Down()
	late := c.sharer("late")
	eventually(t, "what all hold", func() bool {
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		return len(c.m.held) == machines && (holdings{c.m}).Address("late") != ""
	})
	bring(t, ref, late)
	if got := late.store.Traffic(); got.Hosts != 0 {
		t.Errorf("%d bytes came from a registry that is down", got.Hosts)
	}
}

// TestPeersReplaced: machines whose fetch fails are replaced by two others, and by no more.
func TestPeersReplaced(t *testing.T) {
	t.Parallel()
	c, g := newSecure(t, time.Hour), imagetest.NewRegistry(t)
	c.stall = 4 * time.Second // which no answer takes that is not held back
	c.serve()
	ref := newImage(t, g, 3, imagetest.Random, 64<<10)
	all := c.sharers(8)
	var hung atomic.Int64
	g.Fault("app", func(_ http.ResponseWriter, r *http.Request) {
		if hung.Add(1) == 2 {
			g.Fault("app", nil)
		}
		<-r.Context().Done()
	})
	var failed atomic.Int64
	var wait sync.WaitGroup
	for _, s := range all {
		wait.Go(func() {
			if _, err := s.store.Ensure(t.Context(), ref); errors.Is(err, image.ErrSlow) {
				failed.Add(1)
			} else if err != nil {
				t.Errorf("machine %s: %v", s.name, err)
			}
		})
	}
	wait.Wait()
	if n := failed.Load(); n != 2 {
		t.Errorf("%d machines failed: want the 2 to which nothing came", n)
	}
	if n := g.Most(); n > 4 {
		t.Errorf("the registry was asked %d times for the same: want at most 2, and 2 for the fetches that failed", n)
	}
}

// TestBadPeers: a machine that does not give what it has said to hold, or gives something else,
// costs little time; then the registry is asked.
func TestBadPeers(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(t *testing.T, s *sharer) http.Handler{
		"nothing": func(_ *testing.T, s *sharer) http.Handler { return s.gives(nothing{}) },
		"another": func(t *testing.T, s *sharer) http.Handler {
			return s.gives(given(func(sum schema.Digest) []byte {
				b := s.bytes(t, sum)
				b[len(b)/2] ^= 1
				return b
			}))
		},
		"garbage": func(t *testing.T, s *sharer) http.Handler {
			return s.gives(given(func(sum schema.Digest) []byte { return make([]byte, len(s.bytes(t, sum))) }))
		},
		"longer": func(t *testing.T, s *sharer) http.Handler {
			return s.gives(given(func(sum schema.Digest) []byte { return append(s.bytes(t, sum), 0) }))
		},
		"shorter": func(t *testing.T, s *sharer) http.Handler {
			return s.gives(given(func(sum schema.Digest) []byte { return s.bytes(t, sum)[1:] }))
		},
		"hangs": func(*testing.T, *sharer) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		},
		"stalls": func(t *testing.T, s *sharer) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b := s.bytes(t, schema.Digest(path.Base(r.URL.Path)))
				w.Header().Set("Content-Length", strconv.Itoa(len(b)))
				_, _ = w.Write(b[:len(b)/2]) // else nobody is there
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
		},
		"drips": func(t *testing.T, s *sharer) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b := s.bytes(t, schema.Digest(path.Base(r.URL.Path)))
				w.Header().Set("Content-Length", strconv.Itoa(len(b)))
				for tick := time.NewTicker(10 * time.Millisecond); len(b) > 0; b = b[1:] {
					select {
					case <-tick.C:
					case <-r.Context().Done():
						return
					}
					_, _ = w.Write(b[:1]) // likewise
					_ = http.NewResponseController(w).Flush()
				}
			})
		},
		"gone": nil, // nobody listens there
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, g := newSecure(t, time.Hour), imagetest.NewRegistry(t)
			c.stall = time.Second
			c.serve()
			ref := newImage(t, g, 3, imagetest.Random, 64<<10)
			all := c.sharers(3)
			bring(t, ref, all[0])
			eventually(t, "what one holds", func() bool { return len(c.m.said()) > 0 })
			all[0].stop()
			if bad != nil {
				l, err := net.Listen("tcp", all[0].address)
				if err != nil {
					t.Fatal(err)
				}
				server := &http.Server{Handler: bad(t, all[0]), TLSConfig: all[0].id.Serve(), ReadHeaderTimeout: time.Minute}
				background(t, func(ctx context.Context) error {
					defer context.AfterFunc(ctx, func() { _ = server.Close() })()
					if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
						return err
					}
					return nil
				})
			}
			began := time.Now()
			bring(t, ref, all[1:]...)
			if took := time.Since(began); took > 45*time.Second {
				t.Errorf("it took %v", took)
			}
			if n := g.Most(); n > 3 {
				t.Errorf("the registry was asked %d times for the same: want at most 3", n)
			}
		})
	}
}

// gives returns what answers for a machine with a store.
func (s *sharer) gives(store peer.Store) http.Handler {
	return peer.NewServer(store, s.id, slog.New(slog.DiscardHandler))
}

// nothing holds nothing.
type nothing struct{}

// Copy implements peer.Store.
func (nothing) Copy(schema.Digest) (file *os.File, came int64, done <-chan struct{}) {
	return nil, 0, nil
}

// given are what a machine gives instead of what it holds.
type given func(sum schema.Digest) []byte

// Copy implements peer.Store.
func (f given) Copy(sum schema.Digest) (file *os.File, came int64, done <-chan struct{}) {
	file, err := os.CreateTemp("", "given-")
	if err == nil {
		err = os.Remove(file.Name())
	}
	if err == nil {
		_, err = file.Write(f(sum))
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, 0, nil
	}
	return file, 0, nil
}

// bytes returns a blob that a machine holds.
func (s *sharer) bytes(t *testing.T, sum schema.Digest) []byte {
	t.Helper()
	file, _, _ := s.store.Copy(sum)
	if file == nil {
		t.Fatalf("machine %s does not hold %s", s.name, sum)
	}
	defer func() { _ = file.Close() }() // it was read
	b, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPeersKnowEachOther: only a machine of the cell is given anything, and only the machine that
// was asked for is believed.
func TestPeersKnowEachOther(t *testing.T) {
	t.Parallel()
	c, other, g := newSecure(t, time.Hour), newSecure(t, time.Hour), imagetest.NewRegistry(t)
	c.serve()
	other.serve()
	ref := newImage(t, g, 1, imagetest.Random, 1<<10)
	s := c.sharers(2)
	stranger := other.sharers(1)[0]
	bring(t, ref, s[0])
	get := func(id peer.Identity, machine string) error {
		client := peer.NewClient(nil, id)
		defer client.Close()
		a, err := client.Get(t.Context(), schema.SourcePeer{Machine: machine, Address: s[0].address}, image.PeerBlob{Sum: ref.Digest})
		if a.Body != nil {
			_ = a.Body.Close() // it is known
		}
		if err == nil && a.Body == nil {
			return errors.New("nothing came")
		}
		return err
	}
	if err := get(s[1].id, "m0"); err != nil {
		t.Errorf("a machine of the cell: %v", err)
	}
	if err := get(s[1].id, "m1"); err == nil || !strings.Contains(err.Error(), "it is machine/m0 of cell c, not machine m1") {
		t.Errorf("another machine than was asked for: %v", err)
	}
	if err := get(stranger.id, "m0"); err == nil || !strings.Contains(err.Error(), "authority") {
		t.Errorf("a machine of another cell believes it: %v", err)
	}
	if err := get(trusting{stranger.id, s[1].id}, "m0"); err == nil {
		t.Error("a machine of another cell is given something")
	}
	// An operator has a certificate of the cell, and is no machine.
	file := filepath.Join(t.TempDir(), "ada.pem")
	if _, err := c.dir.Issue(pki.Request{Name: identity.Name{Cell: "c", Role: identity.Operator, Name: "ada"}, Life: time.Hour, Now: time.Now()}, file); err != nil {
		t.Fatal(err)
	}
	ada, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := get(shows{s[1].id, &ada}, "m0"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("an operator: %v", err)
	}
	if err := get(shows{s[1].id, &tls.Certificate{}}, "m0"); err == nil {
		t.Error("one without a certificate is given something")
	}
}

// trusting believes whom another does.
type trusting struct {
	peer.Identity
	other peer.Identity
}

// Peer implements peer.Identity.
func (i trusting) Peer(machine string) *tls.Config {
	cfg := i.other.Peer(machine)
	cfg.GetClientCertificate = i.Identity.Peer(machine).GetClientCertificate
	return cfg
}

// shows is an identity with another certificate.
type shows struct {
	peer.Identity
	certificate *tls.Certificate
}

// Peer implements peer.Identity.
func (i shows) Peer(machine string) *tls.Config {
	cfg := i.Identity.Peer(machine)
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.certificate, nil }
	return cfg
}
