package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"golang.org/x/sys/unix"
)

// isolation is what a task can have of its own here, beyond a user and cgroups.
type isolation struct {
	namespaces   bool // pid, mount, ipc and uts
	network      bool
	user         bool
	terminals    bool   // in a /dev of their own
	queues       bool   // message queues, in /dev/mqueue
	capabilities bool   // all are gone for good
	filter       []byte // nil: no seccomp
	scoped       bool   // out of reach of abstract unix sockets of others
}

// prober finds out by trying what isolation there is.
type prober struct {
	cfg     *Config
	lacks   *host.Lacks
	can     isolation
	place   string // where it tries
	untried error  // why it could not
}

// probeFor bounds one probe: a keeper answers within milliseconds.
const probeFor = 10 * time.Second

// findIsolation finds out by trying, and notes what is missing. It errs when it
// cannot try: tasks must not lose their isolation to a full disk.
func findIsolation(cfg *Config, c *containers, lacks *host.Lacks) (isolation, error) {
	p := prober{cfg: cfg, lacks: lacks}
	var err error
	if p.place, err = probePlace(cfg); err == nil {
		p.findParts()
		c.sees.isolation = p.can
		c.find(&p)
		err = errors.Join(p.untried, os.RemoveAll(p.place))
	}
	if err != nil {
		return isolation{}, fmt.Errorf("find out what isolation there is: %w", err)
	}
	return p.can, nil
}

// memoryDir is on no disk.
const memoryDir = "/dev/shm"

// probeRoom is what probes need of a disk, in bytes.
const probeRoom = 256 << 10

// probePlace makes a directory for probes: on the agent's disk or, where that is
// full or broken, in memory.
func probePlace(cfg *Config) (string, error) {
	var errs []error
	for _, parent := range []string{cfg.Host.Dir(), memoryDir} {
		place, err := os.MkdirTemp(parent, "muster-probe-")
		if err == nil {
			test := filepath.Join(place, "room")
			if err = os.WriteFile(test, make([]byte, probeRoom), 0o600); err == nil {
				return place, os.Remove(test)
			}
			err = errors.Join(err, os.RemoveAll(place))
		}
		cfg.Log.Warn("no room to try out isolation", "dir", parent, "err", err)
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func (p *prober) findParts() {
	can := &p.can
	unprivileged := os.Geteuid() != 0
	can.capabilities = unprivileged || p.cfg.Host.SeparateUsers() || host.Holds(unix.CAP_SETPCAP)
	if !can.capabilities {
		p.lacks.Task("dropped capabilities", "root without CAP_SETPCAP: tasks keep what capabilities root has here")
	}
	base := keeper.Sandbox{UserNamespace: unprivileged, ReadOnly: true, Mounts: []keeper.Mount{
		{Kind: keeper.Proc, Target: procDir},
		{Kind: keeper.Tmpfs, Target: p.cfg.Host.Dir(), Data: hiddenSize, ReadOnly: true},
	}}
	can.scoped = keeper.CanScope()
	network, user := base, base
	network.Network, user.UserNamespace = true, true
	filter, unfiltered := seccompFilter(true)
	if unfiltered == nil && p.try(&network, filter) == nil { // nearly always
		can.namespaces, can.network, can.filter = true, true, filter
	} else {
		p.findSingly(&base, &network)
	}
	if can.namespaces {
		p.findDevices(&base)
	}
	if can.user = unprivileged && can.namespaces; can.user || !can.namespaces {
		return
	}
	if err := p.try(&user, nil); err != nil {
		p.lacks.Machine(fmt.Sprintf("no user namespaces (%v): tasks with isolation.user do not run here", err))
		return
	}
	can.user = true
}

// findSingly finds out which parts can be had where not all can.
func (p *prober) findSingly(base, network *keeper.Sandbox) {
	can := &p.can
	can.scoped = can.scoped && p.try(nil, nil) == nil
	if err := p.try(base, nil); err != nil {
		p.lacks.Task("namespaces", fmt.Sprintf("no namespaces (%v): tasks see each other's processes, /tmp, the machine's /dev with all its terminals, and the agent's files, as far as their users may", err))
	} else {
		can.namespaces = true
		if err := p.try(network, nil); err != nil {
			p.lacks.Machine(fmt.Sprintf("no network namespaces (%v): tasks with isolation.network none do not run here", err))
		} else {
			can.network = true
		}
	}
	filter, err := seccompFilter(can.namespaces)
	if err == nil {
		err = p.try(nil, filter)
	}
	if err != nil {
		p.lacks.Task("seccomp", fmt.Sprintf("no seccomp (%v): tasks may make all system calls", err))
		return
	}
	can.filter = filter
}

// try starts an incarnation of nothing in s, under filter.
func (p *prober) try(s *keeper.Sandbox, filter []byte) error {
	err := p.probe(s, filter)
	for _, fault := range []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS} {
		if errors.Is(err, fault) { // of the disk: it says nothing about the kernel
			p.untried = err
		}
	}
	return err
}

func (p *prober) probe(s *keeper.Sandbox, filter []byte) (err error) {
	return p.start(nil, func(string) (*keeper.Spec, error) { return &keeper.Spec{Sandbox: s, Filter: filter}, nil })
}

// start starts an incarnation that runs no command, in a container if there is a runtime.
func (p *prober) start(runtime *os.File, plan func(dir string) (*keeper.Spec, error)) (err error) {
	dir, err := os.MkdirTemp(p.place, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, name := range []string{p.place, dir} { // as an incarnation's are: the first process of a container may begin as its user
		if err := os.Chmod(name, 0o711); err != nil {
			return err
		}
	}
	spec, err := plan(dir)
	if err != nil {
		return err
	}
	spec.Boot, spec.Dir, spec.Probe, spec.Scoped, spec.Mark = p.cfg.Host.Boot(), "/", true, p.can.scoped, markVariable+"="+dir
	ctx, cancel := context.WithTimeout(context.Background(), probeFor)
	defer cancel()
	s, err := keeper.Launch(p.cfg.Keeper, dir, runtime)
	if err != nil {
		return err
	}
	if err := s.Prepare(spec); err != nil {
		return errors.Join(err, s.Drop(ctx))
	}
	h, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	exit, err := h.Wait()
	err = errors.Join(err, h.Close())
	if err == nil && exit.Code != 0 {
		err = errors.New("a probe " + report(0, exit, "").String())
	}
	return err
}
