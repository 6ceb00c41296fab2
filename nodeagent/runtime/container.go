package runtime

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/bundle"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/relay"
	"github.com/musterhq/muster/nodeagent/runtime/capability"
	"github.com/musterhq/muster/nodeagent/secrets"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/thread"
)

// ociRuntime is a program that runs containers: its name, and what has it leave cgroups
// alone.
type ociRuntime struct {
	name   schema.ContainerRuntime
	option string
	kernel bool // it stays, with a kernel for the container: see kernel.go
}

// ociRuntimes are those that are looked for, the one that is taken where the job says nothing
// first: crun takes a third of the time. runc makes cgroups of its own that nobody would
// remove, unless it is rootless and cannot. runsc is taken for who names it alone, since
// not all works there.
var ociRuntimes = []ociRuntime{
	{name: schema.Crun, option: "--cgroup-manager=disabled"},
	{name: schema.Runc, option: "--rootless=true"},
	{name: schema.Runsc, option: "--ignore-cgroups", kernel: true},
}

// containers runs containers.
type containers struct {
	cfg      *Config
	sees     *surroundings
	runtimes map[schema.ContainerRuntime]program // that of "" is of the first
	noRelay  error                               // why one with a kernel gives a task no network of its own
}

// program is an ociRuntime of this machine.
type program struct {
	path, option string
	sealed       *sealed
	kernel       bool
}

// find finds out what runs containers, by trying.
func (c *containers) find(p *prober) {
	c.runtimes = map[schema.ContainerRuntime]program{}
	closed := host.ClosedAbove(c.cfg.Host.Dir())
	switch {
	case c.cfg.Images == nil:
		return
	case !p.can.user || !c.cfg.Host.SeparateUsers():
		p.lacks.Machine("no users or no user namespaces for containers: none run here")
		return
	case closed != "":
		p.lacks.Machine(fmt.Sprintf("%s lets no other user pass: no containers run here (chmod o+x %[1]s)", closed))
		return
	}
	var missing, usual []string
	for _, r := range ociRuntimes {
		if c.cfg.Runtimes != nil && !slices.Contains(c.cfg.Runtimes, r.name) {
			continue
		}
		if !r.kernel {
			usual = append(usual, string(r.name))
		}
		path, err := exec.LookPath(string(r.name))
		if errors.Is(err, exec.ErrNotFound) {
			missing = append(missing, string(r.name))
			continue
		}
		found := program{path, r.option, &sealed{path: path}, r.kernel}
		if err == nil {
			err = c.tryOnce(p, found)
		}
		if err != nil {
			p.lacks.Machine(fmt.Sprintf("no containers by %s: %v", r.name, err))
			continue
		}
		c.runtimes[r.name] = found
		if r.kernel {
			if c.noRelay = thread.Run(relay.Try); c.noRelay != nil {
				p.lacks.Machine(fmt.Sprintf("containers by %s have no networks of their own here: %v", r.name, c.noRelay))
			}
		}
		if c.runtimes[""].path == "" && !r.kernel {
			c.runtimes[""] = found
		}
	}
	missing = slices.DeleteFunc(missing, func(name string) bool { return !slices.Contains(usual, name) })
	if len(missing) == len(usual) {
		but := ""
		if len(c.runtimes) > 0 {
			but = " but those that name runsc"
		}
		p.lacks.Machine(fmt.Sprintf("no containers run here%s: none of %s is installed", but, strings.Join(missing, ", ")))
	}
}

// tryOnce is try, but of a runtime with a kernel only if it is not known to work: it takes half a
// second.
func (c *containers) tryOnce(p *prober, by program) error {
	if !by.kernel {
		return c.try(p, by)
	}
	w, err := worksNow(c.cfg.Host.Boot(), by.path, c.cfg.Keeper)
	if err != nil {
		return err
	}
	return w.once(c.cfg.Host.Dir(), func() error { return c.try(p, by) })
}

