package loop_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/turns"
)

// story is a master's day with one machine, whose agent may die at any step of
// its own: the master connects again to the next one and goes on.
type story struct {
	t       *testing.T
	kernel  *kernel
	dir     string
	crash   *crash
	again   int // kill the next agent too, at this step of it; 0: let it live
	agent   *agent
	epoch   uint64
	version uint64
	view    []schema.Assignment
	dead    map[uint64]bool
	lives   int
}

// connect makes sure that there is an agent and that it has the view.
func (s *story) connect() {
	for range 10 {
		if s.agent == nil {
			s.lives++
			if s.agent = startAgent(s.t, s.kernel, s.dir, s.crash); s.agent == nil {
				s.next()
				continue
			}
		}
		s.epoch++
		err := s.agent.Welcome(s.epoch)
		if err == nil {
			err = s.agent.Assign(schema.View{Epoch: s.epoch, Version: s.version, Assignments: s.view})
		}
		if err == nil {
			return
		}
		if !s.crash.crashed() {
			s.t.Fatalf("connect: %v", err)
		}
		s.bury()
	}
	s.t.Fatal("the agent does not come up")
}

// bury waits for the end of a killed agent and makes way for the next.
func (s *story) bury() {
	s.agent.stop()
	s.agent = nil
	s.next()
}

func (s *story) next() {
	s.crash = &crash{at: s.again}
	s.again = 0
}

// until lets the agent work until its report, in short, is want.
func (s *story) until(want ...string) {
	s.t.Helper()
	var got []string
	if !s.settles(func() bool {
		r := s.agent.Report()
		s.check(*r)
		got = lines(*r)
		return slices.Equal(got, want)
	}) {
		s.t.Fatalf("report (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// settles lets the agent work until something is so; false if that takes too long.
func (s *story) settles(ok func() bool) bool {
	s.t.Helper()
	for range 400 {
		rest()
		if s.crash.crashed() {
			s.bury()
			s.connect()
			continue
		}
		if ok() {
			return true
		}
		time.Sleep(250 * time.Millisecond)
	}
	return false
}

// check compares a report with those before: what was reported dead stays dead.
func (s *story) check(r schema.Report) {
	for _, e := range r.Tasks {
		if s.dead[e.Generation] && e.State != schema.Dead {
			s.t.Errorf("%s after it was reported dead", line(e))
		}
		s.dead[e.Generation] = s.dead[e.Generation] || e.State == schema.Dead
	}
}

func (s *story) assign(view ...schema.Assignment) {
	s.version++
	s.view = view
	s.connect()
}

// play runs the whole story.
func (s *story) play() {
	web, batch := withFiles(map[string]schema.TaskFile{"a": {Content: "1", OnChange: schema.ChangeSignal}}), assignment("batch", 0, 2, schema.Batch)
	s.assign(web, batch)
	s.until("u/batch/0 g2 running", "u/web/0 g1 running")

	s.kernel.exit("batch/0", schema.Exit{Code: 0})
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 running")
	s.renewWeb(&web, batch)

	s.assign(stopped(web, schema.CauseUpdate), batch)
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 dead update")

	web3 := assignment("web", 0, 3, schema.Service)
	s.assign(web3)
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 dead update", "u/web/0 g3 running")

	s.kernel.exit("web/0", schema.Exit{Code: 1})
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 dead update", "u/web/0 g3 running")

	if n := s.kernel.starts[filepath.Join(s.dir, "tasks/local/u/web/0")]; n < 2 {
		s.t.Errorf("%d starts of web/0, want 2 at least", n)
	}

	s.kernel.stubborn = true
	s.assign(stopped(web3, schema.CauseRemoved))
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 dead update", "u/web/0 g3 dead removed")
	s.kernel.stubborn = false

	s.assign(assignment("web", 0, 4, schema.Service))
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 dead update", "u/web/0 g3 dead removed", "u/web/0 g4 running")
	s.assign()
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 dead update", "u/web/0 g3 dead removed", "u/web/0 g4 dead superseded")

	time.Sleep(nodeagent.KeepFailedFor)
	s.until()
	s.end()
}

// end checks what must hold at the end, whatever happened in between.
func (s *story) end() {
	rest()
	if s.crash.crashed() {
		s.bury()
	} else {
		s.agent.stop()
	}
	if live := s.kernel.alive(); len(live) != 0 {
		s.t.Errorf("left alive: %v", live)
	}
}

func playStory(t *testing.T, at, again int) *story {
	s := &story{t: t, kernel: newKernel(t), dir: t.TempDir(), crash: &crash{at: at}, again: again, dead: map[uint64]bool{}}
	s.play()
	return s
}

// An agent killed at any step, and the next one killed again soon after, never
// starts a second copy, never runs what it called dead, and gets there.
func TestCrashAtEveryStep(t *testing.T) {
	t.Parallel()
	var steps []string
	t.Run("never", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { steps = playStory(t, 0, 0).crash.names })
	})
	if len(steps) < 60 {
		t.Fatalf("only %d steps: %q", len(steps), steps)
	}
	for at := range steps {
		for i, again := range []int{0, 1, 4} {
			if !turns.Takes(3*at + i) {
				continue
			}
			t.Run(fmt.Sprintf("%d %s and %d", at+1, steps[at], again), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					if s := playStory(t, at+1, again); s.lives < 2 {
						t.Errorf("%d lives, want the agent to have been killed", s.lives)
					}
				})
			})
		}
	}
	t.Logf("%d steps", len(steps))
}
