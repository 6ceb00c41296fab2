package kernel

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"

	"github.com/musterhq/muster/nodeagent/network/netfilter"
	"github.com/musterhq/muster/nodeagent/network/policy"
)

// read returns what the kernel has, errMissing or errForeign.
func (p *Programmer) read() (policy.State, error) {
	none := policy.State{}
	s := policy.State{
		Guards: map[netip.Addr]string{}, Ports: map[policy.Port]string{}, Selves: map[netip.Addr]struct{}{}, Groups: map[string]policy.Group{},
	}
	nft, err := netfilter.Open(0)
	if err != nil {
		return none, err
	}
	chains, err := p.chains(nft)
	if err != nil {
		return none, err
	}
	for _, c := range base() {
		if err := p.checkChain(nft, chains[c.name], c); err != nil {
			return none, err
		}
		delete(chains, c.name)
	}
	for name, c := range chains {
		if err := p.readGroup(nft, c, &s); err != nil {
			return none, fmt.Errorf("chain %s: %w", name, err)
		}
	}
	for i := range families {
		f := &families[i]
		of := setsOf(p.table, f)
		for _, x := range []struct {
			set  *nftables.Set
			take func(nftables.SetElement, *policy.State) error
		}{{of.guards, f.readGuard}, {of.ports, f.readPort}, {of.selves, f.readSelf}} {
			if err := p.readSet(nft, x.set, func(e nftables.SetElement) error { return x.take(e, &s) }); err != nil {
				return none, err
			}
		}
	}
	return s, nil
}

// chains returns the chains of the table, or errMissing.
func (p *Programmer) chains(nft *nftables.Conn) (map[string]*nftables.Chain, error) {
	list, err := nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("nftables: list chains: %w", err)
	}
	there := map[string]*nftables.Chain{}
	for _, c := range list {
		if c.Table.Name == p.table.Name {
			there[c.Name] = c
		}
	}
	if len(there) == 0 {
		return nil, fmt.Errorf("nftables: table %s: %w", p.table.Name, errMissing)
	}
	return there, nil
}

func (p *Programmer) foreign(format string, args ...any) error {
	return fmt.Errorf("nftables: table %s: %w: %s", p.table.Name, errForeign, fmt.Sprintf(format, args...))
}

// checkChain errs with errForeign if a chain is not there, or has other rules than it should.
func (p *Programmer) checkChain(nft *nftables.Conn, found *nftables.Chain, want chain) error {
	if found == nil {
		return p.foreign("chain %s is missing", want.name)
	}
	if (found.Hooknum == nil) != (want.hook == nil) || want.hook != nil && *found.Hooknum != *want.hook {
		return p.foreign("chain %s is at another hook", want.name)
	}
	rules, err := nft.GetRules(p.table, found)
	if err != nil {
		return fmt.Errorf("nftables: table %s: read chain %s: %w", p.table.Name, want.name, err)
	}
	return p.checkRules(rules, &want)
}

func (p *Programmer) checkRules(rules []*nftables.Rule, want *chain) error {
	if len(rules) != len(want.rules) {
		return p.foreign("chain %s has %d rules, and should have %d", want.name, len(rules), len(want.rules))
	}
	for i, r := range rules {
		if have := commentOf(r); have != want.comment(i) {
			return p.foreign("rule %d of chain %s is %q", i, want.name, have)
		}
	}
	return nil
}

// readGroup takes the group of a chain into a state.
func (p *Programmer) readGroup(nft *nftables.Conn, found *nftables.Chain, s *policy.State) error {
	rules, err := nft.GetRules(p.table, found)
	if err != nil {
		return fmt.Errorf("nftables: table %s: read chain %s: %w", p.table.Name, found.Name, err)
	}
	want := groupChain(found.Name, rangesOf(rules))
	if !strings.HasPrefix(found.Name, "job-") || found.Hooknum != nil {
		return p.foreign("chain %s is none of those that it has", found.Name)
	}
	if err := p.checkRules(rules, &want); err != nil {
		return err
	}
	g := policy.Group{Sources: map[netip.Addr]struct{}{}, Ranges: want.ranges}
	for i := range families {
		f := &families[i]
		set := &nftables.Set{Table: p.table, Name: sourcesOf(found.Name, f)}
		err := p.readSet(nft, set, func(e nftables.SetElement) error {
			a, _, err := f.read(e.Key)
			g.Sources[a] = struct{}{}
			return err
		})
		if err != nil {
			return err
		}
	}
	s.Groups[found.Name] = g
	return nil
}

func (p *Programmer) readSet(nft *nftables.Conn, set *nftables.Set, take func(nftables.SetElement) error) error {
	list, err := nft.GetSetElements(set)
	if enoent(err) {
		return p.foreign("set %s is missing", set.Name)
	}
	if err != nil {
		return fmt.Errorf("nftables: table %s: read set %s: %w", p.table.Name, set.Name, err)
	}
	for _, e := range list {
		if err := take(e); err != nil {
			return p.foreign("set %s: %v", set.Name, err)
		}
	}
	return nil
}
