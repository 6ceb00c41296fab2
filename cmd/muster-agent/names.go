package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent/directory"
	"github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/network/dns"
	"github.com/musterhq/muster/schema"
	"github.com/spf13/pflag"
)

// unlistWithin is how long the stop of a task waits at most for all agents of the cell to know of
// it: longer than masters wait for those that do not answer.
const unlistWithin = 5 * time.Second

// unlistUnlinked is how long it waits at most without a master: longer than the next one needs to
// be elected, to read its cell, and for the machines to come to it.
const unlistUnlinked = 30 * time.Second

// resolvConf has the servers for names outside of the cell, if no flag does.
const resolvConf = "/etc/resolv.conf"

// dnsFlags are the flags of the DNS server.
type dnsFlags struct {
	listen, upstream, allow []string

	at, upstreams []netip.AddrPort // as check has read them
	allowed       []netip.Prefix
}

func (f *dnsFlags) register(set *pflag.FlagSet) {
	set.StringSliceVar(&f.listen, "dns-listen", nil, "addresses of this machine, as IP or IP:PORT, at which its tasks and others of the cell ask for names by DNS; port 53 if none is given (default none)")
	set.StringSliceVar(&f.upstream, "dns-upstream", nil, "DNS servers, as IP or IP:PORT, for names outside of the cell, in the order in which they are asked (default those of "+resolvConf+")")
	set.StringSliceVar(&f.allow, "dns-allow", nil, "ranges of addresses, as 192.0.2.0/24, that may ask by DNS, beside this machine and tasks of the cell (default none)")
}

// check errs with a usageError for what cannot be.
func (f *dnsFlags) check() error {
	if len(f.listen) == 0 && len(f.upstream)+len(f.allow) > 0 {
		return usageError{errors.New("--dns-upstream and --dns-allow are for an agent that answers DNS"), "give --dns-listen, too"}
	}
	var err error
	if f.at, err = addressPorts("--dns-listen", f.listen); err != nil {
		return err
	}
	if f.upstreams, err = addressPorts("--dns-upstream", f.upstream); err != nil {
		return err
	}
	for _, a := range f.at {
		if slices.Contains(f.upstreams, a) {
			return usageError{fmt.Errorf("--dns-upstream %s: the agent itself listens there", a), "name another server"}
		}
	}
	for _, text := range f.allow {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Masked() != p {
			return usageError{fmt.Errorf("--dns-allow %q: want a range of addresses without bits after its length", text), "such as 192.0.2.0/24"}
		}
		f.allowed = append(f.allowed, p)
	}
	return nil
}

// addressPorts reads addresses that may have a port.
func addressPorts(flag string, texts []string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, text := range texts {
		at, err := netip.ParseAddrPort(text)
		if ip, ipErr := netip.ParseAddr(strings.Trim(text, "[]")); ipErr == nil {
			at, err = netip.AddrPortFrom(ip, dns.Port), nil
		}
		if err != nil || at.Port() == 0 || at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
			return nil, usageError{fmt.Errorf("%s %q: want IP or IP:PORT, of one machine", flag, text), "such as 10.1.2.3 or [2001:db8::7]:53"}
		}
		if slices.Contains(out, at) {
			return nil, usageError{fmt.Errorf("%s: %s is there twice", flag, at), "give each once"}
		}
		out = append(out, at)
	}
	return out, nil
}

// names is what the machine knows of its cell, and who answers from it.
type names struct {
	known    *directory.Directory
	services *services
	networks *networks
	server   *dns.Server // nil: none
	sockets  []*dns.Socket
}

// keptDirectory is the directory as the link sees it.
type keptDirectory struct {
	*directory.Directory
	n *names
}

// Rests says that nobody here acts by the directory while the cell has no service, and no addresses for tasks.
func (k keptDirectory) Rests() bool {
	return len(k.n.sockets) == 0 && k.n.services.rests() && !k.Snapshot().HasAnyService() && k.n.networks.rests(k.Snapshot())
}

// linked returns the configuration of a link that keeps the directory.
func (n *names) linked(cfg link.Config, tasks *loop.Loop) link.Config {
	cfg.Directory, cfg.Listed = keptDirectory{n.known, n}, tasks
	return cfg
}

// describe adds to what the machine says of itself.
func (n *names) describe(info *schema.MachineInfo) {
	n.networks.describe(info)
	n.describeAgain(info)
}

