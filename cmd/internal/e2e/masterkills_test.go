package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

var masterKills = flag.Int("e2e.masterkills", 10, "random moments at which TestMasterKilled kills the master")

// unhurried is the longest wait between two kills: long enough for a commit to be
// in the middle of anything.
const unhurried = 700 * time.Millisecond

// TestMasterKilled kills the master with SIGKILL again and again, while commits
// come, rollouts are in progress, tasks crash and are killed. By the tasks' own
// journals no index is doubled, each that should run does, and none has ended but
// by itself, by the test, or for a reason that is recorded.
func TestMasterKilled(t *testing.T) {
	t.Parallel()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("again with: -run TestMasterKilled -e2e.seed %d -e2e.masterkills %d", *seed, *masterKills)
	x := &orphaned{cell: newCell(t), rng: rand.New(rand.NewPCG(*seed, 1)), shot: map[start]bool{}, causes: map[ended]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan []string, 1)
	go func() { watched <- watchDoubles(ctx, x.cell.dir) }()
	defer func() {
		cancel()
		for _, d := range <-watched {
			t.Error(d)
		}
	}()
	x.settle(x.next())
	for x.kills < *masterKills && !t.Failed() {
		hash := x.next()
		for range 1 + x.rng.IntN(4) {
			x.wait()
			if x.rng.IntN(3) == 0 {
				x.shoot()
			}
			x.killMaster()
		}
		// What a history keeps is bounded, so not too many in a row.
		if x.unsettled++; x.unsettled == 3 || x.rng.IntN(2) == 0 {
			x.settle(hash)
		}
	}
	if !t.Failed() {
		x.settle(x.next())
	}
	t.Logf("%d kills of the master, %d of tasks, %d commits; the tasks' journals have %d starts, and %d ends of generations with their causes", x.kills, len(x.shot), x.n, x.starts, len(x.causes))
}

// orphaned is a cell whose master is killed.
type orphaned struct {
	cell      *cell
	rng       *rand.Rand
	n         int // commits
	kills     int
	unsettled int // commits since the last check
	starts    int // in the journals at the last check
	shot      map[start]bool
	causes    map[ended]string
}

// start is one start of a task, in its journal; ended a generation of which a cause
// is known.
type (
	start struct {
		task string
		n    int
	}
	ended struct {
		task       string
		generation uint64
	}
)

// next commits another version of the jobs.
func (x *orphaned) next() string {
	x.cell.t.Helper()
	word := fmt.Sprintf("commit-%d", x.n)
	file := x.cell.pack("crew",
		job{name: "web", word: word, tasks: 3, more: "update: {maxParallel: 1, minHealthySeconds: 0}"},
		job{name: "steady", tasks: 2},
		job{name: "scaled", tasks: 1 + x.n%3},
		job{name: "flaky", mode: "flaky", word: word, tasks: 2, task: "restart: delaySeconds: 0"},
		job{name: "doomed", mode: "doomed", task: "restart: attempts: 0"},
		job{name: fmt.Sprintf("count-%d", x.n), kind: "batch", mode: "batch", tasks: 2},
	)
	x.n++
	return x.cell.commit(word, map[string][]byte{teamFile: file})
}

// wait waits for a random moment, which is the scenario. Half of them are soon
// after the master was started.
func (x *orphaned) wait() {
	longest := unhurried
	if x.rng.IntN(2) == 0 {
		longest /= 5
	}
	time.Sleep(time.Duration(x.rng.Int64N(int64(longest))))
}

func (x *orphaned) killMaster() {
	x.cell.t.Helper()
	x.cell.restartMaster()
	x.kills++
}

// shoot kills a task that runs, and that would not end by itself.
func (x *orphaned) shoot() {
	x.cell.t.Helper()
	journals := readJournals(x.cell.t, x.cell.path("journals"))
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(journals)), func(name string) bool {
		job, _, _ := strings.Cut(name, ".")
		return job != "web" && job != "steady" || !journals[name].last().same()
	})
	if len(names) == 0 {
		return
	}
	name := names[x.rng.IntN(len(names))]
	if b := journals[name]; syscall.Kill(b.last().pid, syscall.SIGKILL) == nil {
		x.shot[start{name, len(b.starts) - 1}] = true
	}
}

