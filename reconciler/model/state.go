package model

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// The documents of a cell, by the first part of their key. The store adds the
// cell's prefix. Those of reconciler/pki, token/ and member/, are no part of the
// State.
const (
	KeyCounter = "counter"  // the last generation given
	KeyHead    = "head"     // schema.Head
	KeyPackage = "package/" // + digest: schema.Package
	KeyData    = "data/"    // + digest: schema.Job
	KeyJob     = "job/"     // + user/job: schema.JobRecord
	KeyChunk   = "chunk/"   // + user/job/number: schema.Chunk
	KeyMachine = "machine/" // + name: schema.MachineRecord
	KeyLoss    = "loss"     // schema.LossRecord
	KeyMoves   = "moves"    // schema.MovesRecord
	KeyGone    = "gone"     // schema.ForgottenRecord
	KeySuspend = "suspend/" // + user/job, or all: schema.Suspension
	KeyRestart = "restart/" // + user/job or user/job/index: schema.RestartRequest

	KeyService = "service/" // + user/name: schema.ServiceRecord

	KeySecrets = "secrets" // schema.SecretsRecord

	KeyRestored = "restored" // schema.Restored, of a cell that was restored from a snapshot
)

// State is what the store holds of a cell: desired, assigned and progress. Its
// documents are never written to; Apply replaces them.
type State struct {
	Cell     string
	Counter  uint64 // the last generation given
	Head     schema.Head
	Packages map[schema.Digest]*schema.Package
	Data     map[schema.Digest]*schema.Job
	Jobs     map[schema.JobName]*schema.JobRecord
	Chunks   map[ChunkName]*schema.Chunk
	Machines map[string]*schema.MachineRecord
	counted
	// Suspensions are those that last, by name.
	Suspensions map[string]*schema.Suspension
	// Restarts are those in progress, and those that have failed, by name.
	Restarts map[string]*schema.RestartRequest
	// Services are the records of services, by USER/NAME.
	Services map[string]*schema.ServiceRecord
	// Secrets is empty in a cell that never had any.
	Secrets schema.SecretsRecord
	// Restored is nil in a cell that never was.
	Restored *schema.Restored

	decoded
	// Desires counts the changes of what intent.Of is a function of: that is the same for
	// as long as this is.
	Desires uint64
	// Records counts the changes of what admission is a function of in the records of jobs
	// (see Standing) and of machines, of which it is their capacity.
	Records uint64
	// Addressed counts the changes of Services.
	Addressed uint64

	// Indexes of Chunks: by machine, and by job how many chunks its records span; and of Data
	// by job, sorted. The lists are never written to.
	holders holders
	dataOf  map[schema.JobName][]schema.Digest
	orphans map[schema.JobName]bool // of which there is data, and nothing else
	spans   map[schema.JobName]int

	written  Log[schema.JobName] // of which documents were replaced
	machines Log[string]         // whose records were
	ids      map[string][]string // names of machines by the id of their agents, sorted; the lists are never written to
}

// counted is what the cell counts as a whole.
type counted struct {
	Loss  schema.LossRecord
	Moves schema.MovesRecord
	Gone  schema.ForgottenRecord // of machines that were forgotten
}

// decoded is what is known of documents beside what they say.
type decoded struct {
	unknown map[string]*schema.Unknown      // of documents, by key; those without are absent
	known   map[schema.Digest]schema.Digest // of data with unknown fields: the digest of what is known of it
	heavy   map[schema.Digest]int           // of data that no machine can be sent: how many bytes it has
	ahead   document                        // what Load has read already of the document that is applied
}

// ChunkName identifies a chunk of a job's task records.
type ChunkName struct {
	Job    schema.JobName
	Number int
}