// try starts a container of nothing.
func (c *containers) try(p *prober, by program) error {
	layer, err := os.MkdirTemp(p.place, "layer")
	if err != nil {
		return err
	}
	u := keeper.User{UID: schema.FirstTaskUser, GID: schema.FirstTaskUser}
	x := container{runtime: by, layers: []string{layer}, user: u}
	return p.start(by.open(), func(dir string) (*keeper.Spec, error) {
		x.dir = dir
		k, err := c.make(&x)
		spec := &keeper.Spec{Container: k, User: &u, Filter: p.can.filter}
		if by.kernel {
			spec.Filter = nil
		}
		return spec, err
	})
}

// open returns the program as it is executed; nil if that is from where it is, as a kernel's is:
// whoever has that is nobody on the machine, and cannot write to it.
func (p *program) open() *os.File {
	if p.kernel {
		return nil
	}
	return p.sealed.open()
}

// container is one that is to be made.
type container struct {
	dir      string // of the incarnation
	runtime  program
	layers   []string
	writable string // "": its root directory is read-only
	user     keeper.User
	inside   ids
	places   places
	task     schema.TaskSpec
	given    []host.Device
	edits    host.Edits
	limits   *keeper.Rlimits // of a kernel, which sets them itself
}

// ids are a user and a group inside a container.
type ids struct{ user, group int }

// baseDirs are where things are mounted in each container.
var baseDirs = []bundle.Directory{
	{Path: procDir, Mode: 0o755},
	{Path: sysDir, Mode: 0o755},
	{Path: devDir, Mode: 0o755},
	{Path: tmpDir, Mode: 0o777 | fs.ModeSticky},
	{Path: "/etc", Mode: 0o755},
	{Path: ownDir, Mode: 0o755},
	{Path: ownWork, Mode: 0o755},
	{Path: ownSticky, Mode: 0o755},
	{Path: ownShared, Mode: 0o755},
	{Path: ownSecrets, Mode: 0o755},
}

// What of /proc and /sys containers do not see, or cannot write to, beside what the kernel
// keeps from users that are nobody's outside.
var (
	maskedPaths   = []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure", "/proc/sys", "/proc/sysrq-trigger"}
)

// initCapabilities is one of the first process that no task has: who has not all of those of
// a process may not look into it.
var initCapabilities = []string{"CAP_SYS_ADMIN"}

