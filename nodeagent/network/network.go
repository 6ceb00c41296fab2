package network

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/namespace"
	"github.com/musterhq/muster/schema"
)

// Config is what a Manager needs. All must be set.
type Config struct {
	Cell    string
	Machine string // its name in the cell
	// Agent is what distinguishes this agent from all others of its machine, over restarts.
	Agent string
	// Dir is where namespaces are held, each by a file; it is made.
	Dir string
	// Address is at which other machines reach this one, unless Use says another; invalid if that
	// is not known.
	Address netip.Addr
	// Taken says of an address whether a task has it whose network another than the Manager has made.
	Taken func(netip.Addr) bool
	Log   *slog.Logger
}

// Manager has the networks of a machine's tasks. See the package's comment.
type Manager struct {
	cfg   Config
	names names
	link  *netlink.Handle // in the machine's network namespace
	lacks error           // see Lacks

	mu       sync.Mutex // guards what follows, and is held while the kernel is changed
	made     *schema.MachineNetwork
	bare     bool            // what is not a task's is removed
	address  netip.Addr      // at which other machines reach this one; invalid if that is not known
	tasks    map[string]Task // complete ones, by the name of their link
	used     map[netip.Addr]bool
	next     int // where the next address is looked for
	machines []schema.DirectoryMachine
	problems []string
	// beyond are subnets that tasks may have addresses of, and that are in none of the cell's ranges; spared are
	// those that the rules know.
	beyond, spared []netip.Prefix
}

// Task is the network of a task.
type Task struct {
	// Namespace is the path of a file that holds its network namespace.
	Namespace string
	// Addresses are its own: at most one of IPv4, and then at most one of IPv6.
	Addresses []netip.Addr
}

// Held reports whether the namespace is there still for who is to join it.
func (t Task) Held() bool { return namespace.Held(t.Namespace) }

// Open finds out whether this machine can give tasks networks, and finds what agents before
// this one have made. It must be called where the machine's network is that of the calling
// thread. It errs, and says why, on a machine that cannot and has none; see Lacks for one that
// cannot now and has some. It is fs.ErrPermission without root.
func Open(cfg Config) (*Manager, error) {
	if os.Geteuid() != 0 {
		return nil, notRoot{}
	}
	m := &Manager{cfg: cfg, names: namesOf(cfg.Cell, cfg.Agent), address: cfg.Address, tasks: map[string]Task{}, used: map[netip.Addr]bool{}}
	var err error
	if m.link, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("networks of tasks: %w", err)
	}
	if err = os.MkdirAll(cfg.Dir, 0o700); err == nil {
		err = m.find()
	}
	if err == nil {
		m.lacks = m.try()
		if len(m.tasks) == 0 {
			err = m.lacks
		}
	}
	if err != nil {
		m.link.Close()
		return nil, fmt.Errorf("networks of tasks: %w", err)
	}
	return m, nil
}

// notRoot is the error of a process that may not change networks.
type notRoot struct{}

func (notRoot) Error() string { return "networks of tasks need root" }

func (notRoot) Is(err error) bool { return err == fs.ErrPermission }

// Lacks says why the machine could make no new networks when it was opened; nil if it could.
// Those that there are go on all the same.
func (m *Manager) Lacks() error { return m.lacks }

// PolicyTable is the name of the table of nftables that is this agent's for who may connect to
// tasks. The Manager does nothing with it.
func (m *Manager) PolicyTable() string { return m.names.policy() }

// Close lets go of what there is, which stays.
func (m *Manager) Close() { m.link.Close() }

// try makes a task's network without addresses and removes it, so that what is missing is
// known before a task needs it.
func (m *Manager) try() error {
	name := m.names.link("try")
	_ = m.remove(name)
	err := m.make(name, "try", nil, 0)
	if err == nil {
		err = m.tryFirewall()
	}
	return errors.Join(err, m.remove(name))
}

