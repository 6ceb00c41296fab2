package linktest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentlink "github.com/musterhq/muster/nodeagent/link"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

const never = time.Hour

func TestJoinPushReport(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	s, _ := serve(t, path, masterlink.Config{Master: m, PullEvery: 10 * time.Millisecond})

	before := []schema.Assignment{task("web", 1)}
	m.push(s, 1, before)
	_, stop := run(t, path, agentlink.Config{Agent: a})
	eventually(t, "the view that was pushed before the machine joined", func() bool { v, _ := a.has(); return v == 1 })
	_, got := a.has()
	if diff := cmp.Diff(before, got); diff != "" {
		t.Fatal(diff)
	}

	stopIt := task("web", 1)
	stopIt.Stop = &schema.Cause{Kind: schema.CauseUpdate, At: time.Unix(5, 0).UTC()}
	after := []schema.Assignment{task("db", 2), stopIt, task("web", 3)}
	m.push(s, 2, after)
	eventually(t, "the next view", func() bool { v, _ := a.has(); return v == 2 })
	_, got = a.has()
	if diff := cmp.Diff(after, got); diff != "" {
		t.Fatal(diff)
	}
	m.push(s, 3, nil)
	eventually(t, "the empty view", func() bool { v, got := a.has(); return v == 3 && len(got) == 0 })
	m.push(s, 4, before)
	eventually(t, "data that was forgotten, again", func() bool { v, got := a.has(); return v == 4 && len(got) == 1 })

	a.set(func() {
		a.tasks = []schema.TaskStatus{{Task: before[0].Task, Generation: 1, State: schema.Running, PID: 42}}
	})
	eventually(t, "the report", func() bool { return len(m.last().Tasks) == 1 })
	if diff := cmp.Diff(*a.Report(), m.last()); diff != "" {
		t.Error(diff)
	}
	n := m.count()
	eventually(t, "unchanged reports that count as signs of life", func() bool { return m.count() > n+2 })
	stop()
	eventually(t, "that the machine left", func() bool { return slices.Equal(m.gone(), []uint64{1}) })
}

