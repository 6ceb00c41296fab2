package compile

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/stage"
)

// errGreeting says that a child is another program.
var errGreeting = errors.New("it is another program")

// errEnded says that a child was ended, since nobody wants its answer.
var errEnded = errors.New("it was ended")

const (
	// startTimeout is how long a child may take to say hello; on a loaded
	// machine a large binary takes a second.
	startTimeout = 30 * time.Second
	// recycleHeap is the live heap of an idle child above which it is
	// replaced: the CUE library never forgets the labels it has seen.
	recycleHeap = 48 << 20
	stderrBytes = 4 << 10
)

// worker is one child process. It belongs to one goroutine.
type worker struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Reader
	pipe     syscall.Conn // what out reads
	stderr   *opening
	packages int          // that it was given
	yields   bool         // it has less of the processors than others, and so has what it is given next
	killed   atomic.Bool  // by us, because of the time
	ended    atomic.Bool  // by us, because nobody wants the answer
	over     atomic.Int32 // the exit code of the limit for which we killed it; 0 for none
}

// startWorker starts a child, and waits for its greeting. An error is trouble of ours, or of
// ctx.
func startWorker(ctx context.Context, exe string, args []string, dir string) (*worker, error) {
	w := &worker{cmd: exec.Command(exe, args...), stderr: &opening{}}
	w.cmd.Dir = dir
	w.cmd.Env = []string{} // not nil: nil means ours
	w.cmd.Stderr = w.stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for the parent
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start compile child: %w", err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start compile child: %w", err)
	}
	w.out, w.pipe = bufio.NewReaderSize(out, 64<<10), out.(*os.File) // as exec makes it
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start compile child %s: %w", exe, err)
	}
	release, stop := w.killAfter(startTimeout), context.AfterFunc(ctx, w.end)
	defer release()
	defer stop()
	var greeting string
	if _, err := readFrame(w.out, 1<<10, &greeting); err != nil || greeting != protocol {
		w.kill()
		return nil, fmt.Errorf("start compile child %s %s: it did not greet: %w: %s",
			exe, strings.Join(args, " "), cmp.Or(ctx.Err(), err, errGreeting), w.stderr)
	}
	return w, nil
}

// do has the child compile a package. died says how it ended if it did: the
// worker is then of no more use. An error is trouble of ours, or of ctx.
func (w *worker) do(ctx context.Context, req request) (resp response, died *death, err error) {
	// The child keeps its own time; the parent's is for a child that cannot.
	release, stop := w.killAfter(req.Limits.Wall+5*time.Second), context.AfterFunc(ctx, w.end)
	defer release()
	defer stop()
	unseen := w.oversee(req.most())
	defer unseen()
	w.packages++
	err = writeRequest(w.in, req)
	if err == nil {
		resp, err = readResponse(w.out, req.Limits.frameBytes())
	}
	if err == nil {
		return resp, nil, nil
	}
	if ctx.Err() != nil || w.ended.Load() {
		w.kill()
		return response{}, nil, cmp.Or(ctx.Err(), errEnded)
	}
	if errors.Is(err, errTooLarge) {
		w.kill()
		return response{}, &death{rule: schema.RuleLimit, why: fmt.Sprintf("the package exports more than %d MiB", req.Limits.OutputBytes>>20), certain: true}, nil
	}
	return response{}, w.autopsy(req), nil
}

// death is how a child ended while it had a package.
type death struct {
	rule schema.Rule
	why  string
	hint string
	// certain says that the same package would end the next child too, so the
	// outcome may be remembered.
	certain bool
	// at is the policy that was too much, nil if none was.
	at *stage.Policy
}

// autopsy waits for a child that closed its output and says why it did.
func (w *worker) autopsy(req request) *death {
	_ = w.in.Close()
	_ = w.cmd.Wait() // the state below says more than the error
	at, l := w.stderr.policy, req.Limits
	heavy := slices.Contains(req.Heavy, at.Position)
	if heavy {
		part := max(1, req.HeavyPart)
		l.CPU, l.AllocBytes = l.CPU/time.Duration(part), l.AllocBytes/part
	}
	died := w.cause(l)
	if died.rule == schema.RuleLimit && died.certain && slices.Contains(req.Policies, path.Dir(at.Path)) {
		died.at, died.certain = &at, !heavy
	}
	return died
}

