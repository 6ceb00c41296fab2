package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/cgroup"
	"github.com/musterhq/muster/nodeagent/durable"
)

// beside is a running task, beside which commands are started: in its namespaces
// and cgroups, as its user, with its environment.
type beside struct {
	dir    string
	spec   Spec
	state  State
	task   int // pidfd of the task's main process
	rooms  int // its namespaces that are not ours, as flags of setns
	makes  int // see entry; then task is a user namespace
	filter []unix.SockFilter
	// unified says of each of its cgroups whether it is of the v2 hierarchy.
	unified []bool
	room    *forkRoom
	unbound bool // the bounding set of who forks is empty
	// scope keeps what is started from abstract sockets of others, and of the task; 0:
	// nothing does. Landlock lets nobody into the task's own confines, and who is in others
	// cannot look into the task, as an operator's debugger does.
	scope uintptr
}

// errEnded is the error of what needs a task that runs.
var errEnded = errors.New("the task has ended")

// openBeside opens the task of the incarnation in dir. What is started beside it is
// handed its things in room.
func openBeside(dir string, room *forkRoom) (*beside, error) {
	b := &beside{dir: dir, task: -1, room: room}
	for name, v := range map[string]any{SpecFile: &b.spec, StateFile: &b.state} {
		if ok, err := read(durable.Documents{Old: true}, dir, name, v); err != nil || !ok {
			return nil, fmt.Errorf("read %s: %w", name, errors.Join(err, errors.New("the task does not run")))
		}
	}
	var err error
	if b.filter, err = program(b.spec.Filter); err != nil {
		return nil, err
	}
	if b.spec.Env, err = b.spec.environment(); err != nil {
		return nil, err
	}
	// The pidfd comes first: what is found by the pid is the task's if it is
	// alive afterwards.
	if b.task, err = openPID(b.state.Task); err != nil {
		return nil, fmt.Errorf("%w: %w", errEnded, err)
	}
	b.rooms, err = rooms(b.state.Task.PID)
	switch {
	case b.over():
		err = errEnded
	case err == nil:
		for _, dir := range b.spec.Cgroups {
			b.unified = append(b.unified, cgroup.IsUnified(dir))
		}
		return b, nil
	}
	b.close()
	return nil, err
}

// namespaces are those that can be entered. What enters them by a pidfd does so in
// the right order, for which Linux 5.8 is needed: less than for making them.
var namespaces = map[string]int{
	"user": unix.CLONE_NEWUSER, "cgroup": unix.CLONE_NEWCGROUP, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS,
	"net": unix.CLONE_NEWNET, "pid": unix.CLONE_NEWPID, "mnt": unix.CLONE_NEWNS,
}

// rooms returns the namespaces of a process that are not ours, as flags of setns.
func rooms(pid int) (int, error) {
	flags := 0
	for name, flag := range namespaces {
		theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/" + name)
		if err != nil {
			return 0, err
		}
		if ours, err := os.Readlink("/proc/self/ns/" + name); err == nil && ours != theirs {
			flags |= flag
		}
	}
	return flags, nil
}

func (b *beside) close() { _ = unix.Close(b.task) }