// Snapshot returns the state as it is now, for readers in other goroutines: Apply does
// not change it. It costs what the number of documents does.
func (s *State) Snapshot() *State {
	out := *s
	out.Packages, out.Data, out.Jobs, out.Chunks = maps.Clone(s.Packages), maps.Clone(s.Data), maps.Clone(s.Jobs), maps.Clone(s.Chunks)
	out.Machines, out.Suspensions, out.Restarts = maps.Clone(s.Machines), maps.Clone(s.Suspensions), maps.Clone(s.Restarts)
	out.Services = maps.Clone(s.Services)
	out.unknown, out.known, out.heavy = maps.Clone(s.unknown), maps.Clone(s.known), maps.Clone(s.heavy)
	out.holders, out.spans = maps.Clone(s.holders), maps.Clone(s.spans)
	out.ids, out.dataOf, out.orphans = maps.Clone(s.ids), maps.Clone(s.dataOf), maps.Clone(s.orphans)
	return &out
}

// NewState returns the state of a cell of which nothing is stored.
func NewState(cell string) *State {
	return &State{
		Cell: cell, Packages: map[schema.Digest]*schema.Package{}, Data: map[schema.Digest]*schema.Job{},
		Jobs: map[schema.JobName]*schema.JobRecord{}, Chunks: map[ChunkName]*schema.Chunk{}, Machines: map[string]*schema.MachineRecord{},
		Suspensions: map[string]*schema.Suspension{}, Restarts: map[string]*schema.RestartRequest{}, Services: map[string]*schema.ServiceRecord{},
		decoded: decoded{unknown: map[string]*schema.Unknown{}, known: map[schema.Digest]schema.Digest{}, heavy: map[schema.Digest]int{}},
		holders: holders{}, spans: map[schema.JobName]int{}, ids: map[string][]string{},
		dataOf: map[schema.JobName][]schema.Digest{}, orphans: map[schema.JobName]bool{},
	}
}

// Apply makes the state hold what the store has taken.
func (s *State) Apply(writes []Write) error {
	for _, w := range writes {
		if err := s.apply(w); err != nil {
			return fmt.Errorf("document %s: %w", w.Key, err)
		}
	}
	return nil
}

// Document returns the write that stores v at key. What a later release wrote
// there beyond what this one knows stays.
func (s *State) Document(key string, v any) Write { return Write{key, s.unknown[key].Encode(v)} }

// decode reads the document of a write into v.
func (s *State) decode(w Write, v any) error {
	u, err := s.ahead.unknown, s.ahead.err
	if s.ahead.v == nil {
		u, err = schema.Decode(w.Value, v)
	}
	if u == nil {
		delete(s.unknown, w.Key)
	} else {
		s.unknown[w.Key] = u
	}
	return err
}

func (s *State) applyPackage(digest schema.Digest, w Write) error {
	s.Desires++
	return put(s, s.Packages, digest, w)
}

// applySingle takes a record into v, which is deleted when it is empty.
func applySingle[T any](s *State, w Write, v *T) error {
	*v = *new(T)
	if w.Value == nil {
		delete(s.unknown, w.Key)
		return nil
	}
	return s.decode(w, v)
}

func (s *State) apply(w Write) error {
	kind, name, _ := strings.Cut(w.Key, "/")
	switch kind + "/" {
	case KeyCounter + "/":
		return s.decode(w, &s.Counter)
	case KeyLoss + "/":
		return applySingle(s, w, &s.Loss)
	case KeyMoves + "/":
		return applySingle(s, w, &s.Moves)
	case KeyGone + "/":
		return s.decode(w, &s.Gone)
	case KeyHead + "/":
		var h schema.Head
		err := s.decode(w, &h)
		if !maps.Equal(h.Packages, s.Head.Packages) || h.Held != nil || s.Head.Held != nil {
			s.Desires++
		}
		s.Head = h
		return err
	case KeySecrets + "/":
		return applySingle(s, w, &s.Secrets)
	case KeyRestored + "/":
		s.Restored = new(schema.Restored)
		return s.decode(w, s.Restored)
	case KeyPackage:
		return s.applyPackage(schema.Digest(name), w)
	case KeyData:
		return s.applyData(schema.Digest(name), w)
	case KeyMachine:
		return s.applyMachine(name, w)
	case KeySuspend:
		s.Desires++
		return putOfJob(s, s.Suspensions, name, w)
	case KeyRestart:
		return putOfJob(s, s.Restarts, name, w)
	case KeyService:
		return s.applyService(name, w)
	case KeyJob:
		return s.applyJob(name, w)
	case KeyChunk:
		key, err := parseChunkName(s.Cell, name)
		if err != nil {
			return err
		}
		s.written.Add(key.Job, len(s.Jobs))
		was := s.Chunks[key]
		err = put(s, s.Chunks, key, w)
		s.compact(s.Chunks[key])
		s.holders.replace(key, was, s.Chunks[key])
		s.measure(key.Job, key.Number)
		s.findOrphan(key.Job)
		return err
	}
	return nil
}

