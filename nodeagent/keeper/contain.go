package keeper

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/cgroup"
)

// InitPath is where a container has the program of its first process.
const InitPath = "/dev/.muster-init"

// Init returns the command line of the first process of the container of the incarnation in
// dir. It says on the machine what it is, and does nothing else.
func Init(dir string) []string { return []string{InitPath, initArg, dir} }

// contain has the container made, starts the task in it, and waits until its command runs.
func (h *holder) contain() error {
	if h.spec.HasKernel() {
		return h.startKernel()
	}
	command := h.spec.Command
	if h.spec.Probe {
		command = Init(h.dir) // without a socket it ends at once
	}
	if len(command) == 0 {
		return errors.New("no command")
	}
	env, err := h.spec.environment()
	if err != nil {
		return err
	}
	if err := h.startContainer(); err != nil {
		return err
	}
	defer h.outputs.begin() // it closes our ends of the task's
	if err := h.await(); err != nil {
		return err
	}
	b, err := h.insider()
	if err != nil {
		return err
	}
	defer b.close()
	if b.scope > 0 {
		defer unix.Close(int(b.scope))
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	o := order{command: command, env: env, std: [3]uintptr{null.Fd(), uintptr(h.outputs.list[0].write), uintptr(h.outputs.list[1].write)}, main: true}
	a, err := b.start(&o)
	if err != nil {
		return err
	}
	for !a.take() {
	}
	h.main = a.pid
	return a.failed
}

// startContainer has the container made. Its first process ends with this one.
func (h *holder) startContainer() error {
	c := h.spec.Container
	if err := join(c.IPC, c.JoinNetwork); err != nil {
		return err
	}
	alive, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	program := 0
	if h.paired {
		defer unix.Close(runtimeFD)
		if isSealed(runtimeFD) {
			program = runtimeFD
		}
	}
	h.first, err = c.Start(h.dir, uintptr(alive[0]), program, func() error {
		outputs, err := h.openOutputs()
		h.outputs = outputs
		return errors.Join(err, h.reserve())
	})
	if err := errors.Join(err, unix.Close(alive[0])); err != nil {
		return err
	}
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(alive[1], make([]byte, 1)) // which is open for as long as this process lives
	}
	if err == nil && n == 0 {
		err = errors.New("it was killed")
	}
	if err != nil {
		return fmt.Errorf("the first process of the container: %w", err)
	}
	return nil
}

// isSealed reports whether fd is a file in memory that nobody can change.
func isSealed(fd uintptr) bool {
	seals, err := unix.FcntlInt(fd, unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_WRITE != 0
}

// insider is what the task is started by in its container.
func (h *holder) insider() (*beside, error) {
	b := &beside{dir: h.dir, spec: h.spec, room: &forkRoom{}, rooms: h.spec.Container.rooms()}
	var err [3]error
	b.filter, err[0] = program(h.spec.Filter)
	b.task, err[1] = unix.PidfdOpen(h.first, 0)
	if h.spec.Scoped {
		var rules int
		rules, err[2] = newScope()
		b.scope = uintptr(rules)
	}
	for _, dir := range h.groups {
		b.unified = append(b.unified, cgroup.IsUnified(dir))
	}
	return b, errors.Join(err[:]...)
}