// over reports whether the task's main process has ended.
func (b *beside) over() bool {
	if b.makes != 0 {
		return false // it is just made
	}
	p := []unix.PollFd{{Fd: int32(b.task), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

// makeGroup makes a cgroup below the task's, where that has one with which
// processes can be found and killed: so that nothing outlives what is started in
// it. Its limits are the task's. It is "" where there is none.
func (b *beside) makeGroup(name string) string {
	for _, dir := range b.spec.Cgroups {
		_, err := os.Stat(filepath.Join(dir, "freezer.state"))
		if err != nil && !cgroup.IsUnified(dir) {
			continue
		}
		group := filepath.Join(dir, name)
		if os.Mkdir(group, 0o755) == nil {
			return group
		}
	}
	return ""
}

// order is a command to start beside a task.
type order struct {
	command []string
	env     []string // all of it
	std     [3]uintptr
	tty     bool
	program int    // a file to execute in place of command[0]; 0: none
	group   string // a cgroup below one of the task's, in place of that; "": none
	main    bool   // it is the task itself, in a container
}

// attempt is a command that is being started.
type attempt struct {
	records int // a pipe's end; -1: closed
	child   int // not reaped yet, if it is nested
	nested  bool
	name    string   // of the program, as it was asked for
	paths   []string // where it is looked for
	workdir string   // which is the command's fault; "" if it is not
	pid     int      // of the command, 0 while that is not known
	failed  error
}

// start forks the command. All that it opens is closed when it returns, but the
// attempt's records: no other child may get hold of them.
func (b *beside) start(o *order) (*attempt, error) {
	var open opened
	defer open.close()
	e, paths, err := b.entry(o, &open)
	if err != nil {
		return nil, err
	}
	if b.over() {
		return nil, errEnded
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	e.report = uintptr(pipe[1])
	child, err := e.start()
	_ = unix.Close(pipe[1])
	if err != nil {
		_ = unix.Close(pipe[0])
		return nil, fmt.Errorf("fork: %w", err)
	}
	a := &attempt{records: pipe[0], child: child, nested: e.nested(), name: o.command[0], paths: paths}
	if o.main {
		a.workdir = b.spec.Dir
	}
	if !a.nested {
		a.pid = child
	}
	return a, nil
}

// take takes what there is to read of the attempt, and reports whether that was all:
// the command runs then, or failed says why not; the error is a commandError if it
// is the command's fault.
func (a *attempt) take() (done bool) {
	b := make([]byte, recordSize)
	n, err := unix.Read(a.records, b)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return false
	case n == recordSize:
		r := record{step: b[0], errno: b[1], path: binary.NativeEndian.Uint16(b[2:]), pid: binary.NativeEndian.Uint32(b[4:])}
		if r.step == begun {
			a.pid = int(r.pid)
		} else {
			a.failed = a.failure(r)
		}
		return false
	}
	_ = unix.Close(a.records)
	a.records = -1
	if a.nested {
		reapOne(a.child)
	}
	switch {
	case a.failed == nil && a.pid == 0:
		a.failed = errors.New("it was killed before it ran the command")
	case a.failed != nil && a.pid != 0:
		reapOne(a.pid)
		a.pid = 0
	}
	return true
}

// failure is the error that a record reports.
func (a *attempt) failure(r record) error {
	errno := syscall.Errno(r.errno)
	if r.step == entering && a.workdir != "" {
		return commandError{fmt.Errorf("working directory %s: %w", a.workdir, errno), false}
	}
	if r.step != executing {
		return fmt.Errorf("%s: %w", steps[r.step], errno)
	}
	missing := errno == unix.ENOENT || errno == unix.ENOTDIR
	if missing && !strings.Contains(a.name, "/") {
		dirs := make([]string, len(a.paths))
		for i, p := range a.paths {
			dirs[i] = filepath.Dir(p)
		}
		return commandError{fmt.Errorf("exec %s: not found in PATH %s", a.name, strings.Join(dirs, ":")), true}
	}
	return commandError{&os.PathError{Op: "exec", Path: a.paths[min(int(r.path), len(a.paths)-1)], Err: errno}, missing}
}

// reapOne takes the end of a child.
func reapOne(pid int) (status syscall.WaitStatus) {
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return status
		}
	}
}

// opened are descriptors to be closed.
type opened struct{ fds []uintptr }

func (o *opened) open(path string, flags int) (uintptr, error) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	o.fds = append(o.fds, uintptr(fd))
	return uintptr(fd), nil
}

func (o *opened) close() { closeAll(o.fds) }

// closeAll closes descriptors.
func closeAll(fds []uintptr) {
	for _, fd := range fds {
		_ = unix.Close(int(fd))
	}
}

// entry gathers what the child needs.
func (b *beside) entry(o *order, open *opened) (*entry, []string, error) {
	var paths []string
	if o.program == 0 {
		paths = pathsOf(o.command[0], o.env)
	}
	if len(paths) == 0 && o.program == 0 {
		return nil, nil, commandError{fmt.Errorf("exec %s: there is no PATH to find it in", o.command[0]), true}
	}
	score, limits := strconv.Itoa(b.spec.OOMScoreAdj), b.spec.Rlimits.list()
	size := roomOf(entryRoom+childStack+len(limits)*int(unsafe.Sizeof(limit{}))+len(b.filter)*instruction+len(b.spec.Cgroups)*int(unsafe.Sizeof(uintptr(0))),
		[]string{score, scoreFile, procType, procPath, hidden, hiddenType, hiddenOptions}, b.way(), paths, o.command, o.env)
	if err := b.room.reset(size); err != nil {
		return nil, nil, err
	}
	e := &put(b.room, []entry{{
		task: uintptr(b.task), rooms: uintptr(b.rooms), std: o.std, tty: o.tty, program: uintptr(o.program), scope: b.scope, unbound: b.unbound && b.rooms&unix.CLONE_NEWUSER == 0,
		ofKernel: ofKernel{makes: uintptr(b.makes), whole: b.spec.HasKernel()}, rights: rights{uintptr(b.spec.keeps()), b.spec.ambient()}, score: put(b.room, []byte(score)), limits: put(b.room, limits), approach: approach{contained: b.spec.Container != nil && !b.spec.HasKernel(), main: o.main},
		scratch: scratch{how: workdirHow, lo: loopbackUp, kept: capabilitySets(b.spec.keeps()), zero: [1]byte{'0'}, page: uintptr(os.Getpagesize() - 1)},
	}})[0]
	if b.rooms&unix.CLONE_NEWPID != 0 && (b.rooms&unix.CLONE_NEWUSER == 0 || b.spec.Container != nil) { // only root has containers
		var err error
		if e.home, err = open.open("/proc/self/ns/pid", unix.O_RDONLY); err != nil {
			return nil, nil, err
		}
		e.rooms &^= unix.CLONE_NEWPID
	}
	if o.main && canShare && !e.nested() { // nobody of the container is there yet
		e.stack = put(b.room, make([]byte, childStack))
	}
	if e.home != 0 && !o.main { // the child is seen by the task from its first moment
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return nil, nil, fmt.Errorf("not dumpable: %w", err)
		}
	}
	if u := b.spec.inside(); u != nil {
		e.switches, e.uid, e.gid = true, uintptr(u.UID), uintptr(u.GID)
	}
	if len(b.filter) > 0 {
		filter := put(b.room, b.filter)
		e.filter = &put(b.room, []unix.SockFprog{{Len: uint16(len(filter)), Filter: &filter[0]}})[0]
	}
	return e, paths, errors.Join(e.strings(b, paths, o), b.groups(e, o.group, open))
}