// compact has a chunk that was read take no more memory than it must: most of a large cell
// is records of tasks. c may be nil.
func (s *State) compact(c *schema.Chunk) {
	if c == nil {
		return
	}
	c.Tasks = slices.Clone(c.Tasks)
	data := schema.Digest("")
	for i := range c.Tasks {
		t := &c.Tasks[i]
		if m := s.Machines[t.Machine]; m != nil {
			t.Machine = m.Name
		}
		if t.Data == data {
			t.Data = data
		}
		data = t.Data
	}
}

// applyService takes the record of the service with the given name, user/name.
func (s *State) applyService(name string, w Write) error {
	s.Addressed++
	return put(s, s.Services, name, w)
}

// applyJob takes the record of the job with the given short name.
func (s *State) applyJob(name string, w Write) error {
	job, err := schema.ParseJobName(s.Cell + "/" + name)
	if err != nil {
		return err
	}
	if s.Head.Held != nil || len(s.Suspensions) > 0 { // what a kept job runs is what is wanted
		s.Desires++
	}
	s.written.Add(job, len(s.Jobs))
	was := s.Jobs[job]
	err = put(s, s.Jobs, job, w)
	s.findOrphan(job)
	if StandingOf(was) != StandingOf(s.Jobs[job]) {
		s.Records++
	}
	return err
}

// applyMachine takes the record of a machine.
func (s *State) applyMachine(name string, w Write) error {
	s.machines.Add(name, len(s.Machines))
	was := s.Machines[name]
	if was != nil && was.ID != "" {
		s.ids[was.ID] = slices.DeleteFunc(slices.Clone(s.ids[was.ID]), func(n string) bool { return n == name })
		if len(s.ids[was.ID]) == 0 {
			delete(s.ids, was.ID)
		}
	}
	err := put(s, s.Machines, name, w)
	is := s.Machines[name]
	if was == nil || is == nil || was.Capacity != is.Capacity {
		s.Records++
	}
	if is != nil && is.ID != "" {
		at, _ := slices.BinarySearch(s.ids[is.ID], name)
		s.ids[is.ID] = slices.Insert(slices.Clone(s.ids[is.ID]), at, name)
	}
	return err
}

// applyData takes job data. Machines get what this release knows of it, which
// has another digest when a later one wrote it.
func (s *State) applyData(digest schema.Digest, w Write) error {
	delete(s.known, digest)
	delete(s.heavy, digest)
	was := s.Data[digest]
	err := put(s, s.Data, digest, w)
	for _, j := range []*schema.Job{was, s.Data[digest]} {
		if j != nil {
			s.indexData(j.ID(), digest)
		}
	}
	if err != nil {
		return err
	}
	if s.unknown[w.Key] != nil {
		s.known[digest] = schema.DigestOf(s.Data[digest])
	}
	if len(w.Value) > schema.MaxJobData {
		if n := len(schema.Canonical(s.Data[digest])); n > schema.MaxJobData {
			s.heavy[digest] = n
		}
	}
	return nil
}

// Heavy returns how many bytes job data has that no machine can be sent, since it is larger
// than schema.MaxJobData; 0 for all other. An earlier release let such a job in.
func (s *State) Heavy(digest schema.Digest) int { return s.heavy[digest] }

// indexData takes that data of a job, with the given digest, has come or gone.
func (s *State) indexData(job schema.JobName, digest schema.Digest) {
	list := slices.DeleteFunc(slices.Clone(s.dataOf[job]), func(d schema.Digest) bool { return d == digest })
	if is := s.Data[digest]; is != nil && is.ID() == job {
		at, _ := slices.BinarySearch(list, digest)
		list = slices.Insert(list, at, digest)
	}
	if s.dataOf[job] = list; len(list) == 0 {
		delete(s.dataOf, job)
	}
	s.findOrphan(job)
}

