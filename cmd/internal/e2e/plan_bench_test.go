package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/plan/plantest"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/compile/synthetic"
)

// BenchmarkPlanCommand runs `muster plan` of one changed line in a repository of 10,000 jobs,
// 39,500 tasks, against the checkpoint of a cell of 10,000 machines. What earlier commands
// compiled is in the clone's cache. Beside the time it prints the processor time and the memory
// of the command.
func BenchmarkPlanCommand(b *testing.B) {
	exe := filepath.Join(binaries.Dir(b), "muster")
	first, lines, _ := commits(b, synthetic.Files(100, 100))
	file := filepath.Join(b.TempDir(), "cell.checkpoint")
	saveCell(b, exe, first, file, 10_000)
	var used time.Duration
	var most int64
	run := func() {
		cmd := exec.CommandContext(b.Context(), exe, "plan", lines[0]+".."+lines[1], "--against", file)
		cmd.Dir = first.dir
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 { // something would happen
			b.Fatalf("%v\n%s", err, out)
		}
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			most = max(most, u.Maxrss)
		}
	}
	run() // compiles both
	used, most = 0, 0
	for b.Loop() {
		run()
	}
	b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(most)/1024, "MiB")
}

// saveCell writes the checkpoint of a cell that has applied a commit, and is at rest.
func saveCell(b *testing.B, exe string, from at, file string, machines int) {
	b.Helper()
	repo, err := git.Open(b.Context(), git.Config{URL: from.dir})
	if err != nil {
		b.Fatal(err)
	}
	tree, err := repo.Tree(b.Context(), from.commit)
	if err != nil {
		b.Fatal(err)
	}
	out, err := compile.New(compile.Config{Exe: exe, Args: []string{"compile-child"}}).Compile(b.Context(), tree)
	if err != nil {
		b.Fatal(err)
	}
	c, err := plan.New(plan.Config{State: model.NewState("local"), Now: time.Now().Truncate(time.Second)})
	if err != nil {
		b.Fatal(err)
	}
	for i := range machines {
		if err := c.Add(plantest.Machine(fmt.Sprintf("m%05d", i), 16, 64)); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.Commit(out); err != nil {
		b.Fatal(err)
	}
	if ending, _, err := c.Run(); err != nil || ending != plan.Settled {
		b.Fatal(ending, err)
	}
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	save := func(m *reconciler.Master, now time.Time) error {
		in := m.Snapshot(now)
		return errors.Join(checkpoint.Write(f, checkpoint.HeaderOf(in.State, in.Observed, in.Head, in.Now), in.State, in.Observed), f.Close())
	}
	if err := c.Ask(save); err != nil {
		b.Fatal(err)
	}
}
