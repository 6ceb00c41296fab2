package schema

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"iter"
	"math/bits"
	"net/netip"
	"strconv"
)

// DirectoryPart is how many indices of a job are in one entry of a directory.
const DirectoryPart = 64

// DirectoryEntry is a part of what every machine of a cell knows of the others, so that it can find
// tasks by name and reach services while no master answers. An entry is one of: the cell, a
// machine, some tasks of a job, a service. It replaces the one before with the same Key.
type DirectoryEntry struct {
	Cell    *DirectoryCell    `json:"cell,omitempty"`
	Machine *DirectoryMachine `json:"machine,omitempty"`
	Tasks   *DirectoryTasks   `json:"tasks,omitempty"`
	Service *DirectoryService `json:"service,omitempty"`
}

// DirectoryCell is what all machines know of their cell.
type DirectoryCell struct {
	Name    string      `json:"name"`
	Network CellNetwork `json:"network"`
}

// DirectoryMachine is where a machine is.
type DirectoryMachine struct {
	Name string `json:"name"`
	// Address is at which other machines reach it; invalid if that is not known.
	Address netip.Addr `json:"address,omitzero"`
	// Subnets are those that its tasks have addresses of: at most one of IPv4 and one of IPv6.
	Subnets []netip.Prefix `json:"subnets,omitempty"`
	// Leaving are subnets that it had, of which tasks may still have addresses.
	Leaving []netip.Prefix `json:"leaving,omitempty"`
}

// DirectoryTasks are the tasks of a job with indices from Part*DirectoryPart, up to
// DirectoryPart of them, that have a machine.
type DirectoryTasks struct {
	User string `json:"user"`
	Job  string `json:"job"`
	Part int    `json:"part"`
	// Labels are those of the job, with the cell's own (see OwnLabels).
	Labels map[string]string `json:"labels,omitempty"`
	Tasks  []DirectoryTask   `json:"tasks"` // by index
	// Policy is what agents follow that know no ports of policies: that of the job, without those
	// who may connect at some ports alone. See SetPolicy.
	Policy *Policy `json:"policy,omitempty"`
	// PortPolicy is that of the job if it has ports, else nil.
	PortPolicy *Policy `json:"portPolicy,omitempty"`
}

// SetPolicy gives the tasks the policy of their job, which may be nil. An agent of an earlier release
// would read one with ports as if it had none, and admit at all ports.
func (t *DirectoryTasks) SetPolicy(p *Policy) {
	t.Policy, t.PortPolicy = p, nil
	if len(p.Ports()) > 0 {
		t.Policy, t.PortPolicy = p.At(""), p
	}
}

// PolicyOfJob returns what SetPolicy was given.
func (t *DirectoryTasks) PolicyOfJob() *Policy { return cmp.Or(t.PortPolicy, t.Policy) }

// DirectoryTask is where a task is.
type DirectoryTask struct {
	Index   int        `json:"index"`
	Machine string     `json:"machine"`
	Address netip.Addr `json:"address,omitzero"` // its own, or its machine's; invalid if not known
	// Address6 is its own of IPv6, of a task that has one of IPv4, too; else it is invalid. Agents
	// and masters of earlier releases know Address alone.
	Address6 netip.Addr `json:"address6,omitzero"`
	Ports    Ports      `json:"ports,omitempty"`
	// Ready says that new connections and requests may go to it.
	Ready bool `json:"ready"`
}

// Addresses returns where the task is: none if that is not known, at most one of IPv4 and one of IPv6.
func (t *DirectoryTask) Addresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if t.Address.IsValid() && yield(t.Address) && t.Address6.IsValid() {
			yield(t.Address6)
		}
	}
}

// At reports whether the task has an address.
func (t *DirectoryTask) At(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && (t.Address.Unmap() == a || t.Address6 == a)
}

