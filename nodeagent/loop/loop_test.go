package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// bubble runs f in a synctest bubble with a story whose agent is up.
func bubble(t *testing.T, f func(s *story)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &story{t: t, kernel: newKernel(t), dir: t.TempDir(), crash: &crash{}, dead: map[uint64]bool{}}
		s.agent = startAgent(t, s.kernel, s.dir, s.crash)
		defer func() {
			if s.agent != nil {
				s.agent.stop()
			}
		}()
		f(s)
	})
}

// restart ends the agent, without a word to its tasks, and starts the next; it
// has no master.
func (s *story) restart() {
	s.agent.stop()
	s.agent = startAgent(s.t, s.kernel, s.dir, s.crash)
}

func TestSecondAgentIsRefused(t *testing.T) {
	bubble(t, func(s *story) {
		_, err := loop.New(context.Background(), config(s.kernel, s.dir, s.crash, nil))
		if !errors.Is(err, loop.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", os.Getpid())) || !strings.Contains(err.Error(), s.dir) {
			s.t.Errorf("second agent: %v, want ErrInUse with the directory and the holder's pid", err)
		}
		s.restart() // the first has given it back
	})
}

func TestEpochsAndVersions(t *testing.T) {
	bubble(t, func(s *story) {
		web := assignment("web", 0, 1, schema.Service)
		check := func(what string, err error, want string) {
			s.t.Helper()
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				s.t.Errorf("%s: error %v, want %q", what, err, want)
			}
		}
		a := s.agent
		check("first epoch", a.Welcome(5), "")
		check("first view", a.Assign(schema.View{Epoch: 5, Version: 3, Assignments: []schema.Assignment{web}}), "")
		check("same view", a.Assign(schema.View{Epoch: 5, Version: 3}), "")
		check("older version", a.Assign(schema.View{Epoch: 5, Version: 2}), "version 2: this agent has version 3")
		check("older epoch", a.Welcome(4), "epoch 4 is lower than 5")
		check("view of an older epoch", a.Assign(schema.View{Epoch: 4, Version: 9}), "has seen epoch 5")
		other := web
		other.Task.Cell = "elsewhere"
		check("other cell", a.Assign(schema.View{Epoch: 5, Version: 4, Assignments: []schema.Assignment{other}}), "this machine is of cell local")
		other = web
		other.Task.User = "../../etc"
		check("path", a.Assign(schema.View{Epoch: 5, Version: 4, Assignments: []schema.Assignment{other}}), "want cell/user/job")
		other = web
		other.Job = nil
		check("no data", a.Assign(schema.View{Epoch: 5, Version: 4, Assignments: []schema.Assignment{other}}), "no data")
		check("next epoch", a.Welcome(6), "")
		s.restart()
		check("an epoch from before the restart", s.agent.Welcome(5), "epoch 5 is lower than 6")
		if got := s.agent.Report().View; got != 3 {
			s.t.Errorf("view %d after a restart, want 3", got)
		}
		check("a lower version of a higher epoch", s.agent.Assign(schema.View{Epoch: 6, Version: 1, Assignments: []schema.Assignment{web}}), "")
		rest()
		if got := s.agent.Report().View; got != 1 {
			s.t.Errorf("view %d, want 1", got)
		}
	})
}

// An agent that never reaches its master again keeps its tasks running.
func TestWithoutMaster(t *testing.T) {
	bubble(t, func(s *story) {
		s.assign(assignment("web", 0, 1, schema.Service), assignment("web", 1, 2, schema.Service))
		s.until("u/web/0 g1 running", "u/web/1 g2 running")
		before := s.kernel.alive()
		s.restart()
		s.until("u/web/0 g1 running", "u/web/1 g2 running")
		slices.Sort(before)
		after := s.kernel.alive()
		slices.Sort(after)
		if diff := cmp.Diff(before, after); diff != "" {
			s.t.Errorf("processes after an agent's restart (-before +after):\n%s", diff)
		}
		s.kernel.exit("web/1", schema.Exit{Code: -1, Signal: "SIGKILL"})
		s.until("u/web/0 g1 running", "u/web/1 g2 waiting")
		s.restart()
		s.until("u/web/0 g1 running", "u/web/1 g2 running")
		got := s.agent.Report().Tasks[1]
		if got.Incarnation != 2 || len(got.Exits) != 1 || got.Exits[0].Signal != "SIGKILL" || got.Exits[0].Incarnation != 1 {
			s.t.Errorf("status %+v, want incarnation 2 after SIGKILL", got)
		}
	})
}

