package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network"
	"github.com/musterhq/muster/nodeagent/network/dns"
	"github.com/musterhq/muster/schema"
)

const (
	// auditEvery is how often what is in the kernel is compared with what should be.
	auditEvery = time.Minute
	// openTries is how often it is tried whether the machine can do it, each openPause after the
	// other: the kernel refuses a change of its rules at times while others change them.
	openTries = 3
	openPause = 300 * time.Millisecond
	// redoEvery is the time between two attempts at what the machine has refused.
	redoEvery = 5 * time.Second
	// addressesWithin is how long a start waits for a master to say which addresses the machine
	// has: it may know nothing of the cell yet.
	addressesWithin = 15 * time.Second
)

// errNoAddresses refuses a task that has waited for them.
var errNoAddresses = errors.New("no master has said which addresses this machine has for tasks")

// networks gives tasks networks of their own, by what the directory says of this machine and of
// others. It is a loop.Networks, which may be called from any goroutine.
type networks struct {
	machine string
	log     *slog.Logger
	manager *network.Manager // nil: the machine cannot do it, and has none
	plugins *plugins         // what plugins of CNI make
	note    string           // says why it can make no new networks, "" if it can
	news    chan struct{}    // holds a token while there is a snapshot to act by

	acting    sync.Mutex // is held while the machine's network is changed, and guards withdrawn
	withdrawn bool       // nothing is to be done any more

	mu    sync.Mutex // guards what follows
	known *naming.Snapshot
	is    *schema.MachineNetwork // of the machine; nil: it has no addresses for tasks, or is left
	left  *schema.MachineNetwork // what agents before this one have made, which is not touched; nil: nothing
	ready chan struct{}          // closed when is is not nil
	stale map[schema.TaskRef]bool
	// unanswered says where tasks cannot ask for names, and why; "" if they can.
	unanswered string

	guards *guards // who may connect to them
}

// openNetworks finds out whether this machine can do it. dir is the state directory, and path are the directories
// of plugins.
func openNetworks(cell, machine, dir string, path []string, log *slog.Logger) *networks {
	n := &networks{machine: machine, log: log, news: make(chan struct{}, 1), ready: make(chan struct{}), stale: map[schema.TaskRef]bool{}, guards: newGuards(log)}
	n.plugins = openPlugins(cell, dir, path, func(a netip.Addr) bool { return n.manager != nil && n.manager.Has(a) }, log)
	var m *network.Manager
	err := tried(func() (err error) {
		if m != nil {
			m.Close()
		}
		if m, err = network.Open(network.Config{Cell: cell, Machine: machine, Agent: dir, Dir: filepath.Join(dir, "networks"), Taken: n.plugins.has, Log: log}); err == nil {
			err = m.Lacks()
		}
		return err
	})
	if m != nil {
		n.guards.open(m.PolicyTable())
	}
	if n.manager = m; err != nil {
		n.note = err.Error() + ": tasks with isolation.network \"own\" do not start here"
		if m != nil {
			log.Warn("tasks that run keep their networks, and new ones get none", "err", err)
		}
	}
	return n
}

// tried calls what finds out whether the machine can do something, again after an error that may pass.
func tried(f func() error) (err error) {
	for try := range openTries {
		if try > 0 {
			time.Sleep(openPause)
		}
		if err = f(); err == nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
			break
		}
	}
	return err
}

// dnsMark begins the note that says where tasks cannot ask for names.
const dnsMark = "DNS: "

// describe adds to what the machine says of itself.
func (n *networks) describe(info *schema.MachineInfo) {
	if n.note != "" {
		info.Notes = append(info.Notes, n.note)
		return
	}
	info.Attributes[schema.HasOwnNetwork], info.Attributes[schema.HasAllocNetwork] = "true", "true"
	n.guards.describe(info)
}

// describeNames says of the machine whether its tasks can ask for names. It replaces what was said before.
func (n *networks) describeNames(info *schema.MachineInfo) {
	info.Notes = slices.DeleteFunc(slices.Clone(info.Notes), func(note string) bool { return strings.HasPrefix(note, dnsMark) })
	if n.note == "" {
		n.plugins.describe(info)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unanswered != "" {
		info.Notes = append(info.Notes, dnsMark+"tasks with networks of their own cannot ask for names: "+n.unanswered)
	}
}

// serve gives n to a loop, if the machine can do it.
func (n *networks) serve(cfg *loop.Config) {
	if n.manager != nil {
		cfg.Networks = n
	}
}

// rests says that the machine has no use for a directory of a cell without addresses for tasks.
func (n *networks) rests(known *naming.Snapshot) bool {
	c := known.Cell()
	return n.manager == nil || (c == nil || !c.Network.HasAddresses()) && !n.has()
}

// has reports whether the machine has addresses for tasks, or has had and keeps them for these.
func (n *networks) has() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.is != nil || n.left != nil
}