// make plans the container x.
func (c *containers) make(x *container) (*keeper.Container, error) {
	first := c.cfg.Host.FirstID(x.user.UID)
	ofDevices, err := ofDevices(x.edits)
	if err != nil {
		return nil, err
	}
	own, err := ofContainer(x.dir, x.layers, slices.Concat(x.places.own, ofDevices), baseDirs)
	if err != nil {
		return nil, err
	}
	k := &keeper.Container{
		Container: bundle.Container{
			Runtime: x.runtime.path, Options: []string{x.runtime.option}, Layers: x.layers, Writable: x.writable, Base: own.base, Packages: own.packages,
			Users: bundle.Map{Inside: x.inside.user, Outside: x.user.UID, First: first}, Groups: bundle.Map{Inside: x.inside.group, Outside: x.user.GID, First: first},
		},
		Capabilities: capability.Bits(capability.Root(&x.task)), IPC: x.places.IPC.Namespace, Terminals: c.sees.isolation.terminals, Network: x.task.Isolation != nil && x.task.Isolation.Network == schema.NoNetwork,
	}
	if n := x.places.network; n != nil {
		k.JoinNetwork = n.namespace
	}
	for _, name := range machineFiles {
		if x.places.network != nil {
			k.Empty = append(k.Empty, name)
			continue
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			k.Empty = append(k.Empty, name)
		}
	}
	files := slices.Clone(k.Empty)
	k.Empty = append(k.Empty, own.empty...)
	if x.runtime.kernel {
		apart := x.places.network != nil || x.task.Isolation != nil && x.task.Isolation.Network == schema.NoNetwork
		kept, err := keptByKernel(&x.task, x.inside.user, apart)
		if err != nil {
			return nil, nodeagent.TaskError(err)
		}
		return k, plan{dir: x.dir, program: c.cfg.Keeper, mounts: c.mounts(x, files), own: own.mounts, limits: x.limits, kept: kept}.complete(k)
	}
	env := []string{"HOME=/"} // else the runtime looks it up in the image, and waits there for who writes to a fifo
	config := &specs.Spec{
		Version: ociVersion, Root: &specs.Root{Path: bundle.Root, Readonly: x.writable == ""}, Mounts: append(c.mounts(x, files), own.mounts...), Hooks: x.edits.Hooks,
		Process: &specs.Process{Cwd: "/", Args: keeper.Init(x.dir), Env: env, Capabilities: &specs.LinuxCapabilities{Bounding: initCapabilities, Effective: initCapabilities, Permitted: initCapabilities}},
		Linux: &specs.Linux{
			Namespaces:  []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.UTSNamespace}, {Type: specs.UserNamespace, Path: bundle.Path(x.dir, bundle.Users)}},
			UIDMappings: mappings(k.Users), GIDMappings: mappings(k.Groups), MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths,
		},
	}
	if k.IPC == "" {
		config.Linux.Namespaces = append(config.Linux.Namespaces, specs.LinuxNamespace{Type: specs.IPCNamespace})
	}
	if k.Network {
		config.Linux.Namespaces = append(config.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	for i, d := range x.given {
		k.Devices = append(k.Devices, bundle.DeviceFile{Kind: d.Mode, Number: d.Number})
		config.Mounts = append(config.Mounts, specs.Mount{Destination: d.Path, Type: "bind", Source: bundle.Path(x.dir, bundle.Device(i)), Options: []string{"bind", "nosuid", "noexec"}})
	}
	k.Config, err = json.Marshal(config)
	return k, err
}

// mappings returns a Map as a config has it.
func mappings(m bundle.Map) []specs.LinuxIDMapping {
	var out []specs.LinuxIDMapping
	for _, r := range m.Ranges() {
		out = append(out, specs.LinuxIDMapping{ContainerID: uint32(r.Inside), HostID: uint32(r.Outside), Size: uint32(r.Size)})
	}
	return out
}

// mounts are what a container finds in its root directory beside its image; files are
// those of the machine.
func (c *containers) mounts(x *container, files []string) []specs.Mount {
	p := x.places
	mounts := []specs.Mount{
		{Destination: procDir, Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: devDir, Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "mode=755", "size=64k", "ro"}},
		{Destination: sysDir, Type: "bind", Source: sysDir, Options: []string{"rbind", "rro", "nosuid", "noexec", "nodev"}},
		bind(bundle.Path(x.dir, bundle.First), keeper.InitPath, "ro"),
	}
	if c.sees.isolation.terminals {
		mounts = append(mounts, specs.Mount{Destination: ptsDir, Type: "devpts", Source: "devpts", Options: []string{
			"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=" + strconv.Itoa(ttyGroup), "max=" + strconv.Itoa(maxTerminals),
		}})
	}
	if c.sees.isolation.queues && p.IPC.Namespace == "" {
		mounts = append(mounts, specs.Mount{Destination: mqueueDir, Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}})
	}
	if p.IPC.SHM != "" {
		mounts = append(mounts, bind(p.IPC.SHM, shmDir))
	} else {
		mounts = append(mounts, specs.Mount{Destination: shmDir, Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777"}})
	}
	for _, m := range []struct{ source, target string }{{p.Tmp, tmpDir}, {p.Work, ownWork}, {p.Sticky, ownSticky}, {p.Shared, ownShared}} {
		if m.source != "" {
			mounts = append(mounts, bind(m.source, m.target))
		}
	}
	if p.secrets != "" {
		mounts = append(mounts, bind(secrets.Files(p.secrets), ownSecrets, "ro", "noexec"))
	}
	for _, name := range files {
		mounts = append(mounts, bind(p.network.file(name), name, "ro"))
	}
	return mounts
}

// bind mounts what the machine has at source.
func bind(source, target string, options ...string) specs.Mount {
	return specs.Mount{Destination: target, Type: "bind", Source: source, Options: append([]string{"bind", "nosuid", "nodev"}, options...)}
}

// sealed returns the runtime of the container of t as it is executed; nil if that is from
// where it is. executes is false if t has none, or one that is always executed from there.
func (c *containers) sealed(t *schema.TaskSpec) (program *os.File, executes bool) {
	if t.Container == nil {
		return nil, false
	}
	by, ok := c.runtimes[t.Container.Runtime]
	if !ok || by.kernel {
		return nil, false
	}
	return by.open(), true
}

// usual returns what sealed does for a task that names no runtime.
func (c *containers) usual() *os.File {
	by := c.runtimes[""]
	if by.path == "" {
		return nil
	}
	return by.open()
}

// contain plans the container of the task of a, as which spec then runs. x says where, as
// whom, and with which devices.
func (c *containers) contain(x *container, a *schema.Assignment, spec *keeper.Spec) error {
	t := &a.Job.Task
	by, ok := c.runtimes[t.Container.Runtime]
	if !ok {
		return fmt.Errorf("no %s runs containers here", cmp.Or(t.Container.Runtime, "program"))
	}
	found, ok := c.cfg.Images.Find(t.Container.Image)
	if !ok {
		return fmt.Errorf("the image %s is not on this machine any more", t.Container.Image)
	}
	i := img(found)
	who, err := i.user(t.Container.User)
	if err != nil {
		return nodeagent.TaskError(err)
	}
	x.runtime, x.layers, x.inside, x.task = by, i.Layers, who.ids, *t
	if by.kernel {
		if err := kernelRuns(a, x.given); err != nil {
			return nodeagent.TaskError(err)
		}
		x.limits, spec.Rlimits, spec.Filter, spec.Scoped = spec.Rlimits, &keeper.Rlimits{}, nil, false // no core file of the kernel, either
		spec.Capabilities = 0                                                                          // they are of its kernel
	}
	if !t.Container.ReadOnly {
		x.writable = x.places.Layer
	}
	if spec.Container, err = c.make(x); err != nil {
		return err
	}
	if x.writable != "" {
		owner := host.User{UID: spec.Container.Users.Of(int(i.Root.UID)), GID: spec.Container.Groups.Of(int(i.Root.GID))}
		if err := c.cfg.Host.MakeLayer(x.writable, t.Resources.DiskBytes, host.Directory{Mode: i.Root.Mode, Owner: owner}); err != nil {
			return beyondQuota(c.cfg.Host, err)
		}
	}
	if err := os.Chmod(x.places.Tmp, 0o777|fs.ModeSticky); err != nil { // for all users of the container
		return err
	}
	spec.Dir = "/"
	for _, dir := range []string{i.Settings.WorkingDir, t.Container.Workdir} {
		if dir != "" {
			spec.Dir = filepath.Join("/", dir)
		}
	}
	if spec.Command = i.command(a); len(spec.Command) == 0 {
		return fmt.Errorf("%w: neither the job nor the image %s has a command", ErrCommand, t.Container.Image)
	}
	spec.Env = i.environment(a, who.home, x)
	if name := i.Settings.StopSignal; name != "" && spec.StopSignal == 0 {
		if spec.StopSignal = keeper.SignalNamed(name); spec.StopSignal == 0 {
			return nodeagent.TaskError(fmt.Errorf("the image asks to be stopped with %.40q, which is no signal: set task.stop.signal", name))
		}
	}
	return nil
}

// img is an image as this package reads it.
type img image.Image

// command returns what the task of a runs: the job's command replaces the image's
// entrypoint and its arguments, the job's args the latter.
func (i *img) command(a *schema.Assignment) []string {
	command, args := a.Command(), a.Args()
	switch {
	case len(command) > 0:
	case len(args) > 0:
		command = i.Settings.Entrypoint
	default:
		command, args = i.Settings.Entrypoint, i.Settings.Command
	}
	return slices.Concat(command, args)
}

// environment is that of an image, with what devices, the job and muster set over it.
func (i *img) environment(a *schema.Assignment, home string, x *container) []string {
	env := map[string]string{"PATH": schema.DefaultPath, "HOME": home}
	for _, entry := range slices.Concat(i.Settings.Env, x.edits.Env) {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			env[name] = value
		}
	}
	maps.Copy(env, a.Environment())
	env[markVariable], env[lineVariable] = x.places.Work, filepath.Join(ownWork, lineFile)
	return list(env)
}