func TestStopAll(t *testing.T) {
	bubble(t, func(s *story) {
		s.kernel.stubborn = true
		s.assign(assignment("web", 0, 1, schema.Service), assignment("batch", 0, 2, schema.Batch))
		s.until("u/batch/0 g2 running", "u/web/0 g1 running")
		began := time.Now()
		if err := s.agent.StopAll(context.Background()); err != nil {
			s.t.Fatal(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			s.t.Errorf("took %s, want the grace period, 5s", took)
		}
		if live := s.kernel.alive(); len(live) != 0 {
			s.t.Errorf("left alive: %v", live)
		}
		s.until("u/batch/0 g2 waiting", "u/web/0 g1 waiting")
		if err := s.agent.StopAll(context.Background()); err != nil {
			s.t.Errorf("a second time: %v", err)
		}
		s.restart()
		s.until("u/batch/0 g2 running", "u/web/0 g1 running")
		got := s.agent.Report().Tasks[0]
		if got.Incarnation != 2 || !strings.HasPrefix(got.Exits[0].Message, "stopped: shutdown") {
			s.t.Errorf("status %+v, want incarnation 2 after a shutdown", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.agent.StopAll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			s.t.Errorf("within a second: %v, want the deadline", err)
		}
		s.agent.stop()
		if err := s.agent.StopAll(context.Background()); !errors.Is(err, loop.ErrEnded) {
			s.t.Errorf("after Run: %v, want ErrEnded", err)
		}
		s.agent = nil
	})
}

func TestReboot(t *testing.T) {
	bubble(t, func(s *story) {
		s.assign(assignment("web", 0, 1, schema.Service))
		s.until("u/web/0 g1 running")
		s.agent.stop()
		s.kernel.exit("web/0", schema.Exit{Code: -1, Message: "the machine was restarted"})
		s.kernel.boot = "boot-2"
		s.agent = startAgent(s.t, s.kernel, s.dir, s.crash)
		time.Sleep(nodeagent.FirstView)
		rest() // no back-off: it is not the task's fault
		if diff := cmp.Diff([]string{"u/web/0 g1 running"}, lines(*s.agent.Report())); diff != "" {
			s.t.Errorf("report (-want +got):\n%s", diff)
		}
		if got := s.agent.Report().Tasks[0]; got.Incarnation != 2 {
			s.t.Errorf("incarnation %d, want 2", got.Incarnation)
		}
	})
}

func TestStartFails(t *testing.T) {
	bubble(t, func(s *story) {
		s.kernel.broken = true
		s.assign(assignment("web", 0, 1, schema.Service))
		s.until("u/web/0 g1 dead start-failed")
		end := s.agent.Report().Tasks[0].End
		if end.Message != "exec /bin/x: no such file or directory" || end.Machine != "m1" {
			s.t.Errorf("end %+v, want what exec said", end)
		}
		s.kernel.broken = false
		s.restart()
		s.until("u/web/0 g1 dead start-failed")
	})
}

// What cannot be read may run: it is neither started again nor stopped.
func TestUnreadable(t *testing.T) {
	bubble(t, func(s *story) {
		web := assignment("web", 0, 1, schema.Service)
		s.assign(web)
		s.until("u/web/0 g1 running")
		s.agent.stop()
		file := filepath.Join(s.dir, "tasks/local/u/web/0/1/assignment.json")
		for _, name := range []string{file, filepath.Join(s.dir, "view.json"), filepath.Join(s.dir, "view.copy.json")} {
			if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
				s.t.Fatal(err)
			}
		}
		s.agent = startAgent(s.t, s.kernel, s.dir, s.crash)
		s.until("u/web/0 g1 running")
		time.Sleep(time.Minute)
		s.until("u/web/0 g1 running") // until a master says what shall run
		s.assign(web)
		s.until("u/web/0 g1 running")
		if !durable.Sealed(file) {
			s.t.Error("the assignment was not written anew")
		}
		if n := s.kernel.starts[filepath.Join(s.dir, "tasks/local/u/web/0")]; n != 1 {
			s.t.Errorf("%d starts, want 1", n)
		}
		s.agent.stop()
		if err := os.Truncate(file, 0); err != nil {
			s.t.Fatal(err)
		}
		s.agent = startAgent(s.t, s.kernel, s.dir, s.crash)
		s.until("u/web/0 g1 running")
		s.assign() // it is managed: what is not assigned stops
		s.until("u/web/0 g1 dead superseded")
	})
}

// A disk that refuses an end, or a view, does not keep it from being reported, or acted
// on: it is said, and written when the disk takes it.
func TestUnwritable(t *testing.T) {
	bubble(t, func(s *story) {
		s.assign(assignment("batch", 0, 1, schema.Batch), assignment("web", 0, 2, schema.Service))
		s.until("u/batch/0 g1 running", "u/web/0 g2 running")
		end, stop, view := "tasks/local/u/batch/0/1/end.json", "tasks/local/u/web/0/2/1/stop.json", "view.json"
		for _, name := range []string{end, stop, view} {
			for i := range 100 { // and no name is left to move the first to
				if err := os.MkdirAll(filepath.Join(s.dir, name+".new"+atomicfile.AsideMark+strconv.Itoa(i)), 0o700); err != nil {
					s.t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(s.dir, name+".new"), 0o700); err != nil {
				s.t.Fatal(err)
			}
		}
		s.kernel.exit("batch/0", schema.Exit{Code: 0})
		s.until("u/batch/0 g1 dead finished", "u/web/0 g2 running")
		if note := s.agent.Report().Tasks[0].Note; !strings.Contains(note, "not written to disk yet: ") || !strings.Contains(note, "is in the way") {
			s.t.Errorf("note %q, want why the end is not kept", note)
		}
		s.assign(stopped(assignment("web", 0, 2, schema.Service), schema.CauseUpdate))
		s.until("u/batch/0 g1 dead finished", "u/web/0 g2 dead update")
		if r := s.agent.Report(); r.View != s.version {
			s.t.Errorf("report of view %d, want %d", r.View, s.version)
		}
		for _, name := range []string{end, stop, view} {
			if err := os.Remove(filepath.Join(s.dir, name+".new")); err != nil {
				s.t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		rest()
		for _, name := range []string{end, stop, view} {
			if b, err := os.ReadFile(filepath.Join(s.dir, name)); err != nil || name == view && !strings.Contains(string(b), `"stop"`) {
				s.t.Errorf("%s: %s, %v: want it to be written", name, b, err)
			}
		}
		if note := s.agent.Report().Tasks[0].Note; strings.Contains(note, "not written") {
			s.t.Errorf("note %q, and all is written", note)
		}
	})
}

// Hints come with news, and only then.
func TestHints(t *testing.T) {
	bubble(t, func(s *story) {
		s.assign(assignment("web", 0, 1, schema.Service))
		s.until("u/web/0 g1 running")
		before := s.agent.hints.Load()
		if before == 0 {
			s.t.Error("no hint for a start")
		}
		time.Sleep(6 * time.Hour)
		rest()
		if s.agent.hints.Load() != before {
			s.t.Errorf("%d hints in six hours without news", s.agent.hints.Load()-before)
		}
	})
}

// A file that is none of ours, and a directory in which nothing was started.
func TestStrayFiles(t *testing.T) {
	bubble(t, func(s *story) {
		s.agent.stop()
		for _, d := range []string{"tasks/local/u/web/0/9", "tasks/local/u/web/x/1", "tasks/local/u/web/0/8.removed/1", "tasks/lost+found"} {
			if err := os.MkdirAll(filepath.Join(s.dir, d), 0o700); err != nil {
				s.t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(s.dir, "tasks/README"), nil, 0o600); err != nil {
			s.t.Fatal(err)
		}
		s.agent = startAgent(s.t, s.kernel, s.dir, s.crash)
		s.until()
		for _, d := range []string{"tasks/local/u/web/0"} {
			if _, err := os.Stat(filepath.Join(s.dir, d)); !errors.Is(err, os.ErrNotExist) {
				s.t.Errorf("%s is still there: %v", d, err)
			}
		}
		if _, err := os.Stat(filepath.Join(s.dir, "tasks/local/u/web/x/1")); err != nil {
			s.t.Errorf("what is not ours is gone: %v", err)
		}
	})
}

// patience is how long a test waits in real time for what must come: longer where
// each processor is emulated.
var patience = map[bool]time.Duration{false: time.Minute, true: 3 * time.Minute}[os.Getenv("MUSTER_TEST_SLOW") != ""]

// eventually polls in real time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	port := other.Addr().(*net.TCPAddr).Port
	k, c := newKernel(t), &crash{}
	cfg := config(k, t.TempDir(), c, nil)
	cfg.Machine.Ports = schema.PortRange{First: port, Last: port}
	l, err := loop.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	defer func() { cancel(); <-done }()
	web := assignment("web", 0, 1, schema.Service)
	web.Ports = schema.PortsOf(map[string]int{"http": port})
	if err := l.Assign(schema.View{Epoch: 1, Version: 1, Assignments: []schema.Assignment{web}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "dead with the port in the report", func() bool {
		r := l.Report()
		return len(r.Tasks) == 1 && r.Tasks[0].State == schema.Dead && slices.Equal(r.BusyPorts, []int{port})
	})
	end := l.Report().Tasks[0].End
	if want := fmt.Sprintf("port http (%d): address already in use", port); end.Kind != schema.CausePortInUse || end.Message != want {
		t.Errorf("end %+v, want port-in-use, %q", end, want)
	}
}
