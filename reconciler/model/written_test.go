package model

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/schema"
)

// TestWrittenSince: who asks often gets each job that was written since, and who asks
// seldom learns that some are missing; what is kept is bounded.
func TestWrittenSince(t *testing.T) {
	t.Parallel()
	s := NewState("c")
	_, often, _ := s.WrittenSince(0)
	seldom := often
	for i := range 20_000 {
		name := schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("j", i%7)}
		w := s.Document(KeyJob+name.Short(), &schema.JobRecord{Name: name})
		if i%2 == 0 {
			w = s.Document(KeyChunk+name.Short()+"/0", &schema.Chunk{Job: name})
		}
		if err := s.Apply([]Write{w}); err != nil {
			t.Fatal(err)
		}
		names, next, ok := s.WrittenSince(often)
		if !ok || !slices.Equal(names, []schema.JobName{name}) {
			t.Fatalf("write %d: %v, %t", i, names, ok)
		}
		often = next
	}
	if n := len(s.written.names); n > 4*keptNames {
		t.Errorf("it keeps %d names of 7 jobs", n)
	}
	if _, next, ok := s.WrittenSince(seldom); ok || next != often {
		t.Errorf("20,000 writes ago is known: %d, %t", next, ok)
	}
}

// TestLog: after a reset nothing from before is known, to whoever asked last when, and who
// has read a later log learns that.
func TestLog(t *testing.T) {
	t.Parallel()
	var l Log[string]
	l.Add("a", 1)
	_, last, _ := l.Since(0)
	if _, _, ok := l.Since(last + 1); ok {
		t.Error("a reader of a later log is answered that it knows all")
	}
	older := l
	l.Reset()
	if _, _, ok := l.Since(last); ok {
		t.Error("what was before a reset is known")
	}
	_, last, _ = l.Since(last)
	l.Add("b", 1)
	if names, _, ok := l.Since(last); !ok || !slices.Equal(names, []string{"b"}) {
		t.Errorf("%v, %t", names, ok)
	}
	if names, _, ok := older.Since(0); !ok || !slices.Equal(names, []string{"a"}) {
		t.Errorf("the copy has become %v, %t", names, ok)
	}
}
