package naming

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

var t0 = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

// task is a task that runs on a machine, and has a port.
func task(name, machine string) status.TaskStatus {
	return status.TaskStatus{Name: name, Generation: 7, State: status.TaskRunning, Machine: machine, Address: "10.0.0." + machine[1:], Ports: schema.PortsOf(map[string]int{"http": 80})}
}

// of7 are tasks of generation 7, as task makes them.
func of7(tasks ...string) []schema.UnlistedTask {
	var out []schema.UnlistedTask
	for _, t := range tasks {
		out = append(out, schema.UnlistedTask{Task: t, Generation: 7})
	}
	return out
}

func machine(name, health string) status.MachineStatus {
	return status.MachineStatus{Name: name, Health: health, Address: "10.0.0." + name[1:]}
}

func cell(machines []status.MachineStatus, tasks ...status.TaskStatus) *status.Snapshot {
	return status.SnapshotOf(&status.Status{Cell: "local", Machines: machines, Tasks: tasks, Jobs: []status.JobStatus{{Name: "ann/web", Labels: map[string]string{"tier": "front"}}}})
}

// listed describes what a reader has, as TASK@MACHINE, with ! for one that is not ready.
func listed(t *testing.T, entries map[string][]byte) []string {
	t.Helper()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		var e schema.DirectoryEntry
		if err := json.Unmarshal(entries[key], &e); err != nil || e.Key() != key {
			t.Fatalf("entry %s under %s: %v", entries[key], key, err)
		}
		for _, x := range tasksOf(&e) {
			ready := map[bool]string{false: "!"}[x.Ready]
			out = append(out, fmt.Sprintf("%s%s/%d@%s", ready, e.Tasks.Job, x.Index, x.Machine))
		}
	}
	return out
}

func tasksOf(e *schema.DirectoryEntry) []schema.DirectoryTask {
	if e.Tasks == nil {
		return nil
	}
	return e.Tasks.Tasks
}

// apply has entries be what an update leads to.
func apply(entries map[string][]byte, u schema.DirectoryUpdate) {
	maps.DeleteFunc(entries, func(key string, _ []byte) bool { return slices.Contains(u.Shards, schema.DirectoryShard(key)) })
	for _, key := range u.Removed {
		delete(entries, key)
	}
	for _, text := range u.Set {
		var e schema.DirectoryEntry
		_ = json.Unmarshal(text, &e) // listed errs
		entries[e.Key()] = text
	}
}

