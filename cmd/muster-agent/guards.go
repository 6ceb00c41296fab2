package main

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/policy"
	"github.com/musterhq/muster/nodeagent/network/policy/kernel"
	"github.com/musterhq/muster/schema"
)

const (
	// guardShare bounds the processor time of following the directory, which goes with what changes in the
	// cell: a tenth of one processor.
	guardShare = 10
	// guardAgain is after which time what the kernel has refused is tried again.
	guardAgain = time.Second
)

// guards lets only those connect to tasks of this machine who may, by the policies of their jobs: what
// is guarded follows from the tasks that run here, and who may connect from the directory. Its
// methods may be called from any goroutine.
type guards struct {
	log   *slog.Logger
	rules *kernel.Programmer // nil: the machine cannot do it
	lacks error              // why not
	news  chan struct{}      // holds a token while there is something to program

	programming sync.Mutex // is held while the kernel is changed, and guards what follows
	withdrawn   bool       // nothing is to be done any more
	follower    policy.Follower

	mu     sync.Mutex // guards what follows
	known  *naming.Snapshot
	fresh  bool // known is of a master, and not what an agent before this one knew
	claims map[schema.TaskRef]policy.Claim
}

func newGuards(log *slog.Logger) *guards {
	return &guards{log: log, news: make(chan struct{}, 1), known: naming.New().Snapshot(), claims: map[schema.TaskRef]policy.Claim{}}
}

// open finds out whether this machine can do it, with a table of that name.
func (g *guards) open(table string) {
	if g.lacks = tried(func() error { return kernel.Supported(table) }); g.lacks == nil {
		g.rules = kernel.New(table)
	}
}

// describe adds to what the machine says of itself.
func (g *guards) describe(info *schema.MachineInfo) {
	if g.lacks != nil {
		info.Notes = append(info.Notes, "everyone may connect to tasks here, whatever their policy: "+g.lacks.Error())
		return
	}
	info.Attributes[schema.HasPolicies], info.Attributes[schema.HasPolicyPorts] = "true", "true"
}

// begin gives it what was known when the agent before this one ended.
func (g *guards) begin(known *naming.Snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = known
}

// follow gives it a newer snapshot.
func (g *guards) follow(now *naming.Snapshot) {
	g.mu.Lock()
	g.known = now
	g.fresh = g.fresh || now.Cell() != nil // else it is not known yet who may connect by default
	g.mu.Unlock()
	g.rouse()
}

// rouse has run look at what is new.
func (g *guards) rouse() {
	select {
	case g.news <- struct{}{}:
	default: // it will
	}
}

// found says that a generation that the agent before this one has started has a network. What that
// has programmed stays until a master has sent something newer.
func (g *guards) found(a *schema.Assignment, at []netip.Addr) {
	if a.Job != nil && a.Job.Kind == schema.Allocs {
		return
	}
	c := policy.Claim{Job: naming.Name{User: a.Task.User, Name: a.Task.Job}, Index: a.Task.Index, Addresses: at, Shared: a.Alloc != nil, Ports: a.Ports}
	if a.Job != nil { // of a damaged assignment it is not known
		c.Policy = a.Job.Policy
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.claims[schema.TaskRef{Task: a.Task, Generation: a.Generation}] = c
}

// restore programs what was found, if the kernel has nothing any more.
func (g *guards) restore() {
	if g.rules == nil {
		return
	}
	g.programming.Lock()
	there, err := g.rules.Present()
	g.programming.Unlock()
	if err != nil || there {
		return
	}
	if err := g.program(); err != nil {
		g.log.Error("cannot restrict who connects to tasks", "err", err)
	}
}

// claim says that a generation is about to start in a network, and guards it first.
func (g *guards) claim(a *schema.Assignment, at []netip.Addr) error {
	g.found(a, at)
	known, claims := g.now()
	if g.rules == nil || !policy.Guarded(known, claims, at) {
		return nil
	}
	return g.program()
}

// leave says that nothing of a generation runs any more.
func (g *guards) leave(r schema.TaskRef) {
	g.mu.Lock()
	_, had := g.claims[r]
	delete(g.claims, r)
	g.mu.Unlock()
	if had {
		g.rouse()
	}
}

// all returns the claims, in order. The caller has g.mu.
func (g *guards) all() []policy.Claim {
	out := make([]policy.Claim, 0, len(g.claims))
	for _, r := range slices.SortedFunc(maps.Keys(g.claims), schema.TaskRef.Compare) {
		out = append(out, g.claims[r])
	}
	return out
}

// now returns what is known, and the claims.
func (g *guards) now() (*naming.Snapshot, []policy.Claim) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known, g.all()
}

// program brings the kernel to what is known now.
func (g *guards) program() error {
	g.programming.Lock()
	defer g.programming.Unlock()
	if g.withdrawn {
		return nil
	}
	known, claims := g.now()
	want, change := g.follower.Next(known, claims)
	_, err := g.rules.Follow(want, &change)
	return err
}

// audit puts back what others have changed.
func (g *guards) audit() {
	g.mu.Lock()
	fresh := g.fresh
	g.mu.Unlock()
	if g.rules == nil || !fresh {
		return
	}
	g.programming.Lock()
	defer g.programming.Unlock()
	if g.withdrawn {
		return
	}
	known, claims := g.now()
	g.follower = policy.Follower{} // of all that is known, not of what has changed
	want, change := g.follower.Next(known, claims)
	c, err := g.rules.Audit(want, &change)
	if n := c.Size(); n > 0 {
		g.log.Warn("who may connect to tasks was changed by others, and is put right", "elements", n)
	}
	if err != nil {
		g.log.Error("cannot restrict who connects to tasks", "err", err)
	}
}

// run follows the directory until ctx ends, and returns what waits for that.
func (g *guards) run(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-g.news:
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(g.turn()):
			}
		}
	})
	return running.Wait
}

// turn programs what is new, and returns how long to rest then.
func (g *guards) turn() time.Duration {
	g.mu.Lock()
	fresh := g.fresh
	g.mu.Unlock()
	if g.rules == nil || !fresh {
		return 0
	}
	began := time.Now()
	if err := g.program(); err != nil {
		g.log.Error("cannot restrict who connects to tasks; it is tried again", "err", err)
		g.rouse()
		return max(guardAgain, guardShare*time.Since(began))
	}
	return guardShare * time.Since(began)
}

// withdraw removes what is programmed.
func (g *guards) withdraw() error {
	if g.rules == nil {
		return nil
	}
	g.programming.Lock()
	defer g.programming.Unlock()
	g.withdrawn = true
	return g.rules.Withdraw()
}
