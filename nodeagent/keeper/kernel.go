package keeper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/bundle"
	"github.com/musterhq/muster/nodeagent/cgroup"
	"github.com/musterhq/muster/nodeagent/relay"
)

// A task with a Kernel is in one of its own, in user space: none of its processes is one of
// the machine. Its main process on the machine is the runtime, in the task's cgroups: the first
// process of a pid namespace, and user 0 of the container's user namespace, so that it is
// nobody outside. All else that is asked of the task is asked of the runtime, by running it
// again beside itself: signals by its kill, commands by its exec.

// KernelProgram is where a task with a Kernel has this program.
const KernelProgram = "/muster/.program"

// probeArg makes Main end at once.
const probeArg = "probe"

// kernelFlags are the namespaces of a runtime, beside that of users, as flags of unshare.
func (c *Container) kernelFlags() int {
	flags := unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	if c.Network {
		flags |= unix.CLONE_NEWNET
	}
	return flags
}

// runtimeLog is where a runtime writes why it has failed, in bundle.State.
const runtimeLog = "log"

// runtimeCommand is a call of the runtime for the container whose bundle is in dir; what it
// has to say is written to log.
func (c *Container) runtimeCommand(dir, log string, args ...string) []string {
	state := bundle.Path(dir, bundle.State)
	return append(append([]string{c.Runtime, "--root", state, "--log", filepath.Join(state, log)}, c.Options...), args...)
}

// runtimeEnv is the environment of a runtime.
var runtimeEnv = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}

// startKernel starts a task that has one, and returns when its command runs.
func (h *holder) startKernel() error {
	command := h.spec.Command
	if h.spec.Probe {
		command = []string{KernelProgram, probeArg, "/"}
	}
	if len(command) == 0 {
		return errors.New("no command")
	}
	env, err := h.spec.environment()
	if err != nil {
		return err
	}
	made := h.spec.Container.Container // which alone has secrets of the environment
	if made.Config, err = configFor(made.Config, command, env, h.spec.Dir); err != nil {
		return err
	}
	if h.outputs, err = h.openOutputs(); err != nil {
		return err
	}
	defer h.outputs.begin() // it closes our ends of the task's
	if err := h.reserve(); err != nil {
		return err
	}
	return made.Prepare(h.dir, func(string) error {
		if err := h.await(); err != nil {
			return err
		}
		for try := 1; ; try++ {
			if err := h.networked(h.forkRuntime); err != nil {
				return err
			}
			err := h.awaitKernel()
			if try == kernelTries || h.spec.relayed() || !interfaceGone(err) {
				return err
			}
			if h.forgetRuntime() != nil { // the disk is no better
				return err
			}
		}
	})
}

// kernelTries is how often a runtime is started for one task: where interfaces come and go all
// the time, such as where tasks with networks of their own start, one start in some tens fails.
const kernelTries = 5

// interfaceGone reports whether a runtime failed since an interface of the machine, whose
// network the task has, went while the runtime looked at it. runsc lists them, and then asks for
// the properties of each (pkg/sentry/socket/hostinet).
func interfaceGone(err error) bool {
	return errors.Is(err, bundle.ErrRuntime) && strings.HasSuffix(err.Error(), "starting sandbox: "+unix.ENODEV.Error())
}

// forgetRuntime takes the end of a runtime that has failed, and what it wrote about that. It
// has removed the container. The working directory is the bundle.
func (h *holder) forgetRuntime() error {
	reapOne(h.main)
	h.main = 0
	return os.Remove(filepath.Join(bundle.State, runtimeLog))
}

