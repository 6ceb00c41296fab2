package sources

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// Most is how many machines are fetching the same from its registry at once, of those that
	// others can get it from.
	Most = 2
	// mostPeers is how many machines one is sent to.
	mostPeers = 8
	// forget is how long after its last question a machine counts as fetching: several questions.
	forget = 15 * time.Second
	// looked bounds how many holders are looked at for one answer.
	looked = 8 * mostPeers
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
	first []string             // those of them that fetch it from the registry, for others, too
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
	out := peers{q: q, cell: cell}
	out.add(cell.Holders(q.Content), true)
	a := schema.SourceAnswer{}
	if len(out.all) == 0 {
		a.Registry = c.grant(q.Machine, cell, now)
	}
	a.Registry = a.Registry || q.Stalled
	for _, machine := range c.first {
		out.take(machine, false)
	}
	out.add(c.all, false)
	a.Peers = out.all
	return a
}

// grant reports whether a machine may ask the registry for what nobody has.
func (c *content) grant(machine string, cell Cell, now time.Time) bool {
	c.first = slices.DeleteFunc(c.first, func(other string) bool {
		return now.Sub(c.asked[other]) > forget || cell.Address(other) == ""
	})
	switch {
	case slices.Contains(c.first, machine):
		return true
	case cell.Address(machine) == "": // nobody gets it from there
		return len(c.first) == 0
	case len(c.first) < Most:
		c.first = append(c.first, machine)
		return true
	}
	return false
}

// forget forgets a machine.
func (c *content) forget(machine string) {
	delete(c.asked, machine)
	is := func(other string) bool { return other == machine }
	c.all, c.first = slices.DeleteFunc(c.all, is), slices.DeleteFunc(c.first, is)
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
		gone := func(machine string) bool { return now.Sub(c.asked[machine]) > forget }
		c.all, c.first = slices.DeleteFunc(c.all, gone), slices.DeleteFunc(c.first, gone)
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
