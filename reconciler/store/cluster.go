package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/schema"
)

// ClusterConfig is what OpenCluster needs.
type ClusterConfig struct {
	// Endpoints are the members' URLs: https://HOST:PORT, or http:// on
	// loopback.
	Endpoints []string
	// CAFile, CertFile and KeyFile are PEM: what the members' certificates are
	// signed by ("": the system's), and what this client shows ("": nothing).
	// Certificate and key are read for each connection, so they may be renewed.
	CAFile, CertFile, KeyFile string
	// Dir is the master's own data directory, which it holds while the Store is
	// open. None of the documents is in it.
	Dir     string
	Cell    string
	Release string // of this program
	// Lease is how long a leader may say nothing before another takes over;
	// LeaseDefault when 0, and not less than 2 s.
	Lease time.Duration
	// Link is where other masters reach this one when it leads; "" for nowhere. They
	// learn of it with the leader's name.
	Link string
	// Standby is called with the leader, a zero Leader if there is none, while Campaign
	// waits; once for each change. It must not block.
	Standby func(Leader)
}

// Leader is who leads a cell.
type Leader struct {
	ID   string // that it has campaigned as
	Link string // where other masters reach it; "" for one of a release before
	Term uint64 // grows with each election
}

// LeaseDefault is long enough for a collection of garbage, a slow disk and an
// election of the cluster itself.
const LeaseDefault = 10 * time.Second

const (
	requestTimeout = 15 * time.Second       // of one request to a cluster: three slow fsyncs
	dialTimeout    = 5 * time.Second        // to one member
	standbyEvery   = 500 * time.Millisecond // how often a standby looks who leads
	aliveEvery     = 3 * time.Second        // silence after which a member is asked
)

// OpenCluster returns a Store in an etcd cluster outside. It errs when the
// configuration cannot be, and not when the cluster does not answer: that is for
// Campaign to say. Such a cluster holds one cell.
func OpenCluster(cfg ClusterConfig) (*Store, error) {
	if cfg.Lease == 0 {
		cfg.Lease = LeaseDefault
	}
	secure, err := cfg.secure()
	if err != nil {
		return nil, err
	}
	dir, id, err := openDir(cfg.Dir, cfg.Cell)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints, TLS: secure, DialTimeout: dialTimeout, Logger: zap.NewNop(), // what matters is in our errors
		DialKeepAliveTime: aliveEvery, DialKeepAliveTimeout: aliveEvery, MaxCallSendMsgSize: maxMessage, MaxCallRecvMsgSize: maxAnswer,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("etcd at %s: %w", strings.Join(cfg.Endpoints, ","), err), dir.close())
	}
	be := &clusterBackend{etcdClient: etcdClient{client: client, timeout: requestTimeout}, cfg: cfg, dir: dir}
	s, err := newStore(be, id, cfg.Release)
	if err != nil {
		return nil, errors.Join(err, be.close())
	}
	return s, nil
}

const (
	maxMessage = 4 << 20   // of a request; the members refuse more than 1.5 MiB
	maxAnswer  = 512 << 20 // of a page, were all its values of the largest size
)

// Check errs for a configuration with which OpenCluster cannot be: endpoints that are no
// URLs, and files that cannot be read. It connects to nothing.
func (c *ClusterConfig) Check() error {
	_, err := c.secure()
	return err
}

// secure checks the endpoints and files, and returns what TLS needs, nil without
// it.
func (c *ClusterConfig) secure() (*tls.Config, error) {
	plain, err := c.plain()
	switch {
	case err != nil:
		return nil, err
	case plain && c.CAFile+c.CertFile+c.KeyFile != "":
		return nil, schema.Hintf("write https://", "etcd at %s: certificates are for https", c.Endpoints[0])
	case plain:
		return nil, nil
	case (c.CertFile == "") != (c.KeyFile == ""):
		return nil, schema.Hintf("give --etcd-cert and --etcd-key together", "etcd: a certificate needs its key, and a key its certificate")
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("etcd: authority: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd: %s has no certificate in PEM", c.CAFile)
		}
	}
	if c.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("etcd: certificate %s with key %s: %w", c.CertFile, c.KeyFile, err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return cfg, nil
}

// plain returns whether the endpoints are without TLS.
func (c *ClusterConfig) plain() (bool, error) {
	const want = "want https://HOST:PORT[,https://…]"
	if len(c.Endpoints) == 0 {
		return false, errors.New("etcd: no endpoint: " + want)
	}
	plain := 0
	for _, e := range c.Endpoints {
		u, err := url.Parse(e)
		if err != nil || u.Port() == "" || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return false, schema.Hintf("such as https://etcd-1.example.com:2379", "etcd: endpoint %q: %s", e, want)
		}
		if u.Scheme == "http" {
			plain++
			if h := u.Hostname(); h != "127.0.0.1" && h != "::1" && h != "localhost" {
				return false, schema.Hintf("write https://", "etcd: endpoint %q: without TLS only on loopback: anyone who can write there controls the cell", e)
			}
		}
	}
	if plain > 0 && plain < len(c.Endpoints) {
		return false, schema.Hintf("write https:// for all", "etcd: some endpoints are https and some http")
	}
	return plain > 0, nil
}