// begin gives it what was known when the agent before this one ended.
func (n *networks) begin(known *naming.Snapshot) {
	if n.manager != nil {
		n.guards.begin(known)
		n.learn(known)
		n.act()
	}
}

// follow is a directory.Follower.
func (n *networks) follow(now *naming.Snapshot, touched naming.Touched, done func()) {
	if n.manager != nil {
		n.guards.follow(now) // before the first addresses, after which tasks start
		if len(touched.Machines) > 0 || n.another(now.Cell()) {
			n.learn(now)
		}
	}
	done() // who sends where does not depend on it
}

// another reports whether something else is known of the cell than what is acted by.
func (n *networks) another(is *schema.DirectoryCell) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known == nil || n.known.Cell() != is
}

// learn has run act by a snapshot.
func (n *networks) learn(now *naming.Snapshot) {
	n.mu.Lock()
	n.known = now
	n.mu.Unlock()
	select {
	case n.news <- struct{}{}:
	default: // it will
	}
}

// machineNetwork returns what a machine gives its tasks addresses from, which was something before;
// nil if that is nothing, and false if it is not known.
func machineNetwork(known *naming.Snapshot, machine string, was *schema.MachineNetwork) (*schema.MachineNetwork, bool) {
	self, ok := known.Machine(machine)
	if !ok {
		return nil, false
	}
	if len(self.Subnets)+len(self.Leaving) == 0 {
		return nil, true
	}
	out := &schema.MachineNetwork{Subnets: self.Subnets, Leaving: self.Leaving, Mode: schema.ModeRoutes, Address: self.Address}
	if c := known.Cell(); c != nil && c.Network.HasAddresses() {
		out.Mode, out.MTU = c.Network.Mode, c.Network.MTU
		out.Ranges = slices.DeleteFunc([]netip.Prefix{c.Network.Range, c.Network.Range6}, func(p netip.Prefix) bool { return !p.IsValid() })
	} else if was != nil { // the cell has none any more, and tasks that run have addresses
		out.Ranges, out.Mode, out.MTU = was.Ranges, was.Mode, was.MTU
	}
	return out, true
}

// act makes the machine's network what the newest snapshot says; false if not all of it could be.
func (n *networks) act() bool {
	n.acting.Lock()
	defer n.acting.Unlock()
	if n.withdrawn {
		return true
	}
	n.mu.Lock()
	known, was := n.known, n.is
	n.mu.Unlock()
	is, ok := machineNetwork(known, n.machine, was)
	if !ok {
		return true
	}
	if is != nil && was == nil && len(is.Ranges) == 0 && (n.manager.Any() || n.plugins.any()) {
		// The cell has given its ranges up while no agent was here, and tasks have addresses of
		// them: how they are reached is in the kernel only, so that stays as it is until they end.
		n.mu.Lock()
		defer n.mu.Unlock()
		n.left = is
		return true
	}
	var others []schema.DirectoryMachine
	if is != nil {
		for m := range known.Machines() {
			if len(m.Subnets)+len(m.Leaving) > 0 {
				others = append(others, *m)
			}
		}
	}
	before := n.manager.Problems()
	// An agent that begins knows the others before it makes anything: else it would remove the routes to
	// them, and make them again.
	err := errors.Join(n.manager.Route(others), n.manager.Use(is))
	if err != nil {
		n.log.Error("cannot make the network for tasks", "err", err)
	}
	if problems := n.manager.Problems(); !slices.Equal(problems, before) && len(problems) > 0 {
		n.log.Warn("tasks do not reach all machines", "problems", strings.Join(problems, "; "))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.is == nil && is != nil {
		close(n.ready)
	} else if n.is != nil && is == nil {
		n.ready = make(chan struct{})
	}
	n.is, n.left = is, nil
	return err == nil
}

// run keeps the machine's network as the directory says, and has names answered at its addresses,
// until ctx ends.
func (n *networks) run(ctx context.Context, server *dns.Server) error {
	if n.manager == nil {
		<-ctx.Done()
		return nil
	}
	defer n.manager.Close()
	wait := n.guards.run(ctx)
	defer wait()
	stopped := n.plugins.run(ctx)
	defer stopped()
	answers := answering{serve: server.Serve, log: n.log, at: map[netip.Addr]answered{}, failed: map[netip.Addr]string{}}
	defer answers.wait()
	audit, redo := time.NewTicker(auditEvery), time.NewTicker(redoEvery)
	defer audit.Stop()
	defer redo.Stop()
	well := n.answer(ctx, &answers)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.news:
			made := n.act()
			well = n.answer(ctx, &answers) && made
		case <-redo.C:
			if !well || !answers.whole() {
				made := n.act()
				well = n.answer(ctx, &answers) && made
			}
		case <-audit.C:
			n.audit()
			n.guards.audit()
		}
	}
}

