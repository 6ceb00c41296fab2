package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/network/namespace"
	"github.com/musterhq/muster/schema"
)

// Config is what Networks need. All must be set.
type Config struct {
	Cell string
	// Agent is what distinguishes this agent from all others of its machine, over restarts.
	Agent string
	// Dir is where namespaces are held and records are; it is made, and nobody else may write to it.
	Dir string
	// Within bounds one command, with all plugins of the list. Theirs take some hundredths of a second.
	Within time.Duration
	// Path is the directories in which plugins are looked for, in this order.
	Path []string
	// Taken says of an address whether a task has it whose network no plugin has made. It may wait for Has.
	Taken func(netip.Addr) bool
	Log   *slog.Logger
}

// Networks are those of a machine's tasks that plugins have made. See the package's comment.
type Networks struct {
	cfg  Config
	tag  string
	wake chan struct{} // holds a token while Run has something to do

	collecting sync.RWMutex // is read while plugins make networks, and held while they collect garbage

	mu       sync.Mutex // guards what follows
	all      map[string]*attachment
	newest   *record // has the newest list of plugins; nil: none is known
	unsound  map[string]string
	checkFor string // the id up to which networks have been checked
}

// attachment is one network.
type attachment struct {
	place
	busy sync.Mutex // is held while plugins are called for it

	// Networks.mu guards what follows.
	record *record // nil: there is nothing of it
	stale  bool    // it is to be taken back
	redo   redo
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

// Open finds what agents before this one have made. What is not complete is taken back by Run.
func Open(cfg Config) (*Networks, error) {
	n := &Networks{
		cfg: cfg, tag: short(8, cfg.Cell, cfg.Agent), wake: make(chan struct{}, 1), all: map[string]*attachment{}, unsound: map[string]string{},
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("networks by plugins of CNI: %w", err)
	}
	files, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("networks by plugins of CNI: %w", err)
	}
	for _, f := range files {
		if id, ok := strings.CutSuffix(f.Name(), recordEnd); ok {
			n.found(id)
		}
	}
	for _, f := range files { // a record that could not be removed after all else is there, and without one there is nothing
		if id, _, _ := strings.Cut(f.Name(), "."); n.all[id] == nil {
			if p := n.place(id); p.clear() != nil {
				cfg.Log.Warn("cannot remove the remains of a task's network", "name", f.Name())
			}
		}
	}
	return n, nil
}

// found takes note of a record on disk.
func (n *Networks) found(id string) {
	x := &attachment{place: n.place(id)}
	r, err := readRecord(x.place.record())
	if err != nil {
		n.cfg.Log.Error("cannot read what is known of a task's network: what plugins keep of it may stay", "err", err)
		return // it is cleared
	}
	x.record = r
	x.stale = len(r.Addresses) == 0 || !namespace.Held(x.namespace())
	n.all[id] = x
}

func (n *Networks) place(id string) place { return place{id, &n.cfg} }

// id returns what names the network of a key, to plugins and on disk.
func (n *Networks) id(key string) string { return n.tag + "-" + short(26, key) }

// task returns the network of an attachment that is complete. The caller has n.mu.
func (x *attachment) task() (Task, bool) {
	if x == nil || x.record == nil || x.stale || len(x.record.Addresses) == 0 {
		return Task{}, false
	}
	return Task{x.namespace(), x.record.Addresses}, true
}

// Find returns the network that Join has made for key; false if there is none.
func (n *Networks) Find(key string) (Task, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[n.id(key)].task()
}

// Any reports whether a task has a network here, or has had one that is not taken back yet.
func (n *Networks) Any() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all) > 0
}

// Has reports whether an address is that of a task, or of the gateway of one.
func (n *Networks) Has(a netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.has(a, "")
}

// has is Has but for one network. The caller has n.mu.
func (n *Networks) has(a netip.Addr, but string) bool {
	for id, x := range n.all {
		if id == but || x.record == nil {
			continue
		}
		isGateway := func(r addressRange) bool { return r.Gateway == a }
		if slices.Contains(x.record.Addresses, a) || slices.ContainsFunc(x.record.Ranges, isGateway) {
			return true
		}
	}
	return false
}