// describeAgain replaces what changes of that while the agent runs.
func (n *names) describeAgain(info *schema.MachineInfo) {
	n.services.describe(info)
	n.networks.describeNames(info)
}

// openNet opens what speaks with others beside the link: images, and names.
func (a *agent) openNet(ctx context.Context, f *flags, dir string, cfg *loop.Config) error {
	if err := a.openImages(ctx, f, dir, cfg); err != nil {
		return err
	}
	var err error
	a.names, err = a.openNames(ctx, f, dir, cfg)
	return err
}

// openNames reads what the state directory dir has of the cell, and opens the sockets of the DNS server.
func (a *agent) openNames(ctx context.Context, f *flags, dir string, cfg *loop.Config) (*names, error) {
	name, err := f.machineName()
	if err != nil {
		return nil, err
	}
	n := &names{services: openServices(a.cell, name, servicesLocks, cfg.Log), networks: openNetworks(a.cell, name, dir, f.cni.path, cfg.Log)}
	if n.known, err = directory.Open(directory.Config{
		Cell: a.cell, Dir: filepath.Join(dir, "directory"), Damaged: cfg.Damages.Report, Log: cfg.Log,
	}, n.services.follow, n.networks.follow); err != nil {
		return nil, err
	}
	n.services.begin(n.known.Snapshot())
	n.networks.begin(n.known.Snapshot())
	n.networks.serve(cfg)
	cfg.UnlistWithin, cfg.UnlistUnlinked, cfg.Listing = unlistWithin, unlistUnlinked, n.services.there || n.known.Snapshot().HasAnyService()
	return n, n.openServer(ctx, a.cell, name, f, cfg)
}

// openServer opens the DNS server, and its sockets at the addresses that flags say.
func (n *names) openServer(ctx context.Context, cell, machine string, f *flags, cfg *loop.Config) error {
	if len(f.dns.at) == 0 && n.networks.manager == nil {
		return nil
	}
	upstreams := func() []netip.AddrPort { return f.dns.upstreams }
	if len(f.dns.upstreams) == 0 {
		upstreams = dns.NewResolvConf(resolvConf, time.Now).Servers
	}
	var self []netip.Addr
	for _, at := range f.dns.at {
		if !at.Addr().IsLoopback() {
			self = append(self, at.Addr())
		}
	}
	var err error
	if n.server, err = dns.NewServer(dns.Config{
		Cell: cell, Machine: machine, Self: self, Snapshot: n.known.Snapshot,
		Allowed: f.dns.allowed, Upstreams: upstreams, Metrics: cfg.Metrics, Now: time.Now,
	}); err != nil {
		return err
	}
	for _, at := range f.dns.at {
		k, err := dns.Listen(ctx, at)
		if err != nil {
			return errors.Join(fmt.Errorf("--dns-listen: %w", err), n.close())
		}
		n.sockets = append(n.sockets, k)
	}
	warnMissing(f.dns.at, cfg.Log)
	return nil
}

// warnMissing logs at which addresses nothing arrives yet.
func warnMissing(at []netip.AddrPort, log *slog.Logger) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return
	}
	for _, a := range at {
		if !a.Addr().IsLoopback() && !slices.ContainsFunc(own, func(o net.Addr) bool {
			p, err := netip.ParsePrefix(o.String())
			return err == nil && p.Addr() == a.Addr().WithZone("")
		}) {
			log.Warn("DNS: the machine does not have this address of --dns-listen; it is answered there once it does", "address", a)
		}
	}
}

// close closes sockets that are not served.
func (n *names) close() error {
	var all []error
	for _, k := range n.sockets {
		all = append(all, k.Close())
	}
	return errors.Join(all...)
}

// run keeps what is known on disk, programs services and tasks' networks, and answers DNS, until ctx
// ends.
func (n *names) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(n.sockets)+3)
	for _, k := range n.sockets {
		go func() { ended <- n.server.Serve(ctx, k) }()
	}
	go func() { ended <- n.known.Run(ctx) }()
	go func() { ended <- n.services.run(ctx) }()
	go func() { ended <- n.networks.run(ctx, n.server) }()
	err := <-ended
	cancel() // if one ends by itself, so do all
	for range len(n.sockets) + 2 {
		err = errors.Join(err, <-ended)
	}
	return err
}
