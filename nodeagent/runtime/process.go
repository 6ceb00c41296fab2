package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/logfile"
	"github.com/musterhq/muster/schema"
)

// ErrCommand is in Start's error when the task's command cannot be executed: it
// is not there, or its user may not.
var ErrCommand = keeper.ErrCommand

// ErrCores is in Start's error when the machine has not the cores that the task
// shall have for itself, or none is left for it beside those of others.
var ErrCores = errors.New("the cores are taken")

// ErrClosed is returned by Wait when the Runtime was closed, and by calls after
// that.
var ErrClosed = errors.New("the runtime is closed")

// workDir is where a generation's tasks have their home, beside the directories
// of its incarnations.
const workDir = "work"

// markVariable is in the environment of each process of a task; the keeper's
// way to find what is left of one where there is no cgroup.
const markVariable = "MUSTER_TASK_DIR"

// Process is an incarnation of a task, or of an alloc. Its methods may be called
// from any goroutine.
type Process struct {
	handle   *keeper.Handle // nil for an alloc
	alloc    *alloc         // nil for a task
	runtime  *Runtime
	keeper   string        // path of muster-keeper
	dir      string        // of the incarnation
	group    string        // the cgroup's name, "" without
	limiting sync.Mutex    // held while limits are set
	ended    chan struct{} // closed when the exit is known
	gone     chan struct{} // closed when nobody will find it out any more

	mu  sync.Mutex // guards inc
	inc nodeagent.Incarnation

	measuring sync.Mutex // guards meter
	meter     meter
	table     func() processTable
}

// Start starts the task of a, or makes its alloc, in dir, which it makes: its
// name is the number of the incarnation, its parent the generation's directory.
// It returns when the command runs. After an error nothing of it runs; the error
// is ErrCommand if it is the command's fault.
func (r *Runtime) Start(ctx context.Context, dir string, a *schema.Assignment) (*Process, error) {
	if a.Job.Kind == schema.Allocs {
		p, err := r.startAlloc(dir, a)
		if err != nil {
			return nil, fmt.Errorf("start alloc %s: %w", a.Task, err)
		}
		return p, nil
	}
	spec, err := r.prepare(dir, a)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", a.Task, err)
	}
	h, err := keeper.Start(ctx, r.cfg.Keeper, dir, spec)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w%s", a.Task, err, r.explain(spec)), r.cores.drop(r.nameOf(spec.Cgroups)))
	}
	p, err := r.hold(dir, h)
	if err == nil && p.group != "" {
		p.mu.Lock()
		p.inc.Limits = firstLimits(a)
		p.mu.Unlock()
	}
	return p, err
}

// explain says why a command that is on the machine may not be there for the
// task; "" if that cannot be.
func (r *Runtime) explain(spec *keeper.Spec) string {
	if spec.Sandbox == nil || spec.Sandbox.Root != "" {
		return ""
	}
	for _, dir := range append([]string{tmpDir, varTmpDir, shmDir}, r.hidden...) {
		if below(spec.Command[0], dir) {
			return fmt.Sprintf(" (tasks do not see the machine's %s)", dir)
		}
	}
	return ""
}

// Adopt finds the incarnation that was started in dir, by this agent or one
// before it. What is left of one without a keeper it kills, and calls ended.
func (r *Runtime) Adopt(ctx context.Context, dir string) (*Process, error) {
	if p, ok, err := r.adoptAlloc(dir); ok || err != nil {
		if err != nil {
			return nil, fmt.Errorf("adopt: %w", err)
		}
		return p, nil
	}
	h, err := keeper.Open(ctx, dir, keeper.Known{Boot: r.boot, Documents: r.documents, Lost: r.lostSpec})
	if err != nil {
		return nil, fmt.Errorf("adopt: %w", err)
	}
	return r.hold(dir, h)
}

