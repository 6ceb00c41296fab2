package hollow

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/schema"
)

// bench is one machine that a test plays the clock, the master and the link of.
type bench struct {
	*testing.T
	m      *machine
	now    time.Time
	events []string
	task   uint64
}

func newBench(t *testing.T, p Pattern) *bench {
	t.Helper()
	b := &bench{T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	f := New(Config{Cell: "c", Masters: []string{"nowhere"}, Count: 1, Seed: 1, Pattern: p, Observe: func(e Event) {
		what := "starts"
		if e.Exit != nil {
			what = fmt.Sprintf("ends with %d %s", e.Exit.Code, e.Exit.Signal)
		}
		b.events = append(b.events, fmt.Sprintf("%s %s", e.Assignment.Task.Short(), what))
	}})
	b.m = f.groups[0].machines[0]
	b.m.boot()
	b.begin()
	return b
}

// begin starts an agent without a link.
func (b *bench) begin() {
	b.Helper()
	a := &agent{machine: b.m, parent: b.Context(), stop: func() {}, client: link.New(link.Config{})}
	b.m.prepare(a, b.now)
}

// assign gives the machine a view.
func (b *bench) assign(list ...schema.Assignment) {
	b.task++
	a := b.m.agent.Load()
	if err := a.core.Assign(&schema.View{Epoch: 1, Version: b.task, Assignments: list}, b.now); err != nil {
		b.Fatal(err)
	}
	a.news = true
	b.m.turn(b.now)
}

// after lets time pass, turn by turn.
func (b *bench) after(d time.Duration) {
	for end := b.now.Add(d); ; {
		if b.m.wake.After(end) {
			b.now = end
			return
		}
		b.now = b.m.wake
		b.m.turn(b.now)
	}
}

// says returns the state of each task in the report.
func (b *bench) says() string {
	out := ""
	for _, t := range b.m.agent.Load().report.Load().Tasks {
		out += fmt.Sprintf("%s.%d %s %d %s\n", t.Task.Short(), t.Generation, t.State, t.Incarnation, t.Health)
	}
	return out
}

func (b *bench) want(report string, events ...string) {
	b.Helper()
	if diff := cmp.Diff(report, b.says()); diff != "" {
		b.Error("report", diff)
	}
	if diff := cmp.Diff(events, b.events); diff != "" {
		b.Error("events", diff)
	}
	b.events = nil
}

func task(kind schema.JobKind, generation uint64) schema.Assignment {
	j := &schema.Job{Cell: "c", User: "u", Name: string(kind), Kind: kind, Tasks: 1}
	j.Task.Process.Command = []string{"/bin/server"}
	j.Task.Resources.Resources = schema.Resources{CPUMilli: 1000, RAMBytes: 1 << 30, DiskBytes: 1 << 30}
	j.Task.GraceSeconds = 1
	return schema.Assignment{Task: j.ID().Task(0), Generation: generation, Data: schema.DigestOf(j), Job: j}
}

// TestLife follows tasks through their lives.
func TestLife(t *testing.T) {
	t.Parallel()
	b := newBench(t, Pattern{Start: time.Second, Batch: time.Minute, Stop: time.Second / 2})
	web, sum := task(schema.Service, 1), task(schema.Batch, 2)
	web.Job.Task.Health = &schema.Health{HTTP: &schema.HTTPCheck{Port: "http", Path: "/"}}
	web.Ports = schema.PortsOf(map[string]int{"http": 20000})
	b.assign(sum, web)
	b.want("u/batch/0.2 starting 1 \nu/service/0.1 starting 1 unknown\n")
	b.after(2 * time.Second)
	b.want("u/batch/0.2 running 1 \nu/service/0.1 running 1 healthy\n", b.events...)
	b.after(2 * time.Minute)
	b.want("u/batch/0.2 dead 1 \nu/service/0.1 running 1 healthy\n", "u/batch/0 ends with 0 ")

	next := task(schema.Service, 3)
	old := web
	old.Stop = &schema.Cause{Kind: schema.CauseUpdate, At: b.now}
	b.assign(old, next)
	b.want("u/batch/0.2 dead 1 \nu/service/0.1 stopping 1 healthy\nu/service/0.3 starting 0 \n")
	b.after(5 * time.Second)
	b.want("u/batch/0.2 dead 1 \nu/service/0.1 dead 1 \nu/service/0.3 running 1 \n", "u/service/0 ends with -1 SIGTERM", "u/service/0 starts")
	b.assign(next)
	b.after(time.Hour)
	b.want("u/service/0.3 running 1 \n")
}

// TestFaults has a machine rebooted and a task crash.
func TestFaults(t *testing.T) {
	t.Parallel()
	b := newBench(t, Pattern{})
	b.assign(task(schema.Service, 1))
	b.want("u/service/0.1 running 1 \n", "u/service/0 starts")

	was := b.m.info.Boot
	b.m.fall(b.now)
	b.begin()
	if b.m.info.Boot == was {
		t.Error("a reboot with the same boot id")
	}
	b.after(time.Minute)
	b.want("u/service/0.1 running 2 \n", "u/service/0 ends with -1 ", "u/service/0 starts")

	b.begin() // another agent adopts it
	b.after(time.Minute)
	b.want("u/service/0.1 running 2 \n")

	b.m.runs[0].end(b.now, schema.Exit{Code: 1})
	b.m.turn(b.now)
	b.after(time.Minute)
	b.want("u/service/0.1 running 3 \n", "u/service/0 ends with 1 ", "u/service/0 starts")
	if s := b.m.group.fleet.Stats(); s.Running != 1 || s.Started != 3 || s.Crashed != 1 || s.Stopped != 1 {
		t.Errorf("%+v", s)
	}
}

// TestSeed holds that a seed says what the machines are, and that another says else.
func TestSeed(t *testing.T) {
	t.Parallel()
	list := func(seed uint64) (all []schema.MachineInfo) {
		for i := range 200 {
			all = append(all, describe(&Config{Seed: seed, Prefix: "m"}, i))
		}
		return all
	}
	one := list(1)
	if diff := cmp.Diff(one, list(1)); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(one, list(2)) {
		t.Error("two seeds with the same machines")
	}
	count := map[int64]int{}
	names := map[string]bool{}
	for i := range one {
		count[one[i].Capacity.CPUMilli]++
		names[one[i].Name], names[one[i].ID] = true, true
	}
	if len(count) != len(sizes) || len(names) != 2*len(one) || one[39].Attributes["rack"] == one[40].Attributes["rack"] {
		t.Errorf("sizes %v, %d names and ids, racks %s and %s", count, len(names), one[39].Attributes["rack"], one[40].Attributes["rack"])
	}
}

// TestUsage holds usage to what the tasks may use.
func TestUsage(t *testing.T) {
	t.Parallel()
	b := newBench(t, Pattern{})
	b.now = time.Now().Add(-time.Duration(rand.N(int64(time.Hour))))
	b.assign(task(schema.Service, 1))
	u := b.m.agent.Load().usage()
	if len(u.Tasks) != 1 || u.Tasks[0].Incarnation != 1 {
		t.Fatalf("%+v", u.Tasks)
	}
	if x := u.Tasks[0]; x.CPUMilli < 200 || x.CPUMilli > 600 || x.RAMBytes < 3<<30/10 || x.RAMBytes > 7<<30/10+1 {
		t.Errorf("%+v", x)
	}
	if u.RAMAvailable+u.Tasks[0].RAMBytes != b.m.info.Capacity.RAMBytes || u.CPUMilli != u.Tasks[0].CPUMilli+baseline {
		t.Errorf("%+v", u)
	}
}