func TestPushIsPrompt(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	s, _ := serve(t, path, masterlink.Config{Master: m, PullEvery: never})
	run(t, path, agentlink.Config{Agent: a})
	eventually(t, "the first report", func() bool { return m.count() == 1 })
	start := time.Now()
	const views = 200
	for i := range uint64(views) {
		m.push(s, i+1, []schema.Assignment{task("web", i+1)})
		for v, _ := a.has(); v != i+1; v, _ = a.has() {
			if time.Since(start) > patience {
				t.Fatalf("view %d never came", i+1)
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
	t.Logf("a push takes %v", time.Since(start)/views)
}

func TestHint(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	serve(t, path, masterlink.Config{Master: m, PullEvery: never})
	c, _ := run(t, path, agentlink.Config{Agent: a})
	eventually(t, "the first report", func() bool { return m.count() == 1 })

	start := time.Now()
	a.set(func() { a.view.Version = 7 })
	c.Hint()
	eventually(t, "a report because of the hint", func() bool { return m.last().View == 7 })
	t.Logf("hint to report: %v", time.Since(start))

	n, start := m.count(), time.Now()
	for time.Since(start) < 500*time.Millisecond {
		c.Hint()
		time.Sleep(100 * time.Microsecond)
	}
	a.set(func() { a.view.Version = 8 })
	c.Hint()
	eventually(t, "the last change", func() bool { return m.last().View == 8 })
	seconds := time.Since(start).Seconds()
	if pulls := m.count() - n; float64(pulls) > seconds*20+2 {
		t.Errorf("%d pulls in %.2f s: want at most 20 a second", pulls, seconds)
	}
}

func TestReconnectAfterRestart(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	_, stop := serve(t, path, masterlink.Config{Master: m})
	run(t, path, agentlink.Config{Agent: a})
	eventually(t, "the first report", func() bool { return m.count() == 1 })
	var slowest time.Duration
	for i := range 5 {
		stop()
		time.Sleep(time.Duration(i) * 100 * time.Millisecond) // the master is away
		start := time.Now()
		var s *masterlink.Server
		s, stop = serve(t, path, masterlink.Config{Master: m})
		m.push(s, uint64(i+1), nil)
		eventually(t, "the agent is back", func() bool { v, _ := a.has(); return v == uint64(i+1) })
		slowest = max(slowest, time.Since(start))
	}
	t.Logf("back after at most %v", slowest)
	if slowest > 2*time.Second { // 750 ms and what a busy machine adds
		t.Errorf("back after %v", slowest)
	}
	if got := m.epoch("m1"); got != 6 {
		t.Errorf("epoch %d: want 6", got)
	}
}

func TestEpochFencing(t *testing.T) {
	t.Parallel()
	path, a := socket(t), newAgent("m1")
	var said journal
	newer, older := newMaster(), newMaster()
	newer.epochs["m1"] = 6
	quick := agentlink.Backoff{Refused: 5 * time.Millisecond}
	s, stop := serve(t, path, masterlink.Config{Master: newer})
	newer.push(s, 1, []schema.Assignment{task("web", 1)})
	_, stopAgent := run(t, path, agentlink.Config{Agent: a, Backoff: quick})
	eventually(t, "the view of the newer master", func() bool { v, _ := a.has(); return v == 1 })
	stop()

	s, stop = serve(t, path, masterlink.Config{Master: older, Log: said.log()})
	older.push(s, 99, nil)
	eventually(t, "the old master logs why", func() bool { return said.has("epoch 1 of the master is older than 7") })
	stopAgent()
	// A new process of the agent knows it from disk.
	a.set(func() { a.epoch = 1000 })
	run(t, path, agentlink.Config{Agent: a, Backoff: quick})
	eventually(t, "the old master logs it again", func() bool { return said.has("has seen epoch 1000") })
	if v, view := a.has(); v != 1 || len(view) != 1 || older.count() != 0 {
		t.Errorf("the old master was obeyed: version %d, %d assignments, %d reports", v, len(view), older.count())
	}
	stop()
}

// A second agent of a name that answers is refused however often it asks, and logs
// that; when the first has gone it is let in.
func TestSecondAgentIsRefused(t *testing.T) {
	t.Parallel()
	path, m := socket(t), newMaster()
	first, second := newAgent("m1"), newAgent("m1")
	var said journal
	serve(t, path, masterlink.Config{Master: m, PullEvery: never}) // it has to be asked
	quick := agentlink.Backoff{Min: time.Millisecond, Refused: 5 * time.Millisecond}
	_, stop := run(t, path, agentlink.Config{Agent: first, Backoff: quick})
	eventually(t, "the first agent joined", func() bool { return first.seen() == 1 })
	if want := fmt.Sprintf("process %d of uid %d on the master's machine", os.Getpid(), os.Getuid()); m.from != want {
		t.Errorf("joined from %q, want %q", m.from, want)
	}
	run(t, path, agentlink.Config{Agent: second, Backoff: quick, Log: said.log()})
	refusals := func() (n int) { second.set(func() { n = second.refused }); return n }
	eventually(t, "the second agent is refused, often", func() bool { return refusals() > 20 })
	if !said.has("the other one is connected\\nhint: forget it") {
		t.Error("the second agent does not say why")
	}
	if first.seen() != 1 || second.seen() != 0 || m.epoch("m1") != 1 {
		t.Errorf("the name was given away: epoch %d", m.epoch("m1"))
	}
	stop()
	eventually(t, "the second agent has the name", func() bool { return second.seen() == 2 })
}

// An agent that connects again is not its own rival, and one that does not answer is
// none: its machine may have lost its power.
func TestDeafAgentIsNoRival(t *testing.T) {
	t.Parallel()
	path, m := socket(t), newMaster()
	first, second := newAgent("m1"), newAgent("m1")
	s, _ := serve(t, path, masterlink.Config{Master: m, PullEvery: never})
	quick := agentlink.Backoff{Min: time.Millisecond, Refused: 5 * time.Millisecond}
	c, _ := run(t, path, agentlink.Config{Agent: first, Backoff: quick})
	for i := range uint64(5) {
		eventually(t, "the agent joined", func() bool { return first.seen() == i+1 && m.count() > int(i) })
		if i < 4 {
			c.Rejoin()
		}
	}
	if n := first.refused; n > 0 {
		t.Errorf("refused %d times beside itself", n)
	}
	m.push(s, 1, nil)
	eventually(t, "a view", func() bool { v, _ := first.has(); return v == 1 })
	first.mu.Lock() // it reports nothing from now on
	defer first.mu.Unlock()
	run(t, path, agentlink.Config{Agent: second, Backoff: quick})
	eventually(t, "the second agent took over", func() bool { return second.seen() == 6 })
}

func TestOtherCell(t *testing.T) {
	t.Parallel()
	path, m := socket(t), newMaster()
	var said journal
	serve(t, path, masterlink.Config{Master: m})
	run(t, path, agentlink.Config{Agent: newAgent("m1"), Cell: "other", Log: said.log()})
	eventually(t, "the agent logs the refusal", func() bool { return said.has(`of cell \"other\"`) && said.has(`of cell \"c\"`) })
	if m.epoch("m1") != 0 {
		t.Error("it joined")
	}
}

func TestJoinFails(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	m.refuse = errors.New("the store is away")
	var said journal
	serve(t, path, masterlink.Config{Master: m})
	run(t, path, agentlink.Config{Agent: a, Log: said.log()})
	eventually(t, "the agent logs the refusal", func() bool { return said.has("the store is away") })
	m.mu.Lock()
	m.refuse = nil
	m.mu.Unlock()
	eventually(t, "it joins later", func() bool { return a.seen() == 1 })
}

func TestViewThatCannotBeKeptComesAgain(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	a.fail = errors.New("no space left")
	var said journal
	s, _ := serve(t, path, masterlink.Config{Master: m, Log: said.log()})
	m.push(s, 1, nil)
	run(t, path, agentlink.Config{Agent: a})
	eventually(t, "the master logs the refusal", func() bool { return said.has("assignments of version 1: no space left") })
	a.set(func() { a.fail = nil })
	eventually(t, "the view", func() bool { v, _ := a.has(); return v == 1 })
}

func TestOversize(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	var said journal
	s, _ := serve(t, path, masterlink.Config{Master: m, PullEvery: 5 * time.Millisecond, Log: said.log()})
	run(t, path, agentlink.Config{Agent: a, Backoff: agentlink.Backoff{Refused: 5 * time.Millisecond}})

	huge := task("huge", 1)
	huge.Job.Task.Env = map[string]string{"X": strings.Repeat("x", 17<<20)}
	huge.Data = schema.DigestOf(huge.Job)
	m.push(s, 1, []schema.Assignment{huge})
	eventually(t, "the error of the view", func() bool { return said.has("view not sent") && said.has("carries at most 16777216") })
	m.push(s, 2, nil)
	eventually(t, "the next view", func() bool { v, _ := a.has(); return v == 2 })

	// The largest that a master sends.
	huge.Job.Task.Env["X"] = ""
	huge.Job.Task.Env["X"] = strings.Repeat("x", schema.MaxJobData-len(schema.Canonical(huge.Job)))
	huge.Data = schema.DigestOf(huge.Job)
	m.push(s, 3, []schema.Assignment{huge})
	eventually(t, "the view with the largest data", func() bool { v, _ := a.has(); return v == 3 })

	a.set(func() {
		a.tasks = []schema.TaskStatus{{Task: huge.Task, State: schema.Running, Note: strings.Repeat("x", 17<<20)}}
	})
	eventually(t, "the error of the report", func() bool { return said.has("the report on 1 tasks has 17825") })
	a.set(func() { a.tasks[0].Note = "" })
	eventually(t, "the next report", func() bool { return len(m.last().Tasks) == 1 })

	// Large, and allowed: of a text the beginning is taken.
	a.set(func() { a.tasks[0].Note = strings.Repeat("x", 15<<20) })
	eventually(t, "a large report", func() bool { r := m.last(); return len(r.Tasks) == 1 && len(r.Tasks[0].Note) == linkpb.MaxText })
}

func TestAnotherMasterAnswers(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, path, masterlink.Config{Master: newMaster()})
	if _, err := local.Listen(path); !errors.Is(err, local.ErrAnswered) {
		t.Errorf("a second listener: %v", err)
	}
}

// Agent and master of one machine find that they have one clock.
func TestClocksAgree(t *testing.T) {
	t.Parallel()
	path := socket(t)
	m := newMaster()
	_, stopServer := serve(t, path, masterlink.Config{Master: m, PullEvery: time.Millisecond})
	defer stopServer()
	type sample struct{ ahead, within time.Duration }
	samples := make(chan sample, 100)
	_, stop := run(t, path, agentlink.Config{Agent: newAgent("m1"), Clock: func(ahead, within time.Duration) {
		select {
		case samples <- sample{ahead, within}:
		default:
		}
	}})
	defer stop()
	for range 20 {
		if s := <-samples; s.ahead.Abs() > s.within {
			t.Errorf("the master's clock is ahead by %v within %v", s.ahead, s.within)
		}
	}
}
