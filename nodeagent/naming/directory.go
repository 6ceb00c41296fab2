package naming

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Directory is what changes lead to. It has one owner: nothing of it is safe for concurrent use.
// What others read are its snapshots.
type Directory struct {
	is     Snapshot
	edit   *edit
	picker *picker
	shards [schema.DirectoryShards]shard
	// strings has the names of machines and ports, so that each is in memory once.
	strings map[string]string
}

// shard is a part of the entries, by key.
type shard struct {
	entries map[string]held
	digest  schema.DirectoryDigest
}

// held is an entry, and its digest.
type held struct {
	entry  schema.DirectoryEntry
	digest schema.DirectoryDigest
}

// Touched is what may differ after a change. The lists are sorted.
type Touched struct {
	Machines []string
	// Services are those that were set or removed, that pick other jobs, or of whose jobs a
	// task has changed.
	Services []Name
	// Shards are those that have another digest.
	Shards []int
}

// New returns an empty directory.
func New() *Directory {
	d := &Directory{edit: &edit{}, picker: newPicker(), strings: map[string]string{}}
	for i := range d.shards {
		d.shards[i].entries = map[string]held{}
	}
	return d
}

// Snapshot returns the directory as it is now. It takes constant time.
func (d *Directory) Snapshot() *Snapshot {
	d.edit = &edit{} // what is written from now on is copied first
	is := d.is
	return &is
}

// Digests returns the digests of all shards.
func (d *Directory) Digests() schema.DirectoryDigests {
	var all schema.DirectoryDigests
	for i := range d.shards {
		all[i] = d.shards[i].digest
	}
	return all
}

// DigestOf returns the digest of a shard, 0 to schema.DirectoryShards - 1.
func (d *Directory) DigestOf(shard int) schema.DirectoryDigest { return d.shards[shard].digest }

// Entries returns the entries of a shard, by key. They must not be changed; the list is the caller's.
func (d *Directory) Entries(shard int) []schema.DirectoryEntry {
	entries := d.shards[shard].entries
	out := make([]schema.DirectoryEntry, 0, len(entries))
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		out = append(out, entries[key].entry)
	}
	return out
}

// Len returns how many entries there are.
func (d *Directory) Len() int {
	n := 0
	for i := range d.shards {
		n += len(d.shards[i].entries)
	}
	return n
}

// turn is one change at work.
type turn struct {
	*Directory
	machines map[string]struct{}
	services map[Name]struct{}
	shards   map[int]struct{}
}

// Apply takes in a change, whose entries are not the caller's any more. What does not fit its entry
// (an index outside of its part, a second task with the same index) is left out, and an entry without a key is ignored; a selector
// that cannot be parsed picks nothing.
func (d *Directory) Apply(c schema.DirectoryChange) Touched {
	t := &turn{d, map[string]struct{}{}, map[Name]struct{}{}, map[int]struct{}{}}
	t.forget(&c)
	for _, key := range c.Removed {
		t.remove(key)
	}
	for i := range c.Set {
		t.set(c.Set[i])
	}
	for s := range d.picker.changed {
		t.services[s.name] = struct{}{}
		t.list(s)
	}
	clear(d.picker.changed)
	return Touched{
		Machines: slices.Sorted(maps.Keys(t.machines)),
		Services: slices.SortedFunc(maps.Keys(t.services), Name.Compare),
		Shards:   slices.Sorted(maps.Keys(t.shards)),
	}
}

// forget removes what does not count any more and is not set again.
func (t *turn) forget(c *schema.DirectoryChange) {
	shards := c.Shards
	if c.Whole {
		shards = make([]int, schema.DirectoryShards)
		for i := range shards {
			shards[i] = i
		}
	}
	if len(shards) == 0 {
		return
	}
	set := make(map[string]struct{}, len(c.Set))
	for i := range c.Set {
		set[c.Set[i].Key()] = struct{}{}
	}
	for _, i := range shards {
		if i < 0 || i >= len(t.Directory.shards) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(t.Directory.shards[i].entries)) {
			if _, again := set[key]; !again {
				t.remove(key)
			}
		}
	}
}

