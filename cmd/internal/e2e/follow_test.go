package e2e_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/strike"

	"github.com/musterhq/muster/reconciler/status"
)

// counterScript counts aloud, and on SIGTERM it writes down how far
// it has come: usage: counter.sh JOURNALS
const counterScript = `#!/bin/sh
generation=${MUSTER_TASK_DIR%/work}
generation=${generation##*/}
trap 'stop=1' TERM
i=0
while [ -z "$stop" ]; do
	i=$((i + 1))
	echo "$generation $i"
	sleep 0.01
done
echo "$generation $i" >>"$1/counter"
`

// logReader is a muster logs -f, and what it has printed.
type logReader struct {
	cmd  *exec.Cmd
	done chan error
	said lockedBuffer // on stderr
	out  lockedBuffer
}

// lockedBuffer is what a command writes while it is read.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write takes what the command prints.
func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String returns what has been written.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// reads waits until a line of a generation has come.
func (c *cell) reads(f *logReader, generation uint64) {
	c.t.Helper()
	c.must(within(bound, func() error {
		if strings.Contains("\n"+f.out.String(), fmt.Sprintf("\n%d ", generation)) {
			return nil
		}
		return fmt.Errorf("nothing of generation %d in the log that is followed, whose stderr is %q", generation, &f.said)
	}))
}

// TestFollowedLog follows the log of one task while the master is killed, the
// task is updated and moved to another machine, and that machine's agent is
// killed: by what the task wrote down itself no line is missing or there twice.
func TestFollowedLog(t *testing.T) {
	t.Parallel()
	// A reader goes on at the address that it knows.
	first, _, _ := strings.Cut(freePorts(t), "-")
	f := newFleet(t, 2, "--listen", net.JoinHostPort("127.0.0.1", first))
	script := f.path("counter.sh")
	f.must(strike.Program(t.Context(), script, []byte(counterScript)))
	counter := func(machine, word string) []byte {
		return fmt.Appendf(nil, `package crew

import "%s/muster"

job: counter: muster.#Job & {
	user: "crew", cell: %q
	constraints: [{attribute: "machine", value: %q}]
	task: {
		process: command: [%q, %q, %q]
		resources: {cpuMilli: 5, ramBytes: 32Mi, diskBytes: 64Mi}
		graceSeconds: 10
	}
}
`, module, cellName, machine, script, f.path("journals"), word)
	}
	running := func(machine, word string) uint64 {
		t.Helper()
		s := f.converge(f.commit(machine+" "+word, map[string][]byte{teamFile: counter(machine, word)}))
		if len(s.Tasks) != 1 || s.Tasks[0].Machine != machine {
			t.Fatalf("%+v: want one task, on %s", s.Tasks, machine)
		}
		return s.Tasks[0].Generation
	}
	generations := []uint64{running("m1", "one")}
	follow := &logReader{done: make(chan error, 1)}
	follow.cmd = exec.CommandContext(t.Context(), filepath.Join(f.bin, "muster"), "logs", "-f", "crew/counter/0")
	follow.cmd.Env = append(os.Environ(), "MUSTER_MASTER="+f.url)
	follow.cmd.Stdout, follow.cmd.Stderr = &follow.out, &follow.said
	f.must(follow.cmd.Start())
	go func() { follow.done <- follow.cmd.Wait() }()
	f.reads(follow, generations[0])

	f.restartMaster()
	f.idle()
	generations = append(generations, running("m1", "two"))
	f.reads(follow, generations[1])
	generations = append(generations, running("m2", "two"))
	f.reads(follow, generations[2])
	f.must(f.agents["m2"].end(syscall.SIGKILL, bound))
	f.start("m2")
	f.restartMaster()
	f.idle()
	generations = append(generations, running("m1", "two"))
	f.reads(follow, generations[3])
	f.converge(f.commit("no jobs", map[string][]byte{teamFile: nil}))
	select {
	case err := <-follow.done:
		if err != nil {
			t.Errorf("muster logs -f: %v\n%s", err, &follow.said)
		}
	case <-time.After(bound):
		f.must(follow.cmd.Process.Kill())
		t.Fatalf("muster logs -f has not ended with its task:\n%s", &follow.said)
	}
	f.checkFollowed(generations, follow.out.String())
	t.Logf("%d lines of %d generations; stderr:\n%s", strings.Count(follow.out.String(), "\n"), len(generations), &follow.said)
}

// idle waits until the cell has nothing to do.
func (c *cell) idle() {
	c.t.Helper()
	c.until("the cell has nothing to do", func(s *status.Status) string { return strings.Join(s.Waiting, "; ") })
}

// checkFollowed wants of each generation the lines that it says it has written,
// in order.
func (f *fleet) checkFollowed(generations []uint64, got string) {
	t := f.t
	t.Helper()
	b, err := os.ReadFile(f.path("journals", "counter"))
	f.must(err)
	var want strings.Builder
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		var generation uint64
		var last int
		if n, err := fmt.Sscan(line, &generation, &last); n != 2 || i >= len(generations) || generation != generations[i] {
			t.Fatalf("the task's journal says %q (%v), want a line of each of %v", b, err, generations)
		}
		for n := 1; n <= last; n++ {
			fmt.Fprintf(&want, "%d %d\n", generation, n)
		}
	}
	if got == want.String() {
		return
	}
	w, g := strings.Split(want.String(), "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			t.Fatalf("line %d of the log is %q, want %q (%d lines, want %d)", i+1, g[i], w[i], len(g), len(w))
		}
	}
	t.Fatalf("the log has %d lines, want %d", len(g), len(w))
}
