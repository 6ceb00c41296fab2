package loop_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestNeverTwice: an agent and its tasks are stopped, or killed; then the agent
// starts again on what its disk has. What must never run twice may be elsewhere by
// then, and is not started before a master says that it is not.
func TestNeverTwice(t *testing.T) {
	for _, stop := range []string{"SIGINT", "kill -9"} {
		for _, link := range []string{"no link", "assigned", "moved"} {
			t.Run(stop+", "+link, func(t *testing.T) {
				bubble(t, func(s *story) { s.neverTwice(stop, link) })
			})
		}
	}
}

// mix is tasks of all kinds that can be declared so: a service, a batch task, and one
// inside an alloc; and others.
func mix() []schema.Assignment {
	pair := assignment("pair", 0, 1, schema.Allocs)
	inside, job, ledger := assignment("inside", 0, 2, schema.Service), assignment("job", 0, 3, schema.Batch), assignment("ledger", 0, 4, schema.Service)
	inside.Alloc = &schema.AllocUse{Set: "pair", Generation: 1}
	for _, a := range []schema.Assignment{inside, job, ledger} {
		a.Job.Silence = &schema.Silence{NeverTwice: true}
	}
	return []schema.Assignment{inside, job, ledger, assignment("logs", 0, 5, schema.System), pair, assignment("web", 0, 6, schema.Service)}
}

func (s *story) neverTwice(stop, link string) {
	all := []string{"inside/0", "job/0", "ledger/0", "logs/0", "pair/0", "web/0"}
	free := []string{"logs/0", "pair/0", "web/0"}
	s.assign(mix()...)
	s.runs(all...)
	if stop == "SIGINT" {
		if err := s.agent.StopAll(context.Background()); err != nil {
			s.t.Fatal(err)
		}
	}
	s.agent.stop()
	for _, a := range mix() {
		s.kernel.exit(strings.TrimPrefix(a.Task.Short(), "u/"), schema.Exit{Code: -1, Signal: "SIGKILL"})
	}
	time.Sleep(time.Hour)
	s.agent = startAgent(s.t, s.kernel, s.dir, s.crash)
	s.runs()
	switch link {
	case "assigned":
		s.assign(mix()...)
		s.runs(all...)
	case "moved":
		s.assign(slices.DeleteFunc(mix(), func(a schema.Assignment) bool {
			return !slices.Contains(free, strings.TrimPrefix(a.Task.Short(), "u/"))
		})...)
		s.runs(free...)
	default:
		time.Sleep(nodeagent.FirstView)
		s.runs(free...)
		time.Sleep(time.Hour)
		s.runs(free...)
		for _, e := range s.agent.Report().Tasks {
			want := schema.Unconfirmed
			if e.State != schema.Running {
				want = schema.NoteWithheld
			}
			if !strings.Contains(e.Note, want) {
				s.t.Errorf("%s: note %q, want %q", line(e), e.Note, want)
			}
		}
		s.assign(mix()...)
		s.runs(all...)
	}
}

// runs fails the test unless just the named tasks have processes.
func (s *story) runs(want ...string) {
	s.t.Helper()
	rest()
	var got []string
	for _, dir := range s.kernel.alive() {
		task := taskDir(dir)
		got = append(got, filepath.Base(filepath.Dir(task))+"/"+filepath.Base(task))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		s.t.Fatalf("what runs (-want +got):\n%s", diff)
	}
}
