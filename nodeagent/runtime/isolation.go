package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

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
}

// probeFor bounds one probe: a keeper answers within milliseconds.
const probeFor = 10 * time.Second

// findIsolation finds out by trying, and notes what is missing. It errs when it
// cannot try: tasks must not lose their isolation to a full disk.
func (r *Runtime) findIsolation() error {
	var err error
	if r.probes, err = r.probePlace(); err == nil {
		r.findParts()
		err = errors.Join(r.untried, os.RemoveAll(r.probes))
	}
	if err != nil {
		return fmt.Errorf("find out what isolation there is: %w", err)
	}
	return nil
}

// memoryDir is on no disk.
const memoryDir = "/dev/shm"

// probeRoom is what probes need of a disk, in bytes.
const probeRoom = 256 << 10

// probePlace makes a directory for probes: on the agent's disk or, where that is
// full or broken, in memory.
func (r *Runtime) probePlace() (string, error) {
	var errs []error
	for _, parent := range []string{r.cfg.Dir, memoryDir} {
		place, err := os.MkdirTemp(parent, "muster-probe-")
		if err == nil {
			test := filepath.Join(place, "room")
			if err = os.WriteFile(test, make([]byte, probeRoom), 0o600); err == nil {
				return place, os.Remove(test)
			}
			err = errors.Join(err, os.RemoveAll(place))
		}
		r.cfg.Log.Warn("no room to try out isolation", "dir", parent, "err", err)
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func (r *Runtime) findParts() {
	can := &r.isolation
	unprivileged := os.Geteuid() != 0
	can.capabilities = unprivileged || r.users != nil || holds(unix.CAP_SETPCAP)
	if !can.capabilities {
		r.lack("dropped capabilities", "root without CAP_SETPCAP: tasks keep what capabilities root has here")
	}
	base := keeper.Sandbox{UserNamespace: unprivileged, ReadOnly: true, Mounts: []keeper.Mount{
		{Kind: keeper.Proc, Target: procDir},
		{Kind: keeper.Tmpfs, Target: r.cfg.Dir, Data: hiddenSize, ReadOnly: true},
	}}
	network, user := base, base
	network.Network, user.UserNamespace = true, true
	filter, unfiltered := seccompFilter(true)
	if unfiltered == nil && r.try(&network, filter) == nil { // nearly always
		can.namespaces, can.network, can.filter = true, true, filter
	} else {
		r.findSingly(&base, &network)
	}
	if can.namespaces {
		r.findDevices(&base)
	}
	if can.user = unprivileged && can.namespaces; can.user || !can.namespaces {
		return
	}
	if err := r.try(&user, nil); err != nil {
		r.notes = append(r.notes, fmt.Sprintf("no user namespaces (%s): tasks with isolation.user do not run here", inLine(err)))
		return
	}
	can.user = true
}

// findSingly finds out which parts can be had where not all can.
func (r *Runtime) findSingly(base, network *keeper.Sandbox) {
	can := &r.isolation
	if err := r.try(base, nil); err != nil {
		r.lack("namespaces", fmt.Sprintf("no namespaces (%s): tasks see each other's processes, /tmp, the machine's /dev with all its terminals, and the agent's files, as far as their users may", inLine(err)))
	} else {
		can.namespaces = true
		if err := r.try(network, nil); err != nil {
			r.notes = append(r.notes, fmt.Sprintf("no network namespaces (%s): tasks with isolation.network none do not run here", inLine(err)))
		} else {
			can.network = true
		}
	}
	filter, err := seccompFilter(can.namespaces)
	if err == nil {
		err = r.try(nil, filter)
	}
	if err != nil {
		r.lack("seccomp", fmt.Sprintf("no seccomp (%s): tasks may make all system calls", inLine(err)))
		return
	}
	can.filter = filter
}

func inLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// try starts an incarnation of nothing in s, under filter.
func (r *Runtime) try(s *keeper.Sandbox, filter []byte) error {
	err := r.probe(s, filter)
	for _, fault := range []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS} {
		if errors.Is(err, fault) { // of the disk: it says nothing about the kernel
			r.untried = err
		}
	}
	return err
}

func (r *Runtime) probe(s *keeper.Sandbox, filter []byte) (err error) {
	dir, err := os.MkdirTemp(r.probes, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	spec := &keeper.Spec{
		Boot: r.boot, Dir: "/", Probe: true, Sandbox: s, Filter: filter, Mark: markVariable + "=" + dir,
	}
	if err := keeper.Prepare(dir, spec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeFor)
	defer cancel()
	h, err := keeper.Start(ctx, r.cfg.Keeper, dir, spec)
	if err != nil {
		return err
	}
	exit, err := h.Wait()
	err = errors.Join(err, h.Close())
	if err == nil && exit.Code != 0 {
		err = errors.New("a probe " + report(0, exit).String())
	}
	return err
}
