package nodeagent_test

import (
	order "cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// driver carries out what an Agent wants done, and writes down in which order.
type driver struct {
	agent *nodeagent.Agent
	now   time.Time
	did   []string
	// refuse is what the disk has to say to a write of such a document.
	refuse map[nodeagent.DocumentKind]error
	turn   *nodeagent.Turn // the last
	acted  *nodeagent.Act  // likewise
	given  nodeagent.Given // what tasks are started with
}

func newDriver(found nodeagent.Found) *driver {
	cfg := nodeagent.AgentConfig{Cell: "local", Machine: schema.MachineInfo{Name: "m1", Boot: "boot-1"}}
	return &driver{agent: nodeagent.NewAgent(cfg, found, t0), now: t0, refuse: map[nodeagent.DocumentKind]error{}}
}

// assign welcomes the agent and gives it a view.
func (d *driver) assign(t *testing.T, version uint64, list ...schema.Assignment) {
	t.Helper()
	err := errors.Join(d.agent.Welcome(1, d.now), d.agent.Assign(&schema.View{Epoch: 1, Version: version, Assignments: list}, d.now))
	if err != nil {
		t.Fatal(err)
	}
}

// decide makes a turn, and returns what was done in it.
func (d *driver) decide() []string {
	d.did = nil
	d.agent.Decide()
	for {
		r, more := d.agent.Ready(d.now)
		if !more {
			return d.did
		}
		for _, e := range r.Log {
			d.note("log %s", e.Kind)
		}
		for _, ref := range r.Reread {
			d.note("reread %s", ref.Task.Short())
		}
		for _, w := range r.Writes {
			err := d.refuse[w.Kind]
			d.note("write %s%s", w.Kind, map[bool]string{true: " again"}[w.Again])
			if !d.agent.Stored(w, err, d.now) {
				break
			}
		}
		if r.Action != nil {
			d.act(r.Action)
		}
		if r.Turn != nil {
			d.turn = r.Turn
		}
	}
}

func (d *driver) act(x *nodeagent.Act) {
	d.note("%s %s", x.Kind, x.Task.Short())
	d.acted = x
	d.agent.Done(x, nil, d.now)
	switch {
	case x.Kind != nodeagent.Start:
	case x.Unkept != nil:
		d.note("refused: %v", x.Unkept)
		cause := schema.Cause{Kind: schema.CauseOutOfResources, Resource: schema.MachineDisk, Message: x.Unkept.Error()}
		d.agent.Started(incarnationOf(x.Task, x.Generation, x.Incarnation), &nodeagent.StartOutcome{Err: x.Unkept, Refused: &cause}, d.now)
	default:
		process := nodeagent.Process{Boot: "boot-1", PID: 7, StartedAt: d.now, Given: d.given}
		d.agent.Started(incarnationOf(x.Task, x.Generation, x.Incarnation), &nodeagent.StartOutcome{Written: true, Process: process}, d.now)
	}
}

func (d *driver) exit(task schema.TaskName, code int) {
	d.agent.Exited(incarnationOf(task, 1, 1), nodeagent.Process{Boot: "boot-1", PID: 7, Exit: &schema.Exit{Code: code, At: d.now}}, d.now)
}

func incarnationOf(task schema.TaskName, generation uint64, n int) nodeagent.Running {
	return nodeagent.Running{TaskRef: schema.TaskRef{Task: task, Generation: generation}, Incarnation: n}
}

func (d *driver) note(format string, args ...any) {
	d.did = append(d.did, fmt.Sprintf(format, args...))
}

func (d *driver) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, d.decide()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestAgentWritesBeforeItActs: what must not be forgotten is handed out before what is
// done by it.
func TestAgentWritesBeforeItActs(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	web := assignment("web", 0, 1, schema.Service)
	d.assign(t, 1, web)
	d.want(t, "a view", "log confirmed", "write view", "write view", "start u/web/0")
	d.want(t, "nothing new")
	d.assign(t, 2, stopping(web, schema.CauseUpdate))
	d.want(t, "a stop", "write view", "write stop", "term u/web/0")
	d.exit(web.Task, 0)
	d.want(t, "its end", "write end", "end u/web/0")
	if got := d.turn.Report.Tasks[0]; got.State != schema.Dead || !d.turn.News {
		t.Errorf("report %+v, news %t, want it dead", got, d.turn.News)
	}
	d.want(t, "nothing new")
	if d.turn.News {
		t.Error("a report that says the same is news")
	}
}

// TestAgentOnBadDisk: what the disk refuses holds all the same, is said, and is written
// again.
func TestAgentOnBadDisk(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	web := assignment("web", 0, 1, schema.Service)
	d.assign(t, 1, web)
	d.decide()
	full := &nodeagent.DiskError{Err: errors.New("no space left on device"), Trouble: nodeagent.DiskFull}
	d.refuse = map[nodeagent.DocumentKind]error{nodeagent.ViewDocument: full, nodeagent.StopDocument: full, nodeagent.EndDocument: full}
	d.assign(t, 2, stopping(web, schema.CauseUpdate))
	d.want(t, "a stop", "write view", "log conditions", "write stop", "term u/web/0")
	d.exit(web.Task, 0)
	d.want(t, "its end", "write end", "end u/web/0")
	got := d.turn.Report
	if len(got.Conditions) != 1 || got.Conditions[0].Kind != schema.DiskPressure {
		t.Errorf("conditions %v, want the disk's", got.Conditions)
	}
	if s := got.Tasks[0]; s.State != schema.Dead || !strings.HasPrefix(s.Note, "not written to disk yet: no space left") {
		t.Errorf("%+v, want it dead, and that this is not on disk", s)
	}
	d.want(t, "too early to write again")
	d.now = d.agent.Wake()
	d.want(t, "the first is refused again, and the others are not tried", "write view again")
	clear(d.refuse)
	d.now = d.agent.Wake()
	d.want(t, "the disk is back", "write view again", "write stop again", "write end again")
	if s := d.turn.Report.Tasks[0]; s.Note != "" {
		t.Errorf("note %q, want none", s.Note)
	}
	d.want(t, "all is written")
}

// TestAgentStartsByStoredView: nothing is started by a view that the disk has not, which
// an agent that comes after would know nothing of: it is written again first, once for all
// starts of a turn.
func TestAgentStartsByStoredView(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	a, b, c := assignment("a", 0, 1, schema.Service), assignment("b", 0, 2, schema.Service), assignment("c", 0, 3, schema.Service)
	full := &nodeagent.DiskError{Err: errors.New("no space left"), Trouble: nodeagent.DiskFull}
	refuse := map[nodeagent.DocumentKind]error{nodeagent.ViewDocument: full}
	d.refuse = refuse
	d.assign(t, 1, a)
	if r, more := d.agent.Ready(d.now); !more || d.agent.Stored(r.Writes[0], full, d.now) {
		t.Fatalf("handed out %+v, want the view", r)
	}
	d.refuse = nil
	d.want(t, "the disk takes it the second time", "log conditions", "write view again", "start u/a/0")
	d.refuse = refuse
	d.assign(t, 2, a, b, c)
	d.want(t, "it does not", "write view", "write view again",
		"start u/b/0", "refused: no space left", "start u/c/0", "refused: no space left", "write assignment", "write end", "end u/b/0", "write assignment", "write end", "end u/c/0")
	d.agent.Exited(incarnationOf(a.Task, 1, 1), nodeagent.Process{Boot: "boot-1", Exit: &schema.Exit{Code: 1}}, d.now)
	d.now = d.now.Add(time.Minute)
	d.want(t, "what the stored view asks for restarts", "write view again", "start u/a/0")
}

// TestAgentTakesWholeEnd: all that the machine says of an end counts at once, such as that
// somebody who shuts it down has sent SIGTERM: a batch task that exits with 0 on that has
// not finished.
func TestAgentTakesWholeEnd(t *testing.T) {
	t.Parallel()
	a := assignment("a", 0, 1, schema.Batch)
	d := newDriver(nodeagent.Found{})
	d.assign(t, 1, a)
	d.want(t, "a view", "log confirmed", "write view", "write view", "start u/a/0")
	end := nodeagent.Process{
		Boot: "boot-1", PID: 7, StartedAt: d.now, Exit: &schema.Exit{Incarnation: 1, At: d.now}, Terminated: true, Unseen: true, EndedItself: true,
		Note: "held", Limited: true, Limits: nodeagent.TaskLimits{CPUMilli: 1},
	}
	d.agent.Exited(incarnationOf(a.Task, 1, 1), end, d.now)
	if diff := cmp.Diff(end, d.agent.Held(schema.TaskRef{Task: a.Task, Generation: 1}).Incarnations[0].Process); diff != "" {
		t.Errorf("what is held of the end (-want +got):\n%s", diff)
	}
	d.want(t, "its end", "start u/a/0")
}

// TestAgentSaysTheSame: a turn without news has the report of the turn before, so that what
// is made of it need not be made again.
func TestAgentSaysTheSame(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	d.assign(t, 1, assignment("a", 0, 1, schema.Service))
	for range 3 {
		d.decide()
	}
	was := d.agent.Report()
	if d.decide(); d.turn.News || d.turn.Report != was || d.agent.Report() != was {
		t.Errorf("a turn in which nothing happens, news %t, has another report", d.turn.News)
	}
	d.exit(assignment("a", 0, 1, schema.Service).Task, 1)
	if d.decide(); !d.turn.News || d.turn.Report == was || d.agent.Report() != d.turn.Report {
		t.Errorf("a turn in which a task has ended, news %t, has the same report", d.turn.News)
	}
}

// TestAgentGoneDirectory: what was to be kept of a task whose directory has gone is given
// up, and what is refused for a reason of its own does not keep the others from being
// written.
func TestAgentGoneDirectory(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	web := assignment("web", 0, 1, schema.Service)
	d.assign(t, 1, web)
	d.decide()
	d.refuse = map[nodeagent.DocumentKind]error{
		nodeagent.ViewDocument: errors.New("bad name"),
		nodeagent.StopDocument: &nodeagent.DiskError{Err: errors.New("no such file"), Trouble: nodeagent.Vanished},
	}
	d.assign(t, 2, stopping(web, schema.CauseUpdate))
	d.want(t, "a stop", "write view", "write stop", "term u/web/0")
	d.now = d.now.Add(time.Second)
	d.want(t, "both again", "write view again", "write stop again")
	d.now = d.now.Add(time.Second)
	d.want(t, "one is gone", "write view again")
}

// TestAgentFailedAction: what cannot be done is said, and tried again after a while.
func TestAgentFailedAction(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	web := assignment("web", 0, 1, schema.Service)
	d.assign(t, 1, web)
	d.decide()
	d.assign(t, 2, stopping(web, schema.CauseUpdate))
	var tried []string
	for len(tried) < 2 {
		before := d.now
		d.agent.Decide()
		for r, more := d.agent.Ready(d.now); more; r, more = d.agent.Ready(d.now) {
			for _, w := range r.Writes {
				d.agent.Stored(w, nil, d.now)
			}
			if r.Action != nil {
				tried = append(tried, string(r.Action.Kind))
				d.agent.Done(r.Action, errors.New("operation not permitted"), d.now)
			}
			if r.Turn != nil {
				d.turn = r.Turn
			}
		}
		if s := d.turn.Report.Tasks[0]; s.Note != "operation not permitted" {
			t.Errorf("note %q, want what went wrong", s.Note)
		}
		if d.now = d.agent.Wake(); !d.now.After(before) {
			t.Fatalf("after %v: wake at %v, which is not after %v", tried, d.now, before)
		}
	}
	// SIGTERM was sent, for all that is known: SIGKILL follows after the grace period.
	if !slices.Equal(tried, []string{"term", "kill"}) {
		t.Errorf("tried %v", tried)
	}
}

// TestAgentUnreadable: what cannot be read is left alone and read again until it is.
func TestAgentUnreadable(t *testing.T) {
	t.Parallel()
	web := assignment("web", 0, 1, schema.Service)
	ref := schema.TaskRef{Task: web.Task, Generation: 1}
	unreadable := nodeagent.FoundTask{Unreadable: "input/output error", Held: nodeagent.Held{Assignment: schema.Assignment{Task: web.Task, Generation: 1}}}
	d := newDriver(nodeagent.Found{Tasks: []nodeagent.FoundTask{unreadable}})
	d.assign(t, 1, web)
	d.want(t, "the first turn", "log confirmed", "write view", "write view", "reread u/web/0")
	if s := d.turn.Report.Tasks[0]; s.State != schema.Starting || !strings.Contains(s.Note, "input/output error") {
		t.Errorf("%+v, want what is wrong with it", s)
	}
	d.want(t, "while it is read")
	d.agent.Reread(ref, &unreadable, d.now)
	d.want(t, "too early to read again")
	d.now = d.now.Add(10 * time.Second)
	d.want(t, "later", "reread u/web/0")
	found := nodeagent.FoundTask{Written: true, Held: nodeagent.Held{Assignment: web, Incarnations: []nodeagent.Incarnation{{Number: 1, Process: nodeagent.Process{Boot: "boot-1", PID: 7, StartedAt: t0}}}}}
	if !d.agent.Reread(ref, &found, d.now) {
		t.Error("what was found does not count")
	}
	d.want(t, "when it is read")
	if s := d.turn.Report.Tasks[0]; s.State != schema.Running {
		t.Errorf("%+v, want it to run", s)
	}
	if d.agent.Reread(ref, nil, d.now) {
		t.Error("what is known is given up")
	}
}

// TestAgentLostAssignment: an assignment that was damaged is that of the next view, and
// written again.
func TestAgentLostAssignment(t *testing.T) {
	t.Parallel()
	web := assignment("web", 0, 1, schema.Service)
	guessed := schema.Assignment{Task: web.Task, Generation: 1, Job: &schema.Job{}}
	d := newDriver(nodeagent.Found{Tasks: []nodeagent.FoundTask{{
		Guessed: true, Held: nodeagent.Held{Assignment: guessed, Incarnations: []nodeagent.Incarnation{{Number: 1, Process: nodeagent.Process{Boot: "boot-1", PID: 7, StartedAt: t0}}}},
	}}})
	d.assign(t, 1, web)
	d.want(t, "a view", "log confirmed", "write view", "write view", "write assignment")
	document := nodeagent.Document{Kind: nodeagent.AssignmentDocument, TaskRef: schema.TaskRef{Task: web.Task, Generation: 1}}
	if diff := cmp.Diff(&web, d.agent.Content(document)); diff != "" {
		t.Errorf("what is written (-want +got):\n%s", diff)
	}
	if !slices.Contains(d.agent.Documents(), document) {
		t.Error("the assignment is not among what must be on disk")
	}
}

// TestAgentPorts: of tasks with networks of their own only those that share one, as those of an
// alloc do, are in each other's way.
func TestAgentPorts(t *testing.T) {
	t.Parallel()
	at := func(job string, own bool, alloc int) schema.Assignment {
		a := assignment(job, 0, 3, schema.Service)
		a.OwnNetwork, a.Ports = own, schema.NewPorts(schema.Port{Name: "http", Port: 80})
		if alloc >= 0 {
			a.Alloc = &schema.AllocUse{Set: "pair", Index: alloc, Generation: 1}
		}
		return a
	}
	for name, c := range map[string]struct {
		first, second schema.Assignment
		taken         string
	}{
		"the same alloc":          {at("web", true, 0), at("zip", true, 0), "port http (80): address already in use by u/web/0 generation 3"},
		"another alloc":           {at("web", true, 0), at("zip", true, 1), ""},
		"no alloc":                {at("web", true, -1), at("zip", true, -1), ""},
		"the machine's":           {at("web", true, 0), at("zip", false, 0), ""},
		"the machine's, of both":  {at("web", false, 0), at("zip", false, -1), "port http (80): address already in use by u/web/0 generation 3"},
		"the machine's, of first": {at("web", false, 0), at("zip", true, 0), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver(nodeagent.Found{})
			all := []schema.Assignment{assignment("pair", 0, 1, schema.Allocs), assignment("pair", 1, 1, schema.Allocs)}
			for version, a := range []schema.Assignment{c.first, c.second} {
				all = append(all, a)
				d.assign(t, uint64(version+1), all...)
				d.decide()
			}
			if d.acted.Task != c.second.Task || fmt.Sprint(d.acted.InUse) != order.Or(c.taken, "<nil>") {
				t.Errorf("the start of %s: %v, want %q", d.acted.Task.Short(), d.acted.InUse, c.taken)
			}
		})
	}
}
