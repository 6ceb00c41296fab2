package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/netfilter"
	"github.com/musterhq/muster/nodeagent/network/policy"
)

// errForeign means that the table is not as this package makes it.
var errForeign = errors.New("not as this version of the agent makes it")

// errMissing means that the table is not there.
var errMissing = errors.New("it is not there")

// Programmer keeps the kernel's table as states say. See the package's comment.
type Programmer struct {
	table *nftables.Table
	have  policy.State
	known bool // have is what the kernel has
	// number is that of have, of the states of a policy.Follower; 0: it is none of these.
	number uint64
	there  bool // it has the table
}

// New returns a programmer for a table of family inet. Nothing is read or changed yet.
func New(table string) *Programmer {
	return &Programmer{table: &nftables.Table{Name: table, Family: nftables.TableFamilyINet}}
}

// Program brings the kernel to a state, in one transaction, and returns the change that it made. At
// the first call, and after an error, it reads what the kernel has before. After an error the
// kernel has what it had before. Without guards no table is needed, and none is left.
func (p *Programmer) Program(want policy.State) (policy.Change, error) {
	knew := p.known
	p.number = 0
	c, err := p.program(want)
	if err != nil && knew {
		return p.program(want) // someone else has changed something
	}
	return c, err
}

// Follow is Program for the states of one policy.Follower, with what it says has changed.
func (p *Programmer) Follow(want policy.State, change *policy.Change) (policy.Change, error) {
	if p.known && !p.there && len(want.Guards) == 0 {
		return *change, nil // no table is needed, and none is there
	}
	if !p.known || !p.there || p.number == 0 || p.number != change.From || len(want.Guards) == 0 {
		p.known = false // what it has of groups may have been written to
		return p.followed(want, change)
	}
	if change.Size() > 0 {
		if err := p.apply(change, want, false); err != nil {
			p.known = false // someone else has changed something
			return p.followed(want, change)
		}
	}
	p.have, p.number = want, change.To
	return *change, nil
}

// followed reads what the kernel has, and makes it the state that a change leads to.
func (p *Programmer) followed(want policy.State, change *policy.Change) (policy.Change, error) {
	c, err := p.program(want)
	if err == nil {
		p.number = change.To
	}
	return c, err
}

// Audit is Follow, which also finds what others have changed in the table.
func (p *Programmer) Audit(want policy.State, change *policy.Change) (policy.Change, error) {
	p.known = false
	return p.followed(want, change)
}

// Withdraw removes the table: everyone may connect.
func (p *Programmer) Withdraw() error {
	p.known = false
	c, err := netfilter.Open(0)
	if err != nil {
		return err
	}
	c.AddTable(p.table) // a table that is not there cannot be removed
	c.DelTable(p.table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: remove table %s: %w", p.table.Name, err)
	}
	p.have, p.known, p.there = policy.State{}, true, false
	return nil
}

// Present reports whether the kernel has the table, whoever made it.
func (p *Programmer) Present() (bool, error) {
	c, err := netfilter.Open(0)
	if err != nil {
		return false, err
	}
	_, err = p.chains(c)
	if errors.Is(err, errMissing) {
		return false, nil
	}
	return err == nil, err
}

func (p *Programmer) program(want policy.State) (policy.Change, error) {
	anew := false
	if !p.known {
		have, err := p.read()
		anew = errors.Is(err, errForeign)
		p.there = err == nil || anew
		if err != nil && !anew && !errors.Is(err, errMissing) {
			return policy.Change{}, err
		}
		p.have, p.known = have, true
	}
	change := policy.Difference(p.have, want)
	switch {
	case len(want.Guards) == 0 && !p.there:
		return change, nil
	case len(want.Guards) == 0:
		return change, p.Withdraw()
	case change.Size() == 0 && !anew && p.there:
		return change, nil
	}
	if err := p.apply(&change, want, anew || !p.there); err != nil {
		p.known = false
		return policy.Change{}, fmt.Errorf("nftables: table %s: change of %d elements: %w", p.table.Name, change.Size(), err)
	}
	p.have, p.there = want, true
	return change, nil
}

// apply makes a change, all of it or nothing. With anew, what the table has is thrown away first.
func (p *Programmer) apply(c *policy.Change, want policy.State, anew bool) error {
	nft, err := netfilter.Open(c.Size())
	if err != nil {
		return err
	}
	b := batch{table: p.table, conn: nft}
	if anew {
		b.anew()
	}
	for i := range families {
		b.remove(&families[i], c)
	}
	for i, name := range c.AddGroups {
		b.group(name, uint32(i))
		b.chain(groupChain(name, want.Groups[name].Ranges))
	}
	for _, name := range c.Ranges {
		nft.FlushChain(&nftables.Chain{Table: p.table, Name: name})
		b.chain(groupChain(name, want.Groups[name].Ranges))
	}
	for i := range families {
		b.add(&families[i], c)
	}
	for _, name := range c.RemoveGroups {
		nft.DelChain(&nftables.Chain{Table: p.table, Name: name})
		for i := range families {
			nft.DelSet(&nftables.Set{Table: p.table, Name: sourcesOf(name, &families[i])})
		}
	}
	return errors.Join(b.err, nft.Flush())
}