// account is a user of an image.
type account struct {
	ids
	home string
}

// maxPasswd bounds what is read of an image's list of users or groups, in bytes.
const maxPasswd = 1 << 20

// user finds the user that a process of the image runs as: what the job says, or else
// what the image says; by name or number, with a group behind a colon.
func (i *img) user(asked string) (account, error) {
	if asked == "" {
		asked = i.Settings.User
	}
	name, group, grouped := strings.Cut(asked, ":")
	if name == "" {
		name = "0"
	}
	who := account{home: "/"}
	number, numeric := parseID(name)
	found, err := i.entry("etc/passwd", func(fields []string) bool {
		return len(fields) >= 6 && (fields[0] == name || numeric && fields[2] == strconv.Itoa(number))
	})
	if err != nil {
		return who, err
	}
	switch {
	case found != nil:
		var ok, okGroup bool
		who.ids.user, ok = parseID(found[2])
		who.ids.group, okGroup = parseID(found[3])
		if !ok || !okGroup {
			return who, fmt.Errorf("user %q has no number from 0 to %d in /etc/passwd of the image", name, bundle.IDs-1)
		}
		who.home = found[5]
	case numeric:
		who.ids = ids{user: number}
	default:
		return who, fmt.Errorf("user %q is not in /etc/passwd of the image, and no number from 0 to %d", name, bundle.IDs-1)
	}
	if !grouped {
		return who, nil
	}
	if number, ok := parseID(group); ok {
		who.ids.group = number
		return who, nil
	}
	found, err = i.entry("etc/group", func(fields []string) bool { return len(fields) >= 3 && fields[0] == group })
	if err != nil {
		return who, err
	}
	if found != nil {
		if number, ok := parseID(found[2]); ok {
			who.ids.group = number
			return who, nil
		}
	}
	return who, fmt.Errorf("group %q is not in /etc/group of the image, and no number from 0 to %d", group, bundle.IDs-1)
}

// parseID returns the number of a user or group that a container can have.
func parseID(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && n < bundle.IDs
}

// entry returns the first line of a file with fields between colons that is looked for,
// nil if there is none, or no such file.
func (i *img) entry(name string, is func(fields []string) bool) ([]string, error) {
	for _, layer := range slices.Backward(i.Layers) {
		f, err := openRegular(layer, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("/%s of the image: %w", name, err)
		case f == nil:
			return nil, nil
		}
		defer f.Close()
		lines := bufio.NewScanner(io.LimitReader(f, maxPasswd))
		for lines.Scan() {
			if fields := strings.Split(lines.Text(), ":"); is(fields) {
				return fields, nil
			}
		}
		return nil, lines.Err()
	}
	return nil, nil
}

// openRegular opens a plain file of a layer; nil for anything else, such as what says that
// the file of a layer below is gone. No link leads out of the layer.
func openRegular(layer, name string) (*os.File, error) {
	root, err := os.OpenRoot(layer)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was read from only
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil
	}
	return root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}
