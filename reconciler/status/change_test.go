package status_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// TestChangeMakesTheNext: whatever a cell comes to be, the change to it makes it of what
// it was, over JSON; and it is of no other.
func TestChangeMakesTheNext(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		var was, copied *status.Snapshot
		for version := uint64(1); version < 30; version++ {
			is := status.SnapshotOf(cellOf(r, version))
			b, err := json.Marshal(status.ChangeOf(was, is))
			if err != nil {
				t.Fatal(err)
			}
			var c status.Change
			if err := json.Unmarshal(b, &c); err != nil {
				t.Fatal(err)
			}
			next, err := copied.Changed(&c)
			if err != nil {
				t.Fatalf("seed %d, version %d: %v", seed, version, err)
			}
			if diff := cmp.Diff(is.Whole(), next.Whole()); diff != "" {
				t.Fatalf("seed %d, version %d (-want +got):\n%s", seed, version, diff)
			}
			for job := range next.Jobs() {
				if next.Part(job.Name) == nil {
					t.Fatalf("seed %d: job %s is not found", seed, job.Name)
				}
			}
			if _, err := next.Changed(&c); version > 1 && err == nil {
				t.Fatalf("seed %d, version %d: the change was applied twice", seed, version)
			}
			was, copied = is, next
		}
	}
}

// TestChangeOfOneTask: the change of one task carries that task, and shares the rest.
func TestChangeOfOneTask(t *testing.T) {
	t.Parallel()
	s := cellOf(rand.New(rand.NewPCG(1, 1)), 1)
	s.Jobs, s.Tasks = []status.JobStatus{{Name: "u/a"}, {Name: "u/b"}}, nil
	for _, job := range []string{"u/a", "u/b"} {
		for i := range 100 {
			s.Tasks = append(s.Tasks, status.TaskStatus{Name: fmt.Sprintf("%s/%d", job, i)})
		}
	}
	was := status.SnapshotOf(s)
	next := *s
	next.Version, next.Tasks = 2, append([]status.TaskStatus{}, s.Tasks...)
	next.Tasks[150].State = status.TaskFailed
	c := status.ChangeOf(was, status.SnapshotOf(&next))
	if len(c.Jobs) != 1 || c.Jobs[0].Job != nil || len(c.Jobs[0].Tasks) != 1 || c.Jobs[0].Tasks[0].Name != "u/b/50" || len(c.Machines) != 0 {
		t.Errorf("the change of one task is %+v", c)
	}
	after, err := was.Changed(c)
	if err != nil {
		t.Fatal(err)
	}
	if after.Parts()[0] != was.Parts()[0] {
		t.Error("a job that is the same is not shared")
	}
}

// cellOf returns a cell in which anything may be.
func cellOf(r *rand.Rand, version uint64) *status.Status {
	s := &status.Status{Cell: "c", Version: version, At: time.Unix(int64(version), 0).UTC(), Waiting: []string{fmt.Sprint(r.IntN(3))}, Jobs: []status.JobStatus{}, Machines: []status.MachineStatus{}, Tasks: []status.TaskStatus{}}
	for j := range 5 {
		if r.IntN(4) == 0 {
			continue
		}
		name := fmt.Sprintf("u/j%d", j)
		s.Jobs = append(s.Jobs, status.JobStatus{Name: name, Desired: r.IntN(2)})
		for i := range 12 {
			if r.IntN(3) > 0 {
				s.Tasks = append(s.Tasks, status.TaskStatus{Name: fmt.Sprintf("%s/%d", name, i), Restarts: r.IntN(2), Ports: schema.PortsOf(map[string]int{"http": r.IntN(2)})})
			}
		}
	}
	for i := range 11 {
		if r.IntN(3) > 0 {
			s.Machines = append(s.Machines, status.MachineStatus{Name: fmt.Sprintf("m%02d", i), Tasks: r.IntN(2)})
		}
	}
	return s
}
