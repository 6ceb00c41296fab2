package store

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/store/storetest"
)

// cluster is one of etcd's, and Stores in it.
type cluster struct{ *storetest.Cluster }

func startCluster(t *testing.T, n int) *cluster {
	t.Helper()
	return &cluster{storetest.Start(t, n)}
}

func (c *cluster) config(t *testing.T, cell string) ClusterConfig {
	t.Helper()
	return ClusterConfig{
		Endpoints: c.URLs, CAFile: filepath.Join(c.Certs, "ca.pem"), CertFile: filepath.Join(c.Certs, "cert.pem"), KeyFile: filepath.Join(c.Certs, "key.pem"),
		Dir: t.TempDir(), Cell: cell, Release: "v0.9.0-test", Lease: 2 * time.Second,
	}
}

func (c *cluster) open(t *testing.T, cfg ClusterConfig) *Store {
	t.Helper()
	s, err := OpenCluster(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// clusterMedium is a cluster under the conformance tests. Their leaders take
// over at once: whoever led before has just lost its lease.
type clusterMedium struct {
	*cluster
	opened []*Store
}

type usurper struct{ *clusterBackend }

func (u usurper) campaign(ctx context.Context, key string, value []byte) (int64, <-chan struct{}, error) {
	if _, err := u.client.Delete(ctx, key); err != nil {
		return 0, nil, err
	}
	return u.clusterBackend.campaign(ctx, key, value)
}

func (m *clusterMedium) open(t *testing.T, cell string) (*Store, error) {
	cfg := m.config(t, cell)
	cfg.Lease = time.Minute // none of them is about its end, and a busy machine may renew one late
	s, err := OpenCluster(cfg)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = s.Close() })
	m.opened = append(m.opened, s)
	s.be = usurper{s.be.(*clusterBackend)}
	return s, s.stand(t.Context())
}

func (m *clusterMedium) restart(t *testing.T) {
	for _, s := range m.opened {
		closeStore(t, s)
	}
	m.opened = nil
}

// campaign campaigns and says when it has won.
func campaign(t *testing.T, s *Store, id string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Campaign(t.Context(), id) }()
	return done
}

// One of two masters leads, the other one waits and knows for whom; it takes over
// when the first resigns, and the first cannot write any more.
func TestStandby(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	leads := c.config(t, "c")
	leads.Link = "one:7421"
	first := c.open(t, leads)
	lead(t, first, "https://one")
	commit(t, first, put("a", "1"))
	cfg := c.config(t, "c")
	leaders := make(chan Leader, 10)
	cfg.Standby = func(leader Leader) { leaders <- leader }
	second := c.open(t, cfg)
	done := campaign(t, second, "https://two")
	if got, want := <-leaders, (Leader{"https://one", "one:7421", first.Term()}); got != want {
		t.Fatalf("the standby is notified that %+v leads: want %+v", got, want)
	}
	commit(t, first, put("a", "2"))
	select {
	case err := <-done:
		t.Fatalf("two lead: %v", err)
	default:
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantDocs(t, second, map[string]string{"a": "2"})
	commit(t, second, put("a", "3"))
	if err := first.Commit(t.Context(), []model.Write{put("a", "4")}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Commit of the one that resigned: %v", err)
	}
}

// A leader that says nothing for longer than its lease is replaced. When it goes
// on, each of its writes is refused, before it has learned that it lost.
func TestFrozenLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	first := c.open(t, c.config(t, "c"))
	lead(t, first, "one")
	commit(t, first, put("a", "1"))
	// A frozen process renews nothing: its lease goes, and it does not know.
	be := first.be.(*clusterBackend)
	if _, err := be.client.Revoke(t.Context(), be.lease); err != nil {
		t.Fatal(err)
	}
	second := c.open(t, c.config(t, "c"))
	lead(t, second, "two")
	first.lostMu.Lock()
	first.lost = make(chan struct{}) // it has not looked yet
	first.lostMu.Unlock()
	for _, writes := range [][]model.Write{
		{put("a", "2")}, {del("a")}, {put("b", "2"), del("a")}, {{Key: "big", Value: noise(1, 2<<20)}},
	} {
		first.lostMu.Lock()
		first.lost = make(chan struct{})
		first.lostMu.Unlock()
		if err := first.Commit(t.Context(), writes); !errors.Is(err, ErrNotLeader) {
			t.Errorf("%d writes of %s: %v, want ErrNotLeader", len(writes), writes[0].Key, err)
		}
	}
	wantDocs(t, second, map[string]string{"a": "1"})
	if got := storedPieces(t, second); got != 0 {
		t.Errorf("%d pieces of the frozen master", got)
	}
	commit(t, second, put("a", "3"))
}

