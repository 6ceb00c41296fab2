package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// memory is what a process has of memory, in KiB: all that is resident, its share
// of what it shares, and what is its own.
type memory struct{ resident, proportional, private int }

func memoryOf(b *testing.B, pid int) (m memory) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var n int
		for prefix, sum := range map[string]*int{"Rss": &m.resident, "Pss": &m.proportional, "Private_Clean": &m.private, "Private_Dirty": &m.private} {
			if _, err := fmt.Sscanf(line, prefix+": %d kB", &n); err == nil {
				*sum += n
			}
		}
	}
	return m
}

// BenchmarkTwoHundred assigns 200 tasks to an agent at once, and one at a time
// when those run: the times from the push by the master until the process runs,
// and what agent and keepers then have of memory.
func BenchmarkTwoHundred(b *testing.B) {
	const tasks, single = 200, 20
	var all, one []time.Duration
	var agent memory
	var keepers []memory
	for b.Loop() {
		c := newCell(b)
		c.buildReal(b)
		c.start()
		var view []schema.Assignment
		add := func() { view = append(view, c.task(len(view), uint64(len(view)+1))) }
		started := func(since time.Time, from int) (list []time.Duration) {
			for _, s := range c.until("all run", allRunning(len(view))) {
				if s.Task.Index >= from {
					list = append(list, s.StartedAt.Sub(since))
				}
			}
			return list
		}
		add()
		c.push(view...)
		c.until("one runs", allRunning(1))
		for range tasks {
			add()
		}
		now := time.Now()
		c.push(view...)
		all = append(all, started(now, 1)...)
		for range single {
			add()
			now := time.Now()
			c.push(view...)
			one = append(one, started(now, len(view)-1)...)
		}
		agent = memoryOf(b, c.agent.Process.Pid)
		keepers = append(keepers, c.keepers(b)...)
		c.signal(syscall.SIGINT)
	}
	slices.Sort(all)
	slices.Sort(one)
	ms := func(list []time.Duration, percent int) float64 {
		return float64(list[(len(list)-1)*percent/100].Microseconds()) / 1000
	}
	median := func(of func(memory) int) float64 {
		var list []int
		for _, k := range keepers {
			list = append(list, of(k))
		}
		slices.Sort(list)
		return float64(list[len(list)/2])
	}
	b.ReportMetric(ms(all, 50), "all-p50-ms")
	b.ReportMetric(ms(all, 100), "all-last-ms")
	b.ReportMetric(ms(one, 50), "one-p50-ms")
	b.ReportMetric(float64(agent.resident), "agent-resident-KiB")
	b.ReportMetric(median(func(m memory) int { return m.resident }), "keeper-resident-KiB")
	b.ReportMetric(median(func(m memory) int { return m.proportional }), "keeper-proportional-KiB")
	b.ReportMetric(median(func(m memory) int { return m.private }), "keeper-private-KiB")
}

// buildReal puts the programs there as they are released.
func (c *cell) buildReal(b *testing.B) {
	b.Helper()
	out, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", c.dir, ".", "../muster-keeper").CombinedOutput()
	if err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
}

// BenchmarkAtRest is what an agent takes of a processor, and of memory, with 500
// tasks that only wait; and with 60 more that each have a check by a command each
// second. Beside it, after it, is the floor: what the commands alone take when a shell
// forks them as often.
func BenchmarkAtRest(b *testing.B) {
	const tasks, checked, look = 500, 60, 20 * time.Second
	for b.Loop() {
		c := newCellPulling(b, 0)
		c.buildReal(b)
		c.start()
		var view []schema.Assignment
		for i := range tasks {
			view = append(view, c.task(i, uint64(i+1)))
		}
		c.push(view...)
		c.until("all run", allRunning(tasks))
		time.Sleep(look / 3) // what was started is measured for the first time
		spent := func() time.Duration {
			before := ticksOf(b, c.agent.Process.Pid)
			time.Sleep(look)
			return ticksOf(b, c.agent.Process.Pid) - before
		}
		b.ReportMetric(100*spent().Seconds()/look.Seconds(), "percent-at-rest")
		b.ReportMetric(float64(memoryOf(b, c.agent.Process.Pid).resident)/1024, "agent-resident-MiB")
		for i := range checked {
			a := c.task(tasks+i, uint64(tasks+i+1))
			a.Job.Task.Health = &schema.Health{
				Exec: &schema.ExecCheck{Command: []string{"/bin/true"}}, IntervalSeconds: 1, TimeoutSeconds: 10, Failures: 3, Successes: 1,
			}
			a.Data = schema.DigestOf(a.Job)
			view = append(view, a)
		}
		c.push(view...)
		c.until("all run", allRunning(tasks+checked))
		b.ReportMetric(100*spent().Seconds()/look.Seconds(), "percent-with-checks")
		c.signal(syscall.SIGINT)
		b.ReportMetric(100*forkedBySh(b, checked, look/2).Seconds()/(look/2).Seconds(), "percent-floor")
	}
}

// forkedBySh has a shell run the command of the checks so often each second, evenly,
// and returns the processor time of shell and commands.
func forkedBySh(b *testing.B, each int, length time.Duration) time.Duration {
	b.Helper()
	sh := exec.Command("/bin/sh", "-c", "while read line; do /bin/true; done")
	in, err := sh.StdinPipe()
	if err == nil {
		err = sh.Start()
	}
	tick := time.NewTicker(time.Second / time.Duration(each))
	defer tick.Stop()
	for range each * int(length/time.Second) {
		<-tick.C
		if err == nil {
			_, err = io.WriteString(in, "now\n")
		}
	}
	if err := errors.Join(err, in.Close(), sh.Wait()); err != nil {
		b.Fatal(err)
	}
	return sh.ProcessState.SystemTime() + sh.ProcessState.UserTime()
}

// ticksOf returns the processor time of a process and of its children, also of those
// that still run.
func ticksOf(b *testing.B, pid int) (spent time.Duration) {
	b.Helper()
	for _, name := range []string{strconv.Itoa(pid), checksOf(b, pid)} {
		if name == "" {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			b.Fatal(err)
		}
		for _, field := range strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[11:15] {
			n, err := strconv.Atoi(field)
			if err != nil {
				b.Fatal(err)
			}
			spent += time.Duration(n) * time.Second / 100
		}
	}
	return spent
}

// checksOf returns the process that runs checks for an agent, "" if there is none.
func checksOf(b *testing.B, agent int) string {
	b.Helper()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", agent))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range children {
		text, _ := os.ReadFile(name)
		for pid := range strings.FieldsSeq(string(text)) {
			if command, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(command), "\x00checks\x00") {
				return pid
			}
		}
	}
	return ""
}

// keepers returns the memory of all keepers of the cell.
func (c *cell) keepers(b *testing.B) (list []memory) {
	b.Helper()
	files, err := filepath.Glob(c.path("state/tasks/local/u/*/*/*/*/" + keeper.StateFile))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range files {
		var state keeper.State
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &state)
		}
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, memoryOf(b, state.Keeper.PID))
	}
	return list
}
