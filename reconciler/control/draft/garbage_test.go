package draft

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// BenchmarkGarbage measures what it takes to find no garbage after one task of
// one of 10,000 jobs has changed, each of which has 10 tasks.
func BenchmarkGarbage(b *testing.B) {
	s := model.NewState("c")
	var task schema.TaskName
	for i := range 10_000 {
		j := schema.Job{Name: fmt.Sprintf("j%05d", i), User: "u", Cell: "c", Kind: schema.Service, Tasks: 10}
		digest := schema.DigestOf(&j)
		name := j.ID()
		s.Data[digest], s.Jobs[name] = &j, &schema.JobRecord{Name: name, Admitted: digest}
		c := &schema.Chunk{Job: name}
		for k := range 10 {
			c.Tasks = append(c.Tasks, schema.TaskRecord{Index: k, Generation: 1, Machine: "m", Data: digest})
		}
		if err := s.Apply([]model.Write{s.Document(model.KeyChunk+name.Short()+"/0", c)}); err != nil {
			b.Fatal(err)
		}
		task = name.Task(3)
	}
	for b.Loop() {
		d := New(s, time.Time{})
		d.own(task.JobName, task.Index)
		if g := d.garbage(); len(g) > 0 {
			b.Fatal(g)
		}
	}
}