func TestBook(t *testing.T) {
	t.Parallel()
	up := []status.MachineStatus{machine("m1", "up"), machine("m2", "up")}
	silent := []status.MachineStatus{machine("m1", "up"), machine("m2", "silent")}
	stopping, unknown := task("ann/web/1", "m2"), task("ann/web/1", "m2")
	stopping.State, unknown.State = status.TaskStopping, status.TaskUnknown
	starting := task("ann/web/1", "m2")
	starting.Health = schema.HealthUnknown
	steps := []struct {
		what  string
		cell  *status.Snapshot
		after time.Duration // since the step before
		want  []string
		gone  []Unlisted
		again time.Duration
	}{
		{"both run", cell(up, task("ann/web/0", "m1"), task("ann/web/1", "m2")), 0, []string{"web/0@m1", "web/1@m2"}, nil, 0},
		{"one stops", cell(up, task("ann/web/0", "m1"), stopping), 1, []string{"web/0@m1", "!web/1@m2"}, []Unlisted{{2, "m2", of7("ann/web/1")}}, 0},
		{"it is gone", cell(up, task("ann/web/0", "m1")), 1, []string{"web/0@m1"}, nil, 0},
		{"it starts", cell(up, task("ann/web/0", "m1"), starting), 1, []string{"web/0@m1", "!web/1@m2"}, nil, 0},
		{"it is ready", cell(up, task("ann/web/0", "m1"), task("ann/web/1", "m2")), 1, []string{"web/0@m1", "web/1@m2"}, nil, 0},
		{"its machine is silent", cell(silent, task("ann/web/0", "m1"), unknown), 1, []string{"web/0@m1", "web/1@m2"}, nil, Doubt},
		{"for long", cell(silent, task("ann/web/0", "m1"), unknown), Doubt, []string{"web/0@m1", "!web/1@m2"}, []Unlisted{{6, "m2", of7("ann/web/1")}}, 0},
		{"it speaks", cell(up, task("ann/web/0", "m1"), task("ann/web/1", "m2")), 1, []string{"web/0@m1", "web/1@m2"}, nil, 0},
		{"the task moves", cell(up, task("ann/web/0", "m1"), task("ann/web/1", "m1")), 1, []string{"web/0@m1", "web/1@m1"}, []Unlisted{{8, "m2", of7("ann/web/1")}}, 0},
		{"the job is removed", cell(up), 1, nil, []Unlisted{{9, "m1", of7("ann/web/0", "ann/web/1")}}, 0},
	}
	var b Book
	now, at, have := t0, uint64(0), map[string][]byte{}
	for _, s := range steps {
		now = now.Add(s.after)
		gone, again := b.Take(s.cell, now)
		u, ok := b.Since(at)
		if !ok {
			u = b.From(&schema.DirectoryDigests{})
		}
		apply(have, u)
		at = u.Version
		if diff := cmp.Diff(s.want, listed(t, have)); diff != "" {
			t.Errorf("%s: -want +got\n%s", s.what, diff)
		}
		if diff := cmp.Diff(s.gone, gone); diff != "" {
			t.Errorf("%s: unlisted: -want +got\n%s", s.what, diff)
		}
		if want := now.Add(s.again); s.again == 0 && !again.IsZero() || s.again != 0 && !again.Equal(want) {
			t.Errorf("%s: again at %v, want %v", s.what, again, want)
		}
	}
}

// TestBookBegins: a master that begins to lead, and has no report of a machine, says nothing before
// it has one, so that what agents have stands.
func TestBookBegins(t *testing.T) {
	t.Parallel()
	unknown := task("ann/web/0", "m1")
	unknown.State = status.TaskUnknown
	silent := cell([]status.MachineStatus{machine("m1", "silent")}, unknown)
	var b Book
	if _, again := b.Take(silent, t0); b.Version() != 0 || !again.Equal(t0.Add(Doubt)) {
		t.Errorf("version %d, again at %v", b.Version(), again)
	}
	lost := b
	if _, again := lost.Take(silent, t0.Add(Doubt)); lost.Version() != 1 || !again.IsZero() {
		t.Errorf("of a machine that stays silent: version %d, again at %v", lost.Version(), again)
	}
	var c Book
	c.Take(silent, t0)
	if c.Take(cell([]status.MachineStatus{machine("m1", "up")}, task("ann/web/0", "m1")), t0.Add(1)); c.Version() != 1 {
		t.Errorf("of a machine that has reported: version %d", c.Version())
	}
	// What was known last is not what is.
	none := status.SnapshotOf(&status.Status{MasterStatus: status.MasterStatus{Master: &status.Absence{}}})
	if c.Take(none, t0.Add(2)); c.Version() != 1 {
		t.Errorf("of a master without a cell: version %d", c.Version())
	}
}

func listedAs(b *Book) *schema.DirectoryTask {
	e := b.entries["tasks/ann/web/0"]
	x, _ := e.find(0)
	return x
}

