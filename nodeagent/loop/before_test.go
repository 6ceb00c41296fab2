package loop_test

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// withBefore is an assignment whose task has two commands before it.
func withBefore(kind schema.JobKind) schema.Assignment {
	a := assignment("web", 0, 1, kind)
	a.Job.Task.Before = []schema.Before{{Process: &schema.Process{Command: []string{"/bin/one"}}, TimeoutSeconds: 30}, {Process: &schema.Process{Command: []string{"/bin/two"}}}}
	a.Data = schema.DigestOf(a.Job)
	return a
}

// steps returns which step each incarnation of web is, in their order.
func (s *story) steps() []int {
	s.kernel.mu.Lock()
	defer s.kernel.mu.Unlock()
	dirs := []string{}
	for dir := range s.kernel.procs {
		dirs = append(dirs, dir)
	}
	slices.SortFunc(dirs, func(a, b string) int {
		x, y := filepath.Base(a), filepath.Base(b)
		return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
	})
	steps := []int{}
	for _, dir := range dirs {
		steps = append(steps, s.kernel.procs[dir].is.Step)
	}
	return steps
}

// TestBefore: what comes before a task runs in order, each after the end of the one
// before; when one fails all of it begins again, with a pause; and so it does with each start
// of the task. A new agent goes on where the last one was.
func TestBefore(t *testing.T) {
	bubble(t, func(s *story) {
		s.assign(withBefore(schema.Service))
		s.until("u/web/0 g1 starting")
		is := func(when string, want ...int) {
			s.t.Helper()
			rest()
			if got := s.steps(); !slices.Equal(got, want) {
				s.t.Fatalf("%s: incarnations of steps %v, want %v", when, got, want)
			}
			begun := 0 // each with the first step
			for _, step := range want {
				if step == 1 {
					begun++
				}
			}
			if got := s.agent.Report().Tasks[0].Attempt; got != begun {
				s.t.Fatalf("%s: attempt %d, want %d", when, got, begun)
			}
		}
		end := func(code int) {
			s.t.Helper()
			if !s.kernel.exit("web/0", schema.Exit{Code: code}) {
				s.t.Fatal("nothing runs")
			}
			rest()
		}
		is("at first", 1)
		if note := s.note("web"); !strings.Contains(note, "before[0] of the task runs, which has 2 (incarnation 1)") {
			s.t.Errorf("note %q", note)
		}
		end(0)
		is("the first has passed", 1, 2)
		s.restart()
		is("a new agent", 1, 2)
		end(3)
		is("the second has failed", 1, 2)
		if e := s.agent.Report().Tasks[0].Exits; len(e) != 1 || !strings.Contains(e[0].String(), "exited with status 3: before[1] of the task") {
			s.t.Errorf("exits %+v", e)
		}
		s.until("u/web/0 g1 starting")
		is("after a pause", 1, 2, 1)
		end(0)
		s.until("u/web/0 g1 starting")
		end(0)
		s.until("u/web/0 g1 running")
		is("the task", 1, 2, 1, 2, 0)
		end(1)
		s.until("u/web/0 g1 starting")
		is("the task has failed", 1, 2, 1, 2, 0, 1)
		time.Sleep(29 * time.Second)
		is("it still has time", 1, 2, 1, 2, 0, 1)
		time.Sleep(time.Second)
		rest()
		if e := s.agent.Report().Tasks[0].Exits; !strings.Contains(e[len(e)-1].String(), "it has not ended within 30 s") {
			s.t.Errorf("exits %+v", e)
		}
	})
}

// TestBeforeBatch: a batch task is done when it has ended itself, not what comes before.
func TestBeforeBatch(t *testing.T) {
	bubble(t, func(s *story) {
		s.assign(withBefore(schema.Batch))
		for range 2 {
			s.until("u/web/0 g1 starting")
			s.kernel.exit("web/0", schema.Exit{Code: 0})
		}
		s.until("u/web/0 g1 running")
		s.kernel.exit("web/0", schema.Exit{Code: 0})
		s.until("u/web/0 g1 dead finished")
	})
}
