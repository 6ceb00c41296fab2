package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/bundle"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime/capability"
	"github.com/musterhq/muster/schema"
)

// ErrCommand is in Start's error when the task's command cannot be executed: it
// is not there, or its user may not.
var ErrCommand = keeper.ErrCommand

// markVariable is in the environment of each process of a task; the keeper's
// way to find what is left of one where there is no cgroup.
const markVariable = "MUSTER_TASK_DIR"

// lineVariable names the file, in the environment of a task, in which it may say
// in one line how it is.
const (
	lineVariable = "MUSTER_STATUS_FILE"
	lineFile     = ".muster-status" // in its home
)

// Start starts the task of a, or makes its alloc, in dir, which it makes: its
// name is the number of the incarnation, its parent the generation's directory.
// It returns when the command runs. After an error nothing of it runs; the error
// is ErrCommand if it is the command's fault, and nodeagent.ErrTask if it is that of something else
// that the task asks for.
func (r *Runtime) Start(ctx context.Context, dir string, a *schema.Assignment) (*Process, error) {
	if a.Job.Kind == schema.Allocs {
		p, err := r.startAlloc(dir, a)
		if err != nil {
			return nil, fmt.Errorf("start alloc %s: %w", a.Task, err)
		}
		return p, nil
	}
	r.spares.begin()
	defer r.spares.end()
	s, err := r.launch(dir, a)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", a.Task, err)
	}
	devices := r.host.Devices(a.Devices)
	spec, err := r.prepare(dir, a, &devices)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", a.Task, err), s.Drop(ctx))
	}
	h, err := r.begin(ctx, s, start{dir, a, spec, devices.Files})
	if err != nil {
		if errors.Is(err, bundle.ErrRuntime) { // the runtime was tried: it is what it was given
			err = nodeagent.TaskError(err)
		}
		return nil, errors.Join(fmt.Errorf("start %s: %w%s", a.Task, err, r.explain(spec, a)), r.safe.drop(dir), r.host.Cgroups().Drop(host.TaskGroup(dir, a)))
	}
	p, err := r.hold(dir, h)
	if err == nil && p.group != "" {
		p.mu.Lock()
		p.is.Limits = host.FirstLimits(a)
		p.mu.Unlock()
	}
	return p, err
}

// explain says where the command of a is looked for, and why one that is on the machine may
// not be there for the task; "" if that is plain.
func (r *Runtime) explain(spec *keeper.Spec, a *schema.Assignment) string {
	if c := a.Job.Task.Container; c != nil {
		return fmt.Sprintf(" (in a container of %s)", c.Image)
	}
	if spec.Sandbox == nil || spec.Sandbox.Root != "" {
		return ""
	}
	for _, dir := range append([]string{tmpDir, varTmpDir, shmDir}, r.sees.hidden...) {
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
	h, err := keeper.Open(ctx, dir, keeper.Known{Boot: r.host.Boot(), Documents: r.host.Documents(), Lost: r.lostSpec, Past: isPast(dir)})
	if err != nil {
		return nil, fmt.Errorf("adopt: %w", err)
	}
	return r.hold(dir, h)
}

// isPast reports whether a later incarnation was started than that whose directory is
// dir: then nothing of this one is left.
func isPast(dir string) bool {
	number, err := strconv.Atoi(filepath.Base(dir))
	list, _ := os.ReadDir(filepath.Dir(dir)) // unreadable: it is taken for the last
	return err == nil && slices.ContainsFunc(list, func(e os.DirEntry) bool {
		n, err := strconv.Atoi(e.Name())
		return err == nil && n > number
	})
}

// prepare makes all that the keeper needs to be there.
func (r *Runtime) prepare(dir string, a *schema.Assignment, devices *host.GivenDevices) (spec *keeper.Spec, err error) {
	contained := a.Job.Task.Container != nil
	p, err := r.places(dir, a)
	if err != nil {
		return nil, err
	}
	user, err := r.user(a.Task.User)
	if err != nil {
		return nil, err
	}
	if p.network, err = newOwnNetwork(dir, a); err != nil {
		return nil, err
	}
	if p.secrets, err = r.safe.give(dir, a, user); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.safe.drop(dir))
		}
	}()
	a = r.sees.local(a, p)
	spec = &keeper.Spec{
		Boot: r.host.Boot(), Step: a.Step, Attempt: a.Attempt,
		Mark: markVariable + "=" + p.Work, OOMScoreAdj: oomScore(a.Job), WholeCores: a.Job.Task.Resources.WholeCores, Filter: r.sees.isolation.filter, Scoped: r.sees.isolation.scoped,
		Capabilities: capability.Added(&a.Job.Task),
	}
	logs, lessLogs := logLimits(&a.Job.Task)
	spec.Logs = logs
	spec.Secrets, spec.SecretEnv = p.ofSecrets()
	spec.User = (*keeper.User)(user)
	if name := a.Job.Task.Stop.SignalName(); name != "" {
		spec.StopSignal = keeper.SignalNamed(name)
	}
	if err := r.furnish(p, a, user); err != nil {
		return nil, err
	}
	if spec.Given, err = json.Marshal(nodeagent.GivenOf(&a.Job.Task)); err != nil {
		return nil, err
	}
	if spec.Rlimits, err = r.rlimits.bound(&a.Job.Task); err != nil {
		return nil, err
	}
	spec.Note = strings.Join(slices.DeleteFunc([]string{devices.Note, lessLogs}, func(s string) bool { return s == "" }), "; ")
	if contained {
		x := &container{dir: dir, user: *spec.User, places: p, given: devices.Files}
		if x.edits, err = devices.Edits(); err == nil {
			err = r.containers.contain(x, a, spec)
		}
	} else {
		work, _, tmp := r.sees.inside(p)
		spec.Command, spec.Env, spec.Dir = a.Command(), environment(a, p.Work, work, tmp), work
		spec.Sandbox, err = r.sees.sandbox(&a.Job.Task, p, spec.User, devices.Files)
	}
	if err != nil {
		return nil, err
	}
	return spec, nil
}