// cause says why a child that was waited for has ended.
func (w *worker) cause(l Limits) *death {
	st := w.cmd.ProcessState
	signal := syscall.Signal(-1)
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		signal = ws.Signal()
	}
	stderr := w.stderr.String()
	slow := "look for nested comprehensions and large disjunctions"
	code := st.ExitCode()
	if outside := w.over.Load(); outside != 0 {
		code = int(outside)
	}
	switch {
	case w.killed.Load(), code == exitWall:
		return &death{rule: schema.RuleLimit, why: fmt.Sprintf("evaluation took longer than %v", l.Wall), hint: slow}
	case code == exitCPU, signal == syscall.SIGXCPU, strings.Contains(stderr, "SIGXCPU"):
		return &death{rule: schema.RuleLimit, why: fmt.Sprintf("evaluation took more than %v of processor time", l.CPU), hint: slow, certain: true}
	case code == exitAllocs:
		return &death{
			rule: schema.RuleLimit, hint: slow, certain: true,
			why: fmt.Sprintf("evaluation allocated more than %d MiB of memory one after the other", l.AllocBytes>>20),
		}
	case code == exitMemory, strings.Contains(stderr, "out of memory"), strings.Contains(stderr, "cannot allocate"):
		return &death{
			rule: schema.RuleLimit,
			why:  fmt.Sprintf("evaluation took more than %d MiB of memory", l.HeapBytes>>20),
			hint: "look for strings and lists that double repeatedly; split a directory with thousands of jobs", certain: true,
		}
	case strings.Contains(stderr, "stack exceeds"), strings.Contains(stderr, "stack overflow"):
		return &death{rule: schema.RuleLimit, why: "evaluation is nested too deeply", hint: "look for definitions that refer to themselves", certain: true}
	}
	first, _, _ := strings.Cut(stderr, "\n")
	return &death{rule: schema.RuleInternal, why: strings.TrimSpace(fmt.Sprintf("the compiler ended unexpectedly (%v) %s", st, first))}
}

// end kills the child, since nobody wants its answer. Anybody may call it.
func (w *worker) end() {
	w.ended.Store(true)
	_ = w.cmd.Process.Kill()
}

// yieldNice is how nice a child is whose package takes long: it has a third of the processors that
// another child has beside it.
const yieldNice = 5

// yield lets others go first from now on. It cannot be undone.
func (w *worker) yield() {
	_ = unix.Setpriority(unix.PRIO_PGRP, w.cmd.Process.Pid, yieldNice) // all its threads; if that fails it is as it was
	w.yields = true
}

// killAfter kills the child when time is up, unless released.
func (w *worker) killAfter(after time.Duration) (release func()) {
	t := time.AfterFunc(after, func() {
		w.killed.Store(true)
		_ = w.cmd.Process.Kill()
	})
	return func() { t.Stop() }
}

// kill ends the child and waits for it.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	w.close()
}

// waits reports whether an idle child is still there.
func (w *worker) waits() bool {
	raw, err := w.pipe.SyscallConn()
	if err != nil {
		return false
	}
	there := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:]) // no end, and nothing to be read
		there = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return there && err == nil
}

// close lets an idle child end and waits for it.
func (w *worker) close() {
	_ = w.in.Close()
	release := w.killAfter(startTimeout)
	defer release()
	_ = w.cmd.Wait()
}

// opening keeps the beginning of what a child says on stderr, since a Go program that dies says why first, and at
// which policy it says last that it is.
type opening struct {
	buf, line bytes.Buffer
	policy    stage.Policy
}

// Write keeps what there is room for and takes it all.
func (t *opening) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		rest = after
		t.line.Write(part[:min(len(part), stderrBytes-min(stderrBytes, t.line.Len()))])
		if whole {
			t.end()
		}
	}
	return len(b), nil
}

// end takes a line.
func (t *opening) end() {
	if at, ok := stage.Read(t.line.Bytes()); ok {
		t.policy = at
	} else if room := stderrBytes - t.buf.Len(); room > 0 {
		t.line.WriteByte('\n')
		t.buf.Write(t.line.Bytes()[:min(room, t.line.Len())])
	}
	t.line.Reset()
}

// String returns what was kept.
func (t *opening) String() string { return strings.TrimSpace(t.buf.String() + t.line.String()) }
