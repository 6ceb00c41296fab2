package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// ErrClosed is returned by Wait when the Runtime was closed, and by calls after
// that.
var ErrClosed = errors.New("the runtime is closed")

// Process is an incarnation of a task, or of an alloc. Its methods may be called
// from any goroutine.
type Process struct {
	handle   *keeper.Handle // nil for an alloc
	alloc    *alloc         // nil for a task
	runtime  *Runtime
	dir      string // of the incarnation
	group    string // the cgroup's name, "" without
	meter    *host.Meter
	limiting sync.Mutex    // held while limits are set
	ended    chan struct{} // closed when the exit is known
	gone     chan struct{} // closed when nobody will find it out any more

	mu sync.Mutex // guards is
	is nodeagent.Process
}

// hold makes a Process of h and watches for its end.
func (r *Runtime) hold(dir string, h *keeper.Handle) (*Process, error) {
	p := &Process{
		handle: h, runtime: r, dir: dir, ended: make(chan struct{}), gone: make(chan struct{}),
		meter: r.host.Meter(h.Spec.Cgroups, h.State.Keeper.PID),
	}
	p.is = nodeagent.Process{
		Step: h.Spec.Step, Attempt: h.Spec.Attempt, Boot: cmp.Or(h.State.Boot, h.Spec.Boot), PID: h.State.Task.PID, StartedAt: h.State.StartedAt, Note: r.note,
	}
	_ = json.Unmarshal(h.Spec.Given, &p.is.Given) // without it the task is given all of it again
	if h.Exit != nil {                            // known from the start, so that none decides as if it lived
		p.end(*h.Exit)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.Join(ErrClosed, h.Close())
	}
	r.live[p] = true
	cgroups := r.host.Cgroups()
	cgroups.Hold(h.Spec.Cgroups)
	if h.Exit == nil {
		p.group = cgroups.Adopt(h.Spec.Cgroups, h.Spec.WholeCores)
		p.is.Limited = p.group != ""
	}
	p.is.Note = joinNotes(p.is.Note, h.Spec.Note)
	if h.Spec.WholeCores && !cgroups.Has(host.CPUSet) {
		p.is.Note = joinNotes(p.is.Note, "on cores that it shares: the machine has no cpuset controller")
	}
	r.watchers.Go(func() { r.watch(p) })
	return p, nil
}

// joinNotes joins two notes, of which either may be empty.
func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// retryEvery is the time between two attempts to write down an end that the
// disk refuses.
const retryEvery = time.Second

// watch waits for the end of p.
func (r *Runtime) watch(p *Process) {
	defer func() {
		r.mu.Lock()
		delete(r.live, p)
		r.mu.Unlock()
		_ = p.handle.Close()
		close(p.gone)
	}()
	exit, err := p.handle.Wait()
	for err != nil {
		if errors.Is(err, os.ErrClosed) {
			return
		}
		r.cfg.Log.Error("cannot find out how a task ended", "pid", p.is.PID, "err", err)
		select {
		case <-r.done:
			return
		case <-time.After(retryEvery):
		}
		exit, err = p.handle.Wait()
	}
	p.limiting.Lock() // whoever sets limits may make what the keeper has removed
	defer p.limiting.Unlock()
	if err := p.handle.Clean(); err != nil {
		r.cfg.Log.Warn("cannot remove the cgroup of a task that ended", "pid", p.is.PID, "err", err)
	}
	if err := r.host.Cgroups().Drop(p.group); err != nil {
		r.cfg.Log.Warn("cannot give the cores of a task that ended to others", "pid", p.is.PID, "err", err)
	}
	if err := r.safe.drop(p.dir); err != nil {
		r.cfg.Log.Error("cannot remove the secrets of a task that ended", "pid", p.is.PID, "err", err)
	}
	p.mu.Lock()
	p.end(exit)
	p.mu.Unlock()
	close(p.ended)
}

// end takes a keeper's word for how it ended. Whoever else may know of p waits for p.mu.
func (p *Process) end(e keeper.Exit) {
	number, _ := strconv.Atoi(filepath.Base(p.dir)) // 0 for a directory that is not ours
	p.is.Exit, p.is.EndedItself, p.is.Terminated, p.is.Unseen = report(number, e, p.handle.Spec.StopName()), !e.Term && !e.Kill, e.Term, e.Unseen
	if e.Never {
		p.is.Boot = "" // it belongs to none: an end without blame
	}
}

// report puts a keeper's word in the master's terms; stop names the signal that it passes
// on before SIGKILL.
func report(number int, e keeper.Exit, stop string) *schema.Exit {
	exit := &schema.Exit{Incarnation: number, Code: e.Code, Signal: e.Signal, OOM: e.OOM, At: e.At}
	var sent string
	switch {
	case e.Term && e.Kill:
		sent = stop + " was sent, then SIGKILL"
	case e.Term:
		sent = stop + " was sent"
	case e.Kill:
		sent = "SIGKILL was sent"
	}
	parts := slices.DeleteFunc([]string{e.Message, sent}, func(s string) bool { return s == "" })
	exit.Message = strings.Join(parts, "; ")
	return exit
}

