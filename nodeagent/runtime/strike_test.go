package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/nodeagent/strike"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/turns"
	"golang.org/x/sys/unix"
)

// struck is a machine whose keepers are struck, and what they did until then.
type struck struct {
	*machine
	exe  string
	mu   sync.Mutex // guards what follows
	done []strike.Effect
	hit  bool
}

// newStruck makes a machine of which at strikes the keepers: it is asked before
// each effect.
func newStruck(t *testing.T, at func(strike.Effect) strike.Verdict) *struck {
	t.Helper()
	if !strike.Supported {
		t.Skip("NOT TESTED: no tracer for this architecture")
	}
	s := &struck{}
	tracer, err := strike.New(t.TempDir(), keeperExe, func(e strike.Effect) strike.Verdict {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", e.PID)); err != nil || !strings.Contains(string(b), "/tasks/") {
			return strike.Verdict{} // what the machine can do is found out by keepers, too
		}
		v := at(e)
		s.mu.Lock()
		defer s.mu.Unlock()
		if v == (strike.Verdict{}) {
			s.done = append(s.done, e)
		}
		s.hit = s.hit || v != strike.Verdict{}
		return v
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Close() })
	s.exe = tracer.Program
	s.machine = newMachine(t, func(c *config) { c.Keeper = tracer.Program })
	return s
}

// did reports whether a keeper has done something to the file of that name.
func (s *struck) did(call, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.done, func(e strike.Effect) bool { return e.Call == call && filepath.Base(e.Path) == name })
}

// was reports whether anything was struck.
func (s *struck) was() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hit
}

// story is the life of the task that is struck: its log is rotated, and it leaves
// behind what only its cgroup, or its environment, shows.
var story = "echo run; head -c 9000 /dev/zero | tr '\\0' '\\n' >&2; " + strings.ReplaceAll(escape, "env -i ", "") + "exit 7"

// struckTask is the assignment of story.
func struckTask() *schema.Assignment {
	a := shell(0, story)
	a.Job.Task.Logs = &schema.Logs{MaxBytes: 4096, Files: 2}
	return a
}

// effects returns what a keeper does in such a life, in order.
func effects(t *testing.T) []strike.Effect {
	t.Helper()
	s := newStruck(t, func(strike.Effect) strike.Verdict { return strike.Verdict{} })
	p, _ := s.start(struckTask())
	if e := wait(t, p); e.Code != 7 {
		t.Fatalf("exit %v, want status 7", e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%d effects", len(s.done))
	if len(s.done) < 20 {
		t.Fatalf("only %d effects", len(s.done))
	}
	return slices.Clone(s.done)
}

// stride is the distance of the effects that are struck.
func stride() int {
	if testing.Short() {
		return 5
	}
	return 1
}

// verdict is what must be said of a task whose keeper did that much.
func (s *struck) verdict() (code int, message string) {
	switch {
	case s.did("rename", keeper.ExitFile+".new"):
		return 7, ""
	case s.did("rename", keeper.StateFile+".new"):
		return -1, "its keeper was killed, and the task with it"
	case s.did("open", keeper.LockFile):
		return -1, "its keeper was killed while it started"
	}
	return -1, "it was never started"
}

// check holds what is left of the task in dir to the truth.
func (s *struck) check(t *testing.T, dir string) {
	t.Helper()
	p, err := s.Adopt(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	got := wait(t, p)
	code, message := s.verdict()
	if got.Code != code || got.Message != message || got.Signal != "" {
		t.Errorf("exit %v, want status %d, %q", got, code, message)
	}
	// Nobody's fault, or its own, or it belongs to no boot.
	if inc := p.State(); inc.Unseen != strings.HasPrefix(message, "its keeper was killed") || (inc.Boot == "") != (message == "it was never started") {
		t.Errorf("%+v for %q", inc, message)
	}
	again, err := s.Adopt(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, wait(t, again)); d != "" {
		t.Errorf("judged again (-first +again)\n%s", d)
	}
	if out, err := exec.Command(keeperExe, dir).CombinedOutput(); err == nil {
		t.Errorf("a second keeper has run: %s", out)
	}
	orphansGone(t, dir)
	ranOnce(t, dir)
}

// TestKeeperKilledAtEveryEffect kills a keeper before each thing it does to what
// outlives it, beside its agent and together with it.
func TestKeeperKilledAtEveryEffect(t *testing.T) {
	t.Parallel()
	all := effects(t)
	for n := 1; n <= len(all); n += stride() {
		if !turns.Takes(n) {
			continue
		}
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			s := newStruck(t, func(e strike.Effect) strike.Verdict { return strike.Verdict{Kill: e.N == n} })
			dir := place(t, s.dir, shell(0, ""), 1)
			p, err := s.Start(t.Context(), dir, struckTask())
			if err == nil {
				wait(t, p)
			} else if !s.was() {
				t.Fatal(err)
			}
			s.check(t, dir)
		})
		t.Run(strconv.Itoa(n)+" with its agent", func(t *testing.T) {
			t.Parallel()
			var a *process
			s := newStruck(t, func(e strike.Effect) strike.Verdict {
				if e.N != n {
					return strike.Verdict{}
				}
				_ = unix.Kill(a.Process.Pid, unix.SIGKILL)
				return strike.Verdict{Kill: true}
			})
			a = s.startAgentWith(s.exe, 1, story)
			dir := filepath.Join(s.dir, "tasks/local/ada/job/0/7/1")
			eventually(t, "the keeper's end", func() bool {
				_, err := os.Stat(filepath.Join(dir, keeper.ExitFile))
				return err == nil || s.was()
			})
			a.kill()
			s.check(t, dir)
		})
	}
}

// TestKeeperKilledBesideAgent: an agent that has looked into the directory of a keeper
// which had not begun leaves nothing there by which the next one takes it for begun.
func TestKeeperKilledBesideAgent(t *testing.T) {
	t.Parallel()
	var dir string
	var looked atomic.Pointer[error]
	var s *struck
	s = newStruck(t, func(strike.Effect) strike.Verdict { // the first: it lives, and has no lock yet
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errLooked)
		_, err := s.Adopt(ctx, dir)
		looked.Store(&err)
		return strike.Verdict{Kill: true}
	})
	dir = place(t, s.dir, shell(0, ""), 1)
	if _, err := s.Start(t.Context(), dir, struckTask()); err == nil {
		t.Fatal("a keeper that was killed has started the task")
	}
	if err := looked.Load(); err == nil || !errors.Is(*err, errLooked) {
		t.Errorf("while it lived: %v, want that it was waited for", err)
	}
	s.check(t, dir)
}

