package main

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/musterhq/muster/nodeagent/directory"
	"github.com/musterhq/muster/nodeagent/network/policy"
	"github.com/musterhq/muster/nodeagent/network/policy/kernel"
	"github.com/musterhq/muster/schema"
)

// guarded fails the test unless the kernel guards exactly such addresses, by what the agent knows.
func (n *tasksNetwork) guarded(when string, want ...netip.Addr) {
	n.t.Helper()
	n.guards.mu.Lock()
	s := policy.Of(n.guards.known, n.guards.all())
	n.guards.mu.Unlock()
	var got []netip.Addr
	for a := range s.Guards {
		got = append(got, a)
	}
	slices.SortFunc(got, netip.Addr.Compare)
	if !slices.Equal(got, want) {
		n.t.Errorf("%s: %v are to be guarded, want %v", when, got, want)
	}
	p := kernel.New(n.manager.PolicyTable())
	there, err := p.Present()
	n.check(err)
	if there != (len(want) > 0) {
		n.t.Errorf("%s: the table is there: %v", when, there)
	}
	if !there {
		return
	}
	change, err := p.Program(s)
	n.check(err)
	if change.Size() > 0 {
		n.t.Errorf("%s: the kernel lacked %+v", when, change)
	}
}

// TestGuards: a task that not everyone may connect to is guarded before it starts, whatever is known of it,
// by the agent that comes after, when somebody has removed the rules, and not any longer than it is there.
func TestGuards(t *testing.T) {
	t.Parallel()
	onMachine(t, func(n *tasksNetwork) {
		self := schema.DirectoryMachine{Address: netip.MustParseAddr("192.0.2.1"), Subnets: taskSubnet}
		n.acts(taskRange, self)
		open := *webTask
		open.Task.Job, open.Generation = "open", 7
		other, err := n.Join(&open)
		n.check(err)
		n.guarded("with a task that is open")
		web := *webTask
		web.Job = &schema.Job{Name: "web", User: "u", Cell: "c", Policy: &schema.Policy{}}
		task, err := n.Join(&web)
		n.check(err)
		all := []netip.Addr{other.Addresses[0], task.Addresses[0]}
		n.guarded("before the directory has the job", all[1])

		n.begin()
		_, err = n.Keep([]*schema.Assignment{&web})
		n.check(err)
		n.guarded("by the next agent", all[1])
		n.check(kernel.New(n.manager.PolicyTable()).Withdraw())
		n.begin()
		_, err = n.Keep([]*schema.Assignment{&web})
		n.check(err)
		n.guarded("by the next agent, which finds nothing", all[1])

		closed := taskRange
		closed.Policy = schema.PolicyClosed
		n.acts(closed, self)
		open.Generation = 8
		again, err := n.Join(&open)
		n.check(err)
		all = []netip.Addr{task.Addresses[0], again.Addresses[0]}
		slices.SortFunc(all, netip.Addr.Compare)
		n.guarded("in a closed cell", all...)

		is := policy.Of(n.guards.known, n.guards.all())
		n.begin()
		_, err = n.Keep([]*schema.Assignment{&web, &open})
		n.check(err)
		directory.New(n.follow).Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{{Machine: &schema.DirectoryMachine{Name: "m2"}}}}, func() {})
		n.guards.turn()
		if change, err := kernel.New(n.manager.PolicyTable()).Program(is); err != nil || change.Size() > 0 {
			t.Errorf("by the next agent, which does not know yet that the cell is closed: the kernel lacked %+v, %v", change, err)
		}
		n.acts(closed, self)
		n.guarded("by the next agent in a closed cell", all...)
		n.check(n.Leave(&web))
		n.check(n.Leave(&open))
		n.guards.turn()
		n.guarded("after their ends")
	})
}