// remove removes an entry, if it is there.
func (t *turn) remove(key string) {
	i := schema.DirectoryShard(key)
	h := &t.Directory.shards[i]
	was, ok := h.entries[key]
	if !ok {
		return
	}
	delete(h.entries, key)
	h.digest = h.digest.Minus(was.digest)
	t.shards[i] = struct{}{}
	switch e := &was.entry; {
	case e.Cell != nil:
		t.is.cell = nil
	case e.Machine != nil:
		t.machine(e.Machine.Name, nil)
	case e.Tasks != nil:
		t.tasks(&schema.DirectoryTasks{User: e.Tasks.User, Job: e.Tasks.Job, Part: e.Tasks.Part}, e.Tasks)
	case e.Service != nil:
		t.service(Name{e.Service.User, e.Service.Name}, nil)
	}
}

// set puts an entry in the place of the one with its key.
func (t *turn) set(e schema.DirectoryEntry) {
	key := e.Key()
	if key == "" {
		return
	}
	i := schema.DirectoryShard(key)
	h := &t.Directory.shards[i]
	was, there := h.entries[key]
	digest := e.Digest()
	if there && was.digest == digest {
		return
	}
	switch {
	case e.Cell != nil:
		e = schema.DirectoryEntry{Cell: e.Cell}
		t.is.cell = e.Cell
	case e.Machine != nil:
		e = schema.DirectoryEntry{Machine: e.Machine}
		t.machine(e.Machine.Name, e.Machine)
	case e.Tasks != nil:
		e = schema.DirectoryEntry{Tasks: t.compact(e.Tasks)}
		t.tasks(fitting(e.Tasks), was.entry.Tasks)
	case e.Service != nil:
		e = schema.DirectoryEntry{Service: e.Service}
		t.service(Name{e.Service.User, e.Service.Name}, e.Service)
	}
	h.entries[key] = held{e, digest}
	h.digest = h.digest.Minus(was.digest).Plus(digest) // of no entry it is zero
	t.shards[i] = struct{}{}
}

func (t *turn) machine(name string, m *schema.DirectoryMachine) {
	t.machines[name] = struct{}{}
	if m == nil {
		t.is.machines.remove(t.edit, hashText(name), name)
		return
	}
	t.is.machines.set(t.edit, hashText(name), name, m)
}

func (t *turn) service(n Name, spec *schema.DirectoryService) {
	t.services[n] = struct{}{}
	_, was := t.is.services.get(n.hash(), n)
	t.picker.setService(n, spec)
	if spec == nil {
		t.is.services.remove(t.edit, n.hash(), n)
		t.count(n.User, 0, -1)
		return
	}
	t.is.services.set(t.edit, n.hash(), n, &Service{DirectoryService: spec})
	if !was {
		t.count(n.User, 0, 1)
	}
}

// list makes the list of the jobs that a service picks.
func (t *turn) list(s *picking) {
	if was, ok := t.is.services.get(s.name.hash(), s.name); ok {
		t.is.services.set(t.edit, s.name.hash(), s.name, &Service{DirectoryService: was.DirectoryService, picks: s.picksOf()})
	}
}

// tasks puts a part of a job in the place of was, which may be nil.
func (t *turn) tasks(is, was *schema.DirectoryTasks) {
	n := Name{is.User, is.Job}
	before, there := t.is.jobs.get(n.hash(), n)
	after := before.with(n, is)
	if was != nil {
		t.unaddress(was, is)
	}
	switch {
	case after != nil:
		t.address(after.self, is)
		t.is.jobs.set(t.edit, n.hash(), n, after)
		t.picker.setJob(n, after.Labels, true)
		if !there {
			t.count(n.User, 1, 0)
		}
	case there:
		t.is.jobs.remove(t.edit, n.hash(), n)
		t.touch(n)
		t.picker.setJob(n, nil, false)
		t.count(n.User, -1, 0)
		return
	}
	t.touch(n)
}

