package keeper

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/logfile"
)

func readLog(t *testing.T, dir, name string) string {
	t.Helper()
	r, err := logfile.Open(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// run runs a script to its end and returns the directory of its logs.
func run(t *testing.T, script string, limits logfile.Limits) string {
	t.Helper()
	dir := t.TempDir()
	spec := testSpec(t, script)
	spec.Logs = limits
	if _, err := start(t, dir, spec).Wait(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLastWords: all that a task wrote before its end is in its logs, in order,
// also what it wrote to /dev/stdout opened again, and what is not a line.
func TestLastWords(t *testing.T) {
	t.Parallel()
	dir := run(t, `echo out; echo err >&2; echo again >/dev/stdout; head -c 60000 /dev/zero >&2; printf last; kill -9 $$`, logfile.Limits{})
	if got, want := readLog(t, dir, StdoutFile), "out\nagain\nlast"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	if got, want := readLog(t, dir, StderrFile), "err\n"+strings.Repeat("\x00", 60000); got != want {
		t.Errorf("stderr has %d bytes, want %d", len(got), len(want))
	}
}

// TestFloodIsKept: of a flood the newest is kept, whole lines, within the
// limits, and a reader that follows it has every byte in between.
func TestFloodIsKept(t *testing.T) {
	t.Parallel()
	const lines = 200_000
	limits := logfile.Limits{MaxBytes: 64 << 10, Files: 3}
	dir := t.TempDir()
	spec := testSpec(t, fmt.Sprintf("seq %d", lines))
	spec.Logs = limits
	if _, err := start(t, dir, spec).Wait(); err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	for i := range lines {
		fmt.Fprintln(&whole, i+1)
	}
	kept := readLog(t, dir, StdoutFile)
	if !strings.HasSuffix(whole.String(), "\n"+kept) || int64(len(kept)) > int64(limits.Files)*limits.MaxBytes || int64(len(kept)) < limits.MaxBytes {
		t.Errorf("%d bytes are kept, from %.10q to %q", len(kept), kept, kept[len(kept)-10:])
	}
}

// TestGivenAway: a pipe that a task gave to somebody who lives on holds nobody
// up, also while that one writes and writes.
func TestGivenAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h := start(t, dir, testSpec(t, "echo one; read x <"+fifo))
	kept, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", h.State.Task.PID), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := h.Wait(); ended <- err }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the keeper waits for a pipe that is not the task's any more")
	}
	if got := readLog(t, dir, StdoutFile); got != "one\n" {
		t.Errorf("log %q", got)
	}
}

// TestCopyAllocatesNothing: the loop between the pipe and the log does not
// burden the collector of a machine's thousand keepers.
func TestCopyAllocatesNothing(t *testing.T) {
	dir := t.TempDir()
	h := &holder{dir: dir}
	o, err := h.openOutput(StdoutFile)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { o.log.Close(); o.inlet.close(); _ = unix.Close(o.write) }()
	line := bytes.Repeat([]byte("x"), 1000)
	n := testing.AllocsPerRun(500, func() {
		if _, err := unix.Write(o.write, line); err != nil {
			t.Fatal(err)
		}
		n, err := o.inlet.read(o.buffer[:])
		if err != nil {
			t.Fatal(err)
		}
		o.pace(n)
		o.take(n)
	})
	if n != 0 {
		t.Errorf("%v allocations a chunk, want 0", n)
	}
}

// trickleArg as the first argument makes the test binary a task that writes single
// bytes to its stdout, in the way that the second names, until it is killed.
const trickleArg = "trickle"

func trickle(how string) int {
	var err error
	switch how {
	case "packets":
		_, err = unix.FcntlInt(1, unix.F_SETFL, unix.O_DIRECT)
	case "small pipe":
		_, err = unix.FcntlInt(1, unix.F_SETPIPE_SZ, 4096)
	}
	for err == nil {
		_, err = unix.Write(1, []byte("x"))
	}
	return 1
}

// keeperCost returns the reads that a process has made, how often it was woken, and
// its processor time in hundredths of a second.
func keeperCost(t *testing.T, pid int) (reads, woken, ticks int) {
	t.Helper()
	for file, fields := range map[string]map[string]*int{
		"io": {"syscr: %d": &reads}, "task/*/status": {"voluntary_ctxt_switches:\t%d": &woken},
	} {
		names, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), file))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s of process %d: %v", file, pid, err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				continue // a thread that has ended
			}
			for line := range strings.Lines(string(b)) {
				for format, sum := range fields {
					var n int
					if _, err := fmt.Sscanf(line, format, &n); err == nil {
						*sum += n
					}
				}
			}
		}
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	for _, field := range f[11:13] {
		n, err := strconv.Atoi(string(field))
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return reads, woken, ticks
}

// TestTrickle: a task that writes single bytes costs its keeper so many reads in a
// second and no more, whatever it makes of its pipe; and all that it could write is
// kept.
func TestTrickle(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"bytes", "packets", "small pipe"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			spec := testSpec(t, "")
			spec.Command = []string{exe, trickleArg, how}
			began := time.Now()
			h := start(t, dir, spec)
			time.Sleep(2 * time.Second) // what is counted is what happens meanwhile
			reads, woken, ticks := keeperCost(t, h.State.Keeper.PID)
			most := int((turnBurst+time.Since(began))/turnEvery) + 500 // of its start
			t.Logf("%d reads, woken %d times, %d ms of processor time", reads, woken, 10*ticks)
			// A read may find nothing, and is made again when there is something.
			if reads < 500 || reads > 2*most || woken > 3*most {
				t.Errorf("%d reads, woken %d times, want at most %d and %d", reads, woken, 2*most, 3*most)
			}
			if err := h.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Wait(); err != nil {
				t.Fatal(err)
			}
			if got := readLog(t, dir, StdoutFile); len(got) < 500 || strings.Trim(got, "x") != "" {
				t.Errorf("the log has %d bytes: %.20q…", len(got), got)
			}
		})
	}
}

// BenchmarkFlood is the throughput of a flood through a keeper beside that into
// a file.
func BenchmarkFlood(b *testing.B) {
	const size = 48 << 20 // below the burst
	for _, way := range []struct{ name, to string }{{"keeper", ""}, {"file", " >plain"}} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(size)
			for range b.N {
				dir := b.TempDir()
				spec := &Spec{
					Boot: boot, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}, Mark: "MARK=" + dir,
					Command: []string{"sh", "-c", fmt.Sprintf("yes 'a line of a log that is as long as lines are, more or less' | head -c %d%s", size, way.to)},
				}
				exe, err := os.Executable()
				if err != nil {
					b.Fatal(err)
				}
				h, err := launchNow(b.Context(), exe, dir, spec)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := h.Wait(); err != nil {
					b.Fatal(err)
				}
				_ = h.Close()
			}
		})
	}
}