// settle waits until the cell is as commit says, but for the job that cannot be,
// and checks what it has made of it.
func (x *orphaned) settle(commit string) {
	c := x.cell
	c.t.Helper()
	x.unsettled = 0
	s := c.until("the cell settles at "+commit, func(s *status.Status) string {
		if s.Applied != commit {
			return fmt.Sprintf("applied is %.10s", s.Applied)
		}
		for _, j := range s.Jobs {
			switch {
			case j.Updating > 0, j.Name != "crew/doomed" && j.Running+j.Done != j.Desired, j.Kind == schema.Batch && j.Done != j.Desired:
				return fmt.Sprintf("job %s: %d of %d run, %d are done, %d have the previous version", j.Name, j.Running, j.Desired, j.Done, j.Updating)
			}
		}
		for _, t := range s.Tasks {
			switch flaky := strings.HasPrefix(t.Name, "crew/flaky/"); {
			case t.State == "stopping" || t.State == "starting":
				return fmt.Sprintf("task %s is %s", t.Name, t.State)
			case flaky && t.Incarnation < 2:
				return fmt.Sprintf("task %s has not crashed yet", t.Name)
			}
		}
		return ""
	})
	x.gather(s)
	x.checkJournals(s, c.journalsOf(s))
	if c.t.Failed() {
		for _, t := range s.Tasks {
			c.t.Logf("%s: %s as pid %d, generation %d; history %q", t.Name, t.State, t.PID, t.Generation, t.History)
		}
	}
}

var generationInHistory = regexp.MustCompile(`generation ([0-9]+) on (.*)`)

// gather collects the recorded causes of ended generations, from the histories of
// tasks and of the cell.
func (x *orphaned) gather(s *status.Status) {
	c := x.cell
	c.t.Helper()
	for _, t := range s.Tasks {
		for _, h := range t.History {
			if m := generationInHistory.FindStringSubmatch(h); m != nil {
				n, err := strconv.ParseUint(m[1], 10, 64)
				c.must(err)
				x.causes[ended{journalOf(t.Name), n}] = m[2]
			}
		}
	}
	records, err := c.api.Events(c.t.Context(), client.EventQuery{EventQuery: schema.EventQuery{Newest: true, Limit: 500}}, 0)
	c.must(err)
	for _, r := range records {
		if r.Task != "" && r.Cause != "" {
			x.causes[ended{journalOf(r.Task), r.Generation}] = string(r.Cause) + ": " + r.Message
		}
	}
}

// checkJournals holds the journals against the causes and the status.
func (x *orphaned) checkJournals(s *status.Status, journals map[string]journal) {
	t := x.cell.t
	t.Helper()
	x.starts = 0
	for name, b := range journals {
		x.starts += len(b.starts)
		if b.doubles > 0 {
			t.Errorf("%s was started %d times while another process of it ran", name, b.doubles)
		}
		if b.dones > 1 {
			t.Errorf("%s is a batch task and has finished %d times", name, b.dones)
		}
		for i := range b.starts {
			x.checkStart(name, i, b)
		}
	}
	for _, task := range s.Tasks {
		b := journals[journalOf(task.Name)]
		if strings.HasPrefix(task.Name, "crew/doomed/") {
			continue // it has ended since, or not
		}
		if task.State == "running" && (b.last().pid != task.PID || !b.last().same()) {
			t.Errorf("task %s runs as pid %d, says the status; its journal says %d, alive: %t", task.Name, task.PID, b.last().pid, b.last().same())
		}
	}
}

// checkStart checks how one start of a task came to its end, if it has.
func (x *orphaned) checkStart(name string, i int, b journal) {
	t := x.cell.t
	t.Helper()
	last := i == len(b.starts)-1
	job, _, _ := strings.Cut(name, ".")
	if last && (b.ends[i] == "" && b.starts[i].same() || job == "doomed") {
		return // it runs, or ends when it likes
	}
	generation, how := b.generations[i], b.ends[i]
	shot := x.shot[start{name, i}]
	if !last && b.generations[i+1] < generation {
		t.Errorf("%s: generation %d was started after %d", name, b.generations[i+1], generation)
	}
	if !last && b.generations[i+1] == generation {
		// Its agent started it again, which it does of what has ended by itself.
		if how != "crash" && !shot {
			t.Errorf("%s: generation %d was started twice; the first start ended with %q", name, generation, how)
		}
		return
	}
	cause := x.causes[ended{name, generation}]
	switch {
	case job == "steady" && !shot:
		// No commit changes it and no machine fails: no cause would be a good one.
		t.Errorf("%s: generation %d has ended (%q, cause %q), and nobody asked for that", name, generation, how, cause)
	case cause == "":
		t.Errorf("%s: generation %d has ended (%q, killed by the test: %t), and no cause is recorded", name, generation, how, shot)
	case how == "" && !shot && job != "flaky" && !strings.HasPrefix(job, "count-"):
		// Those two may get SIGTERM before they have a trap.
		t.Errorf("%s: generation %d (%s) was killed without notice", name, generation, cause)
	}
}