// entryRoom is what an entry takes without its lists and strings, with a filter's head
// and what each of them may be moved by.
const entryRoom = int(unsafe.Sizeof(entry{})+unsafe.Sizeof(unix.SockFprog{})) + 8*roomAlign

// strings puts what the child is given as text in the kernel's form.
func (e *entry) strings(b *beside, paths []string, o *order) error {
	var errs [10]error
	var argv, envp []*byte
	e.scoreFile, errs[0] = b.room.text(scoreFile)
	argv, errs[2] = b.room.texts(o.command)
	envp, errs[3] = b.room.texts(o.env)
	e.paths, errs[4] = b.room.texts(paths)
	e.procType, errs[5] = b.room.text(procType)
	e.procMount, errs[6] = b.room.text(procPath)
	if b.makes != 0 && b.spec.relayed() {
		e.hides, errs[7] = b.room.text(hidden)
		e.hideType, errs[8] = b.room.text(hiddenType)
		e.hideOptions, errs[9] = b.room.text(hiddenOptions)
	}
	way := b.way()
	e.way, errs[1] = b.room.texts(way)
	e.way = e.way[:len(way)]
	for _, err := range errs {
		if err != nil {
			return commandError{fmt.Errorf("exec %q: %w", o.command[0], err), false}
		}
	}
	e.argv, e.envp, e.paths = &argv[0], &envp[0], e.paths[:len(paths)]
	return nil
}

// The file system of processes, and where it is mounted.
const (
	procType = "proc"
	procPath = "/proc"
)

// way returns how the task's directory is entered.
func (b *beside) way() []string {
	if b.spec.HasKernel() {
		return []string{"/"}
	}
	if b.spec.Container == nil {
		return []string{b.spec.Dir}
	}
	return append([]string{"/"}, strings.FieldsFunc(b.spec.Dir, func(r rune) bool { return r == '/' })...)
}

// groups opens what the child needs to be in the cgroups. They are opened here, for
// a task does not see the cgroups, or sees them read-only.
func (b *beside) groups(e *entry, own string, open *opened) error {
	var joins []uintptr
	for i, dir := range b.spec.Cgroups {
		if own != "" && filepath.Dir(own) == dir {
			dir = own
		}
		if !b.unified[i] {
			fd, err := open.open(filepath.Join(dir, "tasks"), unix.O_WRONLY) // see addGroup
			if err != nil {
				return err
			}
			joins = append(joins, fd)
			continue
		}
		var err [2]error
		e.group, err[0] = open.open(dir, unix.O_PATH|unix.O_DIRECTORY)
		e.late, err[1] = open.open(filepath.Join(dir, "cgroup.procs"), unix.O_WRONLY)
		if err := errors.Join(err[:]...); err != nil {
			return err
		}
	}
	e.joins = put(b.room, joins)
	return nil
}

// pathsOf returns where a program called name is looked for, as a shell would.
func pathsOf(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := ""
	for _, entry := range env {
		if v, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = v
		}
	}
	var paths []string
	for dir := range strings.SplitSeq(path, ":") {
		if dir != "" { // unlike a shell: never what happens to lie in the working directory
			paths = append(paths, dir+"/"+name)
		}
	}
	return paths
}

// program puts a filter in the kernel's form.
func program(filter []byte) ([]unix.SockFilter, error) {
	if len(filter)%instruction != 0 {
		return nil, fmt.Errorf("seccomp: a program of %d bytes", len(filter))
	}
	program := make([]unix.SockFilter, len(filter)/instruction)
	for i := range program {
		b := filter[i*instruction:]
		program[i] = unix.SockFilter{
			Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:]),
		}
	}
	return program, nil
}

// A record is read as it lies in memory.
var _ = [1]struct{}{}[unsafe.Sizeof(record{})-8]