// Members come and go: the Store goes on with those that are left, and says
// ErrDown when there are too few.
func TestMembersGone(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := c.open(t, c.config(t, "c"))
	lead(t, s, "one")
	commit(t, s, put("a", "1"))
	c.Stop[0]()
	for { // the lease may go with the member that led
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := s.Commit(ctx, []model.Write{put("a", "2")})
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, ErrDown) && !errors.Is(err, ErrNotLeader) {
			t.Fatal(err)
		}
		for err := s.Campaign(t.Context(), "one"); err != nil; err = s.Campaign(t.Context(), "one") {
			if !errors.Is(err, ErrDown) {
				t.Fatal(err)
			}
		}
	}
	wantDocs(t, s, map[string]string{"a": "2"})
	c.Stop[1]()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := s.Commit(ctx, []model.Write{put("a", "3")}); !errors.Is(err, ErrDown) || !isLost(s) {
		t.Errorf("Commit without a quorum: %v, want ErrDown", err)
	}
}

// Mistakes in the configuration are one error with a hint; a certificate of
// somebody else's authority gets nobody in.
func TestClusterConfig(t *testing.T) {
	t.Parallel()
	certs, other := storetest.Certs(t), storetest.Certs(t)
	file := func(name string) string { return filepath.Join(certs, name) }
	for _, tt := range []struct {
		name string
		cfg  ClusterConfig
		want string
	}{
		{"none", ClusterConfig{}, "no endpoint"},
		{"no scheme", ClusterConfig{Endpoints: []string{"etcd:2379"}}, `endpoint "etcd:2379": want https://HOST:PORT`},
		{"no port", ClusterConfig{Endpoints: []string{"https://etcd"}}, `endpoint "https://etcd": want https://HOST:PORT`},
		{"a path", ClusterConfig{Endpoints: []string{"https://etcd:2379/x"}}, "want https://HOST:PORT"},
		{"without TLS", ClusterConfig{Endpoints: []string{"http://10.0.0.1:2379"}}, "without TLS only on loopback"},
		{"mixed", ClusterConfig{Endpoints: []string{"http://127.0.0.1:1", "https://etcd:2379"}}, "some endpoints are https"},
		{"certificates for http", ClusterConfig{Endpoints: []string{"http://127.0.0.1:1"}, CAFile: file("ca.pem")}, "certificates are for https"},
		{"no key", ClusterConfig{Endpoints: []string{"https://etcd:1"}, CertFile: file("cert.pem")}, "--etcd-key together"},
		{"no authority", ClusterConfig{Endpoints: []string{"https://etcd:1"}, CAFile: file("none.pem")}, "authority: open"},
		{"no PEM", ClusterConfig{Endpoints: []string{"https://etcd:1"}, CAFile: file("key.pem")}, "has no certificate in PEM"},
		{"another key", ClusterConfig{Endpoints: []string{"https://etcd:1"}, CertFile: file("cert.pem"), KeyFile: filepath.Join(other, "key.pem")}, "does not match"},
	} {
		tt.cfg.Cell, tt.cfg.Dir = "c", t.TempDir()
		if _, err := OpenCluster(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	c := startCluster(t, 1)
	for _, certs := range []string{"", other} {
		cfg := c.config(t, "c")
		cfg.CertFile, cfg.KeyFile = "", ""
		if certs != "" {
			cfg.CertFile, cfg.KeyFile = filepath.Join(certs, "cert.pem"), filepath.Join(certs, "key.pem")
		}
		s := c.open(t, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := s.Campaign(ctx, "x"); !errors.Is(err, ErrDown) {
			t.Errorf("a stranger campaigns: %v", err)
		}
		cancel()
	}
	cfg := c.config(t, "c")
	held := c.open(t, cfg)
	var locked *LockedError
	if _, err := OpenCluster(cfg); !errors.As(err, &locked) {
		t.Errorf("two masters with one data directory: %v", err)
	}
	closeStore(t, held)
}