// Join returns the network of a task, which plugins make of a machine's subnets unless it is there: key is the same for all
// that are to share it, and task says in words whose it is. It takes as long as they do, three times Config.Within at most.
func (n *Networks) Join(subnets []netip.Prefix, plugins *schema.CNI, key, task string) (Task, error) {
	id := n.id(key)
	r := &record{Key: key, Task: task, Config: listOf("muster-"+n.tag, plugins)}
	for _, s := range subnets {
		r.Ranges = append(r.Ranges, rangeOf(s))
	}
	x := n.attach(id)
	x.busy.Lock()
	defer x.busy.Unlock()
	n.mu.Lock()
	n.newest = r
	n.all[id] = x // it may have been taken back meanwhile
	t, ok := x.task()
	was := x.record
	n.mu.Unlock()
	if ok && t.Held() {
		return t, nil
	}
	ctx := context.Background() // a call that has begun is carried through
	if was != nil {
		if err := n.del(ctx, x); err != nil {
			return Task{}, fmt.Errorf("network of %s: what there was before cannot be taken back: %w", task, err)
		}
	}
	addresses, err := n.addFree(ctx, x, r)
	if err != nil {
		return Task{}, fmt.Errorf("network of %s: %w", task, err)
	}
	return Task{x.namespace(), addresses}, nil
}

// attach returns what there is of a network, or a new one.
func (n *Networks) attach(id string) *attachment {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.all[id]
	if x == nil {
		x = &attachment{place: n.place(id)}
		n.all[id] = x
	}
	return x
}

// addFree is add, again and again while plugins give addresses that tasks have which were started before the cell had
// plugins: host-local gives the next one when it has got one back. The caller has x.busy.
func (n *Networks) addFree(ctx context.Context, x *attachment, r *record) ([]netip.Addr, error) {
	tried := map[netip.Addr]bool{}
	for began := time.Now(); ; {
		addresses, err := n.add(ctx, x, r)
		taken := takenError{}
		n.mu.Lock()
		again := errors.As(err, &taken) && x.record == nil && !tried[taken.at] && time.Since(began) < n.cfg.Within
		if again {
			n.all[x.id] = x // it was taken back
		}
		n.mu.Unlock()
		if !again {
			return addresses, err
		}
		tried[taken.at] = true
	}
}

// takenError is that an address is another task's.
type takenError struct{ at netip.Addr }

func (e takenError) Error() string {
	return fmt.Sprintf("the plugins gave %s, which another task on this machine has", e.at)
}

// add makes a network, or nothing, and returns its addresses. The caller has x.busy.
func (n *Networks) add(ctx context.Context, x *attachment, r *record) ([]netip.Addr, error) {
	n.collecting.RLock()
	defer n.collecting.RUnlock()
	n.mu.Lock()
	x.record, x.stale = r, true // until it is complete
	n.mu.Unlock()
	err := n.free(r)
	if err == nil {
		err = r.write(x.place.record())
	}
	whole := *r
	if err == nil {
		whole.Addresses, err = x.add(ctx, r)
	}
	if err == nil {
		err = n.apart(whole.Addresses, x.id)
	}
	if err == nil {
		err = whole.write(x.place.record())
	}
	if err != nil {
		return nil, errors.Join(err, n.undo(ctx, x))
	}
	n.mu.Lock()
	x.record, x.stale = &whole, false
	n.mu.Unlock()
	return whole.Addresses, nil
}

// free errs if the gateway of a range is a task's address.
func (n *Networks) free(r *record) error {
	for i := range r.Ranges {
		if g := r.Ranges[i].Gateway; n.cfg.Taken(g) {
			return fmt.Errorf("%s, which is to be the gateway, is the address of a task that was started before the cell had plugins: restart that one", g)
		}
	}
	return nil
}

