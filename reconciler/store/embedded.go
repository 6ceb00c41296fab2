package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
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
}

// The timing of a server that is its own only member: an election is a wait
// for nobody, so it is kept short. A tick costs 0.12 ms of CPU, idle or not;
// etcd wants 5 in an election at least.
const (
	tickMs     = 20
	electionMs = 100
)

// Memory of the raft log: etcd's defaults keep 15,000 entries, which took
// 1.4 GB under load; nobody is there to catch up.
const (
	snapshotCount          = 500
	snapshotCatchUpEntries = 100
)

const (
	quotaBytes      = 8 << 30              // etcd's advised maximum
	maxRequestBytes = 3 << 19              // 1.5 MiB, etcd's default
	keepRevisions   = "1000"               // history that is kept; only Load's snapshot needs any
	startTimeout    = time.Minute          // replaying a long log on a slow disk
	pageSize        = 1000                 // keys a read; one read of all takes 6 times the memory
	memberName      = "muster"             // of the one member
	memberURL       = "http://127.0.0.1:0" // a name that etcd insists on; nothing listens
)

const damagedHint = "hint: if its files are damaged, move the directory away, then restore it from a backup or start empty"

// OpenEmbedded starts an etcd server within this process on a data directory
// and returns the Store in it. The server has no listener of any kind: only
// the Store reaches it. A directory in use by another process, or of another
// cell (*ForeignError), is refused and left as it is.
func OpenEmbedded(ctx context.Context, cfg EmbeddedConfig) (*Store, error) {
	dir, id, err := openDir(cfg.Dir, cfg.Cell)
	if err != nil {
		return nil, err
	}
	be, err := startEtcd(ctx, dir, cfg.Log)
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
func startEtcd(ctx context.Context, dir *dataDir, log *slog.Logger) (be *etcdBackend, err error) {
	defer func() {
		// etcd panics where its files are damaged; see newZap on exits.
		if p := recover(); p != nil {
			be, err = nil, fmt.Errorf("start etcd on %s: %v\n%s", dir.path, p, damagedHint)
		}
	}()
	server, err := embed.StartEtcd(etcdConfig(dir.path, log))
	if err != nil {
		return nil, fmt.Errorf("start etcd on %s: %w\n%s", dir.path, err, damagedHint)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-server.Server.ReadyNotify():
	case <-server.Server.StopNotify():
		err = errors.New("the server stopped")
	case <-ctx.Done():
		err = fmt.Errorf("not ready: %w", ctx.Err())
	}
	if err != nil {
		server.Close()
		return nil, fmt.Errorf("start etcd on %s: %w\n%s", dir.path, err, damagedHint)
	}
	return &etcdBackend{
		etcdClient: etcdClient{client: v3client.New(server.Server)}, server: server, dir: dir, failed: server.Server.StopNotify(),
	}, nil
}

func etcdConfig(dir string, log *slog.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newZap(log))

	cfg.ListenPeerUrls, cfg.ListenClientUrls, cfg.ListenMetricsUrls = nil, nil, nil
	cfg.ListenClientHttpUrls = nil
	cfg.EnableGRPCGateway = false
	self := url.URL{Scheme: "http", Host: memberURL[len("http://"):]}
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{self}, []url.URL{self}
	cfg.InitialCluster = memberName + "=" + memberURL

	cfg.TickMs, cfg.ElectionMs = tickMs, electionMs
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = snapshotCount, snapshotCatchUpEntries
	cfg.QuotaBackendBytes = quotaBytes
	cfg.MaxTxnOps, cfg.MaxRequestBytes = maxOps, maxRequestBytes
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, keepRevisions
	cfg.UnsafeNoFsync = false
	return cfg
}
