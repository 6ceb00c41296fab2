package sources

import (
	"hash/fnv"
	"slices"

	"github.com/musterhq/muster/schema"
)

const (
	// mostPeers is how many machines one is sent to.
	mostPeers = 8
	// looked bounds how many holders are looked at for one answer.
	looked = 8 * mostPeers
	// ofBlob is how many machines are named that have one blob.
	ofBlob = 2
)

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

// some adds few of those that have a blob.
func (p *peers) some(machines []string) {
	if len(machines) == 0 {
		return
	}
	start, most := int(hash(p.q.Machine)%uint64(len(machines))), len(p.all)+ofBlob
	for i := 0; i < len(machines) && len(p.all) < most; i++ {
		p.take(machines[(start+i)%len(machines)], false)
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