// apart errs with a takenError if another task has one of the addresses.
func (n *Networks) apart(addresses []netip.Addr, but string) error {
	for _, a := range addresses {
		n.mu.Lock()
		taken := n.has(a, but)
		n.mu.Unlock()
		if taken || n.cfg.Taken(a) {
			return takenError{a}
		}
	}
	return nil
}

// undo takes back what has not become complete.
func (n *Networks) undo(ctx context.Context, x *attachment) error {
	if err := n.del(ctx, x); err != nil {
		n.rouse()
		return fmt.Errorf("and taking it back has failed, which is tried again: %w", err)
	}
	return nil
}

// del takes a network back. The caller has x.busy.
func (n *Networks) del(ctx context.Context, x *attachment) error {
	n.mu.Lock()
	r := x.record
	if r == nil {
		n.mu.Unlock()
		return nil
	}
	x.stale = true
	newest := n.newest
	n.mu.Unlock()
	err := x.del(ctx, r)
	if err != nil && len(r.Addresses) == 0 && newest != nil && !bytes.Equal(newest.Config, r.Config) {
		// A list that was wrong may not work for this, either; the one that repairs it does.
		repaired := *r
		repaired.Config, repaired.Ranges = newest.Config, newest.Ranges
		if x.del(ctx, &repaired) == nil {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	x.record, x.stale, x.redo = nil, false, redo{}
	delete(n.unsound, x.id)
	if n.all[x.id] == x {
		delete(n.all, x.id)
	}
	return nil
}

// Leave has the network that Join has made for key be taken back, if it is there. Nothing of the task may run. What
// fails is tried again by Run.
func (n *Networks) Leave(key string) error {
	n.mu.Lock()
	x := n.all[n.id(key)]
	if x != nil {
		x.stale = true
	}
	n.mu.Unlock()
	if x == nil {
		return nil
	}
	return n.takeBack(x)
}

// takeBack takes one network back, once nothing else is done with it.
func (n *Networks) takeBack(x *attachment) error {
	x.busy.Lock()
	defer x.busy.Unlock()
	n.mu.Lock()
	stale, r := x.stale, x.record
	n.mu.Unlock()
	if !stale || r == nil {
		return nil // another has done it
	}
	if err := n.del(context.Background(), x); err != nil {
		n.rouse()
		return fmt.Errorf("network of %s: %w", r.Task, err)
	}
	return nil
}

// Keep has Run take back the networks of all tasks but those with the given keys.
func (n *Networks) Keep(keys []string) {
	keep := map[string]bool{}
	for _, k := range keys {
		keep[n.id(k)] = true
	}
	n.mu.Lock()
	for id, x := range n.all {
		x.stale = x.stale || !keep[id]
	}
	n.mu.Unlock()
	n.rouse()
}

// Withdraw takes all networks back. No task may run.
func (n *Networks) Withdraw() error {
	n.Keep(nil)
	return n.takeAllBack(n.staleOnes(func(*attachment) bool { return true }))
}

// staleOnes returns what is to be taken back, as far as due says so, sorted.
func (n *Networks) staleOnes(due func(*attachment) bool) []*attachment {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*attachment
	for _, id := range slices.Sorted(maps.Keys(n.all)) {
		if x := n.all[id]; x.stale && x.record != nil && due(x) {
			out = append(out, x)
		}
	}
	return out
}

// parallel is how many plugins run at a time for what is taken back.
const parallel = 4

// takeAllBack takes networks back, several at a time.
func (n *Networks) takeAllBack(all []*attachment) error {
	errs := make([]error, len(all))
	slots := make(chan struct{}, parallel)
	var working sync.WaitGroup
	for i, x := range all {
		slots <- struct{}{}
		working.Go(func() {
			errs[i] = n.takeBack(x)
			<-slots
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

func (n *Networks) rouse() {
	select {
	case n.wake <- struct{}{}:
	default: // it will
	}
}

// ids returns what there is of networks. The caller has n.mu.
func (n *Networks) ids() []string { return slices.Sorted(maps.Keys(n.all)) }
