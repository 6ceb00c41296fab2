package naming

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Name is what a user calls one of their jobs or services.
type Name struct {
	User, Name string
}

func (n Name) hash() uint64 { return hashText(n.User, n.Name) }

// Compare orders names by user and name.
func (n Name) Compare(o Name) int {
	switch {
	case n == o:
		return 0
	case n.User < o.User, n.User == o.User && n.Name < o.Name:
		return -1
	}
	return 1
}

// Snapshot is a directory at one moment. It never changes, and is safe for concurrent use; so is
// all that it returns, which must not be changed.
type Snapshot struct {
	cell      *schema.DirectoryCell
	machines  table[string, *schema.DirectoryMachine]
	jobs      table[Name, *Job]
	services  table[Name, *Service]
	addresses table[netip.Addr, taskRef]
	users     table[string, userCount]
}

// taskRef is a task, by name.
type taskRef struct {
	job   *Name
	index int
}

// userCount is how many jobs and services a user has.
type userCount struct {
	jobs, services int
}

// hashAddr returns the hash of an address.
func hashAddr(a netip.Addr) uint64 {
	b := a.As16()
	return mix(mix(binary.BigEndian.Uint64(b[:8])) ^ binary.BigEndian.Uint64(b[8:]))
}

// Cell returns what is known of the cell; nil if that is nothing, as before a master has said it,
// or in a cell without a network.
func (s *Snapshot) Cell() *schema.DirectoryCell { return s.cell }

// Empty reports whether nothing is known at all, as before a master has said anything: no cell with an
// agent has no machine.
func (s *Snapshot) Empty() bool {
	return s.cell == nil && s.machines.size == 0 && s.jobs.size == 0 && s.services.size == 0
}

// HasAnyService reports whether there is any service.
func (s *Snapshot) HasAnyService() bool { return s.services.size > 0 }

// Machine returns a machine.
func (s *Snapshot) Machine(name string) (*schema.DirectoryMachine, bool) {
	return s.machines.get(hashText(name), name)
}

// Machines returns all machines, in no particular order.
func (s *Snapshot) Machines() iter.Seq[*schema.DirectoryMachine] {
	return values(s.machines.all())
}

// Job returns a job that has tasks on machines.
func (s *Snapshot) Job(user, job string) (*Job, bool) {
	n := Name{user, job}
	return s.jobs.get(n.hash(), n)
}

// Jobs returns all jobs, in no particular order.
func (s *Snapshot) Jobs() iter.Seq[*Job] { return values(s.jobs.all()) }

// JobsSince returns the jobs that differ from what they were in another snapshot, as they were and as they are; nil
// stands for none. Between snapshots of one directory it takes time in proportion to what has changed.
func (s *Snapshot) JobsSince(before *Snapshot) iter.Seq2[*Job, *Job] {
	return changed(&before.jobs, &s.jobs)
}

// MachinesSince does so for machines.
func (s *Snapshot) MachinesSince(before *Snapshot) iter.Seq2[*schema.DirectoryMachine, *schema.DirectoryMachine] {
	return changed(&before.machines, &s.machines)
}

// Task returns a task that has a machine.
func (s *Snapshot) Task(user, job string, index int) (*schema.DirectoryTask, bool) {
	j, ok := s.Job(user, job)
	if !ok {
		return nil, false
	}
	return j.Task(index)
}

// Service returns a service.
func (s *Snapshot) Service(user, name string) (*Service, bool) {
	n := Name{user, name}
	return s.services.get(n.hash(), n)
}

// Services returns all services, in no particular order.
func (s *Snapshot) Services() iter.Seq[*Service] { return values(s.services.all()) }

// HasJobs reports whether a user has jobs with tasks on machines.
func (s *Snapshot) HasJobs(user string) bool {
	n, _ := s.users.get(hashText(user), user)
	return n.jobs > 0
}

// HasServices reports whether a user has services.
func (s *Snapshot) HasServices(user string) bool {
	n, _ := s.users.get(hashText(user), user)
	return n.services > 0
}

// TaskAt returns the task that has an address of its own: one of the subnets of its machine. While a task
// that has ended and its successor are both in the directory, it is the one that came last.
func (s *Snapshot) TaskAt(a netip.Addr) (job Name, index int, ok bool) {
	ref, ok := s.addresses.get(hashAddr(a), a)
	if !ok {
		return Name{}, 0, false
	}
	t, ok := s.Task(ref.job.User, ref.job.Name, ref.index)
	if !ok || !t.At(a) {
		return Name{}, 0, false
	}
	m, ok := s.Machine(t.Machine)
	if !ok || !slices.ContainsFunc(m.Subnets, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return Name{}, 0, false
	}
	return *ref.job, ref.index, true
}

// values returns the second of each pair.
func values[K, V any](pairs iter.Seq2[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range pairs {
			if !yield(v) {
				return
			}
		}
	}
}