// findOrphan finds out whether there is data of a job, and nothing else.
func (s *State) findOrphan(job schema.JobName) {
	if len(s.dataOf[job]) > 0 && s.Jobs[job] == nil && s.spans[job] == 0 {
		s.orphans[job] = true
	} else {
		delete(s.orphans, job)
	}
}

// put decodes the document of w into m, or deletes key when it has none.
func put[K comparable, V any](s *State, m map[K]*V, key K, w Write) error {
	if w.Value == nil {
		delete(m, key)
		delete(s.unknown, w.Key)
		return nil
	}
	v, read := s.ahead.v.(*V)
	if !read {
		v = new(V)
	}
	if err := s.decode(w, v); err != nil {
		return err
	}
	m[key] = v
	return nil
}

// putOfJob is put of a document of a job, or of a task, that is its name.
func putOfJob[V any](s *State, m map[string]*V, name string, w Write) error {
	job, _, _ := SplitName(s.Cell, name)
	s.written.Add(job, len(s.Jobs))
	return put(s, m, name, w)
}

// check errs when a document refers to one that is not there.
func (s *State) check() error {
	for _, dir := range slices.Sorted(maps.Keys(s.Head.Packages)) {
		if d := s.Head.Packages[dir]; s.Packages[d] == nil {
			return fmt.Errorf("head refers to package %s of %s, which is not stored", d, dir)
		}
	}
	for name, j := range s.Jobs {
		if j.Admitted != "" && s.Data[j.Admitted] == nil {
			return fmt.Errorf("job %s refers to data %s, which is not stored", name, j.Admitted)
		}
		if j.Good != "" && s.Data[j.Good] == nil {
			return fmt.Errorf("job %s refers to data %s, which is not stored", name, j.Good)
		}
	}
	for name, c := range s.Chunks {
		for i := range c.Tasks {
			if d := c.Tasks[i].Data; d != "" && s.Data[d] == nil {
				return fmt.Errorf("task %s refers to data %s, which is not stored", name.Job.Task(c.Tasks[i].Index), d)
			}
		}
	}
	return nil
}

// Record returns the record of a task, nil if there is none.
func (s *State) Record(t schema.TaskName) *schema.TaskRecord {
	c := s.Chunks[ChunkName{t.JobName, t.Index / schema.ChunkSize}]
	if c == nil {
		return nil
	}
	i, ok := SearchTask(c, t.Index)
	if !ok {
		return nil
	}
	return &c.Tasks[i]
}

// Locate returns the machine of a run of a task that its record has, "" if there is none:
// of the oldest generation from the given one on, or, with 0 or if there is none of these,
// of the newest.
func (s *State) Locate(t schema.TaskName, from uint64) string {
	r := s.Record(t)
	if r == nil {
		return ""
	}
	for i := range r.Causes {
		if c := &r.Causes[i]; from > 0 && c.Generation >= from && c.Machine != "" {
			return c.Machine
		}
	}
	if r.Machine != "" || len(r.Causes) == 0 {
		return r.Machine
	}
	return r.Causes[len(r.Causes)-1].Machine
}

// SearchTask returns where the record of index is in c, or belongs. In most chunks no task is
// missing.
func SearchTask(c *schema.Chunk, index int) (int, bool) {
	if at := index % schema.ChunkSize; at >= 0 && at < len(c.Tasks) && c.Tasks[at].Index == index {
		return at, true
	}
	return slices.BinarySearchFunc(c.Tasks, index, func(r schema.TaskRecord, i int) int { return r.Index - i })
}

// ChunkNames returns the names of all chunks, sorted.
func (s *State) ChunkNames() []ChunkName {
	return slices.SortedFunc(maps.Keys(s.Chunks), ChunkName.Compare)
}

// Compare orders chunks by job and number.
func (n ChunkName) Compare(o ChunkName) int {
	return cmp.Or(n.Job.Compare(o.Job), cmp.Compare(n.Number, o.Number))
}