// DirectoryService is a service, and where it is reached.
type DirectoryService struct {
	ServiceSpec
	// Addresses are its virtual addresses: at most one of IPv4 and one of IPv6.
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// Key names the entry: cell, machine/NAME, tasks/USER/JOB/PART or service/USER/NAME; "" if it has
// none of them.
func (e *DirectoryEntry) Key() string {
	switch {
	case e.Cell != nil:
		return "cell"
	case e.Machine != nil:
		return "machine/" + e.Machine.Name
	case e.Tasks != nil:
		return "tasks/" + e.Tasks.User + "/" + e.Tasks.Job + "/" + strconv.Itoa(e.Tasks.Part)
	case e.Service != nil:
		return "service/" + e.Service.User + "/" + e.Service.Name
	}
	return ""
}

// DirectoryChange leads from one version of a directory to the next.
type DirectoryChange struct {
	Whole   bool             // what was there before does not count
	Shards  []int            // what was there before in these shards does not count
	Set     []DirectoryEntry // new, or changed
	Removed []string         // keys
}

// DirectoryUpdate is what the agent of a machine is sent of the directory.
type DirectoryUpdate struct {
	// Version is that of the directory after the changes; 0: there are no changes.
	Version uint64
	Shards  []int    // as in DirectoryChange
	Set     [][]byte // entries, each as canonical JSON
	Removed []string // keys
	// Unlisted are tasks of the machine to which no machine sends anything new any more, as
	// far as is known.
	Unlisted []UnlistedTask
}

// UnlistedTask is a generation of a task to which nothing is sent any more.
type UnlistedTask struct {
	Task       string // user/job/index
	Generation uint64
}

// DirectoryShards is into how many shards the entries of a directory are divided. A master
// sends those of which a machine says another digest than its own.
const DirectoryShards = 64

// DirectoryShard returns the shard of the entry with a key, from 0.
func DirectoryShard(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % DirectoryShards)
}

// DirectoryDigest is the digest of some entries of a directory, in whatever order: the sum,
// modulo 2^128, of the digests of each. That of none is zero. Of two lists of entries that
// no one has made up for it, equal digests mean equal entries. In JSON it is hexadecimal.
type DirectoryDigest [16]byte

// Digest returns the digest of one entry: the first 128 bits of the SHA-256 of its canonical
// JSON.
func (e *DirectoryEntry) Digest() DirectoryDigest { return DirectoryDigestOf(Canonical(e)) }

// DirectoryDigestOf returns the digest of an entry as canonical JSON.
func DirectoryDigestOf(text []byte) DirectoryDigest {
	sum := sha256.Sum256(text)
	return DirectoryDigest(sum[:16])
}

// Plus returns the digest of the entries of d and those of o together.
func (d DirectoryDigest) Plus(o DirectoryDigest) DirectoryDigest {
	lo, carry := bits.Add64(binary.BigEndian.Uint64(d[8:]), binary.BigEndian.Uint64(o[8:]), 0)
	hi, _ := bits.Add64(binary.BigEndian.Uint64(d[:8]), binary.BigEndian.Uint64(o[:8]), carry)
	return digestOf(hi, lo)
}

// Minus returns the digest of the entries of d without those of o, which are among them.
func (d DirectoryDigest) Minus(o DirectoryDigest) DirectoryDigest {
	lo, borrow := bits.Sub64(binary.BigEndian.Uint64(d[8:]), binary.BigEndian.Uint64(o[8:]), 0)
	hi, _ := bits.Sub64(binary.BigEndian.Uint64(d[:8]), binary.BigEndian.Uint64(o[:8]), borrow)
	return digestOf(hi, lo)
}

func digestOf(hi, lo uint64) DirectoryDigest {
	var d DirectoryDigest
	binary.BigEndian.PutUint64(d[:8], hi)
	binary.BigEndian.PutUint64(d[8:], lo)
	return d
}

// MarshalText returns 32 hexadecimal digits.
func (d DirectoryDigest) MarshalText() ([]byte, error) {
	return []byte(hex.EncodeToString(d[:])), nil
}

// UnmarshalText reads 32 hexadecimal digits.
func (d *DirectoryDigest) UnmarshalText(b []byte) error {
	raw, err := hex.DecodeString(string(b))
	if err != nil || len(raw) != len(d) {
		return fmt.Errorf("digest of a directory %.80q: want %d hexadecimal digits", b, 2*len(d))
	}
	*d = DirectoryDigest(raw)
	return nil
}

// DirectoryDigests are the digests of the shards of a directory.
type DirectoryDigests [DirectoryShards]DirectoryDigest
