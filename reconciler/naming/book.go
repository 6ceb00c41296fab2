package naming

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

const (
	// Doubt is how long a machine is silent, for this master, before its tasks count as not
	// ready. A master that begins to lead has had no report of any machine yet.
	Doubt = 10 * time.Second
	// maxLog is how many changes are kept for readers that are behind.
	maxLog = 50_000
)

// Book is the directory of a cell, made of one snapshot after the other. The zero Book is that of
// a cell of which nothing is known. It is not safe for concurrent use.
type Book struct {
	is      *status.Snapshot // that was taken last
	entries map[string]entry // by key
	shards  [schema.DirectoryShards]shard
	version uint64 // 0: nothing is known yet
	log     []logged
	floor   uint64 // the version before that of log[0]
	silent  map[string]time.Time
	doubted map[string]bool // jobs with tasks on machines of which nothing is known
	began   time.Time       // when the first snapshot was taken
}

// entry is an entry as it is sent.
type entry struct {
	text   []byte // its canonical JSON
	digest schema.DirectoryDigest
	tasks  *schema.DirectoryTasks // if it has some
	// generations are those of the tasks.
	generations []uint64
}

// shard is a part of the entries.
type shard struct {
	digest schema.DirectoryDigest
	keys   map[string]struct{}
}

// logged says that an entry was set, or removed, in a version.
type logged struct {
	version uint64
	key     string
}

// Unlisted are tasks of a machine to which nothing is to be sent from a version on.
type Unlisted struct {
	Version uint64 // 0: nothing was sent to them before
	Machine string
	Tasks   []schema.UnlistedTask
}

// Version returns the newest version; 0 while there is none, and what readers have stands.
func (b *Book) Version() uint64 { return b.version }

// Needed reports whether there were services, or addresses for tasks, in the snapshot that was taken
// last: then all machines need the directory.
func (b *Book) Needed() bool { return b.is != nil && needs(b.is) }

func needs(s *status.Snapshot) bool { return len(s.Services()) > 0 || s.Network().HasAddresses() }

// Take takes in a snapshot of the cell at a time. It returns the tasks that were ready and are
// not any more, and those that begin to stop without having been ready, and when to take the same one again if there is none newer; zero if that has no
// use. It costs what has changed.
func (b *Book) Take(s *status.Snapshot, now time.Time) (gone []Unlisted, again time.Time) {
	if s.Brief().Master != nil {
		return nil, time.Time{} // what was known last is not what is
	}
	if b.entries == nil {
		b.entries, b.silent, b.doubted, b.is, b.began = map[string]entry{}, map[string]time.Time{}, map[string]bool{}, new(status.Snapshot), now
	}
	t := &turn{Book: b, now: now, unlisted: map[string][]schema.UnlistedTask{}, idle: map[string][]schema.UnlistedTask{}}
	t.machines(s)
	status.Merge(b.is.Parts(), s.Parts(), func(p *status.Part) string { return p.Job.Name }, func(was, is *status.Part) {
		if was != is || b.doubted[is.Job.Name] {
			t.part(was, is)
		}
	})
	status.Merge(b.is.Services(), s.Services(), func(x *status.ServiceStatus) string { return x.Short() }, func(was, is *status.ServiceStatus) {
		switch {
		case is == nil:
			t.set("service/"+was.Short(), nil, nil)
		case was != is:
			t.set("service/"+is.Short(), &schema.DirectoryEntry{Service: &is.DirectoryService}, nil)
		}
	})
	if n := s.Network(); n != nil {
		t.set("cell", &schema.DirectoryEntry{Cell: &schema.DirectoryCell{Name: s.Brief().Cell, Network: *n}}, nil)
	} else {
		t.set("cell", nil, nil)
	}
	b.is = s
	return t.end()
}

// turn is one Take at work.
type turn struct {
	*Book
	now      time.Time
	changed  []string                         // keys
	unlisted map[string][]schema.UnlistedTask // by machine, as idle
	idle     map[string][]schema.UnlistedTask // tasks that stop and were not ready
	again    time.Time
}

// end makes a version of what has changed.
func (t *turn) end() (gone []Unlisted, again time.Time) {
	if t.version == 0 && len(t.doubted) > 0 && t.now.Before(t.began.Add(Doubt)) {
		return nil, t.again // what agents have is newer
	}
	for _, machine := range slices.Sorted(maps.Keys(t.idle)) {
		gone = append(gone, Unlisted{0, machine, t.idle[machine]})
	}
	if len(t.changed) == 0 && t.version > 0 {
		return gone, t.again
	}
	t.version++
	for _, key := range t.changed {
		t.log = append(t.log, logged{t.version, key})
	}
	if over := len(t.log) - maxLog; over > 0 {
		last := t.log[over-1].version
		over = sort.Search(len(t.log), func(i int) bool { return t.log[i].version > last })
		t.floor, t.log = last, slices.Clone(t.log[over:])
	}
	for _, machine := range slices.Sorted(maps.Keys(t.unlisted)) {
		gone = append(gone, Unlisted{t.version, machine, t.unlisted[machine]})
	}
	return gone, t.again
}