// WrittenSince returns the jobs of which documents were written (their records, those of
// their tasks, and what putOfJob takes) since an earlier call returned next, 0 for the
// first; some may be there more than once. It is not ok if that is too long ago: any may
// have been. These jobs are looked at by the next step, and described again.
func (s *State) WrittenSince(last int) (names []schema.JobName, next int, ok bool) {
	return s.written.Since(last)
}

// MachinesWrittenSince is WrittenSince of the records of machines.
func (s *State) MachinesWrittenSince(last int) (names []string, next int, ok bool) {
	return s.machines.Since(last)
}

// MachinesWithID returns the names of the machines whose agents have an id, sorted; none
// for "".
func (s *State) MachinesWithID(id string) []string { return s.ids[id] }

// ChunksOn returns the chunks with a task that is assigned to a machine, sorted. They are
// not to be written to.
func (s *State) ChunksOn(machine string) []ChunkName { return s.holders[machine] }

// Span returns how many chunks the records of a job span: one more than the greatest
// number of one that is there.
func (s *State) Span(job schema.JobName) int { return s.spans[job] }

// ShareChunks has s have the chunks of another state of its cell. No other index knows of them.
func (s *State) ShareChunks(of *State) {
	maps.Copy(s.Chunks, of.Chunks)
	maps.Copy(s.spans, of.spans)
}

// DataOf returns the digests of the data that is stored of a job, sorted.
func (s *State) DataOf(job schema.JobName) []schema.Digest { return s.dataOf[job] }

// Orphans returns the jobs of which data is stored, and nothing else.
func (s *State) Orphans() iter.Seq[schema.JobName] { return maps.Keys(s.orphans) }

// JobsWithChunks returns the jobs that have chunks, in no order.
func (s *State) JobsWithChunks() []schema.JobName { return slices.Collect(maps.Keys(s.spans)) }

// JobsOn returns the jobs that have a task on a machine; one may be returned more than once.
func (s *State) JobsOn(machine string) iter.Seq[schema.JobName] {
	return func(yield func(schema.JobName) bool) {
		for _, name := range s.holders[machine] {
			if !yield(name.Job) {
				return
			}
		}
	}
}

// measure finds the span of a job, of which the chunk of a number has been written.
func (s *State) measure(job schema.JobName, number int) {
	span := max(s.spans[job], number+1)
	for span > 0 && s.Chunks[ChunkName{job, span - 1}] == nil {
		span--
	}
	if span == 0 {
		delete(s.spans, job)
		return
	}
	s.spans[job] = span
}

// JobNames returns the names of all jobs that have a record, sorted.
func (s *State) JobNames() []schema.JobName {
	return slices.SortedFunc(maps.Keys(s.Jobs), schema.JobName.Compare)
}

// Audit holds the indexes of data and of machines against the documents that they are of.
// It errs with the first difference. Tests and the simulation call it.
func (s *State) Audit() error {
	data, ids := map[schema.JobName][]schema.Digest{}, map[string][]string{}
	for _, digest := range slices.Sorted(maps.Keys(s.Data)) {
		job := s.Data[digest].ID()
		data[job] = append(data[job], digest)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Machines)) {
		if id := s.Machines[name].ID; id != "" {
			ids[id] = append(ids[id], name)
		}
	}
	orphans := maps.Clone(s.orphans)
	for job := range data {
		if s.Jobs[job] == nil && s.Span(job) == 0 {
			orphans[job] = !orphans[job]
		}
	}
	switch {
	case !maps.EqualFunc(s.dataOf, data, slices.Equal):
		return fmt.Errorf("the data of jobs is indexed as %v: want %v", s.dataOf, data)
	case !maps.EqualFunc(s.ids, ids, slices.Equal):
		return fmt.Errorf("the ids of machines are indexed as %v: want %v", s.ids, ids)
	}
	for job, wrong := range orphans {
		if wrong {
			return fmt.Errorf("whether job %s has data and nothing else is indexed as %t", job, s.orphans[job])
		}
	}
	return nil
}
