package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/musterhq/muster/nodeagent/network/namespace"
)

// taskLink is the name of a task's interface, as it sees it.
const taskLink = "eth0"

// place is where things of one network are.
type place struct {
	id string // of the container, for plugins
	*Config
}

func (p *place) namespace() string { return filepath.Join(p.Dir, p.id) }
func (p *place) record() string    { return p.namespace() + recordEnd }
func (p *place) cache() string     { return p.namespace() + ".cache" }
func (p *place) lock() string      { return p.namespace() + ".lock" }

// recordEnd is what the names of records end in.
const recordEnd = ".json"

// call calls the plugins of a network for one command.
func (p *place) call(ctx context.Context, r *record, do func(context.Context, *libcni.CNIConfig, *libcni.NetworkConfigList, *libcni.RuntimeConf) error) error {
	list, err := r.list()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Within)
	defer cancel()
	lock, err := locked(ctx, p.lock())
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // nothing is written to it
	ranges := make([][]addressRange, len(r.Ranges))
	for i := range r.Ranges {
		ranges[i] = r.Ranges[i : i+1]
	}
	rt := &libcni.RuntimeConf{ContainerID: p.id, IfName: taskLink, CapabilityArgs: map[string]any{"ipRanges": ranges}}
	if namespace.Held(p.namespace()) {
		rt.NetNS = p.namespace()
	}
	return do(ctx, libcni.NewCNIConfigWithCacheDir(p.Path, p.cache(), &program{lock: lock, within: p.Within}), list, rt)
}

// add makes a network by a record that is on disk, and returns its addresses. What there is after an error is for del.
func (p *place) add(ctx context.Context, r *record) (out []netip.Addr, err error) {
	if err := namespace.New(p.namespace(), up); err != nil {
		return nil, err
	}
	err = p.call(ctx, r, func(ctx context.Context, c *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		result, err := c.AddNetworkList(ctx, list, rt)
		if err != nil {
			return err
		}
		given, err := givenBy(result, r.Ranges)
		if err != nil {
			return fmt.Errorf("what the plugins have made cannot be used: %w", err)
		}
		if err := guard(p.namespace(), given); err != nil {
			return fmt.Errorf("what the plugins have made cannot be used: %w", err)
		}
		for _, g := range given {
			out = append(out, g.address)
		}
		return nil
	})
	return out, err
}

// del has the plugins take a network back, and removes what there is of it, its record last.
func (p *place) del(ctx context.Context, r *record) error {
	if len(r.Addresses) == 0 { // what is kept of its result may not be whole
		if err := os.RemoveAll(p.cache()); err != nil {
			return err
		}
	}
	err := p.call(ctx, r, func(ctx context.Context, c *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		return c.DelNetworkList(ctx, list, rt)
	})
	if err != nil {
		return err
	}
	return p.clear()
}

// clear removes all that there is of a network but what plugins have.
func (p *place) clear() error {
	err := errors.Join(namespace.Release(p.namespace()), os.RemoveAll(p.cache()), removed(p.lock()))
	if err != nil {
		return err
	}
	return removed(p.record())
}

// check asks the plugins whether a network is as they have made it.
func (p *place) check(ctx context.Context, r *record) error {
	return p.call(ctx, r, func(ctx context.Context, c *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		return c.CheckNetworkList(ctx, list, rt)
	})
}

// collect has the plugins remove what they have of networks other than the given ones.
func (p *place) collect(ctx context.Context, r *record, ids []string) error {
	return p.call(ctx, r, func(ctx context.Context, c *libcni.CNIConfig, list *libcni.NetworkConfigList, _ *libcni.RuntimeConf) error {
		args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
		for _, id := range ids {
			args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: id, IfName: taskLink})
		}
		return c.GCNetworkList(ctx, list, args)
	})
}

// given is an address that plugins have given a task, and by which it reaches all others.
type given struct{ address, gateway netip.Addr }

// givenBy returns the addresses of a result, that of IPv4 first. Each is of one of the ranges.
func givenBy(result types.Result, ranges []addressRange) ([]given, error) {
	r, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, err
	}
	var out []given
	for _, ip := range r.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		a = a.Unmap()
		i := slices.IndexFunc(ranges, func(r addressRange) bool { return r.has(a) })
		if i < 0 {
			return nil, fmt.Errorf("%s is not of the addresses that this machine has for tasks, %s: with host-local, give the plugin capabilities: ipRanges: true and no subnet", ip.Address.IP, words(ranges))
		}
		if slices.ContainsFunc(out, func(g given) bool { return g.address.Is4() == a.Is4() }) {
			return nil, fmt.Errorf("%s is a second address of its kind", a)
		}
		g, ok := netip.AddrFromSlice(ip.Gateway)
		if !ok {
			return nil, fmt.Errorf("%s has no gateway, so that packets would not pass this machine: with bridge, set isGateway: true", a)
		}
		out = append(out, given{a, g.Unmap()})
	}
	if len(out) == 0 {
		return nil, errors.New("they gave no address")
	}
	slices.SortFunc(out, func(a, b given) int { return a.address.Compare(b.address) })
	return out, nil
}

// words says which addresses tasks may have.
func words(ranges []addressRange) string {
	var out string
	for i := range ranges {
		if i > 0 {
			out += ", "
		}
		out += fmt.Sprintf("%s from %s on", ranges[i].Subnet, ranges[i].RangeStart)
	}
	return out
}