// machines takes in where machines are, and which are silent.
func (t *turn) machines(s *status.Snapshot) {
	status.Merge(t.is.Machines(), s.Machines(), func(m *status.MachineStatus) string { return m.Name }, func(was, is *status.MachineStatus) {
		if is == nil {
			delete(t.silent, was.Name)
			t.set("machine/"+was.Name, nil, nil)
			return
		}
		if was == is {
			return
		}
		address, _ := netip.ParseAddr(is.Address) // of an agent of an earlier release there is none
		t.set("machine/"+is.Name, &schema.DirectoryEntry{Machine: &schema.DirectoryMachine{Name: is.Name, Address: address, Subnets: is.Subnets, Leaving: is.Leaving}}, nil)
		switch since, known := t.silent[is.Name]; {
		case is.Health != string(model.HealthSilent):
			delete(t.silent, is.Name)
		case !known || since.After(t.now):
			t.silent[is.Name] = t.now
		}
	})
}

// inDoubt reports whether it is not known yet how the tasks of a machine are.
func (t *turn) inDoubt(machine string) bool {
	since, silent := t.silent[machine]
	if !silent || !t.now.Before(since.Add(Doubt)) {
		return false
	}
	if until := since.Add(Doubt); t.again.IsZero() || until.Before(t.again) {
		t.again = until
	}
	return true
}

// part takes in a job, which was is of before; either may be nil.
func (t *turn) part(was, is *status.Part) {
	key := func(name string, part int) string {
		user, job := split(name)
		return (&schema.DirectoryEntry{Tasks: &schema.DirectoryTasks{User: user, Job: job, Part: part}}).Key()
	}
	stale := map[string]bool{}
	if was != nil {
		for i := range was.Tasks {
			stale[key(was.Job.Name, indexOf(was.Tasks[i].Name)/schema.DirectoryPart)] = true
		}
		delete(t.doubted, was.Job.Name)
	}
	if is != nil && is.Job.Kind != schema.Allocs {
		user, job := split(is.Job.Name)
		var at *schema.DirectoryTasks
		var generations []uint64
		flush := func() {
			if at != nil && len(at.Tasks) > 0 {
				k := key(is.Job.Name, at.Part)
				delete(stale, k)
				t.set(k, &schema.DirectoryEntry{Tasks: at}, generations)
			}
		}
		for i := range is.Tasks {
			task := &is.Tasks[i]
			index := indexOf(task.Name)
			if part := index / schema.DirectoryPart; at == nil || at.Part != part {
				flush()
				at, generations = &schema.DirectoryTasks{User: user, Job: job, Part: part, Labels: is.Job.Labels}, nil
				at.SetPolicy(is.Job.Policy)
			}
			k := key(is.Job.Name, at.Part)
			if x, generation, ok := t.task(is.Job.Name, k, index, task); ok {
				at.Tasks, generations = append(at.Tasks, x), append(generations, generation)
			}
			if task.State == status.TaskStopping && !stopped(was, task.Name) {
				e := t.entries[k]
				was, _ := e.find(index)
				t.stops(task, was)
			}
		}
		flush()
	}
	for _, k := range slices.Sorted(maps.Keys(stale)) {
		t.set(k, nil, nil)
	}
}

// stopped reports whether a task of a job, which may be nil, was being stopped.
func stopped(job *status.Part, name string) bool {
	if job == nil {
		return false
	}
	i := slices.IndexFunc(job.Tasks, func(x status.TaskStatus) bool { return x.Name == name })
	return i >= 0 && job.Tasks[i].State == status.TaskStopping
}

// stops takes in that a task begins to stop, which the directory has had as was; nil if it has not. Of one
// that was ready, set finds that out.
func (t *turn) stops(task *status.TaskStatus, was *schema.DirectoryTask) {
	is := schema.UnlistedTask{Task: task.Name, Generation: task.Generation}
	switch {
	case t.version == 0: // a master before this one may have had it as ready
		t.unlisted[task.Machine] = append(t.unlisted[task.Machine], is)
	case was == nil || !was.Ready || was.Machine != task.Machine:
		t.idle[task.Machine] = append(t.idle[task.Machine], is)
	}
}

// split returns the user and the job of user/job.
func split(name string) (user, job string) {
	user, job, _ = strings.Cut(name, "/")
	return user, job
}

// indexOf returns the index of user/job/index.
func indexOf(task string) int {
	n, _ := strconv.Atoi(task[strings.LastIndexByte(task, '/')+1:]) // as the master has written it
	return n
}

