package sim

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

const (
	snapshotEvery = 100 // turns between two snapshots of the store
	snapshotsKept = 4
)

// snapshot is what the store held once, and what the world knew then of what it holds.
type snapshot struct {
	at       time.Time
	counter  uint64
	docs     map[string][]byte
	good     map[string]*schema.Package
	held     map[string]bool
	finished map[schema.TaskName]uint64
	rollouts map[schema.JobName]rollout
	proven   map[schema.JobName]map[string]bool
}

// keepSnapshot has the master that leads write a snapshot now and then.
func (w *World) keepSnapshot() {
	if w.turns%snapshotEvery != 0 || w.master == nil || w.now.Before(w.master.busy) {
		return
	}
	docs, err := w.master.store.Load(context.Background())
	if err != nil {
		w.violate("a snapshot: %v", err)
		return
	}
	delete(docs, "cell") // whose store it is says the store
	if w.turns%(4*snapshotEvery) == 0 {
		w.checkStored(docs)
	}
	o := &w.oracle
	s := snapshot{
		at: serialized(w.now), counter: w.master.state.Counter, docs: docs, good: maps.Clone(o.good), held: maps.Clone(o.held), finished: maps.Clone(o.finished),
		rollouts: map[schema.JobName]rollout{}, proven: map[schema.JobName]map[string]bool{},
	}
	for name, t := range o.rollouts {
		s.rollouts[name] = *t
	}
	for name, known := range o.proven {
		s.proven[name] = maps.Clone(known)
	}
	if w.snapshots = append(w.snapshots, s); len(w.snapshots) > snapshotsKept {
		w.snapshots = w.snapshots[1:]
	}
}

// checkStored: a master goes by what the store holds, all of it and nothing else.
func (w *World) checkStored(docs map[string][]byte) {
	stored, err := model.Load(cellName, docs, nil)
	if err != nil {
		w.violate("what is stored cannot be loaded: %v", err)
		return
	}
	has, want := reflect.ValueOf(stored).Elem(), reflect.ValueOf(w.master.state).Elem()
	for i := range has.NumField() {
		f := has.Type().Field(i)
		if f.IsExported() && f.Name != "Desires" && f.Name != "Records" && !reflect.DeepEqual(has.Field(i).Interface(), want.Field(i).Interface()) {
			w.violate("the master goes by other %s than are stored", f.Name)
		}
	}
}

// restores puts the store back to one of the last snapshots, as `muster master restore`
// does: the machines have moved on since.
func (w *World) restores(a Action) bool {
	if len(w.snapshots) == 0 {
		return false
	}
	s := w.snapshots[len(w.snapshots)-1-modulo(a.N, len(w.snapshots))]
	w.note("the store is put back to what it held at %s", s.at.Format(time.TimeOnly))
	w.endMaster()
	w.frozen, w.rival = nil, nil
	memory := store.NewMemory()
	if err := w.fill(memory, &s); err != nil {
		w.violate("restore: %v", err)
		return true
	}
	w.memory = memory
	w.memory.Hook(w.transaction)
	clear(w.txns)
	w.oracle.putBack(&s, w)
	return true
}

// fill is what reconciler/store does with a snapshot.
func (w *World) fill(memory *store.Memory, s *snapshot) error {
	ctx := context.Background()
	state, err := model.Load(cellName, s.docs, nil)
	if err != nil {
		return err
	}
	to, err := memory.Open(cellName)
	if err != nil {
		return err
	}
	if err := to.Campaign(ctx, "restore"); err != nil {
		return err
	}
	var writes []model.Write
	for _, key := range sortedKeys(s.docs) {
		writes = append(writes, model.Write{Key: key, Value: s.docs[key]})
	}
	for _, batch := range model.Batches(slices.Concat(writes, model.Restore(state, s.at, w.now))) {
		if err := to.Commit(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// putBack has the world know of the store what it knew when the snapshot was taken. Of
// what happened since, on machines, it goes on to know all.
func (o *oracle) putBack(s *snapshot, w *World) {
	finished := maps.Clone(s.finished)
	for task, g := range o.finished {
		if g > s.counter { // its machine may still report that it has finished; or it runs again
			finished[task], o.again[task] = g, true
		}
	}
	o.finished, o.good, o.held, o.next, o.nextID = finished, maps.Clone(s.good), maps.Clone(s.held), nil, ""
	o.rollouts, o.proven = map[schema.JobName]*rollout{}, map[schema.JobName]map[string]bool{}
	for name, t := range s.rollouts {
		o.rollouts[name] = &t
	}
	for name, known := range s.proven {
		o.proven[name] = maps.Clone(known)
	}
	o.durable, o.halfway, o.indexOn = &model.State{}, nil, nil
	clear(o.failed)
	clear(o.restarts)
	clear(o.returned)
	clear(o.cordoned)
	clear(o.gone)
	clear(o.stops)
	o.moves = nil
	maps.DeleteFunc(o.written, func(g uint64, _ time.Time) bool { return g <= s.counter }) // it is where the snapshot has it
	clear(o.later)
	for _, m := range w.machines { // what a store does not know of, it cannot wait for
		for _, r := range m.alive {
			o.unknown[r.of.assignment.Generation] = true
		}
	}
}

// survived reports whether a generation was taken over from its machine when the cell
// was restored.
func (w *World) survived(generation uint64) bool {
	r := w.master.state.Restored
	return r != nil && generation > r.Counter && generation <= r.Floor
}

// restoredBefore reports whether a generation is of before the restore of the cell, and
// its machine has nothing of it any more.
func (w *World) restoredBefore(generation uint64) bool {
	r := w.master.state.Restored
	return r != nil && generation <= r.Counter
}
