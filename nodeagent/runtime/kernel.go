package runtime

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/musterhq/muster/nodeagent/bundle"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime/capability"
	"github.com/musterhq/muster/schema"
)

// ociVersion is the version of the runtime specification that a config is written by: the
// oldest with all that is in it.
const ociVersion = "1.0.0"

// kernelRuns says why a container with a kernel of its own cannot have what a has for it.
// Rules of jobs say it before; data of an earlier release may have it all the same.
func kernelRuns(a *schema.Assignment, given []host.Device) error {
	switch {
	case len(given) > 0:
		return errors.New("runsc hands no devices of the machine on: name another runtime")
	case a.Job.AllocSet != "":
		return errors.New("runsc shares no memory with the other tasks of an alloc: name another runtime")
	}
	return nil
}

// keptByKernel returns the capabilities that a container with a kernel of its own has: they are over
// that kernel and its network alone, and it hands none on to what another user executes. User is who
// it executes as, within; network says that it has none of the machine's network.
func keptByKernel(t *schema.TaskSpec, user int, network bool) ([]string, error) {
	kept := capability.Root(t)
	if t.Capabilities == nil || len(t.Capabilities.Add) == 0 {
		return kept, nil
	}
	if user != 0 {
		return nil, errors.New("by runsc, user 0 of the container alone can have capabilities that are added: name that, or another runtime")
	}
	for _, name := range t.Capabilities.Add {
		switch ofNetwork := slices.Contains(schema.NetworkCapabilities(), name); {
		case slices.Contains(kept, name):
			continue
		case ofNetwork && !network:
			return nil, fmt.Errorf("by runsc, %s is over a network of the task's own, and this one has its machine's", name)
		case !ofNetwork && !slices.Contains(schema.ContainerCapabilities(), name):
			return nil, fmt.Errorf("a container cannot have the capability %s", name)
		}
		kept = append(slices.Clip(kept), name)
	}
	return kept, nil
}

// rawSockets is the capability without which runsc, whatever a container has, makes no raw sockets.
const rawSockets = "NET_RAW"

// plan is what a container with a kernel of its own has.
type plan struct {
	dir, program string          // of the incarnation; the keeper's
	mounts       []specs.Mount   // those of other runtimes
	own          []specs.Mount   // what the task has at paths of its own
	limits       *keeper.Rlimits // of each process
	kept         []string        // capabilities of user 0, as jobs have them
}

// complete completes k for a runtime that gives the container a kernel of its own. The
// runtime itself is in the namespaces that others make for the task, so that it is nobody on
// the machine; inside there are its own.
func (p plan) complete(k *keeper.Container) error {
	k.Kernel, k.Terminals, k.IPC, k.ID = true, false, "", "muster-"+rand.Text()
	k.Empty = append(k.Empty, keeper.KernelProgram)
	network, namespaces := string(schema.HostNetwork), []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.UTSNamespace}, {Type: specs.IPCNamespace}}
	switch {
	case k.JoinNetwork != "": // what it takes the interface of is the namespace that it is in
		k.OwnsNetwork, network, namespaces = true, "sandbox", append(namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: "/proc/self/ns/net"})
	case k.Network:
		network = string(schema.NoNetwork)
	}
	k.Options = append(k.Options, "--network="+network)
	if slices.Contains(p.kept, rawSockets) {
		k.Options = append(k.Options, "--net-raw")
	}
	kept := capability.Linux(p.kept)
	mounts := slices.DeleteFunc(p.mounts, func(m specs.Mount) bool {
		return m.Type != "bind" || strings.HasPrefix(m.Destination, devDir+"/") || m.Destination == sysDir || // it has its own
			slices.ContainsFunc(p.own, func(o specs.Mount) bool { return o.Destination == m.Destination }) // which one of two it takes is not said
	})
	mounts = slices.Concat(mounts, p.own, []specs.Mount{
		{Destination: shmDir, Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777"}},
		{Destination: keeper.KernelProgram, Type: "bind", Source: p.program, Options: []string{"bind", "nosuid", "nodev", "ro"}},
	})
	k.Binds = bindsOf(p.dir, mounts)
	process := &specs.Process{
		Cwd: "/", Args: []string{keeper.KernelProgram}, NoNewPrivileges: true, Capabilities: &specs.LinuxCapabilities{},
		User: specs.User{UID: uint32(k.Users.Inside), GID: uint32(k.Groups.Inside)},
	}
	if k.Users.Inside == 0 {
		process.Capabilities = &specs.LinuxCapabilities{Bounding: kept, Effective: kept, Permitted: kept}
	}
	if l := p.limits; l != nil && l.Files > 0 {
		process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: l.Files, Soft: l.Files}}
	}
	config := &specs.Spec{ // a root directory that is read-only is mounted so, and cannot be mounted again by who is nobody
		Version: ociVersion, Root: &specs.Root{Path: bundle.Root}, Mounts: mounts, Process: process,
		Linux: &specs.Linux{Namespaces: namespaces},
	}
	var err error
	k.Config, err = json.Marshal(config)
	return err
}

// bindsOf has what mounts bind of the machine bound into the bundle first, and returns that.
func bindsOf(dir string, mounts []specs.Mount) (binds []string) {
	inBundle := bundle.Path(dir, "") + "/"
	for i := range mounts {
		m := &mounts[i]
		for n, option := range m.Options {
			if option == "rro" { // what is mounted in it is a part of it there
				m.Options[n] = "ro"
			}
		}
		if m.Type == "bind" && !strings.HasPrefix(m.Source, inBundle) {
			binds = append(binds, m.Source)
			m.Source = bundle.Path(dir, bundle.Bind(len(binds)-1))
		}
	}
	return binds
}