// Verify has what is damaged or lost of the files of a running incarnation written
// again. It is not for two goroutines at once.
func (p *Process) Verify() {
	if p.alloc != nil {
		p.alloc.verify()
		return
	}
	p.handle.Verify()
}

// State returns how it stands now.
func (p *Process) State() nodeagent.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := p.is
	if is.Exit != nil {
		e := *is.Exit
		is.Exit = &e
	}
	return is
}

// Usage measures what it uses, but for its disk; rates are over the time since
// the last call. It is false when nothing of it is left.
func (p *Process) Usage() (schema.Usage, bool) {
	if p.alloc != nil {
		return schema.Usage{}, false // what runs inside is measured for itself
	}
	select {
	case <-p.ended: // what is read of all processes at once may be older
		return schema.Usage{}, false
	default:
	}
	return p.meter.Usage()
}

// CPU returns what the running task has used of processors, and how long it has
// waited for them.
func (p *Process) CPU() nodeagent.CPUTime {
	if p.alloc != nil {
		return nodeagent.CPUTime{} // what runs inside is measured for itself
	}
	return p.meter.CPU()
}

// Processes returns the processes of the task, those of commands beside it included,
// and whose files are its own.
func (p *Process) Processes() nodeagent.Processes {
	if p.alloc != nil {
		return nodeagent.Processes{} // what runs inside is measured for itself
	}
	of := nodeagent.Processes{UID: os.Geteuid(), PIDs: p.meter.PIDs()}
	if u := p.handle.Spec.User; u != nil {
		of.UID = u.UID
	}
	return of
}

// Limit sets limits on the running task. What cannot be set now leaves the old
// limit in force, and the error says why; State says what is in force.
func (p *Process) Limit(l nodeagent.TaskLimits) error {
	if p.group == "" {
		return errors.New("there are no cgroups: no limits are enforced")
	}
	p.limiting.Lock()
	defer p.limiting.Unlock()
	select {
	case <-p.ended:
		return nil
	default:
	}
	now, err := p.runtime.host.Limit(p.group, p.dir, p.State().Limits, l)
	p.mu.Lock()
	p.is.Limits = now
	p.mu.Unlock()
	return err
}

// Renew gives the running task what has changed of what a has for it, and then sends the
// signals to its main process. It is no error if that has ended.
func (p *Process) Renew(a *schema.Assignment, r nodeagent.Renewal) error {
	if p.alloc != nil {
		return nil // what runs inside has its own
	}
	found, err := p.runtime.places(p.dir, a)
	if err != nil {
		return err
	}
	local := p.runtime.sees.local(a, found)
	var files []string
	for _, name := range r.Changed {
		if path, ok := strings.CutPrefix(name, nodeagent.GivenFile("")); ok {
			files = append(files, path)
		}
	}
	if len(files) > 0 {
		if err := p.runtime.host.RenewFiles(found.Work, local, (*host.User)(p.handle.Spec.User), files); err != nil {
			return fmt.Errorf("task.files: %w", beyondQuota(p.runtime.host, err))
		}
	}
	if err := p.runtime.safe.renew(p.dir, a, r.Changed, (*host.User)(p.handle.Spec.User)); err != nil {
		return err
	}
	for _, name := range r.Signals {
		if err := p.signalMain(unix.SignalNum(name)); err != nil {
			return fmt.Errorf("send %s: %w", name, err)
		}
	}
	return nil
}

// kernelSignal is how long a signal to a task in a kernel of its own may take.
const kernelSignal = 10 * time.Second

// signalMain sends a signal to the task's main process.
func (p *Process) signalMain(sig unix.Signal) error {
	if !p.handle.Spec.HasKernel() {
		return p.handle.Signal(sig)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	ctx, cancel := context.WithTimeout(context.Background(), kernelSignal)
	defer cancel()
	s, err := keeper.StartExec(ctx, p.runtime.cfg.Keeper, p.dir, keeper.Exec{Task: sig, Stdio: [3]*os.File{null, null, null}})
	if err == nil {
		var exit keeper.Exit
		if exit, err = s.Wait(); err == nil && exit.Code != 0 {
			err = errors.New("the runtime's kill " + report(0, exit, "").String())
		}
	}
	select {
	case <-p.ended:
		return nil
	default:
		return err
	}
}

// Signal sends SIGTERM to the task's process group or, with kill, SIGKILL to all
// of it; either ends an alloc. It is no error if it has ended.
func (p *Process) Signal(kill bool) error {
	if p.alloc != nil {
		return p.endAlloc()
	}
	send := p.handle.Term
	if kill {
		send = p.handle.Kill
	}
	if err := send(); err != nil {
		select {
		case <-p.ended:
			return nil
		default:
			return fmt.Errorf("signal the keeper of process %d: %w", p.State().PID, err)
		}
	}
	return nil
}

// Wait returns when it has ended and its Exit is known. The error is ErrClosed
// when the Runtime was closed before.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.gone:
	}
	select {
	case <-p.ended: // both are closed at an end
		return nil
	default:
		return ErrClosed
	}
}
