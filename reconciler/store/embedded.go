package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/musterhq/muster/schema"
)

// EmbeddedConfig is what OpenEmbedded needs.
type EmbeddedConfig struct {
	// Dir is the data directory; it is made if it is missing. Other files may
	// live in it beside `lock`, `cell.json` and `etcd`.
	Dir string
	// Cell is whose documents these are.
	Cell string
	// Release is the version of this program; it stands beside what is stored.
	Release string
	// Log gets etcd's own warnings and errors.
	Log *slog.Logger

	quota int64 // of etcd's file, for tests; quotaBytes when 0
}

// The timing of a server that is its own only member: an election is a wait
// for nobody, so it is kept short. A tick costs 0.12 ms of CPU, idle or not;
// etcd wants 5 in an election at least.
const (
	tickMs     = 20
	electionMs = 100
)

// Memory of the raft log: etcd's defaults keep 15,000 entries, which took
// 1.4 GB under load; nobody is there to catch up. Of a large cell each may have hundreds
// of kilobytes.
const (
	snapshotCount          = 50
	snapshotCatchUpEntries = 10
)

// The log on disk: etcd makes files of 64 MB, and keeps five that it does not need.
const (
	walBytes = 16 << 20
	walFiles = 2
)

// smallLog sets how large etcd makes the files of its log, which it has no option for.
var smallLog = sync.OnceFunc(func() { wal.SegmentSizeBytes = walBytes })

const (
	quotaBytes      = 8 << 30              // etcd's advised maximum
	maxRequestBytes = 3 << 19              // 1.5 MiB, etcd's default
	keepRevisions   = "1000"               // history that is kept; only Load's snapshot needs any
	startTimeout    = time.Minute          // replaying a long log on a slow disk
	pageSize        = 1000                 // keys a read; one read of all takes 6 times the memory
	memberName      = "muster"             // of the one member
	memberURL       = "http://127.0.0.1:0" // a name that etcd insists on; nothing listens
)

// OpenEmbedded starts an etcd server within this process on a data directory
// and returns the Store in it. The server has no listener of any kind: only
// the Store reaches it. A directory in use by another process, or of another
// cell (*ForeignError), is refused and left as it is.
func OpenEmbedded(ctx context.Context, cfg EmbeddedConfig) (*Store, error) {
	dir, id, err := openDir(cfg.Dir, cfg.Cell)
	if err != nil {
		return nil, err
	}
	be, err := startEtcd(ctx, dir, cmp.Or(cfg.quota, quotaBytes), cfg.Log)
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	s, err := open(ctx, be, id, cfg.Release)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", cfg.Dir, err), be.close())
	}
	return s, nil
}

// startEtcd returns when the server has elected itself.
func startEtcd(ctx context.Context, dir *dataDir, quota int64, log *slog.Logger) (*etcdBackend, error) {
	end := &collapse{dir: dir.path, done: make(chan struct{})}
	failed := func(err error) (*etcdBackend, error) {
		if gone := end.happened(); gone != nil {
			return nil, gone
		}
		return nil, schema.Hintf(hint(dir.path, err), "start etcd on %s: %w", dir.path, err)
	}
	server, err := startServer(etcdConfig(dir.path, quota, newZap(log, end)))
	if err != nil || server == nil {
		return failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-server.Server.ReadyNotify():
		end.running.Store(true)
	case <-server.Server.StopNotify():
		err = errors.New("the server stopped")
	case <-end.done:
	case <-ctx.Done():
		err = fmt.Errorf("not ready: %w", ctx.Err())
	}
	if end.happened() != nil {
		return failed(nil)
	}
	if err != nil {
		server.Close()
		return failed(err)
	}
	return &etcdBackend{
		etcdClient: etcdClient{client: v3client.New(server.Server), end: end}, server: server, dir: dir, quota: quota,
		failed: either(end.done, server.Server.StopNotify()),
	}, nil
}

// either returns a channel that is closed when a or b is.
func either(a, b <-chan struct{}) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		select {
		case <-a:
		case <-b:
		}
	}()
	return c
}

// startServer calls etcd on a goroutine that etcd may panic on, where its files
// are damaged, or that a collapse ends: then there is neither server nor error.
func startServer(cfg *embed.Config) (*embed.Etcd, error) {
	var server *embed.Etcd
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%v", p)
			}
		}()
		server, err = embed.StartEtcd(cfg)
	}()
	<-done
	return server, err
}

func etcdConfig(dir string, quota int64, log *zap.Logger) *embed.Config {
	smallLog()
	cfg := embed.NewConfig()
	cfg.MaxWalFiles = walFiles
	cfg.Name = memberName
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)

	cfg.ListenPeerUrls, cfg.ListenClientUrls, cfg.ListenMetricsUrls = nil, nil, nil
	cfg.ListenClientHttpUrls = nil
	cfg.EnableGRPCGateway = false
	self := url.URL{Scheme: "http", Host: memberURL[len("http://"):]}
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{self}, []url.URL{self}
	cfg.InitialCluster = memberName + "=" + memberURL

	cfg.TickMs, cfg.ElectionMs = tickMs, electionMs
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = snapshotCount, snapshotCatchUpEntries
	cfg.QuotaBackendBytes = quota
	cfg.MaxTxnOps, cfg.MaxRequestBytes = maxOps, maxRequestBytes
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, keepRevisions
	cfg.UnsafeNoFsync = false
	return cfg
}
