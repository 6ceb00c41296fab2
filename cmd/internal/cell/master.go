package cell

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/events"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/history"
	"github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/reconciler/naming"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/reconciler/relay"
	"github.com/musterhq/muster/reconciler/replica"
	"github.com/musterhq/muster/reconciler/secrets"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// MasterConfig says what a master serves and where it keeps its state.
type MasterConfig struct {
	// Cell is the name of the cell, or "" to take that of the data directory,
	// or else the only one that the repository declares.
	Cell   string
	Repo   string // URL or path of the config repository
	Branch string // "" is the repository's own default
	// Worktree follows the files of the directory Repo, not its commits.
	Worktree bool
	// Auth is for a repository that is asked over a network.
	Auth    git.Auth
	DataDir string // made with mode 0700 if it is not there
	Listen  string // address of API and metrics; a loopback one without a PKI
	Link    string // path of the unix socket of the agent link; "" is link/agent.sock in DataDir
	// Socket is the path of the API's unix socket; "" is link/api.sock in DataDir, or
	// with a PKI none.
	Socket string
	// Users are those of this machine who may use the API, beside root and the
	// master's own.
	Users []web.LocalUser
	// PKI is the directory of the cell's authority; "" is none, and then nobody
	// comes from elsewhere.
	PKI string
	// SecretIdentity is the file with the identities that open the cell's secrets; "" for
	// none.
	SecretIdentity string
	// LinkListen is the address to which agents come over TLS; "" is none.
	LinkListen string
	// MachineLife is the life of a machine's certificate.
	MachineLife time.Duration
	Poll        time.Duration
	// LostAfter is how long a machine may be silent before it is given up; 0 is
	// the default.
	LostAfter time.Duration
	// PlacementWorkers is how many goroutines look at machines for tasks that are placed; 0
	// is one for each processor that the master may use.
	PlacementWorkers int
	// Etcd is the cluster that keeps the cell's documents; without endpoints they
	// are in DataDir. Of it, endpoints, files and lease count.
	Etcd store.ClusterConfig
	// SnapshotEvery is the time between two snapshots of the store, 0 for none, and
	// SnapshotKeep how many stay.
	SnapshotEvery time.Duration
	SnapshotKeep  int
	// CheckpointEvery is the time between two checkpoints of the cell, 0 for none, and
	// CheckpointKeep how many stay.
	CheckpointEvery time.Duration
	CheckpointKeep  int
	// PlanTimeout is how long the plan of a commit may take that is kept in its history; 0
	// for no plans.
	PlanTimeout time.Duration
	// NoExec refuses commands beside tasks.
	NoExec bool
	// Profiles is the loopback address of net/http/pprof; "" is none.
	Profiles string
	// hollow says that the machines of the cell are many that join at once.
	hollow bool
	// Release is the version of this program; it stands beside what is stored.
	Release string
	// Exe is a muster binary, which is run as a compile child.
	Exe string
	Log *slog.Logger
	// Ready is called once all listen, with the cell's name, the API's address, and where a
	// browser without a certificate finds the status page, "" for nowhere.
	Ready func(cell, address, page string)
}

// joinWait returns how long more machines are waited for when the first of a cell
// joins: one to which none come over the network has but this one, or hollow ones.
func (cfg *MasterConfig) joinWait() time.Duration {
	if cfg.LinkListen == "" && !cfg.hollow {
		return 0
	}
	return control.DefaultJoinWait
}

// placementWorkers returns how many goroutines look at machines for tasks that are placed.
func (cfg *MasterConfig) placementWorkers() int {
	if cfg.PlacementWorkers > 0 {
		return cfg.PlacementWorkers
	}
	return min(runtime.GOMAXPROCS(0), MostPlacementWorkers)
}

// MostPlacementWorkers bounds MasterConfig.PlacementWorkers: more have nothing to do, since
// placement looks at machines for as many tasks at a time.
const MostPlacementWorkers = 32

// compileIdle is how long a compile child is kept for the next commit: whoever tries something
// out makes the next one within minutes, and has it applied sooner.
const compileIdle = 5 * time.Minute

// settles returns how long after all agents of this master act by a change the machines of tasks learn that.
func (cfg *MasterConfig) settles() time.Duration {
	if len(cfg.Etcd.Endpoints) > 0 {
		return max(settle, otherMasters)
	}
	return settle
}