// prepare makes all that the keeper needs to be there.
func (r *Runtime) prepare(dir string, a *schema.Assignment) (*keeper.Spec, error) {
	if len(a.Job.Task.Process.Command) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrCommand)
	}
	if err := r.able(&a.Job.Task); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // whatever the umask
		return nil, err
	}
	p, err := r.places(dir, a)
	if err != nil {
		return nil, err
	}
	work, _, tmp := r.inside(p)
	a = r.local(a, p)
	spec := &keeper.Spec{
		Boot: r.boot, Command: a.Command(), Env: environment(a, p.work, work, tmp), Dir: work,
		Mark: markVariable + "=" + p.work, OOMScoreAdj: oomScore(a.Job), WholeCores: a.Job.Task.Resources.WholeCores, Filter: r.isolation.filter,
	}
	if l := a.Job.Task.Logs; l != nil {
		spec.Logs = logfile.Limits{MaxBytes: l.MaxBytes, Files: l.Files}
	}
	if spec.User, err = r.user(a.Task.User); err != nil {
		return nil, err
	}
	if err := p.make(spec.User, r.quotas, a.Job.Task.Resources.DiskBytes); err != nil {
		return nil, r.beyondQuota(err)
	}
	if err := r.putFiles(p.work, a, spec.User); err != nil {
		return nil, fmt.Errorf("task.files: %w", r.beyondQuota(err))
	}
	if spec.Rlimits, err = r.bound(&a.Job.Task); err != nil {
		return nil, err
	}
	files, note := r.given(a.Devices)
	spec.Note = note
	if spec.Sandbox, err = r.sandbox(&a.Job.Task, p, spec.User, files); err != nil {
		return nil, err
	}
	return spec, r.group(dir, a, spec, files)
}

// group makes the cgroups of spec, once spec is on disk.
func (r *Runtime) group(dir string, a *schema.Assignment, spec *keeper.Spec, files []given) error {
	name := groupName(dir, a)
	if u := a.Alloc; u != nil {
		name = filepath.Join(allocGroup(u.Of(a.Task.JobName), u.Generation), name)
	}
	if r.groups != nil {
		spec.Cgroups = r.groups.dirs(name)
	}
	if err := keeper.Prepare(dir, spec); err != nil || r.groups == nil {
		return err
	}
	limits := limits(a)
	own, err := r.cores.take(name, firstLimits(a).Cores)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: it wants %w", ErrCores, err), keeper.Abandon(dir, spec))
	}
	limits.CPU.Cpus, limits.Devices = own, deviceRules(files)
	if err = r.groups.make(name, limits); err == nil {
		err = errors.Join(r.guardPorts(name, a), r.groups.share(name, "", firstLimits(a)))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cgroup: %w", err), keeper.Abandon(dir, spec), r.cores.drop(name))
	}
	return nil
}

// user returns the user that an owner's tasks run as; nil is the agent's own.
func (r *Runtime) user(owner string) (*keeper.User, error) {
	if r.users == nil {
		return nil, nil
	}
	id, err := r.users.id(owner)
	if err != nil {
		return nil, err
	}
	return &keeper.User{UID: id, GID: id}, nil
}

// Remains lists the directories that hold what the tasks of the generation whose
// directory dir is have made for themselves, and what those of its alloc share.
func (r *Runtime) Remains(dir string) []string {
	var names []string
	for _, name := range []string{workDir, sharedDir} {
		full := filepath.Join(dir, name)
		// An agent of an earlier release that was killed has left the second.
		names = append(names, full, full+".removed")
	}
	return names
}

// environment returns what the task finds in its environment, sorted. HOME and
// TMPDIR can be set by its job.
func environment(a *schema.Assignment, mark, work, tmp string) []string {
	env := map[string]string{"HOME": work, "TMPDIR": tmp}
	maps.Copy(env, a.Environment())
	env[markVariable] = mark
	env[lineVariable] = filepath.Join(work, lineFile)
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}

// groupName names the cgroup of an incarnation: unique in the cell for ever.
func groupName(dir string, a *schema.Assignment) string {
	parts := []string{a.Task.User, a.Task.Job, strconv.Itoa(a.Task.Index), strconv.FormatUint(a.Generation, 10), filepath.Base(dir)}
	return strings.Join(parts, ".")
}

// nameOf returns the name of the cgroup that has the given directories, "" for
// none.
func (r *Runtime) nameOf(dirs []string) string {
	if len(dirs) == 0 {
		return ""
	}
	_, name, _ := strings.Cut(dirs[0], "/"+groupsName(r.cfg.Dir)+"/")
	return name
}

// oomScore says which tasks the kernel takes first when the whole machine has no
// memory left: lower bands before higher ones, any task before the agent.
// One that uses more memory than its limit goes first of all.
func oomScore(job *schema.Job) int {
	if job.Task.Exceeds().RAM {
		return 1000
	}
	switch job.Priority.Band() {
	case schema.BandMonitoring:
		return 100
	case schema.BandProduction:
		return 200
	case schema.BandBatch:
		return 500
	}
	return 800
}