// batch collects a transaction.
type batch struct {
	table *nftables.Table
	conn  *nftables.Conn
	err   error
}

func (b *batch) anew() {
	b.conn.AddTable(b.table)
	b.conn.DelTable(b.table)
	b.conn.AddTable(b.table)
	for i := range families {
		s := setsOf(b.table, &families[i])
		for _, set := range []*nftables.Set{s.guards, s.ports, s.selves} {
			b.err = errors.Join(b.err, b.conn.AddSet(set, nil))
		}
	}
	for _, c := range base() {
		b.chain(c)
	}
}

// group makes the sets of the n-th group of the transaction.
func (b *batch) group(name string, n uint32) {
	for i := range families {
		f := &families[i]
		set := &nftables.Set{Table: b.table, ID: firstGroup + n*uint32(len(families)) + uint32(i), Name: sourcesOf(name, f), KeyType: f.address}
		b.err = errors.Join(b.err, b.conn.AddSet(set, nil))
	}
}

func (b *batch) chain(c chain) {
	nc := &nftables.Chain{Table: b.table, Name: c.name}
	if c.hook != nil {
		nc.Hooknum, nc.Type, nc.Priority = c.hook, nftables.ChainTypeFilter, nftables.ChainPriorityFilter
	}
	b.conn.AddChain(nc)
	for i, r := range c.rules {
		b.conn.AddRule(&nftables.Rule{Table: b.table, Chain: nc, Exprs: r, UserData: userdata.AppendString(nil, userdata.TypeComment, c.comment(i))})
	}
}

func (b *batch) send(do func(*nftables.Set, []nftables.SetElement) error, set *nftables.Set, list []nftables.SetElement) {
	for part := range slices.Chunk(list, netfilter.PerMessage) {
		b.err = errors.Join(b.err, do(set, part))
	}
}

func (b *batch) remove(f *family, c *policy.Change) {
	s := setsOf(b.table, f)
	del := b.conn.SetDeleteElements
	b.send(del, s.guards, keys(of(f, c.RemoveGuards, addressOf, guardElement)))
	b.send(del, s.ports, keys(of(f, c.RemovePorts, portAddress, portElement)))
	b.send(del, s.selves, of(f, c.RemoveSelves, itself, selfElement))
	b.sources(del, f, c.RemoveSources)
}

func (b *batch) add(f *family, c *policy.Change) {
	s := setsOf(b.table, f)
	add := b.conn.SetAddElements
	b.sources(add, f, c.AddSources)
	b.send(add, s.selves, of(f, c.AddSelves, itself, selfElement))
	b.send(add, s.ports, of(f, c.AddPorts, portAddress, portElement))
	b.send(add, s.guards, of(f, c.AddGuards, addressOf, guardElement))
}

// sources adds or removes the addresses of groups, which are in the order of groups.
func (b *batch) sources(do func(*nftables.Set, []nftables.SetElement) error, f *family, list []policy.Source) {
	for len(list) > 0 {
		name := list[0].Group
		n := slices.IndexFunc(list, func(s policy.Source) bool { return s.Group != name })
		if n < 0 {
			n = len(list)
		}
		set := &nftables.Set{Table: b.table, Name: sourcesOf(name, f), KeyType: f.address}
		b.send(do, set, of(f, list[:n], func(s policy.Source) netip.Addr { return s.Address }, sourceElement))
		list = list[n:]
	}
}

func addressOf(g policy.Guard) netip.Addr       { return g.Address }
func portAddress(p policy.PortGuard) netip.Addr { return p.Address }
func itself(a netip.Addr) netip.Addr            { return a }

// of returns the elements for items of a family.
func of[T any](f *family, items []T, address func(T) netip.Addr, element func(T) nftables.SetElement) []nftables.SetElement {
	out := make([]nftables.SetElement, 0, len(items))
	for _, x := range items {
		if f.of(address(x)) {
			out = append(out, element(x))
		}
	}
	return out
}

// keys returns elements without their values: so they are removed.
func keys(list []nftables.SetElement) []nftables.SetElement {
	for i := range list {
		list[i].VerdictData = nil
	}
	return list
}

// Supported returns why this process cannot program policies on this machine; nil if it can. It makes
// all that a table may have in one transaction, which ends with its removal.
func Supported(table string) error {
	nft, err := netfilter.Open(0)
	if err != nil {
		return err
	}
	b := batch{table: &nftables.Table{Name: table + "-try", Family: nftables.TableFamilyINet}, conn: nft}
	b.anew()
	const name = "job-try"
	b.group(name, 0)
	b.chain(groupChain(name, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}))
	nft.DelTable(b.table)
	if err := errors.Join(b.err, nft.Flush()); err != nil {
		return fmt.Errorf("nftables: rules for policies: %w", err)
	}
	return nil
}

// enoent reports whether the kernel has said that there is no such thing.
func enoent(err error) bool { return errors.Is(err, unix.ENOENT) }