// master is the parts of one master.
type master struct {
	cfg       MasterConfig
	cell      string
	repo      repository
	compiler  *compile.Compiler
	secrets   *secrets.Opener
	store     *store.Store
	events    *events.Log
	term      *term
	link      *link.Server
	shard     *relay.Shard    // of the link's sessions
	relay     *relay.Service  // for the shards of other masters
	replicas  *replica.Server // for their APIs
	copy      *replica.Copy   // of what another one leads
	directory *naming.Directory
	web       *web.Server
	metrics   *web.Metrics
	history   *history.Keeper // of commits

	authority *pki.Authority // nil without a PKI

	api, agents net.Listener
	socket      net.Listener // of the API; nil for none
	machines    net.Listener // over TCP; nil for none
	profiles    net.Listener // nil for none
}

// RunMaster runs a master until ctx ends. Tasks run on when it has ended.
func RunMaster(ctx context.Context, cfg MasterConfig) error {
	m, err := openMaster(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(m.run(ctx), m.close())
}

// openMaster opens everything that can fail because of what the user gave, and
// starts nothing yet.
func openMaster(ctx context.Context, cfg MasterConfig) (*master, error) {
	m := &master{cfg: cfg}
	_, missing := os.Stat(cfg.DataDir)
	if err := m.open(ctx); err != nil {
		err = errors.Join(err, m.close())
		if missing != nil {
			// A mistake leaves an empty directory; one with something in it
			// stays.
			_ = os.Remove(cfg.DataDir)
		}
		return nil, err
	}
	m.wire()
	return m, nil
}

func (m *master) open(ctx context.Context) error {
	cfg := &m.cfg
	// The addresses first: a mistake in them must leave nothing on the disk.
	directory, err := m.listen()
	if err != nil {
		return err
	}
	if err := m.listenProfiles(); err != nil {
		return err
	}
	_, fresh := store.CellOf(cfg.DataDir) // one that was there before goes on from its store
	if m.repo, err = cfg.openRepository(ctx, filepath.Join(cfg.DataDir, "git"), fresh == nil); err != nil {
		return err
	}
	if cfg.Link == "" {
		cfg.Link = filepath.Join(cfg.DataDir, "link", "agent.sock")
	}
	if err := checkSocketPath(cfg.Link, "give --link FILE with a shorter path"); err != nil {
		return err
	}
	if err := cfg.findSocket(); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return noDirectory(cfg.DataDir, err)
	}
	m.secrets = &secrets.Opener{File: cfg.SecretIdentity}
	if err := m.secrets.Check(); err != nil {
		message, hint := schema.HintOf(err)
		return inputError(cmp.Or(hint, "name a file of age identities, or leave --secret-identity out"), "--secret-identity: %s", message)
	}
	m.compiler = compile.New(compile.Config{Exe: cfg.Exe, Args: []string{"compile-child"}, Idle: compileIdle, Log: cfg.Log})
	if m.cell, err = m.findCell(ctx); err != nil {
		return err
	}
	if err := m.checkAuthority(directory); err != nil {
		return err
	}
	if err := m.openStore(ctx, directory); err != nil {
		return err
	}
	if err := m.openAuthority(directory); err != nil {
		return err
	}
	if m.events, err = events.Open(events.Config{Dir: filepath.Join(cfg.DataDir, "events"), Log: cfg.Log}); err != nil {
		return err
	}
	m.copy = replica.NewCopy(replica.CopyConfig{Cell: m.cell, Events: m.events, Log: cfg.Log})
	m.term = newTerm(m.cell, m.copy)
	if m.agents, err = local.Listen(cfg.Link); err != nil {
		return inputError("give --link FILE in a directory of its own, such as /run/muster/agent.sock", "--link: %w", err)
	}
	return m.listenSocket()
}

// findSocket makes the path of the API's unix socket absolute; it is "" for none.
func (cfg *MasterConfig) findSocket() (err error) {
	if cfg.Socket == "" {
		if cfg.PKI != "" {
			return nil
		}
		cfg.Socket = filepath.Join(cfg.DataDir, "link", apiSocket)
	}
	if cfg.Socket, err = filepath.Abs(cfg.Socket); err != nil { // others get it
		return err
	}
	return checkSocketPath(cfg.Socket, "give --socket FILE with a shorter path")
}

// listenSocket opens the unix socket of the API. Where users are named, all may
// connect, and the API asks the kernel who it is.
func (m *master) listenSocket() error {
	cfg := &m.cfg
	if cfg.Socket == "" {
		return nil
	}
	listen := local.Listen
	if len(cfg.Users) > 0 {
		listen = local.ListenOpen
	}
	var err error
	if m.socket, err = listen(cfg.Socket); err != nil {
		return inputError("give --socket FILE in a directory of its own, such as /run/muster/api.sock", "API: %w", err)
	}
	return nil
}