// touch notes the services that pick a job.
func (t *turn) touch(n Name) {
	if j := t.picker.jobs[n]; j != nil {
		for s := range j.by {
			t.services[s.name] = struct{}{}
		}
	}
}

func (t *turn) count(user string, jobs, services int) {
	h := hashText(user)
	n, _ := t.is.users.get(h, user)
	n = userCount{n.jobs + jobs, n.services + services}
	if n == (userCount{}) {
		t.is.users.remove(t.edit, h, user)
		return
	}
	t.is.users.set(t.edit, h, user, n)
}

// address notes which task has an address.
func (t *turn) address(job *Name, p *schema.DirectoryTasks) {
	for i := range p.Tasks {
		for a := range p.Tasks[i].Addresses() {
			h := hashAddr(a)
			if ref, ok := t.is.addresses.get(h, a); ok && *ref.job == *job && ref.index == p.Tasks[i].Index {
				continue
			}
			t.is.addresses.set(t.edit, h, a, taskRef{job, p.Tasks[i].Index})
		}
	}
}

// unaddress drops the addresses that tasks of was had, and that those of is do not have.
func (t *turn) unaddress(was, is *schema.DirectoryTasks) {
	for i := range was.Tasks {
		old := &was.Tasks[i]
		at, ok := slices.BinarySearchFunc(is.Tasks, old.Index, func(t schema.DirectoryTask, index int) int { return t.Index - index })
		for a := range old.Addresses() {
			if ok && is.Tasks[at].At(a) {
				continue
			}
			h := hashAddr(a)
			if ref, ok := t.is.addresses.get(h, a); ok && ref.job.User == was.User && ref.job.Name == was.Job && ref.index == old.Index {
				t.is.addresses.remove(t.edit, h, a)
			}
		}
	}
}

// compact returns a copy that shares what many tasks have alike.
func (t *turn) compact(p *schema.DirectoryTasks) *schema.DirectoryTasks {
	if len(t.strings) > 1<<16 { // names that are gone are forgotten in the end
		clear(t.strings)
	}
	is := *p
	is.Tasks = slices.Clone(p.Tasks)
	for i := range is.Tasks {
		task := &is.Tasks[i]
		task.Machine = t.one(task.Machine)
		if i > 0 && slices.Equal(task.Ports, is.Tasks[i-1].Ports) {
			task.Ports = is.Tasks[i-1].Ports
			continue
		}
		if task.Ports != nil {
			task.Ports = slices.Clone(task.Ports)
		}
		for at := range task.Ports {
			task.Ports[at].Name = t.one(task.Ports[at].Name)
		}
	}
	return &is
}

// one returns s as it is in memory already.
func (d *Directory) one(s string) string {
	if is, ok := d.strings[s]; ok {
		return is
	}
	d.strings[s] = s
	return s
}

// fitting returns p with its tasks by index, each once, and only those of the part. The entry
// that is kept stays as it came, since its digest is of that.
func fitting(p *schema.DirectoryTasks) *schema.DirectoryTasks {
	ordered := true
	for i := range p.Tasks {
		index := p.Tasks[i].Index
		ordered = ordered && index >= 0 && index/schema.DirectoryPart == p.Part && (i == 0 || p.Tasks[i-1].Index < index)
	}
	if ordered {
		return p
	}
	is := *p
	is.Tasks = slices.DeleteFunc(slices.Clone(p.Tasks), func(t schema.DirectoryTask) bool {
		return t.Index < 0 || t.Index/schema.DirectoryPart != p.Part
	})
	slices.SortStableFunc(is.Tasks, func(a, b schema.DirectoryTask) int { return cmp.Compare(a.Index, b.Index) })
	is.Tasks = slices.CompactFunc(is.Tasks, func(a, b schema.DirectoryTask) bool { return a.Index == b.Index })
	return &is
}
