package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/cmd/internal/nodump"
	"github.com/musterhq/muster/nodeagent/credential"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/machine"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// garbagePercent is how much garbage there may be before it is collected, in percent of
// what is in use, unless GOGC says otherwise: half of Go's default, since an agent makes
// little, and its memory is taken from what tasks can have.
const garbagePercent = 50

// serve is the agent, until a signal ends it.
func serve(ctx context.Context, f *flags, stderr io.Writer) error {
	// From here on a signal is answered, so that none kills an agent which
	// has just started its first task before that is on disk.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	if err := nodump.Set(); err != nil { // it opens secrets
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: f.level}))
	manager, err := openSupervisor(ctx, log)
	if err != nil {
		return err
	}
	defer manager.close()
	dir, err := filepath.Abs(f.stateDir)
	if err != nil {
		return fmt.Errorf("--state-dir %s: %w", f.stateDir, err)
	}
	// Before anything else is touched that another agent may be using.
	lock, err := loop.Take(dir)
	if err != nil {
		return badState(err)
	}
	defer func() { _ = lock.Close() }() // the process ends anyway
	metrics, err := listenMetrics(ctx, f.metricsListen)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a, err := newAgent(ctx, f, dir, loop.Config{Lock: lock, Log: log, Metrics: registry})
	if err != nil {
		return errors.Join(badState(err), closeListener(metrics))
	}
	info := a.loop.Info()
	log.Info("agent runs", "cell", a.cell, "machine", info.Name, "version", version, "state", f.stateDir,
		"cpu_milli", info.Capacity.CPUMilli, "ram_bytes", info.Capacity.RAMBytes, "disk_bytes", info.Capacity.DiskBytes, "notes", info.Notes)
	manager.notify("READY=1") // what ran before is adopted
	parts := []func(context.Context) error{a.loop.Run, a.link.Run, a.images.run, a.names.run, func(ctx context.Context) error { return a.watchMachine(ctx, f, log) }}
	if a.sharing.listener != nil {
		parts = append(parts, a.sharing.serve)
	}
	if manager.conn != nil {
		parts = append(parts, func(ctx context.Context) error { return manager.run(ctx, a.loop, a.link) })
	}
	if metrics != nil {
		log.Info("metrics", "address", "http://"+metrics.Addr().String()+"/metrics")
		parts = append(parts, func(ctx context.Context) error { return serveMetrics(ctx, metrics, registry) })
	}
	return errors.Join(a.run(ctx, parts, signals, manager), a.tasks.Close())
}

// badState says what to do when the state directory cannot be made.
func badState(err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) && path.Op == "mkdir" {
		return usageError{err, "name another directory with --state-dir, or make this one"}
	}
	if errors.Is(err, loop.ErrCopied) {
		return usageError{err, "start the agent on that one, or remove this one and start again. If that one is gone, its tasks cannot be found: restart the machine"}
	}
	return err
}

// agent is a machine's tasks, the loop that owns them, and its link.
type agent struct {
	cell    string
	tasks   *runtimes
	images  *images
	sharing *sharing
	names   *names
	id      *credential.Store  // nil: the master is behind a socket
	found   schema.MachineInfo // before what was typed is put in
	loop    *loop.Loop
	link    *link.Client
}

// run runs the parts of the agent until a signal comes or one of them ends, and
// returns when all have ended.
func (a *agent) run(ctx context.Context, parts []func(context.Context) error, signals <-chan os.Signal, manager *supervisor) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, left := make(chan error, len(parts)), len(parts)
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	err := a.awaitStop(signals, ended, &left, manager)
	cancel()
	for range left {
		err = errors.Join(err, <-ended)
	}
	return err
}