// wire puts the parts together.
func (m *master) wire() {
	m.term.events = m.events
	m.history = m.newHistory()
	linkSecure, webSecure := m.secure()
	agents := &agents{}
	m.shard = relay.NewShard(relay.ShardConfig{
		Cell: m.cell, Agents: agents, Parted: cmp.Or(m.cfg.Etcd.Lease, store.LeaseDefault) + partedFor, Security: m.security(), Beside: m.copy.Follow, Log: m.cfg.Log,
	})
	m.replicas = replica.NewServer(replica.ServerConfig{Cell: m.cell, State: m.term, Events: m.events, Join: m.joins()})
	m.relay = relay.NewService(relay.ServiceConfig{Cell: m.cell, Log: m.cfg.Log})
	m.directory = naming.New(naming.Config{Cell: m.term.Snapshot, Settle: m.cfg.settles()})
	m.link = link.New(link.Config{Directory: directory{m.directory}, Cell: m.cell, Master: m.shard, Log: m.cfg.Log, Audit: m.audit, Secure: linkSecure, Secrets: m.secrets, Sources: m.term, Relay: m.relay, Replica: m.replicas})
	agents.Server, m.term.link = m.link, m.link.Counts
	m.metrics = web.NewMetrics(m.term)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.metrics, m.term, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if m.authority != nil {
		registry.MustRegister(pki.NewMetrics(m.authority.Expires, m.authority.AuthorityExpires)...)
	}
	m.web = web.New(web.Config{
		Name: m.cell, Cell: m.term, Suspensions: m.term, Restarts: m.term, Machines: m.term, Checkpoints: checkpoints{m.term, m.cfg.Release}, History: commits{m.history}, Logs: m.term, Exec: m.term, NoExec: m.cfg.NoExec, Audit: m.audit, Behind: m.directory.Behind, Events: m.events, Repository: followed{m.term, m.repo}, Metrics: registry, Log: m.cfg.Log,
		Secure: webSecure, Leader: m.term,
		Local: web.Local{Own: uint32(os.Geteuid()), Users: m.cfg.Users, Socket: m.cfg.Socket, Page: m.page()}, //nolint:gosec // a number from 0
	})
	registry.MustRegister(m.web.Refusals(), m.link.Refusals())
}

// audit adds to the history what was asked of this master. The history is the leader's: what
// another master refuses is in its log and its metrics.
func (m *master) audit(e schema.Event) {
	if _, err := m.term.leading(); err == nil {
		m.events.Append([]schema.Event{e})
	}
}

// run runs the parts until ctx ends or one of them fails.
func (m *master) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.lead(ctx) })
	g.Go(func() error {
		m.shard.Run(ctx)
		return nil
	})
	g.Go(func() error {
		m.directory.Run(ctx)
		return nil
	})
	g.Go(func() error { return m.link.Serve(ctx, m.listeners()...) })
	g.Go(func() error { return m.web.Serve(ctx, m.apis()...) })
	g.Go(func() error { return m.web.ServeForwarded(ctx, m.replicas.Forwards()) })
	g.Go(func() error { return m.events.Run(ctx) })
	g.Go(func() error {
		m.history.Run(ctx)
		return nil
	})
	g.Go(func() error { return m.serveProfiles(ctx) })
	g.Go(func() error {
		giveBack(ctx)
		return nil
	})
	g.Go(func() error { return m.watchCertificate(ctx) })
	m.awaitLeader(ctx)
	m.cfg.Ready(m.cell, m.address(), m.page())
	return g.Wait()
}

// close releases what open took, in reverse.
func (m *master) close() error {
	var errs []error
	for _, l := range m.listeners() {
		errs = append(errs, ignoreClosed(l.Close()))
	}
	if m.store != nil {
		m.resign()
		errs = append(errs, m.store.Close())
	}
	for _, l := range append(m.apis(), opened(m.profiles)...) {
		errs = append(errs, ignoreClosed(l.Close()))
	}
	return errors.Join(errs...)
}

// noDirectory is the mistake of a data directory that cannot be made.
func noDirectory(dir string, err error) error {
	return inputError("name another directory with --data-dir, or make this one and let muster write to it", "data directory %s: %w", dir, err)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