var errLooked = errors.New("it was looked at once")

// TestKeeperRefusedAtEveryEffect has the disk refuse each thing that a keeper
// writes, once: a task either does not start, and it is said why, or its exit
// status is kept.
func TestKeeperRefusedAtEveryEffect(t *testing.T) {
	t.Parallel()
	all := effects(t)
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EIO} {
		for i, e := range all {
			if !e.OnDisk() || i%stride() != 0 || !turns.Takes(i) {
				continue
			}
			t.Run(errno.Error()+" "+strconv.Itoa(i+1), func(t *testing.T) {
				t.Parallel()
				s := newStruck(t, func(e strike.Effect) strike.Verdict {
					if e.N == i+1 && e.OnDisk() {
						return strike.Verdict{Errno: errno}
					}
					return strike.Verdict{}
				})
				s.refused(t, errno)
			})
		}
	}
}

// refused starts the task on a disk that refuses something with errno, and checks
// what comes of it.
func (s *struck) refused(t *testing.T, errno unix.Errno) {
	t.Helper()
	dir := place(t, s.dir, shell(0, ""), 1)
	p, err := s.Start(t.Context(), dir, struckTask())
	if err != nil {
		if !errors.Is(err, errno) && !strings.Contains(err.Error(), errno.Error()) || errors.Is(err, runtime.ErrCommand) {
			t.Errorf("start: %v, want %v", err, errno)
		}
		if p, err = s.Adopt(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		e := wait(t, p)
		why := strings.Contains(e.Message, "could not be started: ") && strings.Contains(e.Message, errno.Error())
		if e.Code != -1 || !why {
			t.Errorf("exit %v, want why it could not be started", e)
		}
	} else if e := wait(t, p); e.Code != 7 || e.Message != "" {
		t.Errorf("exit %v, want status 7", e)
	}
	if left := processesOf(filepath.Dir(dir)); len(left) > 0 {
		t.Errorf("live on: %v", left)
	}
	ranOnce(t, dir)
}

// TestKeeperRefusedUntilRepaired: a disk that refuses all from some effect on, until it is
// repaired, costs a task that runs nothing but what it wrote meanwhile; one that
// starts ends, and it is said why.
func TestKeeperRefusedUntilRepaired(t *testing.T) {
	t.Parallel()
	all := effects(t)
	for i, e := range all {
		if !e.OnDisk() || i%stride() != 0 || !turns.Takes(i) {
			continue
		}
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			t.Parallel()
			repaired := make(chan struct{})
			exits := 0
			s := newStruck(t, func(e strike.Effect) strike.Verdict {
				select {
				case <-repaired:
					return strike.Verdict{}
				default:
				}
				if e.N <= i || !e.OnDisk() {
					return strike.Verdict{}
				}
				if e.Call == "open" && filepath.Base(e.Path) == keeper.ExitFile+".new" {
					if exits++; exits == 3 {
						close(repaired) // it has tried again, and will
					}
				}
				return strike.Verdict{Errno: unix.ENOSPC}
			})
			s.refused(t, unix.ENOSPC)
		})
	}
}