// makeDir makes the directory of an incarnation.
func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711) // whatever the umask
}

// furnish makes the directories of the task of a, with its files.
func (r *Runtime) furnish(p places, a *schema.Assignment, u *host.User) error {
	if err := r.host.MakePlaces(p.Places, u, a.Job.Task.Resources.DiskBytes); err != nil {
		return beyondQuota(r.host, err)
	}
	if err := r.host.PutFiles(p.Work, a, u); err != nil {
		return fmt.Errorf("task.files: %w", beyondQuota(r.host, err))
	}
	return nil
}

// able says what this machine lacks that the task cannot be run without. The
// cell knows, and asks only machines that say they have it.
func (r *Runtime) able(t *schema.TaskSpec) error {
	for _, attribute := range schema.IsolationOf(t) {
		if r.attributes[attribute] != "true" {
			return fmt.Errorf("the task needs %s, which this machine does not have", attribute)
		}
	}
	return nil
}

// places finds the directories of the task of a, whose incarnation is in dir.
func (r *Runtime) places(dir string, a *schema.Assignment) (places, error) {
	found, err := r.host.Places(dir, a)
	if !r.sees.sharesIPC() {
		found.IPC = host.SharedIPC{}
	}
	p := places{Places: found, container: a.Job.Task.Container != nil}
	if root := a.Job.Task.Process.Root; root != "" && err == nil {
		p.root, err = r.sees.findRoot(root)
	}
	if err != nil || !a.Job.Task.Mounts() {
		return p, err
	}
	if !p.apart() { // where something is mounted that the machine has no directory for
		p.root, p.machines = "/", true
	}
	p.own, err = r.stock.own(&a.Job.Task)
	return p, err
}

// launch starts the keeper of the task of a in dir, which it makes.
func (r *Runtime) launch(dir string, a *schema.Assignment) (*keeper.Starting, error) {
	t := &a.Job.Task
	if err := r.able(t); err != nil {
		return nil, err
	}
	if t.Container == nil && len(t.Process.Command) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrCommand)
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	program, executes := r.containers.sealed(t)
	return r.spares.launch(dir, program, executes)
}

// start is a start whose keeper gets ready.
type start struct {
	dir     string
	of      *schema.Assignment
	spec    *keeper.Spec
	devices []host.Device // that the task was given
}

// begin makes the cgroup while the keeper does what needs none, and has the task started.
func (r *Runtime) begin(ctx context.Context, s *keeper.Starting, of start) (*keeper.Handle, error) {
	of.spec.Cgroups = r.host.Cgroups().Dirs(host.TaskGroup(of.dir, of.of))
	err := s.Prepare(of.spec)
	if err == nil {
		err = r.group(of)
	}
	if err != nil {
		return nil, errors.Join(err, s.Drop(ctx))
	}
	return s.Begin(ctx)
}

// group makes the cgroup.
func (r *Runtime) group(s start) error {
	name, cgroups := host.TaskGroup(s.dir, s.of), r.host.Cgroups()
	err := cgroups.Make(name, s.of, s.devices)
	if err == nil {
		err = cgroups.Own(name, (*host.User)(s.spec.User))
	}
	if err == nil && r.ports {
		err = cgroups.GuardPorts(name, s.of)
	}
	return err
}

// user returns the user that an owner's tasks run as; nil is the agent's own.
func (r *Runtime) user(owner string) (*host.User, error) {
	if !r.users {
		return nil, nil
	}
	return r.host.User(owner)
}

// beyondQuota says of an error that its cause is the task's own limit, if it is: the
// machine's disk has room.
func beyondQuota(h *host.Host, err error) error {
	if !h.BeyondQuota(err) {
		return err
	}
	return fmt.Errorf("%w: what it is given does not fit into its diskBytes: %s", ErrCommand, err.Error())
}

// Remains lists the directories that hold what the tasks of the generation whose
// directory is dir have made for themselves, and what those of its alloc share.
func (r *Runtime) Remains(dir string) []string { return host.Remains(dir) }

// environment returns what the task finds in its environment, sorted. HOME and
// TMPDIR can be set by its job.
func environment(a *schema.Assignment, mark, work, tmp string) []string {
	env := map[string]string{"HOME": work, "TMPDIR": tmp}
	maps.Copy(env, a.Environment())
	env[markVariable] = mark
	env[lineVariable] = filepath.Join(work, lineFile)
	return list(env)
}

// list returns env as a process has it, sorted.
func list(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
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
