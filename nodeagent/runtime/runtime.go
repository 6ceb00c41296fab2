package runtime

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime/capability"
	"github.com/musterhq/muster/nodeagent/secrets"
	"github.com/musterhq/muster/schema"
)

// Config is what a Runtime needs. Host, Keeper and Log must be set.
type Config struct {
	// Host is the machine. The Runtime does not close it.
	Host *host.Host
	// Keeper is the path of muster-keeper.
	Keeper string
	// Hide are directories and sockets, beside the Host's directory, that tasks shall
	// not see: what the agent talks to the master through.
	Hide []string
	// Writable are directories of the machine to which tasks may write, as far as
	// their users may; all others are read-only for them, where there are mount
	// namespaces.
	Writable []string
	// Volumes are directories of the machine that tasks may ask for, by their names.
	Volumes map[string]Volume
	// Capabilities are those of Linux that the machine offers to tasks, of
	// schema.MachineCapabilities.
	Capabilities []string
	// Images are the images and packages that the machine has; nil: it runs no containers,
	// and has no packages.
	Images Images
	// Runtimes are those that are looked for to run containers; nil: all that there are.
	Runtimes []schema.ContainerRuntime
	// Secrets are what it has for the secrets of tasks; nil: it runs none that has any.
	Secrets *secrets.Machine
	// Spare has it hold, after its first start, one keeper ready for the next: see keeper.Spare.
	Spare bool
	Log   *slog.Logger
}

// Runtime runs tasks. See the package's comment.
type Runtime struct {
	cfg        Config
	host       *host.Host
	sees       surroundings
	stock      stock
	containers *containers
	spares     spares
	safe       safe
	rlimits    rlimits
	users      bool // tasks run as users of their own
	ports      bool // and are kept from ports that are not theirs
	attributes map[string]string
	notes      []string
	note       string        // on each task
	done       chan struct{} // closed by Close
	checker    *keeper.Checker

	mu       sync.Mutex // guards what follows
	closed   bool
	live     map[*Process]bool
	watchers sync.WaitGroup
}

// New finds out how this machine can keep processes apart.
func New(cfg Config) (*Runtime, error) {
	var err error
	if cfg.Keeper, err = filepath.Abs(cfg.Keeper); err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	if s, err := os.Stat(cfg.Keeper); err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	} else if s.IsDir() || s.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("keeper %s: not executable", cfg.Keeper)
	}
	if cfg.Secrets != nil {
		cfg.Hide = append(slices.Clip(cfg.Hide), cfg.Secrets.Root())
	}
	h := cfg.Host
	r := &Runtime{cfg: cfg, host: h, safe: safe{cfg.Secrets}, users: true, ports: true, live: map[*Process]bool{}, done: make(chan struct{})}
	if r.sees.hidden, err = findHidden(append([]string{h.Dir()}, cfg.Hide...)); err != nil {
		return nil, err
	}
	if r.sees.writable, err = r.sees.findWritable(cfg.Writable); err != nil {
		return nil, err
	}
	r.stock.images = cfg.Images
	if r.stock.volumes, err = r.sees.findVolumes(cfg.Volumes); err != nil {
		return nil, err
	}
	var lacks host.Lacks
	r.containers = &containers{cfg: &r.cfg, sees: &r.sees}
	if r.sees.isolation, err = findIsolation(&cfg, r.containers, &lacks); err != nil {
		return nil, err
	}
	if r.rlimits, err = findRlimits(h, r.sees.isolation.namespaces, &lacks); err != nil {
		return nil, err
	}
	r.notes = lacks.Notes()
	r.note = h.Lacks().And(&lacks).OfTask()
	r.attributes = r.describe()
	r.spares.wanted, r.spares.keeper, r.spares.owner, r.spares.program, r.spares.log = cfg.Spare, cfg.Keeper, h.Dir(), r.containers.usual, cfg.Log
	r.checker = keeper.NewChecker(cfg.Keeper, h.Dir())
	return r, nil
}

// describe returns the attributes that say how tasks are kept apart.
func (r *Runtime) describe() map[string]string {
	a, can := r.host.Attributes(), &r.sees.isolation
	a["isolation.namespaces"] = strconv.FormatBool(can.namespaces)
	a["isolation.network"] = strconv.FormatBool(can.network)
	a["isolation.user"] = strconv.FormatBool(can.user)
	a["isolation.seccomp"] = strconv.FormatBool(can.filter != nil)
	a[schema.HasSecrets] = strconv.FormatBool(r.cfg.Secrets != nil)
	a["isolation.capabilities"] = strconv.FormatBool(can.capabilities)
	if can.capabilities && can.namespaces && can.filter != nil && r.host.SeparateUsers() { // where tasks are kept apart otherwise
		a[schema.HasCapabilityChoice] = "true"
		for _, name := range capability.Offered(r.cfg.Capabilities) {
			a[schema.CapabilityAttribute(name)] = "true"
		}
	}
	for name := range r.containers.runtimes {
		a[name.Attribute()] = "true"
	}
	if _, ok := r.containers.runtimes[schema.Runsc]; ok {
		a[schema.HasKernelNetwork] = strconv.FormatBool(r.containers.noRelay == nil)
		a[schema.HasKernelCapabilities] = "true"
	}
	if can.scoped {
		a["isolation.scope"] = "true"
	}
	if r.rlimits.processes {
		a["isolation."+host.Processes] = "true"
	}
	if can.namespaces {
		r.stock.describe(a)
	}
	return a
}

// Attributes returns how the machine keeps tasks apart: what its Host says, and
// isolation.* of processes.
func (r *Runtime) Attributes() map[string]string { return maps.Clone(r.attributes) }

// Notes says in words what the machine cannot do, beside what its Host lacks.
func (r *Runtime) Notes() []string { return slices.Clone(r.notes) }

// Close lets go of all tasks, which run on. It ends the calls of Wait.
func (r *Runtime) Close() error {
	r.mu.Lock()
	if !r.closed {
		close(r.done)
	}
	r.closed = true
	var errs []error
	for p := range r.live {
		if p.alloc != nil {
			delete(r.live, p)
			close(p.gone)
			continue
		}
		errs = append(errs, p.handle.Close())
	}
	r.mu.Unlock()
	r.checker.Close()
	errs = append(errs, r.spares.close())
	r.watchers.Wait()
	return errors.Join(errs...)
}
