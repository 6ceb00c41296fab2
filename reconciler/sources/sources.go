package sources

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// Most is how many machines are fetching the same from its registry at once, of those that
	// others can get it from or that others were to give it.
	Most = 2
	// mostPeers is how many machines one is sent to.
	mostPeers = 8
	// forget is how long after its last question a machine counts as fetching: several questions.
	forget = 15 * time.Second
	// looked bounds how many holders are looked at for one answer.
	looked = 8 * mostPeers
	// turn is how long a machine to which nothing comes keeps its place at the registry while others
	// wait: by then it has given up what it has asked the registry for. longTurn is the same for
	// one to which something comes, however slowly.
	turn     = 30 * time.Second
	longTurn = 15 * time.Minute
)

// Cell is what is known of machines.
type Cell interface {
	// Holders returns machines that hold something, in no order.
	Holders(d schema.Digest) []string
	// Address returns where a machine gives others what it holds; "" if it does not, or
	// is not up.
	Address(machine string) string
}

// Desk answers questions. The zero value has had none.
type Desk struct {
	wanted map[schema.Digest]*content
	swept  time.Time
}

// content is an image or a package that machines are to bring.
type content struct {
	asked map[string]time.Time // when each machine asked last
	all   []string             // the same machines
	first []place              // those of them that fetch it from the registry; at most Most
	late  []string             // those that are stalled and wait for a place, the first of them first
}

// place is that of a machine at the registry.
type place struct {
	machine string
	since   time.Time
	shares  bool // others get it from there
	stalled bool // it says that nothing comes
}

// Answer answers a question. It costs the same however many machines want the same.
func (d *Desk) Answer(q *schema.SourceQuestion, cell Cell, now time.Time) schema.SourceAnswer {
	d.sweep(now)
	c := d.wanted[q.Content]
	if q.Ended {
		if c != nil {
			c.forget(q.Machine)
		}
		return schema.SourceAnswer{}
	}
	if c == nil {
		c = &content{asked: map[string]time.Time{}}
		if d.wanted == nil {
			d.wanted = map[schema.Digest]*content{}
		}
		d.wanted[q.Content] = c
	}
	if _, ok := c.asked[q.Machine]; !ok {
		c.all = append(c.all, q.Machine)
	}
	c.asked[q.Machine] = now
	c.note(q, cell, now)
	out := peers{q: q, cell: cell}
	out.add(cell.Holders(q.Content), true)
	a := schema.SourceAnswer{}
	if len(out.all) == 0 {
		a.Registry = c.grant(q.Machine, cell, now)
	}
	if q.Stalled && !a.Registry {
		a.Registry = c.follow(q.Machine, cell, now)
	}
	for _, p := range c.first {
		out.take(p.machine, false)
	}
	out.add(c.all, false)
	a.Peers = out.all
	return a
}

// note takes what a question says of who asks, and forgets who does not ask any more.
func (c *content) note(q *schema.SourceQuestion, cell Cell, now time.Time) {
	c.first = slices.DeleteFunc(c.first, func(p place) bool {
		return c.gone(p.machine, now) || p.shares && cell.Address(p.machine) == ""
	})
	if i := c.place(q.Machine); i >= 0 {
		c.first[i].stalled = q.Stalled
	}
	for len(c.late) > 0 && c.gone(c.late[0], now) {
		c.late = c.late[1:]
	}
	if !q.Stalled && len(c.late) > 0 {
		c.late = slices.DeleteFunc(c.late, func(other string) bool { return other == q.Machine })
	}
}

// place returns where in c.first a machine is; -1: it is not.
func (c *content) place(machine string) int {
	return slices.IndexFunc(c.first, func(p place) bool { return p.machine == machine })
}

// gone reports whether a machine does not ask any more.
func (c *content) gone(machine string, now time.Time) bool { return now.Sub(c.asked[machine]) > forget }

// grant reports whether a machine may ask the registry for what nobody has.
func (c *content) grant(machine string, cell Cell, now time.Time) bool {
	switch shares := cell.Address(machine) != ""; {
	case c.place(machine) >= 0:
		return true
	case !shares: // nobody gets it from there
		return !slices.ContainsFunc(c.first, func(p place) bool { return p.shares })
	case len(c.first)+len(c.late) < Most:
		c.first = append(c.first, place{machine: machine, since: now, shares: true})
		return true
	}
	return false
}

// follow reports whether a machine may ask the registry that is stalled: those that are do so in the order in which
// they have said it, each when there is a place. One to which nothing comes from there, either, loses its place, and
// waits again behind the others: so each has its turn, whoever of the others hangs.
func (c *content) follow(machine string, cell Cell, now time.Time) bool {
	over := func(p place) bool {
		held := now.Sub(p.since)
		return held > longTurn || p.stalled && held > turn
	}
	if i := c.place(machine); i >= 0 {
		if len(c.late) == 0 || !over(c.first[i]) {
			return true
		}
		c.first = slices.Delete(c.first, i, i+1)
	} else if len(c.first) == Most {
		if i := slices.IndexFunc(c.first, over); i >= 0 {
			c.first = slices.Delete(c.first, i, i+1)
		}
	}
	i := slices.Index(c.late, machine)
	if i < 0 {
		i = len(c.late)
		c.late = append(c.late, machine)
	}
	if i >= Most-len(c.first) {
		return false
	}
	c.late = slices.Delete(c.late, i, i+1)
	c.first = append(c.first, place{machine: machine, since: now, shares: cell.Address(machine) != "", stalled: true})
	return true
}

// forget forgets a machine.
func (c *content) forget(machine string) {
	delete(c.asked, machine)
	is := func(other string) bool { return other == machine }
	c.all, c.late = slices.DeleteFunc(c.all, is), slices.DeleteFunc(c.late, is)
	c.first = slices.DeleteFunc(c.first, func(p place) bool { return p.machine == machine })
}

// peers are those of an answer.
type peers struct {
	q    *schema.SourceQuestion
	cell Cell
	all  []schema.SourcePeer
}

// add adds some of those that are there, others for each machine that asks.
func (p *peers) add(machines []string, holds bool) {
	if len(machines) == 0 {
		return
	}
	start := int(hash(p.q.Machine) % uint64(len(machines)))
	for i := range min(len(machines), looked) {
		p.take(machines[(start+i)%len(machines)], holds)
	}
}

// take adds a machine, if it can give something, and there is room.
func (p *peers) take(machine string, holds bool) {
	if len(p.all) == mostPeers || machine == p.q.Machine || slices.Contains(p.q.Without, machine) ||
		slices.ContainsFunc(p.all, func(o schema.SourcePeer) bool { return o.Machine == machine }) {
		return
	}
	if address := p.cell.Address(machine); address != "" {
		p.all = append(p.all, schema.SourcePeer{Machine: machine, Address: address, Holds: holds})
	}
}

// hash is where in a list a machine begins.
func hash(machine string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(machine)) // a hash takes everything
	return h.Sum64()
}

// sweep forgets who no longer asks.
func (d *Desk) sweep(now time.Time) {
	if now.Sub(d.swept) < forget {
		return
	}
	d.swept = now
	for sum, c := range d.wanted {
		gone := func(machine string) bool { return c.gone(machine, now) }
		c.all, c.late = slices.DeleteFunc(c.all, gone), slices.DeleteFunc(c.late, gone)
		c.first = slices.DeleteFunc(c.first, func(p place) bool { return gone(p.machine) })
		for machine := range c.asked {
			if gone(machine) {
				delete(c.asked, machine)
			}
		}
		if len(c.all) == 0 {
			delete(d.wanted, sum)
		}
	}
}