// configFor returns an OCI runtime's config with what it runs.
func configFor(config []byte, command, env []string, dir string) ([]byte, error) {
	var all map[string]json.RawMessage
	var process map[string]any
	err := json.Unmarshal(config, &all)
	if err == nil {
		err = json.Unmarshal(all["process"], &process)
	}
	if err != nil {
		return nil, fmt.Errorf("config of the container: %w", err)
	}
	process["args"], process["env"], process["cwd"] = command, env, dir
	if all["process"], err = json.Marshal(process); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// networked calls start in the network namespace that the runtime is to be in. The working directory is the bundle.
func (h *holder) networked(start func() error) error {
	if !h.spec.relayed() {
		return start()
	}
	first, err := os.Open(h.spec.Container.JoinNetwork)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	defer first.Close()
	second, err := os.Open(bundle.Network)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	defer second.Close()
	if h.relay, err = relay.Open(first, second, func(err error) { fmt.Fprintln(os.Stderr, "muster-keeper:", err) }); err != nil {
		return err
	}
	return relay.In(second, start)
}

// leaveNetwork gives up what is between the task and its network.
func (h *holder) leaveNetwork() error {
	if h.relay == nil {
		return nil
	}
	return h.relay.Close()
}

// forkRuntime forks the runtime, in the task's cgroups. The working directory is the bundle.
func (h *holder) forkRuntime() error {
	c := h.spec.Container
	users, err := unix.Open(bundle.Users, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the user namespace: %w", err)
	}
	defer unix.Close(users)
	b := &beside{dir: h.dir, spec: h.spec, task: users, room: &forkRoom{}, rooms: unix.CLONE_NEWUSER, makes: c.kernelFlags()}
	for _, dir := range h.groups {
		b.unified = append(b.unified, cgroup.IsUnified(dir))
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	o := order{
		command: c.runtimeCommand(h.dir, runtimeLog, "run", "--bundle", filepath.Dir(bundle.Path(h.dir, bundle.State)), c.ID),
		env:     append([]string{h.spec.Mark}, runtimeEnv...), main: true,
		std: [3]uintptr{null.Fd(), uintptr(h.outputs.list[0].write), uintptr(h.outputs.list[1].write)},
	}
	a, err := b.start(&o)
	if err != nil {
		return err
	}
	for !a.take() {
	}
	h.main = a.pid
	return notCommand(a.failed)
}

// notCommand says of an error with the runtime's program that it is not the task's.
func notCommand(err error) error {
	if refused := (commandError{}); errors.As(err, &refused) {
		return errors.New("start the runtime: " + refused.Error())
	}
	return err
}

// kernelEvery is the time between two looks at a runtime that starts: that takes it some
// tenths of a second.
const kernelEvery = 2 * time.Millisecond

// awaitKernel returns when the task's command runs, or has ended.
func (h *holder) awaitKernel() error {
	for ; ; time.Sleep(kernelEvery) {
		over := ended(h.main)
		if kernelRuns() {
			return nil
		}
		if !over {
			continue
		}
		said, err := os.ReadFile(filepath.Join(bundle.State, runtimeLog))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if why := complaints(said); why != "" {
			return kernelError(why)
		}
		return nil // its command has ended already
	}
}

// kernelRuns reports whether the runtime says that the command runs. The working directory is
// the bundle.
func kernelRuns() bool {
	found, _ := filepath.Glob(filepath.Join(bundle.State, "*.state"))
	for _, name := range found {
		var state struct{ Status string }
		if b, err := os.ReadFile(name); err == nil && json.Unmarshal(b, &state) == nil && state.Status == "running" {
			return true
		}
	}
	return false
}

// ended reports whether a child has, whose end stays to be taken.
func ended(pid int) bool {
	var info childEnd
	err := unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil && !errors.Is(err, unix.EINTR) || int(info.pid) == pid
}

// complaints returns what a runtime has written to its log, of which each of its processes
// writes a part.
func complaints(log []byte) string {
	var said []string
	d := json.NewDecoder(bytes.NewReader(log))
	for {
		var line struct{ Level, Msg string }
		if d.Decode(&line) != nil {
			return strings.Join(said, "; ")
		}
		if line.Level == "error" {
			said = append(said, line.Msg)
		}
	}
}

// kernelError is the error of a runtime that could not start a command, which says why. It is
// the command's fault if that is why.
func kernelError(why string) error {
	if _, tail, ok := strings.Cut(why, "error finding executable "); ok {
		return commandError{errors.New("exec " + tail), strings.Contains(tail, "no such file")}
	}
	if _, tail, ok := strings.Cut(why, "failed to load "); ok {
		return commandError{errors.New("exec " + tail), strings.Contains(tail, "no such file")}
	}
	return fmt.Errorf("%w: %s", bundle.ErrRuntime, why)
}

// signalKernel sends a signal to a process of the task's kernel, 0 for the main one, and
// returns the pid of who does that.
func (b *beside) signalKernel(pid int, sig unix.Signal, group string) (int, error) {
	args := []string{"kill"}
	if pid > 0 {
		args = append(args, "--pid", strconv.Itoa(pid))
	}
	return b.callRuntime(nil, group, append(args, b.spec.Container.ID, strconv.Itoa(int(sig)))...)
}

// callRuntime calls the runtime beside itself, with out for what it writes, and returns its pid.
func (b *beside) callRuntime(out *os.File, group string, args ...string) (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	if out == nil {
		out = null
	}
	a, err := b.start(&order{
		command: b.spec.Container.runtimeCommand(b.dir, runtimeLog, args...), env: runtimeEnv, group: group,
		std: [3]uintptr{null.Fd(), out.Fd(), null.Fd()},
	})
	if err != nil {
		return 0, err
	}
	for !a.take() {
	}
	return a.pid, notCommand(a.failed)
}

// stopKernel sends the task's main process the signal that stops it.
func (h *holder) stopKernel() error {
	b, err := openBeside(h.dir, &forkRoom{})
	if err != nil {
		return err
	}
	defer b.close()
	_, err = b.signalKernel(0, h.spec.stopSignal(), "") // whose end reap takes
	return err
}

// judgeKernel takes the exit of a task from the status of its runtime: how its main process
// ended is that by a shell's convention.
func (h *holder) judgeKernel() {
	end := exitOf(h.status)
	h.exit.Code, h.exit.Signal = end.Code, end.Signal
	sig := syscall.Signal(end.Code - signalled)
	switch {
	case h.groups.OOMKills() > 0 && !h.exit.Kill:
		h.exit.OOM, h.exit.Code, h.exit.Signal = true, -1, signalName(unix.SIGKILL)
	case h.exit.Term && sig == h.spec.stopSignal():
		h.exit.Code, h.exit.Signal = -1, signalName(sig)
	}
}

// signalled is what a runtime, as a shell, adds to the number of a signal that has ended a command.
const signalled = 128