// clusterBackend is a client of a cluster, where others may lead.
type clusterBackend struct {
	etcdClient
	cfg ClusterConfig
	dir *dataDir

	mu    sync.Mutex // guards lease
	lease clientv3.LeaseID
}

// campaign waits until nobody leads. The key hangs on a lease, which goes when
// this process says nothing for so long; and each write compares the key, so a
// process that only slept through that cannot write.
func (b *clusterBackend) campaign(ctx context.Context, key string, value []byte) (int64, <-chan struct{}, error) {
	// A lease of the term before may be about to go.
	b.revoke(ctx)
	lease, err := b.grant(ctx)
	if err != nil {
		return 0, nil, err
	}
	alive, err := b.client.KeepAlive(context.WithoutCancel(ctx), lease)
	if err != nil {
		return 0, nil, b.down(err)
	}
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		for range alive {
		}
	}()
	puts := []clientv3.Op{
		clientv3.OpPut(key, string(value), clientv3.WithLease(lease)),
		clientv3.OpPut(linkKey(key), string(encode(b.cfg.Release, formData, []byte(b.cfg.Link))), clientv3.WithLease(lease)),
	}
	rev, err := b.await(ctx, lost, key, puts)
	if err != nil {
		b.revoke(context.WithoutCancel(ctx))
		return 0, nil, err
	}
	return rev, lost, nil
}

// grant gets a lease, which is ours until revoke.
func (b *clusterBackend) grant(ctx context.Context) (clientv3.LeaseID, error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	failpoint.StoreLease.Before()
	lease, err := b.client.Grant(ctx, int64(max(b.cfg.Lease, 2*time.Second).Seconds()))
	failpoint.StoreLease.After()
	if err != nil {
		return 0, b.down(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lease = lease.ID
	return lease.ID, nil
}

// revoke gives the lease back, and with it the key, if both are still there. An
// error is not reported: the lease ends by itself.
func (b *clusterBackend) revoke(ctx context.Context) {
	b.mu.Lock()
	lease := b.lease
	b.lease = 0
	b.mu.Unlock()
	if lease != 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _ = b.client.Revoke(ctx, lease)
	}
}

// linkKey is the key beside the leader's where the address is that other masters reach
// it at. A release before that writes none, and reads only the leader's.
func linkKey(key string) string { return key + "-link" }

// await puts the keys as soon as nobody has the first.
func (b *clusterBackend) await(ctx context.Context, lost <-chan struct{}, key string, puts []clientv3.Op) (int64, error) {
	seen, leader := false, Leader{}
	for {
		rev, found, err := b.claim(ctx, key, puts)
		if err != nil || rev != 0 {
			return rev, err
		}
		if b.cfg.Standby != nil && (!seen || found != leader) {
			seen, leader = true, found
			b.cfg.Standby(leader)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-lost:
			return 0, b.down(errors.New("the lease has ended"))
		case <-time.After(standbyEvery):
		}
	}
}

// claim puts the keys and returns the revision of that; 0, and who has the first, if
// somebody has.
func (b *clusterBackend) claim(ctx context.Context, key string, puts []clientv3.Op) (rev int64, leader Leader, err error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	failpoint.StoreElection.Before()
	resp, err := b.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(puts...).
		Else(clientv3.OpGet(key), clientv3.OpGet(linkKey(key))).Commit()
	if err != nil {
		return 0, Leader{}, b.down(err)
	}
	if resp.Succeeded {
		failpoint.StoreElection.After()
		return resp.Header.Revision, Leader{}, nil
	}
	leader, err = leaderOf(resp.Responses[0].GetResponseRange().GetKvs(), resp.Responses[1].GetResponseRange().GetKvs())
	return 0, leader, err
}

// leaderOf reads the two keys, of which there is one each or none.
func leaderOf(keys, links []*mvccpb.KeyValue) (Leader, error) {
	var leader Leader
	for _, kv := range keys {
		_, id, err := decode("the leader's key", kv.GetValue())
		if err != nil {
			return Leader{}, err
		}
		leader.ID, leader.Term = string(id), uint64(kv.GetModRevision()) //nolint:gosec // a number from 1
		for _, l := range links {
			if l.GetLease() != kv.GetLease() {
				continue // of an election before
			}
			_, link, err := decode("the leader's address", l.GetValue())
			if err != nil {
				return Leader{}, err
			}
			leader.Link = string(link)
		}
	}
	return leader, nil
}

func (b *clusterBackend) close() error {
	b.revoke(context.Background())
	return errors.Join(b.closeClient(), b.dir.close())
}