// newAgent makes the agent of the state directory dir; cfg has what the loop is
// given beside that.
func newAgent(ctx context.Context, f *flags, dir string, cfg loop.Config) (*agent, error) {
	keeper, err := findKeeper()
	if err != nil {
		return nil, err
	}
	a := &agent{cell: f.cell}
	cfg.Damages = loop.NewDamages(dir, cfg.Log)
	if err := a.identify(f, dir, &cfg); err != nil {
		return nil, err
	}
	facts := machine.Find("/", dir)
	files, err := f.deviceFiles(&facts)
	if err != nil {
		return nil, err
	}
	if err := a.openNet(ctx, f, dir, &cfg); err != nil {
		return nil, err
	}
	if a.tasks, err = openRuntimes(host.Config{
		Dir: dir, CgroupParent: f.cgroupParent, ClosedPorts: f.closed(), Devices: files, CDIDirs: host.CDIDirs,
		Damaged: cfg.Damages.Report, Discard: func(path string) error { return a.loop.Discard(path) },
	}, runtime.Config{
		Keeper: keeper, Hide: f.hidden(), Writable: f.writable, Volumes: f.volumes, Capabilities: f.capabilities, Images: a.images, Spare: true, Log: cfg.Log,
	}); err != nil {
		return nil, err
	}
	if m := a.tasks.secrets; m != nil {
		a.images.open = m.Open
	}
	a.found = a.tasks.machine(&facts)
	a.found.Shares = a.sharing.address
	a.names.describe(&a.found)
	info, err := f.machine(a.found)
	if err != nil {
		return nil, errors.Join(err, a.tasks.Close())
	}
	if err := a.tasks.Cgroups().LimitAll(info.Capacity); err != nil {
		info.Notes = append(info.Notes, "the share of the system is not enforced: "+err.Error())
	}
	cfg.Cell, cfg.Machine, cfg.Dir, cfg.Runtime = a.cell, info, dir, a.tasks
	cfg.Hardware, cfg.Images = facts.Hardware, a.images
	cfg.NoExec, cfg.LookEvery, cfg.Hint = f.noExec, loop.LookEvery, func() { a.link.Hint() }
	if err := f.usage.configure(&cfg, a.tasks.Host); err != nil {
		return nil, errors.Join(err, a.tasks.Close())
	}
	if a.loop, err = loop.New(ctx, cfg); err != nil {
		return nil, errors.Join(err, a.tasks.Close())
	}
	dial := link.Config{Cell: a.cell, Dial: f.dial[0], Others: f.dial[1:], Agent: a.loop, Usage: a.loop.Usage, Content: a.images.content, Log: cfg.Log, Clock: a.loop.Clock}
	if a.id != nil {
		dial.Identity = a.id
	}
	a.link = link.New(a.names.linked(dial, a.loop))
	return a, nil
}

// identify takes the agent's cell and name from its certificate, where it has one.
func (a *agent) identify(f *flags, dir string, cfg *loop.Config) error {
	id, err := f.identity(dir, cfg.Damages.Report)
	if err != nil || id == nil {
		return err
	}
	a.id, a.cell, f.name = id, id.Name().Cell, id.Name().Name
	return cfg.Metrics.Register(credential.NewMetrics(id))
}

// hidden returns what tasks shall not see of the master's socket: its directory,
// so that one which a later master makes is hidden too, if nobody else has
// anything there.
func hidden(master string) []string {
	socket, ok := strings.CutPrefix(master, "unix:")
	path, err := filepath.Abs(socket)
	if !ok || err != nil { // without its path, it cannot be dialed either
		return nil
	}
	if s, err := os.Stat(filepath.Dir(path)); err == nil && s.Mode()&0o077 == 0 {
		return []string{filepath.Dir(path)}
	}
	return []string{path}
}

// sessionSockets returns where the services of a user's session have their sockets, whose
// user is that of the tasks where the agent is not root: the manager of the session would
// start a program for a task, with nothing to keep it from the tasks of others.
func sessionSockets(uid int) []string {
	if uid == 0 {
		return nil
	}
	return []string{filepath.Join("/run/user", strconv.Itoa(uid))}
}

// awaitStop waits for a signal, or for a part that ends by itself, and stops
// the tasks if the signal says so.
func (a *agent) awaitStop(signals <-chan os.Signal, ended <-chan error, parts *int, manager *supervisor) error {
	log := manager.log
	select {
	case err := <-ended:
		*parts--
		return err
	case s := <-signals:
		manager.notify("STOPPING=1")
		if s == syscall.SIGTERM {
			log.Info("SIGTERM: the agent ends and leaves its tasks running")
			return nil
		}
	}
	log.Info("SIGINT: stopping all tasks; interrupt again to leave them running")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- a.loop.StopAll(ctx) }()
	select {
	case err := <-stopped:
		if err == nil {
			a.names.services.withdraw()
			err = a.names.networks.withdraw()
		}
		return err
	case <-signals:
		return errors.New("interrupted while tasks were being stopped: some may run on")
	}
}

// listenMetrics opens the socket for /metrics; nil if none is wanted.
func listenMetrics(ctx context.Context, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w", err)
	}
	if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() { // whatever localhost resolves to
		return nil, errors.Join(checkLoopback(l.Addr().String()), l.Close())
	}
	return l, nil
}

func closeListener(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

// serveMetrics serves /metrics until ctx ends.
func serveMetrics(ctx context.Context, l net.Listener, registry *prometheus.Registry) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// keeperName is the keeper's binary, which lies beside the agent's.
const keeperName = "muster-keeper"

// findKeeper returns the path of the keeper's binary.
func findKeeper() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", keeperName, err)
	}
	path := filepath.Join(filepath.Dir(exe), keeperName)
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s is not beside %s, where the agent needs it", keeperName, exe)
	}
	return path, nil
}
