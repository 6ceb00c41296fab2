package e2e_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
)

var stopped = flag.Duration("e2e.stopped", 0, "how long TestAgentStopped stops an agent; 0: until its machine is given up and its tasks run elsewhere")

// TestAgentStopped stops an agent with SIGSTOP for so long that its machine is
// given up. Its tasks run on; until then none is started elsewhere, and then those
// are that can be. When the agent goes on, the superseded generations stop, and
// nothing else does.
func TestAgentStopped(t *testing.T) {
	t.Parallel()
	var flags []string
	if *stopped < 2*model.DefaultLostAfter {
		flags = []string{"--lost-after", "15s"} // for a test that many wait for
	}
	f := newFleet(t, 3, flags...)
	jobs := func(word string) map[string][]byte {
		return map[string][]byte{teamFile: f.pack("crew",
			job{name: "web", tasks: 6}, job{name: "other", word: word})}
	}
	s := f.converge(f.commit("jobs on all machines", jobs("first")))
	victim := "m2"
	if _, ok := tasksOn(s, victim)["crew/other/0"]; ok {
		victim = "m3" // the other job shall be updated meanwhile
	}
	before, theirs := f.journalsOf(s), tasksOn(s, victim)
	if len(theirs) < 2 {
		t.Fatalf("machine %s has only %v", victim, slices.Sorted(maps.Keys(theirs)))
	}
	agent := f.agents[victim]
	f.must(agent.cmd.Process.Signal(syscall.SIGSTOP))
	begin := time.Now()
	s = f.until("the machine is silent", func(s *status.Status) string { return unless(health(s, victim), "silent") })
	for name, was := range theirs {
		if is := tasksOn(s, victim)[name]; is.Generation != was.Generation {
			t.Errorf("task %s was moved although its machine is only silent", name)
		}
	}
	// A machine that does not listen holds up nobody else.
	hash := f.commit("while it is silent", jobs("second"))
	f.until("another job is updated", func(s *status.Status) string {
		for _, j := range s.Jobs {
			if j.Name == "crew/other" && j.Updating == 0 && j.Running == 1 && s.Applied == hash {
				return ""
			}
		}
		return "it is not"
	})
	f.until("its tasks run elsewhere", func(s *status.Status) string {
		for _, t := range s.Tasks {
			if strings.HasPrefix(t.Name, "crew/web/") && (t.State != "running" || t.Machine == victim) {
				return fmt.Sprintf("task %s is %s on %s", t.Name, t.State, t.Machine)
			}
		}
		return unless(health(s, victim), "lost")
	})
	lost := time.Since(begin)
	for name := range theirs {
		if p := before[journalOf(name)].last(); !p.same() {
			t.Errorf("task %s has ended while its agent stood still", name)
		}
	}
	if rest := *stopped - lost; rest > 0 {
		time.Sleep(rest) // the length is the scenario
	}
	f.must(agent.cmd.Process.Signal(syscall.SIGCONT))
	back := time.Now()
	f.must(within(bound, func() error {
		for name := range theirs {
			if strings.HasPrefix(name, "crew/web/") && before[journalOf(name)].last().same() {
				return fmt.Errorf("the superseded generation of %s still runs", name)
			}
		}
		return nil
	}))
	took := time.Since(back)
	if took > soon {
		t.Errorf("the superseded generations ended %s after their machine was back, want %s at most", took, soon)
	}
	t.Logf("stopped for %s, given up and %d tasks running elsewhere after %s; superseded generations gone %s after it went on",
		back.Sub(begin).Round(time.Second), len(theirs), lost.Round(time.Millisecond), took.Round(time.Millisecond))
	s = f.converge(hash)
	f.checkReturned(s, before, theirs)
}

func unless(is, want string) string {
	if is == want {
		return ""
	}
	return "it is " + is
}

// checkReturned wants that of the tasks of a machine that came back those that
// were moved have run twice, once in each of two generations, and no other.
func (f *fleet) checkReturned(s *status.Status, before map[string]journal, theirs map[string]status.TaskStatus) {
	t := f.t
	t.Helper()
	after := f.journalsOf(s)
	for name, b := range after {
		if seen := slices.Compact(slices.Sorted(slices.Values(b.generations))); len(seen) != len(b.generations) {
			t.Errorf("%s: a generation was started twice: %v", name, b.generations)
		}
	}
	for _, task := range s.Tasks {
		name := journalOf(task.Name)
		_, moved := theirs[task.Name]
		moved = moved && strings.HasPrefix(task.Name, "crew/web/")
		b := after[name]
		switch {
		case strings.HasPrefix(task.Name, "crew/other/"):
		case !moved && (len(b.starts) != 1 || b.last() != before[name].last() || !b.last().same()):
			t.Errorf("task %s was not to be touched: %+v", task.Name, b)
		case moved && (len(b.starts) != 2 || b.terms != 1):
			t.Errorf("task %s was moved: %+v, want two starts, of which the first got SIGTERM", task.Name, b)
		case moved && !slices.ContainsFunc(task.History, func(h string) bool { return strings.Contains(h, "machine-failure") || strings.Contains(h, "lost") }):
			t.Errorf("task %s was moved, and its history does not say why: %q", task.Name, task.History)
		}
	}
}