// answer has names answered at the machine's addresses; false if not at all of them.
func (n *networks) answer(ctx context.Context, by *answering) bool {
	well := by.set(ctx, n.addresses())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unanswered = by.trouble()
	return well
}

// addresses are the machine's own in its subnets, at which its tasks reach it.
func (n *networks) addresses() []netip.Addr {
	n.mu.Lock()
	left := n.left
	n.mu.Unlock()
	if left == nil {
		return n.manager.Addresses()
	}
	var out []netip.Addr
	for _, s := range left.All() {
		out = append(out, network.Gateway(s))
	}
	return out
}

// audit puts back what others have removed, and removes what could not be before.
func (n *networks) audit() {
	n.acting.Lock()
	defer n.acting.Unlock()
	if n.withdrawn {
		return
	}
	restored, err := n.manager.Audit()
	if len(restored) > 0 {
		n.log.Warn("somebody has removed what tasks' networks need: it is put back", "what", strings.Join(restored, "; "))
	}
	if err != nil {
		n.log.Error("the network for tasks is not whole", "err", err)
	}
	n.mu.Lock()
	stale := n.stale
	n.stale = map[schema.TaskRef]bool{}
	n.mu.Unlock()
	for r := range stale {
		if err := n.leaveNetwork(r); err != nil {
			n.log.Error("cannot remove the network of a task", "task", r.Task.Short(), "generation", r.Generation, "err", err)
		}
	}
}

// networkKey names the network of a generation.
func networkKey(r schema.TaskRef) string { return fmt.Sprintf("%s#%d", r.Task, r.Generation) }

// Ready waits until the machine has addresses for a generation that has no network yet.
func (n *networks) Ready(ctx context.Context, a *schema.Assignment) error {
	if _, ok := n.find(a.NetworkOf()); ok {
		return nil
	}
	n.mu.Lock()
	ready := n.ready
	n.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, addressesWithin, errNoAddresses)
	defer cancel()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Join returns the network of a generation, which it makes unless it is there. Who may not connect
// to it cannot from then on.
func (n *networks) Join(a *schema.Assignment) (*schema.TaskNetwork, error) {
	t, err := n.join(a.NetworkOf())
	if err == nil {
		err = n.guards.claim(a, t.Addresses)
	}
	if err != nil {
		return nil, err
	}
	return n.taskNetwork(t), nil
}

func (n *networks) join(r schema.TaskRef) (network.Task, error) {
	if t, ok := n.find(r); ok {
		return t, nil
	}
	n.mu.Lock()
	is, known := n.is, n.known
	n.mu.Unlock()
	if is == nil || len(is.Subnets) == 0 {
		return network.Task{}, errors.New("this machine has no addresses for tasks any more")
	}
	if c := known.Cell(); c != nil && c.Network.CNI != nil {
		return n.plugins.join(is.Subnets, c.Network.CNI, r)
	}
	return n.manager.Join(is, networkKey(r), r.Task.Short())
}

// find returns the network of a generation that can be joined; false if there is none.
func (n *networks) find(r schema.TaskRef) (network.Task, bool) {
	t, ok := n.manager.Find(networkKey(r))
	if !ok {
		t, ok = n.plugins.find(networkKey(r))
	}
	return t, ok && t.Held()
}

// taskNetwork returns a network as its task is given it: it asks the machine's own address in its
// subnet for names.
func (n *networks) taskNetwork(t network.Task) *schema.TaskNetwork {
	out := &schema.TaskNetwork{Addresses: t.Addresses, Namespace: t.Namespace}
	n.mu.Lock()
	is := cmp.Or(n.is, n.left)
	n.mu.Unlock()
	if is == nil {
		return out
	}
	for _, s := range is.All() {
		if slices.ContainsFunc(t.Addresses, s.Contains) {
			out.Nameservers = append(out.Nameservers, network.Gateway(s))
		}
	}
	return out
}