// task returns a task as the directory has it, under a key, and of which generation that is; false if it is nowhere.
func (t *turn) task(job, key string, index int, s *status.TaskStatus) (x schema.DirectoryTask, generation uint64, ok bool) {
	if s.Machine == "" || s.State == status.TaskDone || s.State == status.TaskDead {
		return schema.DirectoryTask{}, 0, false
	}
	address, _ := netip.ParseAddr(s.Address)
	address6, _ := netip.ParseAddr(s.Address6)
	x = schema.DirectoryTask{Index: index, Machine: s.Machine, Address: address, Address6: address6, Ports: s.Ports, Ready: s.Works()}
	if s.State != status.TaskUnknown || !t.inDoubt(s.Machine) {
		return x, s.Generation, true
	}
	t.doubted[job] = true
	e := t.entries[key]
	if was, generation := e.find(index); was != nil && was.Machine == x.Machine {
		return *was, generation, true
	}
	return x, s.Generation, true
}

// find returns the task with an index, and its generation; nil if there is none.
func (e *entry) find(index int) (*schema.DirectoryTask, uint64) {
	if e.tasks == nil {
		return nil, 0
	}
	i, ok := slices.BinarySearchFunc(e.tasks.Tasks, index, func(x schema.DirectoryTask, index int) int { return x.Index - index })
	if !ok {
		return nil, 0
	}
	return &e.tasks.Tasks[i], e.generations[i]
}

// set sets the entry of a key, or removes it with nil. Of tasks it is said of which generations they are.
func (t *turn) set(key string, e *schema.DirectoryEntry, generations []uint64) {
	was, there := t.entries[key]
	if e == nil && !there {
		return
	}
	s := &t.shards[schema.DirectoryShard(key)]
	if s.keys == nil {
		s.keys = map[string]struct{}{}
	}
	var is entry
	if e != nil {
		is = entry{text: schema.Canonical(e), tasks: e.Tasks, generations: generations}
		is.digest = schema.DirectoryDigestOf(is.text)
		if there && is.digest == was.digest {
			t.entries[key] = is // a generation may be another
			return
		}
		t.entries[key], s.keys[key] = is, struct{}{}
		s.digest = s.digest.Plus(is.digest)
	} else {
		delete(t.entries, key)
		delete(s.keys, key)
	}
	s.digest = s.digest.Minus(was.digest) // of none it is zero
	t.changed = append(t.changed, key)
	if was.tasks == nil {
		return
	}
	for i := range was.tasks.Tasks {
		old := &was.tasks.Tasks[i]
		if now, _ := is.find(old.Index); old.Ready && (now == nil || !now.Ready || now.Machine != old.Machine || !now.At(old.Address) || old.Address6.IsValid() && !now.At(old.Address6)) {
			t.unlisted[old.Machine] = append(t.unlisted[old.Machine], schema.UnlistedTask{
				Task: fmt.Sprintf("%s/%s/%d", was.tasks.User, was.tasks.Job, old.Index), Generation: was.generations[i],
			})
		}
	}
}

// lists reports whether a task is ready on a machine.
func (b *Book) lists(machine, task string) bool {
	job := model.JobOf(task)
	user, name := split(job)
	index := indexOf(task)
	e := b.entries[(&schema.DirectoryEntry{Tasks: &schema.DirectoryTasks{User: user, Job: name, Part: index / schema.DirectoryPart}}).Key()]
	x, _ := e.find(index)
	return x != nil && x.Ready && x.Machine == machine
}

// changedSince reports whether one of some keys may have changed since a version.
func (b *Book) changedSince(version uint64, of func(key string) bool) bool {
	if version < b.floor || version == 0 {
		return true // so much is not kept, or it is not known what the reader has
	}
	at := sort.Search(len(b.log), func(i int) bool { return b.log[i].version > version })
	return slices.ContainsFunc(b.log[at:], func(l logged) bool { return of(l.key) })
}

// Since returns what leads from a version to the newest; false if so much is not kept, or the
// version is none of this book's.
func (b *Book) Since(version uint64) (schema.DirectoryUpdate, bool) {
	if version < b.floor || version > b.version || version == 0 {
		return schema.DirectoryUpdate{}, false
	}
	at := sort.Search(len(b.log), func(i int) bool { return b.log[i].version > version })
	c := schema.DirectoryUpdate{Version: b.version}
	seen := make(map[string]struct{}, len(b.log)-at)
	for _, l := range b.log[at:] {
		if _, again := seen[l.key]; again {
			continue
		}
		seen[l.key] = struct{}{}
		if e, ok := b.entries[l.key]; ok {
			c.Set = append(c.Set, e.text)
		} else {
			c.Removed = append(c.Removed, l.key)
		}
	}
	return c, true
}

// From returns what leads to the newest version from a directory with the given digests.
func (b *Book) From(have *schema.DirectoryDigests) schema.DirectoryUpdate {
	c := schema.DirectoryUpdate{Version: b.version}
	for i := range b.shards {
		s := &b.shards[i]
		if s.digest == have[i] {
			continue
		}
		c.Shards = append(c.Shards, i)
		for _, key := range slices.Sorted(maps.Keys(s.keys)) {
			c.Set = append(c.Set, b.entries[key].text)
		}
	}
	return c
}