// find takes note of the networks of tasks that are there, and removes what is not complete, as far
// as it can be removed.
func (m *Manager) find() error {
	links, err := m.link.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		name := l.Attrs().Name
		if !strings.HasPrefix(name, m.names.prefix()) || len(name) != len(m.names.link("")) {
			continue
		}
		path := m.path(name)
		addresses, ok := parseAlias(l.Attrs().Alias)
		if !ok || !namespace.Held(path) {
			m.clear(name)
			continue
		}
		m.note(name, Task{path, addresses})
	}
	files, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, ok := m.tasks[f.Name()]; !ok {
			m.clear(f.Name())
		}
	}
	return nil
}

// clear removes what is there of a network that is not complete.
func (m *Manager) clear(name string) {
	if err := m.remove(name); err != nil {
		m.cfg.Log.Warn("cannot remove the remains of a task's network", "name", name, "err", err)
	}
}

func (m *Manager) path(name string) string { return filepath.Join(m.cfg.Dir, name) }

func (m *Manager) note(name string, t Task) {
	m.tasks[name] = t
	for _, a := range t.Addresses {
		m.used[a] = true
	}
}

// Addresses returns the machine's own addresses for its tasks, at which they reach it: the
// first of each subnet. None before Use.
func (m *Manager) Addresses() []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil {
		return nil
	}
	var out []netip.Addr
	for _, s := range m.made.All() {
		out = append(out, Gateway(s))
	}
	return out
}

// Find returns the network that Join has made for key; false if there is none.
func (m *Manager) Find(key string) (Task, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tasks[m.names.link(key)]
	return t, ok
}

// Any reports whether a task has a network here.
func (m *Manager) Any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tasks) > 0
}

// Has reports whether an address is that of a task.
func (m *Manager) Has(a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used[a]
}

// Problems says what is wrong with the network, as far as it is known.
func (m *Manager) Problems() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.problems)
}

// Join returns the network of a task, which it makes unless it is there: key is the same for
// all that are to share it, and task says in words whose it is.
func (m *Manager) Join(n *schema.MachineNetwork, key, task string) (Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := m.names.link(key)
	if t, ok := m.tasks[name]; ok && namespace.Held(t.Namespace) {
		return t, nil
	}
	if err := m.use(n); err != nil {
		return Task{}, err
	}
	if err := m.forget(name); err != nil {
		return Task{}, err
	}
	addresses, next, err := pick(n.Subnets, func(a netip.Addr) bool { return m.used[a] || m.cfg.Taken(a) }, m.next)
	if err != nil {
		return Task{}, err
	}
	if err := m.make(name, task, addresses, n.MTU); err != nil {
		return Task{}, errors.Join(fmt.Errorf("network of %s: %w", task, err), m.remove(name))
	}
	m.next = next
	t := Task{m.path(name), slices.Clone(addresses)}
	m.note(name, t)
	return t, nil
}

// Leave removes the network that Join has made for key, if it is there. Nothing of the
// task may run.
func (m *Manager) Leave(key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forget(m.names.link(key))
}

// Keep removes the networks of all tasks but those with the given keys.
func (m *Manager) Keep(keys []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	keep := map[string]bool{}
	for _, k := range keys {
		keep[m.names.link(k)] = true
	}
	var errs []error
	for name := range m.tasks {
		if !keep[name] {
			errs = append(errs, m.forget(name))
		}
	}
	return errors.Join(errs...)
}

// forget removes the network of a task, and then gives its addresses up.
func (m *Manager) forget(name string) error {
	if err := m.remove(name); err != nil {
		return err
	}
	for _, a := range m.tasks[name].Addresses {
		delete(m.used, a)
	}
	delete(m.tasks, name)
	return nil
}

// Use makes the network of the machine what n says, and n nil removes it, with what agents before
// this one have made. Tasks keep what they have.
func (m *Manager) Use(n *schema.MachineNetwork) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n == nil && m.bare {
		return nil
	}
	if n == nil {
		err := m.dismantle()
		m.bare = err == nil
		return err
	}
	return m.use(n)
}

// Route has the tasks of other machines be reached. It is to be called with each change, with
// all machines.
func (m *Manager) Route(machines []schema.DirectoryMachine) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machines = slices.Clone(machines)
	if m.made == nil {
		return nil
	}
	return errors.Join(m.setRoutes(m.made), m.followBeyond(m.made))
}

