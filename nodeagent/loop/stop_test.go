package loop_test

import (
	"errors"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// stopping is an assignment whose task has a stop command and so many seconds in all.
func stopping(job string, seconds int) schema.Assignment {
	a := assignment(job, 0, 1, schema.Service)
	a.Job.Task.GraceSeconds = seconds
	a.Job.Task.Stop = &schema.Stop{Command: []string{"/bin/leave", "$(MUSTER_JOB)"}, TimeoutSeconds: seconds - 1}
	a.Data = schema.DigestOf(a.Job)
	return a
}

// TestStopCommand: the signal comes after the stop command, and SIGKILL when the grace
// period of both is over.
func TestStopCommand(t *testing.T) {
	bubble(t, func(s *story) {
		ends := make(chan error)
		began := make(chan time.Time, 2)
		s.kernel.answer = func() (string, error) {
			began <- time.Now()
			s.kernel.mu.Unlock()
			defer s.kernel.mu.Lock()
			return "bye", <-ends
		}
		web := stopping("web", 10)
		s.assign(web)
		s.until("u/web/0 g1 running")
		s.assign(stopped(web, schema.CauseRemoved))
		rest()
		at := <-began
		time.Sleep(5 * time.Second)
		rest()
		if got := lines(*s.agent.Report()); len(s.kernel.alive()) != 1 || got[0] != "u/web/0 g1 stopping" {
			s.t.Fatalf("while the command runs: %v", got)
		}
		ends <- errors.New("exited with status 3")
		s.until("u/web/0 g1 dead removed")
		if took := time.Since(at); took > 6*time.Second {
			s.t.Errorf("it took %v", took)
		}
		end := s.agent.Report().Tasks[0].End
		if want := "stopped: removed; its stop command: exited with status 3"; end == nil || end.Exit == nil || end.Exit.Message != want && s.agent.Report().Tasks[0].Exits[0].Message != want {
			s.t.Errorf("end %+v, exits %+v", end, s.agent.Report().Tasks[0].Exits)
		}
	})
}

// TestStopCommandHangs: a command that does not end has its time, and no more.
func TestStopCommandHangs(t *testing.T) {
	bubble(t, func(s *story) {
		s.kernel.answer = func() (string, error) {
			s.kernel.mu.Unlock()
			defer s.kernel.mu.Lock()
			time.Sleep(time.Hour)
			return "", nil
		}
		s.kernel.stubborn = true
		web := stopping("web", 10)
		s.assign(web)
		s.until("u/web/0 g1 running")
		at := time.Now()
		s.assign(stopped(web, schema.CauseRemoved))
		time.Sleep(8 * time.Second)
		rest()
		if terms := s.terms(); terms != 0 {
			s.t.Errorf("%d SIGTERM after 8 s, want them after 9", terms)
		}
		time.Sleep(1500 * time.Millisecond)
		rest()
		if terms := s.terms(); terms != 1 {
			s.t.Errorf("%d SIGTERM after 9.5 s, want one", terms)
		}
		s.until("u/web/0 g1 dead removed")
		if took := time.Since(at); took < 10*time.Second || took > 11*time.Second {
			s.t.Errorf("killed after %v, want 10 s", took)
		}
		time.Sleep(time.Hour)
	})
}

// TestStopDelay: a task gets its signal when its delay is over, and also its stop command
// if it has one; one that is evicted gets it at once.
func TestStopDelay(t *testing.T) {
	for name, c := range map[string]struct {
		command  []string
		takes    time.Duration // the command
		kind     schema.CauseKind
		unsigned time.Duration // until when there is no signal; a second later there is one
	}{
		"alone":                  {nil, 0, schema.CauseRemoved, 4 * time.Second},
		"with a short command":   {[]string{"/bin/leave"}, time.Second, schema.CauseUpdate, 4 * time.Second},
		"with a longer command":  {[]string{"/bin/leave"}, 6 * time.Second, schema.CauseUpdate, 5500 * time.Millisecond},
		"evicted, and not alone": {nil, 0, schema.CauseOutOfResources, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *story) {
				s.kernel.answer = func() (string, error) {
					s.kernel.mu.Unlock()
					defer s.kernel.mu.Lock()
					time.Sleep(c.takes)
					return "", nil
				}
				s.kernel.stubborn = true
				web := assignment("web", 0, 1, schema.Service)
				web.Job.Task.GraceSeconds = 10
				web.Job.Task.Stop = &schema.Stop{Command: c.command, DelaySeconds: 5}
				web.Data = schema.DigestOf(web.Job)
				s.assign(web)
				s.until("u/web/0 g1 running")
				at := time.Now()
				s.assign(stopped(web, c.kind))
				rest()
				if got := lines(*s.agent.Report()); got[0] != "u/web/0 g1 stopping" {
					s.t.Errorf("while it is delayed: %v", got)
				}
				time.Sleep(c.unsigned)
				rest()
				if terms := s.terms(); terms != 0 && c.unsigned > 0 {
					s.t.Errorf("%d SIGTERM after %v, want none yet", terms, c.unsigned)
				}
				time.Sleep(1100 * time.Millisecond)
				rest()
				if terms := s.terms(); terms != 1 {
					s.t.Errorf("%d SIGTERM a second later, want one", terms)
				}
				s.until("u/web/0 g1 dead " + string(c.kind))
				if took := time.Since(at); took > 11*time.Second {
					s.t.Errorf("killed after %v, want the grace period, 10 s", took)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// terms counts the SIGTERM that were sent.
func (s *story) terms() int {
	s.kernel.mu.Lock()
	defer s.kernel.mu.Unlock()
	n := 0
	for _, p := range s.kernel.procs {
		n += p.terms
	}
	return n
}
