package loop_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/strike"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/turns"
)

// refusal is a disk that refuses an agent count of its writes, from number from on.
type refusal struct {
	errno       syscall.Errno
	from, count int

	mu   sync.Mutex // guards what follows
	seen int
	hit  []strike.Effect
}

// judge is asked for each effect of the agent's.
func (r *refusal) judge(dir string, e strike.Effect) strike.Verdict {
	if !e.OnDisk() || !strings.HasPrefix(e.Path, dir+"/") && e.Path != dir {
		return strike.Verdict{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen++; r.seen < r.from || r.seen >= r.from+r.count {
		return strike.Verdict{}
	}
	r.hit = append(r.hit, e)
	return strike.Verdict{Errno: r.errno}
}

// matters reports whether a refused effect is one of which something must be said:
// what a file that is locked holds is for people, and where none can be made for want
// of room the directory's own lock does; the view's second copy is of use only if the
// first is damaged.
func (r *refusal) matters(e strike.Effect) bool {
	base := filepath.Base(e.Path)
	return !strings.HasPrefix(base, "view.copy.json") && (r.errno != syscall.ENOSPC || base != "agent.lock" && base != keeper.LockFile)
}

// writes returns how many effects on the disk there were.
func (r *refusal) writes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// newRefusedStory is a story whose agents write to such a disk.
func newRefusedStory(t *testing.T, bin string, r *refusal) *realStory {
	t.Helper()
	s := newRealStory(t, bin, 0)
	tracer, err := strike.New(t.TempDir(), filepath.Join(bin, "agent"), func(e strike.Effect) strike.Verdict { return r.judge(s.dir, e) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Close() })
	s.bin, s.struck = filepath.Dir(tracer.Program), true
	return s
}

// settled keeps an agent alive until it says of generation g that it is in one of
// the states, and returns that.
func (s *realStory) settled(g uint64, states ...schema.TaskState) schema.TaskStatus {
	s.t.Helper()
	var got schema.TaskStatus
	if s.listen(func(r schema.Report) bool {
		for _, e := range r.Tasks {
			s.notes = append(s.notes, e.Note)
			if e.End != nil {
				s.notes = append(s.notes, e.End.Message)
			}
			if e.Generation == g {
				got = e
			}
		}
		return slices.Contains(states, got.State)
	}) {
		return got
	}
	s.t.Fatalf("generation %d is %s (%s), want %v\n%s", g, got.State, got.Note, states, s.stderr.String())
	return got
}

// run is what a master does: it assigns a task until a generation of it has
// started, and returns that one's assignment and how it stands.
func (s *realStory) run(job string, g *uint64, kind schema.JobKind, script string, others ...schema.Assignment) (schema.Assignment, schema.TaskStatus) {
	s.t.Helper()
	for range 20 {
		*g++
		a := s.task(job, *g, kind, script)
		s.assign(append(slices.Clone(others), a)...)
		e := s.settled(*g, schema.Running, schema.Dead)
		if e.State == schema.Running || e.End.Kind != schema.CauseStartFailed && e.End.Kind != schema.CauseOutOfResources {
			return a, e
		}
	}
	s.t.Fatalf("%s does not start\n%s", job, s.stderr.String())
	return schema.Assignment{}, schema.TaskStatus{}
}

// playBadDisk runs the story of a service and a batch task on a disk that refuses
// some of what the agent writes.
func (s *realStory) playBadDisk() {
	s.t.Helper()
	defer s.end()
	g := uint64(0)
	web, e := s.run("web", &g, schema.Service, "exec sleep 1000")
	if e.State != schema.Running {
		s.t.Errorf("web: %+v, want it to run", e)
	}
	_, _ = s.run("batch", &g, schema.Batch, "exit 0", web)
	if e = s.settled(g, schema.Dead); e.End.Kind != schema.CauseFinished {
		s.t.Errorf("batch: %+v, want it to have finished", e)
	}
	s.assign(stopped(web, schema.CauseUpdate))
	if e = s.settled(web.Generation, schema.Dead); e.End.Kind != schema.CauseUpdate {
		s.t.Errorf("web: %+v, want it to have been stopped", e)
	}
	if e = s.settled(g, schema.Dead); e.End.Kind != schema.CauseFinished {
		s.t.Errorf("batch, later: %+v, want it to have finished", e)
	}
	text := s.words()
	if strings.Contains(text, "double") || strings.Count(text, "start web") != 1 || strings.Count(text, "start batch") != 1 {
		s.t.Errorf("the tasks say:\n%s", text)
	}
}

// while is how many writes in a row are refused.
const while = 6

// TestAgentRefusedAtEveryWrite has the disk refuse each thing that an agent
// writes, once and for a while: nothing runs twice or is forgotten, it is said,
// and all goes on when the disk is back.
func TestAgentRefusedAtEveryWrite(t *testing.T) {
	t.Parallel()
	if !strike.Supported {
		t.Skip("NOT TESTED: no tracer for this architecture")
	}
	bin := installBinaries(t)
	whole := &refusal{}
	newRefusedStory(t, bin, whole).playBadDisk()
	if whole.writes() < 30 {
		t.Fatalf("only %d writes", whole.writes())
	}
	t.Logf("%d writes", whole.writes())
	step := 1
	if testing.Short() {
		step = 12
	}
	for from := 1; from <= whole.writes(); from += step {
		var refusals []*refusal
		if turns.Takes(from / step) {
			refusals = append(refusals, &refusal{from: from, count: 1, errno: syscall.ENOSPC})
		}
		if from%while == 1 && turns.Takes(from/while) {
			refusals = append(refusals, &refusal{from: from, count: while, errno: syscall.EIO})
		}
		for _, r := range refusals {
			t.Run(fmt.Sprintf("%d %d %s", from, r.count, r.errno), func(t *testing.T) {
				t.Parallel()
				s := newRefusedStory(t, bin, r)
				s.playBadDisk()
				said := strings.Join(s.notes, "\n") + s.stderr.String()
				if slices.ContainsFunc(r.hit, r.matters) && !strings.Contains(said, r.errno.Error()) {
					t.Errorf("%v refused, and nothing said of it:\n%s", r.hit, said)
				}
				if t.Failed() {
					t.Logf("refused: %v\n%s", r.hit, s.stderr.String())
				}
			})
		}
	}
}
