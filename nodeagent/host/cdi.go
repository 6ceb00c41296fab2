package host

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/musterhq/muster/schema"
)

// CDIDirs are where the CDI specification has the files in which drivers say what a container
// needs for a device.
var CDIDirs = []string{"/etc/cdi", "/var/run/cdi"}

// GivenDevices is what the machine has of the devices that a task was given.
type GivenDevices struct {
	Files []Device
	// Note says what devices have no file, and what of CDI cannot be read; "" for nothing.
	Note string

	declared []declared
	failed   error // of CDI
}

// Edits are what CDI files say that a container needs for the devices that its task was given,
// beside their device files.
type Edits struct {
	Env    []string // NAME=VALUE
	Mounts []Mount
	Hooks  *specs.Hooks // nil: none
}

// Mount is a file or directory of the machine that a container has.
type Mount struct {
	Of             string // the CDI device, for messages
	Source, Target string
	ReadOnly       bool
	NoExec         bool
}

// Edits returns what containers need for the devices. The error says what a CDI file asks for that
// cannot be had.
func (g *GivenDevices) Edits() (Edits, error) {
	var e Edits
	err := g.failed
	for _, d := range g.declared {
		if err == nil {
			err = e.take(d)
		}
	}
	return e, err
}

// declared are the edits of CDI files, of a device or of a whole file.
type declared struct {
	of string
	*cdispecs.ContainerEdits
}

// declaredOf returns what CDI files say of devices. A device of theirs is that of the machine
// which has one of its files, and none of another's: so a task gets nothing of what it was not
// given.
func declaredOf(cfg *Config, uses []schema.DeviceUse) ([]declared, error) {
	if len(uses) == 0 || len(cfg.CDIDirs) == 0 {
		return nil, nil
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(cfg.CDIDirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("CDI: %w", err)
	}
	var out []declared
	files := map[*cdi.Spec]bool{}
	for _, u := range uses {
		own, others := cfg.Devices[u.Kind].files(u.Index)
		d := deviceWith(cache, own, others)
		if d == nil {
			continue
		}
		if s := d.GetSpec(); !files[s] {
			files[s] = true
			if n := slices.IndexFunc(s.ContainerEdits.DeviceNodes, func(n *cdispecs.DeviceNode) bool { return slices.Contains(others, n.Path) }); n >= 0 {
				return nil, fmt.Errorf("CDI: %s gives each of its devices %s, which is of one alone: that is not supported", s.GetPath(), s.ContainerEdits.DeviceNodes[n].Path)
			}
			out = append(out, declared{d.GetQualifiedName(), &s.ContainerEdits})
		}
		out = append(out, declared{d.GetQualifiedName(), &d.ContainerEdits})
	}
	if broken := cache.GetErrors(); len(out) == 0 && len(broken) > 0 {
		file := slices.Min(slices.Collect(maps.Keys(broken)))
		return nil, fmt.Errorf("CDI: %w", errors.Join(broken[file]...))
	}
	return out, nil
}

// files returns the device files of one device alone, and those of the others of its kind.
func (f DeviceFiles) files(index int) (own, others []string) {
	for i, files := range f.Each {
		if i == index {
			own = files
		} else {
			others = append(others, files...)
		}
	}
	return own, others
}

// deviceWith returns the device of CDI files that has most of own and nothing of others, the
// first by name; nil if there is none.
func deviceWith(cache *cdi.Cache, own, others []string) (best *cdi.Device) {
	most := 0
	for _, name := range cache.ListDevices() {
		d, shared := cache.GetDevice(name), 0
		for _, n := range d.ContainerEdits.DeviceNodes {
			switch at := cmp.Or(n.HostPath, n.Path); {
			case slices.Contains(others, at):
				shared = -len(own) - 1
			case slices.Contains(own, at):
				shared++
			}
		}
		if shared > most {
			best, most = d, shared
		}
	}
	return best
}

// take adds what d says.
func (e *Edits) take(d declared) error {
	e.Env = append(e.Env, d.Env...)
	refused := func(what string) error { return fmt.Errorf("CDI: %s has %s, which is not supported", d.of, what) }
	switch {
	case len(d.NetDevices) > 0:
		return refused("netDevices")
	case d.IntelRdt != nil:
		return refused("intelRdt")
	case len(d.AdditionalGIDs) > 0:
		return refused("additionalGids")
	}
	for _, n := range d.DeviceNodes {
		if n.HostPath != "" && n.HostPath != n.Path {
			return refused("the device node " + n.HostPath + " at " + n.Path)
		}
	}
	for _, m := range d.Mounts {
		if m.Type != "" && m.Type != "bind" && m.Type != "none" {
			return refused("a mount of the type " + m.Type)
		}
		e.Mounts = append(e.Mounts, Mount{Of: d.of, Source: m.HostPath, Target: m.ContainerPath, ReadOnly: slices.Contains(m.Options, "ro"), NoExec: slices.Contains(m.Options, "noexec")})
	}
	for _, hook := range d.Hooks {
		if err := e.hook(hook); err != nil {
			return refused(err.Error())
		}
	}
	return nil
}

// hook adds a program that the runtime runs.
func (e *Edits) hook(h *cdispecs.Hook) error {
	if e.Hooks == nil {
		e.Hooks = &specs.Hooks{}
	}
	list := map[string]*[]specs.Hook{
		cdi.PrestartHook: &e.Hooks.Prestart, cdi.CreateRuntimeHook: &e.Hooks.CreateRuntime, cdi.CreateContainerHook: &e.Hooks.CreateContainer, //nolint:staticcheck // drivers still use prestart
		cdi.StartContainerHook: &e.Hooks.StartContainer,
	}[h.HookName]
	if list == nil { // nobody is there to run it
		return errors.New("a hook " + h.HookName)
	}
	*list = append(*list, specs.Hook{Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout})
	return nil
}

// furtherDevices returns the device files that CDI files say of devices, beside those that are known.
func furtherDevices(found []declared, known []Device) (files []Device) {
	for _, of := range found {
		for _, n := range of.DeviceNodes {
			at := func(d Device) bool { return d.Path == n.Path }
			if !strings.HasPrefix(n.Path, "/dev/") || slices.ContainsFunc(known, at) || slices.ContainsFunc(files, at) {
				continue
			}
			if d, ok := deviceAt(n.Path); ok {
				files = append(files, d)
			}
		}
	}
	return files
}
