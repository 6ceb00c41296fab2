package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/netfilter"
	"github.com/musterhq/muster/nodeagent/network/services"
)

// errForeign means that the table is not as this package makes it: it is not there, another version
// made it, or someone has changed it.
var errForeign = errors.New("not as this version of the agent makes it")

// errMissing means that the table is not there. It comes with errForeign.
var errMissing = errors.New("it is not there")

// errTorn means that the elements do not fit together. The kernel's list of them may miss some
// while their table grows, which it does in the background once many have been added.
var errTorn = errors.New("elements do not fit together")

// readings is how often elements that do not fit together are read before they are made anew.
const readings = 5

// readWhole returns what the kernel has, or errForeign.
func (t *table) readWhole() (state services.State, err error) {
	for range readings {
		state, err = t.read()
		if !errors.Is(err, errTorn) {
			return state, err
		}
	}
	return state, t.foreign(err)
}

// read returns what the kernel has, errForeign or errTorn.
func (t *table) read() (services.State, error) {
	state := services.State{
		Addresses: map[netip.Addr]struct{}{}, Pools: map[services.Front]services.Pool{},
		Hairpins: map[netip.Addr]struct{}{},
	}
	nft, err := netfilter.Open(0)
	if err != nil {
		return state, err
	}
	if state.Picks, err = t.readChains(nft); err != nil {
		return state, err
	}
	for _, s := range t.sets {
		d := decoder{family: s.family, state: &state, picks: map[services.Front]services.Pick{}, slots: map[services.Front]map[uint32]netip.AddrPort{}}
		for _, x := range []struct {
			set *nftables.Set
			add func(nftables.SetElement) error
		}{{s.addresses, d.addAddress}, {s.hairpins, d.addHairpin}, {s.fronts, d.addFront}, {s.slots, d.addSlot}} {
			if err := t.readSet(nft, x.set, x.add); err != nil {
				return state, err
			}
		}
		if err := d.pools(); err != nil {
			return state, fmt.Errorf("nftables: table %s: %w: %w", t.table.Name, errTorn, err)
		}
	}
	return state, nil
}

// check returns errForeign if the table is not there, or has other rules than it should.
func (t *table) check() error {
	nft, err := netfilter.Open(0)
	if err != nil {
		return err
	}
	_, err = t.readChains(nft)
	return err
}

func (t *table) foreign(err error) error {
	return fmt.Errorf("nftables: table %s: %w: %w", t.table.Name, errForeign, err)
}

func (t *table) readSet(nft *nftables.Conn, s *nftables.Set, add func(nftables.SetElement) error) error {
	list, err := nft.GetSetElements(s)
	if errors.Is(err, unix.ENOENT) {
		return t.foreign(fmt.Errorf("set %s is missing", s.Name))
	}
	if err != nil {
		return fmt.Errorf("nftables: table %s: read set %s: %w", t.table.Name, s.Name, err)
	}
	for _, e := range list {
		if err := add(e); err != nil {
			return t.foreign(fmt.Errorf("set %s: %w", s.Name, err))
		}
	}
	return nil
}

// readChains reads which chains pick slots, and whether all chains have the rules that they should have.
func (t *table) readChains(nft *nftables.Conn) (map[services.Pick]struct{}, error) {
	list, err := nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("nftables: list chains: %w", err)
	}
	there := map[string]*nftables.Chain{}
	for _, c := range list {
		if c.Table.Name == t.table.Name {
			there[c.Name] = c
		}
	}
	if len(there) == 0 {
		return nil, t.foreign(errMissing)
	}
	for _, c := range base() {
		if err := t.checkChain(nft, there[c.name], c); err != nil {
			return nil, err
		}
		delete(there, c.name)
	}
	picks := map[services.Pick]struct{}{}
	for name, found := range there {
		p, ok := parsePick(name)
		if !ok {
			return nil, t.foreign(fmt.Errorf("chain %s is none of those that it has", name))
		}
		if err := t.checkChain(nft, found, pickChain(p)); err != nil {
			return nil, err
		}
		picks[p] = struct{}{}
	}
	return picks, nil
}

func (t *table) checkChain(nft *nftables.Conn, found *nftables.Chain, want chain) error {
	if found == nil {
		return t.foreign(fmt.Errorf("chain %s is missing", want.name))
	}
	if (found.Hooknum == nil) != (want.hook == nil) ||
		want.hook != nil && (*found.Hooknum != *want.hook || *found.Priority != want.priority || found.Type != want.kind) {
		return t.foreign(fmt.Errorf("chain %s is at another hook", want.name))
	}
	rules, err := nft.GetRules(t.table, found)
	if err != nil {
		return fmt.Errorf("nftables: table %s: read chain %s: %w", t.table.Name, want.name, err)
	}
	if len(rules) != len(want.rules) {
		return t.foreign(fmt.Errorf("chain %s has %d rules, and should have %d", want.name, len(rules), len(want.rules)))
	}
	for i, r := range rules {
		if have, _ := userdata.GetString(r.UserData, userdata.TypeComment); have != fingerprint(want.name, i, want.rules[i]) {
			return t.foreign(fmt.Errorf("rule %d of chain %s is %q", i, want.name, have))
		}
	}
	return nil
}

// generation returns a number that is another one after each transaction of nftables in this
// network namespace, by whomever.
func (t *table) generation() (uint32, error) {
	g, err := t.askGeneration()
	if err != nil {
		t.close()
		return 0, fmt.Errorf("nftables: read the generation: %w", err)
	}
	return g, nil
}

func (t *table) askGeneration() (uint32, error) {
	if t.asking == nil {
		c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
		if err != nil {
			return 0, err
		}
		t.asking = c
	}
	answers, err := t.asking.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, nfgenmsg),
	})
	if err != nil {
		return 0, err
	}
	for _, a := range answers {
		if len(a.Data) < nfgenmsg {
			continue
		}
		d, err := netlink.NewAttributeDecoder(a.Data[nfgenmsg:])
		if err != nil {
			return 0, err
		}
		d.ByteOrder = binary.BigEndian
		for d.Next() {
			if d.Type() == unix.NFTA_GEN_ID {
				return d.Uint32(), nil
			}
		}
	}
	return 0, errors.New("the kernel does not say it")
}

// nfgenmsg is the size of the header that messages of netfilter have: family, version, and a number.
const nfgenmsg = 4