// Keep returns the networks of generations, and removes all others.
func (n *networks) Keep(of []*schema.Assignment) ([]*schema.TaskNetwork, error) {
	keys, found := make([]string, len(of)), make([]*schema.TaskNetwork, len(of))
	for i, a := range of {
		keys[i] = networkKey(a.NetworkOf())
		t, ok := n.manager.Find(keys[i])
		if !ok {
			t, ok = n.plugins.find(keys[i])
		}
		if ok {
			found[i] = n.taskNetwork(t)
			n.guards.found(a, t.Addresses)
		}
	}
	err := n.manager.Keep(keys)
	n.plugins.keep(keys)
	n.guards.restore()
	return found, err
}

// Leave removes the network of a generation, or of an alloc; what is inside one leaves it there.
func (n *networks) Leave(a *schema.Assignment) error {
	n.guards.leave(schema.TaskRef{Task: a.Task, Generation: a.Generation})
	if a.Alloc != nil {
		return nil
	}
	return n.leaveNetwork(a.NetworkOf())
}

func (n *networks) leaveNetwork(r schema.TaskRef) error {
	err := n.manager.Leave(networkKey(r))
	if err != nil {
		n.mu.Lock()
		n.stale[r] = true
		n.mu.Unlock()
	}
	return errors.Join(err, n.plugins.leave(networkKey(r))) // which tries again by itself
}

// withdraw removes all that there is, after the end of all tasks.
func (n *networks) withdraw() error {
	if n.manager == nil {
		return nil
	}
	n.acting.Lock()
	defer n.acting.Unlock()
	n.withdrawn = true
	return errors.Join(n.manager.Keep(nil), n.plugins.withdraw(), n.manager.Use(nil), n.guards.withdraw())
}

// answering has a DNS server answer at the machine's addresses in its subnets. It belongs to one
// goroutine.
type answering struct {
	serve   func(context.Context, *dns.Socket) error // until its context ends, or it fails
	log     *slog.Logger
	at      map[netip.Addr]answered
	failed  map[netip.Addr]string // why it cannot answer there
	serving sync.WaitGroup
}

// answered is an address at which the server answers.
type answered struct {
	end  context.CancelFunc
	over chan struct{} // closed when it answers no more
}

func (of answered) hasEnded() bool {
	select {
	case <-of.over:
		return true
	default:
		return false
	}
}

// set makes the addresses those; false if not all could be had.
func (a *answering) set(ctx context.Context, addresses []netip.Addr) bool {
	for at, of := range a.at {
		if !slices.Contains(addresses, at) || of.hasEnded() {
			of.end()
			delete(a.at, at)
		}
	}
	maps.DeleteFunc(a.failed, func(at netip.Addr, _ string) bool { return !slices.Contains(addresses, at) })
	for _, at := range addresses {
		if _, answers := a.at[at]; !answers {
			a.begin(ctx, at)
		}
	}
	return len(a.failed) == 0
}

// begin has the server answer at an address. It logs that it does not answer there only once.
func (a *answering) begin(ctx context.Context, at netip.Addr) {
	k, err := dns.Listen(ctx, netip.AddrPortFrom(at, dns.Port))
	if err != nil {
		if a.failed[at] != err.Error() {
			a.log.Error("DNS: tasks with networks of their own cannot ask for names", "err", err)
		}
		a.failed[at] = err.Error()
		return
	}
	if a.failed[at] != "" {
		a.log.Info("DNS: tasks with networks of their own can ask for names again", "address", at)
		delete(a.failed, at)
	}
	serving, end := context.WithCancel(ctx)
	over := make(chan struct{})
	a.at[at] = answered{end, over}
	a.serving.Go(func() {
		defer close(over)
		if err := a.serve(serving, k); err != nil {
			a.log.Error("DNS: it is listened for again", "address", at, "err", err)
		}
	})
}

// trouble says where it does not answer, and why; "" if it does everywhere.
func (a *answering) trouble() string {
	var why []string
	for _, at := range slices.SortedFunc(maps.Keys(a.failed), netip.Addr.Compare) {
		why = append(why, a.failed[at])
	}
	return strings.Join(why, "; ")
}

// whole reports whether it answers still wherever it has begun to.
func (a *answering) whole() bool {
	for _, of := range a.at {
		if of.hasEnded() {
			return false
		}
	}
	return true
}

// wait returns when all that was served has ended.
func (a *answering) wait() {
	for _, of := range a.at {
		of.end()
	}
	a.serving.Wait()
}
