package keeper

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/logfile"
)

// The keeper stands between the task and its logs, since a file that the task
// writes to itself cannot be rotated without loss. The pipe between them is
// bounded: a task that writes faster than the keeper takes it waits, as it would
// for a slow disk. Nothing is dropped for being too much or too slow, only what
// the disk refuses.
const (
	// outputBuffer is how much is taken at once: what the kernel's pipe holds.
	outputBuffer = 64 << 10
	// floodRate is how many bytes a second a task may write in the long run,
	// and floodBurst how many at once before that counts. The limits of the
	// log make more useless: it would be gone before it is read. Less would
	// slow down tasks that print a result; more, and a flood takes a core and
	// the disk's whole write-back.
	floodRate  = 64 << 20
	floodBurst = 64 << 20
	// turnEvery is the time between two reads of an output in the long run, and
	// turnBurst how much of it can be saved up: a read takes the machine's time, not
	// the task's. One that finds all that a pipe holds costs none of it, so a pipe as
	// tasks get it carries floodRate; one in packet mode (O_DIRECT), where a read takes
	// one write, holds its writer up.
	turnEvery = time.Millisecond
	turnBurst = 1000 * turnEvery
	// stallAfter is how long one write may take before it is reported.
	stallAfter = 5 * time.Second
	// retryAfter is the time between two attempts to report drops, while the
	// task writes nothing.
	retryAfter = time.Second
)

// outputs carries the task's stdout and stderr into their logs.
type outputs struct {
	list    [2]*output
	copying sync.WaitGroup
}

// output is one of them.
type output struct {
	number int
	inlet  *inlet // of the pipe
	write  int    // the task's end of it, until the task has it
	log    *logfile.Writer
	buffer [outputBuffer]byte
	tokens int64         // how many bytes may be written at once
	turns  time.Duration // saved up for reads
	filled time.Time
	stall  *time.Timer
	ending chan struct{} // closed when all of the task is dead

	mu     sync.Mutex // guards what follows
	file   *os.File   // of the status, shared
	status logfile.Status
}

// openOutputs makes the pipes and the logs.
func (h *holder) openOutputs() (*outputs, error) {
	o := &outputs{}
	status, err := logfile.CreateStatus(h.dir, len(o.list))
	if err != nil {
		return nil, err
	}
	for i, name := range []string{StdoutFile, StderrFile} {
		if o.list[i], err = h.openOutput(name); err != nil {
			return nil, err // the process ends
		}
		o.list[i].number, o.list[i].file = i, status
	}
	return o, nil
}

func (h *holder) openOutput(name string) (*output, error) {
	o := &output{tokens: floodBurst, turns: turnBurst, filled: time.Now(), ending: make(chan struct{})}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe of %s: %w", name, err)
	}
	o.write = p[1]
	// Only this end: the other belongs to the task, which may expect to block.
	var err error
	if o.inlet, err = newInlet(p[0]); err != nil {
		return nil, fmt.Errorf("pipe of %s: %w", name, err)
	}
	if u := h.spec.User; u != nil { // so that it can open /dev/stdout
		if err := unix.Fchown(o.write, u.UID, u.GID); err != nil {
			return nil, fmt.Errorf("pipe of %s: %w", name, err)
		}
	}
	o.log, err = logfile.NewWriter(h.dir, name, h.spec.Logs)
	o.stall = time.AfterFunc(time.Hour, o.stalled)
	o.stall.Stop()
	return o, err
}

// begin starts the copying; the task has its ends of the pipes.
func (o *outputs) begin() {
	for _, out := range o.list {
		_ = unix.Close(out.write)
		o.copying.Go(out.copy)
	}
}

// end returns when all that the task has written is in the logs. The task is
// dead: what is in the pipes is all there is, unless it gave them away.
func (o *outputs) end() {
	for _, out := range o.list {
		close(out.ending)
		_ = out.inlet.ready.SetReadDeadline(time.Unix(1, 0))
	}
	o.copying.Wait()
}

// copy copies until the pipe's end, or until the end of the task.
func (o *output) copy() {
	defer o.finish()
	for {
		n, err := o.inlet.read(o.buffer[:])
		if n > 0 {
			o.pace(n)
			o.take(n)
		}
		select {
		case <-o.ending:
			o.drain()
			return
		default:
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			o.log.Retry()
			o.writeStatus()
		case err != nil:
			return
		}
		if o.log.Failing() || errors.Is(err, os.ErrDeadlineExceeded) {
			o.wait()
		}
	}
}

// wait bounds the next read while there is something to report.
func (o *output) wait() {
	var deadline time.Time
	if o.log.Failing() {
		deadline = time.Now().Add(retryAfter)
	}
	_ = o.inlet.ready.SetReadDeadline(deadline)
	select {
	case <-o.ending: // whose deadline may have been the one replaced
		_ = o.inlet.ready.SetReadDeadline(time.Unix(1, 0))
	default:
	}
}

// maxPipe is the most that a pipe can hold: /proc/sys/fs/pipe-max-size as it is
// unless root has raised it.
const maxPipe = 1 << 20

// drain takes what is left in the pipe, without waiting for more. It ends even
// if somebody outside of the task goes on writing.
func (o *output) drain() {
	for left := maxPipe; left > 0; {
		n, err := unix.Read(o.inlet.fd, o.buffer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			return
		}
		o.take(n)
		left -= n
	}
}

func (o *output) finish() {
	o.log.Close()
	o.writeStatus()
	o.inlet.close()
}

// pace waits until n bytes may be written, and a read be made after that.
func (o *output) pace(n int) {
	o.tokens -= int64(n)
	o.turns -= turnEvery * time.Duration(outputBuffer-n) / outputBuffer // a full one is worth it
	if o.tokens > 0 && o.turns > 0 {
		return
	}
	now := time.Now()
	passed := now.Sub(o.filled)
	o.tokens = min(o.tokens+int64(passed.Seconds()*floodRate), floodBurst)
	o.turns = min(o.turns+passed, turnBurst)
	o.filled = now
	if o.tokens < -floodRate/100 { // 10 ms: not for each chunk
		time.Sleep(time.Duration(-o.tokens) * time.Second / floodRate)
	}
	if o.turns <= 0 {
		time.Sleep(turnEvery)
	}
}

// take writes the first n bytes of the buffer to the log.
func (o *output) take(n int) {
	o.stall.Reset(stallAfter)
	o.log.Write(o.buffer[:n])
	if !o.stall.Stop() || o.log.Failing() {
		o.writeStatus()
	}
}

// stalled says that the disk does not take a write.
func (o *output) stalled() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status.Stalled = time.Now().Add(-stallAfter)
	_ = logfile.WriteStatus(o.file, o.number, o.status) // the same disk: it may wait, too
}

// writeStatus writes the log's status, if it has changed.
func (o *output) writeStatus() {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := logfile.Status{Drops: o.log.Drops()}
	if s != o.status && logfile.WriteStatus(o.file, o.number, s) == nil {
		o.status = s
	}
}
