package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// TestAffected: what is written affects the machines whose view it changes, all of them and
// no others.
func TestAffected(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not for secrets
	job := schema.Job{Name: "web", User: "u", Cell: "c", Kind: schema.Service, Tasks: 2}
	data := []schema.Digest{schema.DigestOf(&job), schema.DigestOf(&schema.Job{Name: "web", User: "u", Cell: "c", Kind: schema.Service, Tasks: 3})}
	record := func(index int) schema.TaskRecord {
		r := schema.TaskRecord{Index: index, Data: data[rng.IntN(2)]}
		if at := rng.IntN(8); at > 0 {
			r.Machine, r.Generation = fmt.Sprint("m", at), uint64(1+rng.IntN(2))
		}
		if rng.IntN(4) == 0 {
			r.Stop = &schema.Cause{Kind: schema.CauseUpdate, Message: fmt.Sprint(rng.IntN(9))}
		}
		return r
	}
	s := NewState("c")
	changed, found := 0, 0
	for range 2000 {
		var batch []Write
		for number := range 1 + rng.IntN(2) {
			key := KeyChunk + fmt.Sprint("u/web/", number)
			var tasks []schema.TaskRecord
			if was := s.Chunks[ChunkName{job.ID(), number}]; was != nil {
				tasks = slices.Clone(was.Tasks)
			}
			switch rng.IntN(8) {
			case 0:
				batch = append(batch, Write{Key: key})
				continue
			case 1:
				tasks = nil
			default:
			}
			for range rng.IntN(3) {
				r := record(rng.IntN(4) + number*schema.ChunkSize)
				at, ok := slices.BinarySearchFunc(tasks, r, func(a, b schema.TaskRecord) int { return a.Index - b.Index })
				if ok {
					tasks[at] = r
				} else {
					tasks = slices.Insert(tasks, at, r)
				}
			}
			batch = append(batch, s.Document(key, &schema.Chunk{Job: job.ID(), Number: number, Tasks: tasks}))
		}
		before, was := Views(s), ChunksOf(s, batch)
		if err := s.Apply(batch); err != nil {
			t.Fatal(err)
		}
		got, after := map[string]struct{}{}, Views(s)
		was.Affected(s, got)
		want := map[string]struct{}{}
		for i := range 8 {
			if m := fmt.Sprint("m", i); !SameView(before[m], after[m]) {
				want[m] = struct{}{}
			}
		}
		for m := range want {
			if _, ok := got[m]; !ok {
				t.Fatalf("affected (-want +got):\n%s\nbefore %v\nafter %v", cmp.Diff(want, got), before[m], after[m])
			}
		}
		changed, found = changed+len(want), found+len(got)
	}
	if changed == 0 || float64(found) > 1.1*float64(changed) {
		t.Errorf("%d views changed, and %d were found to", changed, found)
	}
}
