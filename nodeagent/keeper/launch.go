package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/musterhq/muster/nodeagent/cgroup"
	"golang.org/x/sys/unix"
)

// The descriptors of the first process and of the stage beyond the standard
// three. A number without a file has /dev/null.
const (
	errorFD = 3 // what goes wrong is written here; closed by a good exec
	specFD  = 4 // SpecFile
	linkFD  = 5 // socket to the keeper: the stage's hello, the first process's report
	groupFD = 6 // directory of the v2 cgroup
	joinFD  = 7 // and on: files to write "0" to, to be in the cgroups
)

// files are what the keeper hands on, from descriptor 0.
type files struct {
	list   []*os.File // all that must be closed
	fds    []uintptr
	errors *os.File // reading end of errorFD
	link   *os.File // the keeper's end of linkFD; nil without a pid namespace
}

func (f *files) add(file *os.File, err error) error {
	if err == nil {
		f.list, f.fds = append(f.list, file), append(f.fds, file.Fd())
	}
	return err
}

// addGroup opens what the stage writes "0" to, to be in the cgroup dir. It is opened
// here, for a task does not see the cgroups, or sees them read-only.
func (f *files) addGroup(dir string) error {
	name := "tasks" // of the thread alone: to move a process, the kernel stops all forks of the machine for milliseconds
	if cgroup.IsUnified(dir) {
		name = "cgroup.procs"
	}
	return f.add(os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0))
}

// addLink adds the stage's end of linkFD, of which a task in our pid namespace has no
// use.
func (f *files) addLink(s *Spec) error {
	if !s.Isolated() {
		return f.add(os.Open(os.DevNull))
	}
	link, peer, err := socketPair()
	f.link = link
	return f.add(peer, err)
}

// executed returns when the stage has become the command, or what kept it from
// that.
func (f *files) executed() error {
	b, err := io.ReadAll(f.errors)
	text := string(b)
	refused, command := commandErrorOf(text)
	switch {
	case err != nil:
		return fmt.Errorf("wait for exec: %w", err)
	case command:
		return refused
	case text != "":
		return errors.New(text)
	}
	return nil
}

func (f *files) close() {
	for _, file := range f.list {
		_ = file.Close()
	}
}

// gather opens all that a start needs.
func (h *holder) gather() (*files, error) {
	f := &files{}
	var err error
	if h.outputs, err = h.openOutputs(); err != nil {
		return nil, err
	}
	errs := []error{f.add(os.OpenFile(os.DevNull, os.O_RDWR, 0))}
	for _, out := range h.outputs.list {
		f.fds = append(f.fds, uintptr(out.write))
	}
	r, w, err := os.Pipe()
	f.errors = r
	errs = append(errs, f.add(w, err), f.add(h.openSpec()), f.addLink(&h.spec))
	group := os.DevNull
	for _, dir := range h.groups {
		if cgroup.IsUnified(dir) {
			group = dir
		}
	}
	errs = append(errs, f.add(os.Open(group)))
	for _, dir := range h.groups {
		errs = append(errs, f.addGroup(dir))
	}
	if err := errors.Join(errs...); err != nil {
		f.close()
		_ = f.errors.Close()
		_ = f.link.Close()
		return nil, err
	}
	return f, nil
}

// openSpec opens the Spec as the task's own processes are handed it: where a secret is in
// the environment, a file that is in memory alone.
func (h *holder) openSpec() (*os.File, error) {
	if h.spec.SecretEnv == "" {
		return os.Open(filepath.Join(h.dir, SpecFile))
	}
	handed := h.spec
	var err error
	if handed.Env, err = h.spec.environment(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(&handed)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(SpecFile, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("secrets of the environment: %w", os.NewSyscallError("memfd_create", err))
	}
	f := os.NewFile(uintptr(fd), SpecFile)
	if _, err := f.Write(b); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("secrets of the environment: %w", err)
	}
	return f, nil
}

// socketPair makes a pair of sockets; the first end gets the credentials of each writer.
func socketPair() (end, peer *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	err = errors.Join(unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1), unix.SetNonblock(fds[0], true))
	return os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link"), err
}

// fork starts the stage, below a first process if the task has a pid namespace,
// and waits until it has become the command.
func (h *holder) fork() error {
	if h.paired && (h.spec.Container == nil || h.spec.HasKernel()) { // it executes none, or what is on the machine
		_ = unix.Close(runtimeFD)
	}
	if h.spec.Container != nil {
		return h.contain()
	}
	if err := h.await(); err != nil {
		return err
	}
	if err := h.reserve(); err != nil {
		return err
	}
	f, err := h.gather()
	if err != nil {
		return err
	}
	defer f.errors.Close()
	if h.spec.Sandbox != nil {
		h.first, err = h.startFirst(f.fds)
	} else {
		h.main, err = startStage(h.dir, f.fds, &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL})
	}
	f.close()
	h.outputs.begin()
	if err != nil {
		return fmt.Errorf("fork: %w", err)
	}
	if err := f.executed(); err != nil || f.link == nil {
		return err
	}
	if h.main, err = hello(f.link); err != nil {
		return err
	}
	h.mainEnds = make(chan mainEnd, 1)
	go listen(f.link, h.mainEnds)
	return nil
}

