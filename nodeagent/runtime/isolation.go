package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent/keeper"
)

// isolation is what a task can have of its own here, beyond a user and cgroups.
type isolation struct {
	namespaces bool // pid, mount, ipc and uts
	network    bool
	user       bool
}

// probeFor bounds one probe: a keeper answers within milliseconds.
const probeFor = 10 * time.Second

// findIsolation finds out by trying, and notes what is missing.
func (r *Runtime) findIsolation() {
	unprivileged := os.Geteuid() != 0
	base := keeper.Sandbox{UserNamespace: unprivileged, Mounts: []keeper.Mount{
		{Kind: keeper.Proc, Target: procDir},
		{Kind: keeper.Tmpfs, Target: r.cfg.Dir, Data: hiddenSize, ReadOnly: true},
	}}
	network, user := base, base
	network.Network, user.UserNamespace = true, true
	err := r.try(&network)
	if err == nil {
		r.isolation.namespaces, r.isolation.network = true, true
	} else if plain := r.try(&base); plain == nil {
		r.isolation.namespaces = true
		r.notes = append(r.notes, fmt.Sprintf("no network namespaces (%s): tasks with isolation.network none are not run", inLine(err)))
	} else {
		r.lack("namespaces", fmt.Sprintf("no namespaces (%s): tasks see each other's processes, /tmp and the agent's files, as far as their users may", inLine(plain)))
		return
	}
	if r.isolation.user = unprivileged; unprivileged {
		return
	}
	if err := r.try(&user); err != nil {
		r.notes = append(r.notes, fmt.Sprintf("no user namespaces (%s): tasks with isolation.user are not run", inLine(err)))
	} else {
		r.isolation.user = true
	}
}

func inLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// try starts an incarnation of nothing in s.
func (r *Runtime) try(s *keeper.Sandbox) (err error) {
	dir, err := os.MkdirTemp(r.cfg.Dir, "probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	spec := &keeper.Spec{
		Boot: r.boot, Dir: "/", Sandbox: s, Mark: markVariable + "=" + dir,
		Command: []string{"/proc/self/exe", keeper.ProbeArg}, Env: []string{markVariable + "=" + dir},
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
