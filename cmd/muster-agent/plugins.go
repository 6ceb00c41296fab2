package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/network"
	"github.com/musterhq/muster/nodeagent/network/cni"
	"github.com/musterhq/muster/schema"
	"github.com/spf13/pflag"
)

// cniFlags are the flags of plugins of CNI.
type cniFlags struct{ path []string }

func (f *cniFlags) register(set *pflag.FlagSet) {
	set.StringSliceVar(&f.path, "cni-path", []string{"/opt/cni/bin", "/usr/lib/cni"}, "directories with plugins of CNI, in the order in which one is looked for, in a cell whose network has cni")
}

// check errs with a usageError for what cannot be.
func (f *cniFlags) check() error {
	for _, dir := range f.path {
		if !path.IsAbs(dir) || strings.Contains(dir, ":") {
			return usageError{fmt.Errorf("--cni-path %q: want an absolute path, and no colon in it", dir), "such as /opt/cni/bin"}
		}
	}
	return nil
}

// plugins has plugins of CNI make networks of tasks.
type plugins struct {
	path     []string
	networks *cni.Networks // nil: the machine cannot do it
}

func openPlugins(cell, dir string, path []string, taken func(netip.Addr) bool, log *slog.Logger) *plugins {
	p := &plugins{path: path}
	var err error
	p.networks, err = cni.Open(cni.Config{Cell: cell, Agent: dir, Dir: filepath.Join(dir, "cni"), Path: path, Within: pluginsWithin, Taken: taken, Log: log})
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		log.Error("tasks get no networks by plugins of CNI", "err", err)
	}
	return p
}

// pluginsWithin is how long plugins of CNI may take for one network: less than a start.
const pluginsWithin = 20 * time.Second

// mostProblems is how many networks that are not whole are reported.
const mostProblems = 5

// cniMark begins the notes about them.
const cniMark = "CNI: "

// describe says of the machine which plugins it has, and what is wrong with networks. It replaces what was said before.
func (p *plugins) describe(info *schema.MachineInfo) {
	info.Attributes = maps.Clone(info.Attributes)
	maps.DeleteFunc(info.Attributes, func(key, _ string) bool { return strings.HasPrefix(key, schema.HasCNI) })
	info.Notes = slices.DeleteFunc(info.Notes, func(note string) bool { return strings.HasPrefix(note, cniMark) })
	if p.networks == nil {
		return
	}
	for _, name := range cni.Plugins(p.path) {
		info.Attributes[schema.HasCNI+name] = "true"
	}
	problems := p.networks.Problems()
	for _, problem := range problems[:min(len(problems), mostProblems)] {
		info.Notes = append(info.Notes, cniMark+problem)
	}
}

// has reports whether an address is used by them.
func (p *plugins) has(a netip.Addr) bool { return p.networks != nil && p.networks.Has(a) }

// any reports whether there is one.
func (p *plugins) any() bool { return p.networks != nil && p.networks.Any() }

func (p *plugins) find(key string) (network.Task, bool) {
	if p.networks == nil {
		return network.Task{}, false
	}
	t, ok := p.networks.Find(key)
	return network.Task(t), ok
}

func (p *plugins) join(subnets []netip.Prefix, by *schema.CNI, r schema.TaskRef) (network.Task, error) {
	if p.networks == nil {
		return network.Task{}, errors.New("this machine gives tasks no networks by plugins of CNI")
	}
	t, err := p.networks.Join(subnets, by, networkKey(r), r.Task.Short())
	return network.Task(t), err
}

func (p *plugins) leave(key string) error {
	if p.networks == nil {
		return nil
	}
	return p.networks.Leave(key)
}

func (p *plugins) keep(keys []string) {
	if p.networks != nil {
		p.networks.Keep(keys)
	}
}

func (p *plugins) withdraw() error {
	if p.networks == nil {
		return nil
	}
	return p.networks.Withdraw()
}

// run follows them until ctx ends, and returns what waits for that.
func (p *plugins) run(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	if p.networks != nil {
		running.Go(func() { p.networks.Run(ctx) })
	}
	return running.Wait
}