// environment is that of the keeper's own processes: they wait, and more
// threads would only cost memory.
var environment = []string{"GOMAXPROCS=1"}

// startStage forks the stage, in its v2 cgroup if it has one.
func startStage(dir string, fds []uintptr, sys *syscall.SysProcAttr) (int, error) {
	args, attr := []string{"muster-keeper", stageArg, dir}, &syscall.ProcAttr{Env: environment, Files: fds, Sys: sys}
	if !onUnified(fds[groupFD]) {
		return syscall.ForkExec("/proc/self/exe", args, attr)
	}
	placed := append([]uintptr(nil), fds...)
	for i, fd := range placed[joinFD:] {
		if onUnified(fd) { // it is there already: what it writes goes nowhere
			placed[joinFD+i] = fds[0]
		}
	}
	in := *sys
	in.UseCgroupFD, in.CgroupFD = true, int(fds[groupFD])
	pid, err := syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{Env: environment, Files: placed, Sys: &in})
	if err == nil {
		return pid, nil
	}
	// Older than Linux 5.7, or in a user namespace: the stage joins by itself.
	return syscall.ForkExec("/proc/self/exe", args, attr)
}

// onUnified reports whether fd is a file of the v2 hierarchy.
func onUnified(fd uintptr) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(fd), &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC
}

// startFirst forks the first process of the task's namespaces. It is not in the
// task's cgroups: their limits are the task's alone.
func (h *holder) startFirst(fds []uintptr) (int, error) {
	s := h.spec.Sandbox
	sys := &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	if err := join(s.IPC, s.JoinNetwork); err != nil {
		return 0, err
	}
	if s.IPC != "" {
		sys.Cloneflags &^= unix.CLONE_NEWIPC
	}
	if s.Network {
		sys.Cloneflags |= unix.CLONE_NEWNET
	}
	if s.UserNamespace {
		sys.Cloneflags |= unix.CLONE_NEWUSER
		u := User{UID: os.Geteuid(), GID: os.Getegid()}
		if h.spec.User != nil {
			u = *h.spec.User
			sys.Credential = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
			sys.GidMappingsEnableSetgroups = true
		}
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: u.UID, HostID: u.UID, Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: u.GID, HostID: u.GID, Size: 1}}
		// No user 0 is there to have them.
		sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SETGID}
	}
	attr := &syscall.ProcAttr{Env: environment, Files: fds, Sys: sys}
	return syscall.ForkExec("/proc/self/exe", []string{"muster-keeper", initArg, h.dir}, attr)
}

// helloSize is the size of a hello, in bytes; a report of the end has another.
const helloSize = 1

// hello takes the stage's hello and returns its pid as this namespace has it.
func hello(link *os.File) (int, error) {
	c, err := link.SyscallConn()
	if err != nil {
		return 0, err
	}
	pid := 0
	var oob [64]byte
	rerr := c.Read(func(fd uintptr) bool {
		n, o, _, _, e := unix.Recvmsg(int(fd), make([]byte, 8), oob[:], 0)
		if e == unix.EAGAIN || e == unix.EINTR {
			return false
		}
		// A stage that was killed says nothing; then this is the first
		// process's report of its end.
		if err = e; e != nil || n != helloSize {
			return true
		}
		messages, e := unix.ParseSocketControlMessage(oob[:o])
		for i := range messages {
			if cred, e := unix.ParseUnixCredentials(&messages[i]); e == nil {
				pid = int(cred.Pid)
			}
		}
		err = e
		return true
	})
	if err = errors.Join(rerr, err); err == nil && pid == 0 {
		err = errors.New("it was killed before it ran the command")
	}
	if err != nil {
		return 0, fmt.Errorf("the task's main process: %w", err)
	}
	return pid, nil
}

// mainEnd is the end of the main process as the first process reports it.
type mainEnd struct {
	status  syscall.WaitStatus
	message string
}

// listen takes the first process's report. A first process that was killed leaves
// none, and with it the kernel has killed the task.
func listen(link *os.File, to chan<- mainEnd) {
	defer link.Close()
	b := make([]byte, 8)
	n, err := link.Read(b)
	if err != nil || n != 4 {
		to <- mainEnd{syscall.WaitStatus(unix.SIGKILL), firstKilled}
		return
	}
	to <- mainEnd{status: decodeStatus(b)}
}
