package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// using is a cell of users with so many jobs each, one task a job, of which each uses a
// thousandth of a core; and of what does not count.
func using(users, jobs int, now time.Time) (*model.State, *model.Observed) {
	s := &model.State{
		Machines: map[string]*schema.MachineRecord{"m1": {}},
		Chunks:   map[model.ChunkName]*schema.Chunk{}, Data: map[schema.Digest]*schema.Job{"d": {}},
	}
	o := model.NewObserved(now)
	u := &schema.MachineUsage{Machine: "m1"}
	for i := range users {
		for k := range jobs {
			name := schema.JobName{Cell: "c", User: fmt.Sprintf("u%04d", i), Job: fmt.Sprintf("j%04d", k)}
			s.Chunks[model.ChunkName{Job: name}] = &schema.Chunk{Job: name, Tasks: []schema.TaskRecord{{Machine: "m1", Generation: 7, Data: "d"}}}
			u.Tasks = append(u.Tasks,
				schema.TaskUsage{Task: name.Task(0), Generation: 7, Usage: schema.Usage{CPUMilli: 1, OOMKills: 2}},
				schema.TaskUsage{Task: name.Task(0), Generation: 6, Usage: schema.Usage{CPUMilli: 100}}, // the cell has moved on
				schema.TaskUsage{Task: name.Task(9), Generation: 7, Usage: schema.Usage{CPUMilli: 100}}, // there is no such task
			)
		}
	}
	o.AddUsage(u, now)
	elsewhere := *u
	elsewhere.Machine = "gone"
	o.AddUsage(&elsewhere, now)
	return s, o
}

func TestSumUsage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct {
		users, jobs int
		first       JobUsage
		sums        int
	}{
		"by job":      {2, 3, JobUsage{"u0000", "j0000", schema.Usage{CPUMilli: 1, OOMKills: 2}}, 6},
		"at the most": {1, MaxJobUsage, JobUsage{"u0000", "j0000", schema.Usage{CPUMilli: 1, OOMKills: 2}}, MaxJobUsage},
		"by user":     {7, 200, JobUsage{"u0000", "*", schema.Usage{CPUMilli: 200, OOMKills: 400}}, 7},
		"all":         {MaxJobUsage + 1, 1, JobUsage{"*", "*", schema.Usage{CPUMilli: MaxJobUsage + 1, OOMKills: 2*MaxJobUsage + 2}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, o := using(tt.users, tt.jobs, now)
			got := SumUsage(s, o.Samples(now))
			if len(got) != tt.sums || got[0] != tt.first {
				t.Fatalf("%d sums, the first %+v: want %d, %+v", len(got), got[0], tt.sums, tt.first)
			}
			if tt.sums > tt.users { // each job has its own
				sums := map[string]int64{}
				for _, line := range DescribeUsage(s, o.Samples(now), now).Tasks {
					sums[strings.TrimSuffix(line.Name, "/0")] += line.CPUMilli
				}
				for _, x := range got {
					sums[x.User+"/"+x.Job] -= x.CPUMilli
				}
				for job, left := range sums {
					if left != 0 {
						t.Errorf("job %s: %d of what its tasks use is not in its sum", job, left)
					}
				}
			}
			if later := SumUsage(s, o.Samples(now.Add(2*time.Minute))); len(later) != 0 {
				t.Errorf("sums of samples that count no more: %s", cmp.Diff([]JobUsage{}, later))
			}
		})
	}
}