// hold makes a Process of h and watches for its end.
func (r *Runtime) hold(dir string, h *keeper.Handle) (*Process, error) {
	number, _ := strconv.Atoi(filepath.Base(dir)) // 0 for a directory that is not ours
	p := &Process{
		handle: h, runtime: r, keeper: r.cfg.Keeper, dir: dir, ended: make(chan struct{}), gone: make(chan struct{}),
		meter: meter{keeper: h.State.Keeper.PID, disk: r.disk != ""}, table: r.processes,
	}
	p.inc = nodeagent.Incarnation{
		Number: number, Boot: cmp.Or(h.State.Boot, h.Spec.Boot), PID: h.State.Task.PID,
		StartedAt: h.State.StartedAt, Note: r.note,
	}
	if h.Exit != nil { // known from the start, so that none decides as if it lived
		p.inc.Exit, p.inc.EndedItself, p.inc.Unseen = report(number, *h.Exit), !h.Exit.Term && !h.Exit.Kill, h.Exit.Unseen
		if h.Exit.Never {
			p.inc.Boot = "" // it belongs to none: an end without blame
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.Join(ErrClosed, h.Close())
	}
	r.live[p] = true
	if r.groups != nil && h.Exit == nil {
		p.group = r.nameOf(h.Spec.Cgroups)
		p.inc.Limited = p.group != ""
	}
	if p.group != "" {
		r.cores.find(p.group, h.Spec.WholeCores)
	}
	p.inc.Note = joinNotes(p.inc.Note, h.Spec.Note)
	if h.Spec.WholeCores && !r.can.has[cpusetController] {
		p.inc.Note = joinNotes(p.inc.Note, "on cores that it shares: the machine has no cpuset controller")
	}
	for _, dir := range h.Spec.Cgroups {
		if parent := filepath.Dir(dir); filepath.Base(parent) == groupsName(r.cfg.Dir) {
			r.parents[parent] = true
		}
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
		r.cfg.Log.Error("cannot tell how a task ended", "pid", p.inc.PID, "err", err)
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
		r.cfg.Log.Warn("cannot remove the cgroup of a task that ended", "pid", p.inc.PID, "err", err)
	}
	if err := r.cores.drop(p.group); err != nil {
		r.cfg.Log.Warn("cannot give the cores of a task that ended to others", "pid", p.inc.PID, "err", err)
	}
	p.mu.Lock()
	p.inc.Exit, p.inc.EndedItself, p.inc.Unseen = report(p.inc.Number, exit), !exit.Term && !exit.Kill, exit.Unseen
	p.mu.Unlock()
	close(p.ended)
}

// report puts a keeper's word in the master's terms.
func report(number int, e keeper.Exit) *schema.Exit {
	exit := &schema.Exit{Incarnation: number, Code: e.Code, Signal: e.Signal, OOM: e.OOM, At: e.At}
	var sent string
	switch {
	case e.Term && e.Kill:
		sent = "the agent had sent SIGTERM, then SIGKILL"
	case e.Term:
		sent = "the agent had sent SIGTERM"
	case e.Kill:
		sent = "the agent had sent SIGKILL"
	}
	parts := slices.DeleteFunc([]string{e.Message, sent}, func(s string) bool { return s == "" })
	exit.Message = strings.Join(parts, "; ")
	return exit
}

// Verify has what is damaged or lost of the files of a running incarnation written
// anew. It is not for two goroutines at once.
func (p *Process) Verify() {
	if p.alloc != nil {
		p.alloc.verify()
		return
	}
	p.handle.Verify()
}

// Incarnation returns how it stands now.
func (p *Process) Incarnation() nodeagent.Incarnation {
	p.mu.Lock()
	defer p.mu.Unlock()
	inc := p.inc
	if inc.Exit != nil {
		e := *inc.Exit
		inc.Exit = &e
	}
	return inc
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
	p.measuring.Lock()
	defer p.measuring.Unlock()
	return p.meter.usage(p.handle.Spec.Cgroups, p.table)
}

// CPU returns what the running task has used of processors, and how long it has
// waited for them.
func (p *Process) CPU() nodeagent.CPUTime {
	if p.alloc != nil {
		return nodeagent.CPUTime{} // what runs inside is measured for itself
	}
	p.measuring.Lock()
	defer p.measuring.Unlock()
	return p.meter.cpuTime(p.handle.Spec.Cgroups, p.table)
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
			return fmt.Errorf("signal the keeper of process %d: %w", p.Incarnation().PID, err)
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

// firstLimits returns the limits under which the task of a starts: without a
// quota, which can make the way to its command last for minutes. It gets that as
// soon as it runs.
func firstLimits(a *schema.Assignment) nodeagent.TaskLimits {
	l := nodeagent.LimitsOf(a.Job)
	l.QuotaMilli = 0
	return l
}