// use makes the machine's network, unless it is made.
func (m *Manager) use(n *schema.MachineNetwork) error {
	if n.Equal(m.made) {
		return nil
	}
	if len(n.All()) == 0 {
		return errors.New("the machine has no addresses for tasks")
	}
	m.made, m.bare = nil, false // until it is
	if m.address = m.cfg.Address; n.Address.IsValid() {
		m.address = n.Address
	}
	err := forward(n)
	if err == nil {
		err = m.setBridge(n)
	}
	if err == nil {
		err = m.setVXLAN(n)
	}
	if err == nil {
		err = m.setRoutes(n)
	}
	if err == nil {
		err = m.setFirewall(n)
	}
	if err != nil {
		return fmt.Errorf("network of the machine: %w", err)
	}
	m.made = n
	return nil
}

// dismantle removes all but the networks of tasks.
func (m *Manager) dismantle() error {
	m.made, m.problems = nil, nil
	have, err := m.routes()
	errs := []error{err, m.deleteRoutes(have), m.deleteLink(m.names.vxlan()), m.deleteLink(m.names.bridge()), m.deleteFirewall()}
	return errors.Join(errs...)
}

// deleteLink deletes a link, if it is there.
func (m *Manager) deleteLink(name string) error {
	l, err := m.link.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = m.link.LinkDel(l)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// setBridge has the machine's own addresses for its tasks on a bridge without ports.
func (m *Manager) setBridge(n *schema.MachineNetwork) error {
	var addresses []netip.Addr
	for _, s := range n.All() {
		addresses = append(addresses, Gateway(s))
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = m.names.bridge()
	l, err := m.setLink(&netlink.Bridge{LinkAttrs: attrs})
	if err != nil {
		return err
	}
	if err := m.setAddresses(l, addresses); err != nil {
		return err
	}
	return m.link.LinkSetAlias(l, "muster cell "+m.cfg.Cell)
}

// setLink makes a link, unless there is one of its name, and brings it up.
func (m *Manager) setLink(want netlink.Link) (netlink.Link, error) {
	name := want.Attrs().Name
	if err := m.link.LinkAdd(want); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	l, err := m.link.LinkByName(name)
	if err == nil {
		err = m.link.LinkSetUp(l)
	}
	if err != nil {
		return nil, fmt.Errorf("bring up %s: %w", name, err)
	}
	return l, nil
}

// setAddresses makes the addresses of a link those, and that of the link itself of IPv6.
func (m *Manager) setAddresses(l netlink.Link, want []netip.Addr) error {
	have, err := m.link.AddrList(l, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	for i := range have {
		a, _ := netip.AddrFromSlice(have[i].IP)
		if a = a.Unmap(); !a.IsLinkLocalUnicast() && !slices.Contains(want, a) {
			if err := m.link.AddrDel(l, &have[i]); err != nil {
				return fmt.Errorf("%s of %s: %w", a, l.Attrs().Name, err)
			}
		}
	}
	for _, a := range want {
		if err := m.link.AddrReplace(l, ownAddress(a)); err != nil {
			return fmt.Errorf("%s for %s: %w", a, l.Attrs().Name, err)
		}
	}
	return nil
}

// ownAddress is an address alone, which nobody has to be asked for.
func ownAddress(a netip.Addr) *netlink.Addr {
	out := &netlink.Addr{IPNet: netOf(netip.PrefixFrom(a, a.BitLen()))}
	if a.Is6() {
		out.Flags = unix.IFA_F_NODAD
	}
	return out
}

func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// forward has the machine forward packets.
func forward(n *schema.MachineNetwork) error {
	for _, s := range n.All() {
		name := "/proc/sys/net/ipv4/ip_forward"
		if s.Addr().Is6() {
			name = "/proc/sys/net/ipv6/conf/all/forwarding"
			keepAdvertised()
		}
		if err := namespace.Set(name, "1"); err != nil {
			return err
		}
	}
	return nil
}

// keepAdvertised has interfaces that have routes from advertisements keep them: a machine that
// forwards takes no more, unless its configuration says so.
func keepAdvertised() {
	files, _ := filepath.Glob("/proc/sys/net/ipv6/conf/*/accept_ra")
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == "1" {
			_ = os.WriteFile(name, []byte("2"), 0) // it is there
		}
	}
}
