package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkRun is the processor time that a command beside a task takes, one after
// the other: that of this process, of the process that runs the commands, and of all
// that it forks; and beside it that of the command run by a shell, which forks, executes
// and waits and does nothing else. The ratio says more than the times, which vary with
// what else the machine does.
func BenchmarkRun(b *testing.B) {
	m := newMachine(b)
	p, _ := m.start(assignment(0, "sleep", "1000"))
	run := func() {
		if out, err := p.Run(b.Context(), []string{"/bin/true"}, patience); err != nil {
			b.Fatal(err, out)
		}
	}
	run()
	helper := helperOf(m)
	own := usedBy(b, unix.RUSAGE_SELF)
	self, forked := ticks(b, helper)
	n := 0
	for b.Loop() {
		run()
		n++
	}
	own = usedBy(b, unix.RUSAGE_SELF) - own
	s, f := ticks(b, helper)
	b.ReportMetric(float64(own)/1e6/float64(n), "agent-ms/op")
	b.ReportMetric(float64(s-self)*10/float64(n), "helper-ms/op")
	b.ReportMetric(float64(f-forked)*10/float64(n), "forked-ms/op")
	before := usedBy(b, unix.RUSAGE_CHILDREN)
	if out, err := exec.Command("sh", "-c", fmt.Sprintf("for i in $(seq %d); do /bin/true; done", n)).CombinedOutput(); err != nil {
		b.Fatal(err, string(out))
	}
	shell := float64(usedBy(b, unix.RUSAGE_CHILDREN) - before)
	b.ReportMetric(shell/1e6/float64(n), "shell-ms/op")
	b.ReportMetric((float64(own)+float64(s-self+f-forked)*1e7)/shell, "times-shell")
	end(b, p)
}

// ticks returns the processor time of a process and of its children that it has
// waited for, in hundredths of a second.
func ticks(b *testing.B, pid int) (self, children int64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var n [4]int64
	for i := range n {
		if _, err := fmt.Sscan(f[11+i], &n[i]); err != nil {
			b.Fatal(err)
		}
	}
	return n[0] + n[1], n[2] + n[3]
}

// usedBy returns the processor time of who, in nanoseconds.
func usedBy(b *testing.B, who int) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