// TestBookGenerations: what is said of a task is of the generation that was listed, also when another has followed on
// the machine.
func TestBookGenerations(t *testing.T) {
	t.Parallel()
	up := []status.MachineStatus{machine("m1", "up")}
	of := func(generation uint64, state status.TaskState) status.TaskStatus {
		x := task("ann/web/0", "m1")
		x.Generation, x.State = generation, state
		return x
	}
	var b Book
	for i, step := range []struct {
		is   status.TaskStatus
		gone []Unlisted
	}{
		{of(7, status.TaskRunning), nil},
		{of(8, status.TaskStarting), []Unlisted{{2, "m1", of7("ann/web/0")}}},
		{of(8, status.TaskStopping), []Unlisted{{0, "m1", []schema.UnlistedTask{{Task: "ann/web/0", Generation: 8}}}}},
		{of(9, status.TaskRunning), nil},
		{of(10, status.TaskRunning), nil}, // nobody sees a difference
		{of(10, status.TaskStopping), []Unlisted{{4, "m1", []schema.UnlistedTask{{Task: "ann/web/0", Generation: 10}}}}},
	} {
		gone, _ := b.Take(cell(up, step.is), t0.Add(time.Duration(i)*time.Second))
		if diff := cmp.Diff(step.gone, gone); diff != "" {
			t.Errorf("step %d: -want +got\n%s", i, diff)
		}
	}
}

// TestBookTwoFamilies: a task is listed with both of its addresses, and is not what it was when it loses one.
func TestBookTwoFamilies(t *testing.T) {
	t.Parallel()
	up := []status.MachineStatus{machine("m1", "up")}
	at := func(v6 string) status.TaskStatus {
		x := task("ann/web/0", "m1")
		x.Address6 = v6
		return x
	}
	var b Book
	for i, step := range []struct {
		v6   string
		gone bool
	}{{"", false}, {"fd00::1", false}, {"fd00::2", true}, {"", true}} {
		gone, _ := b.Take(cell(up, at(step.v6)), t0.Add(time.Duration(i)*time.Second))
		if len(gone) > 0 != step.gone {
			t.Errorf("at %q: gone %v", step.v6, gone)
		}
		want, _ := netip.ParseAddr(step.v6)
		if got := listedAs(&b); got == nil || got.Address != netip.MustParseAddr("10.0.0.1") || got.Address6 != want {
			t.Errorf("at %q: listed as %+v", step.v6, got)
		}
	}
}

// TestBookRandom: whoever follows has what one has who reads it all, and a digest says so.
func TestBookRandom(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var b Book
	have, at := map[string][]byte{}, uint64(0)
	for step := range 300 {
		machines := []status.MachineStatus{machine("m1", "up"), machine("m2", []string{"up", "silent", "lost"}[rng.IntN(3)])}
		var tasks []status.TaskStatus
		for i := range 200 {
			x := task(fmt.Sprintf("ann/web/%d", i), fmt.Sprintf("m%d", 1+rng.IntN(2)))
			if rng.IntN(10) == 0 {
				x.State = []status.TaskState{status.TaskStarting, status.TaskDone, status.TaskUnknown}[rng.IntN(3)]
			}
			if rng.IntN(20) > 0 && (step%10 > 2 || i > 70) {
				tasks = append(tasks, x)
			}
		}
		b.Take(cell(machines, tasks...), t0.Add(time.Duration(step)*time.Second))
		if rng.IntN(3) == 0 {
			continue // the reader is slow
		}
		u, ok := b.Since(at)
		if !ok {
			u = b.From(&schema.DirectoryDigests{})
		}
		apply(have, u)
		if u.Version > 0 {
			at = u.Version
		}
		all := map[string][]byte{}
		apply(all, b.From(&schema.DirectoryDigests{}))
		if at == 0 {
			continue
		}
		var digests schema.DirectoryDigests
		for key, text := range have {
			i := schema.DirectoryShard(key)
			digests[i] = digests[i].Plus(schema.DirectoryDigestOf(text))
		}
		if rest := b.From(&digests); len(rest.Shards) > 0 || !maps.EqualFunc(all, have, slices.Equal[[]byte]) {
			t.Fatalf("step %d: the follower has other entries: shards %v, %d and %d", step, rest.Shards, len(have), len(all))
		}
	}
}
