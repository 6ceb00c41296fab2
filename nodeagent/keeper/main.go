package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/bundle"
	"github.com/musterhq/muster/nodeagent/cgroup"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/relay"
	"github.com/musterhq/muster/schema/atomicfile"
	"github.com/musterhq/muster/schema/filelock"
)

// The first arguments that make Main another process of the incarnation.
const (
	stageArg = "stage" // what becomes the task's command
	initArg  = "init"  // the first process of its pid namespace
	execArg  = "exec"  // what holds a session; see session.go
	// checksArg is of what runs checks, with the agent's state directory; see
	// checks.go.
	checksArg = "checks"
	copyArg   = "copy" // what copies files, inside a task; see copy.go
	// spareArg is of a keeper that has no task yet, with the agent's state directory and room for
	// the name of what it is to keep; see spare.go.
	spareArg = "spare"
)

// readyFD is where a keeper answers its agent, see answer; and runtimeFD is the program of an
// OCI runtime, or /dev/null.
const (
	readyFD   = 3
	runtimeFD = 4
)

// Usage says how Main is called.
const Usage = `muster-keeper holds one task for muster-agent, which starts it.
usage: muster-keeper DIRECTORY`

// Main is the keeper process: args are those of the command line without its
// name, the result is the exit status. With an incarnation's directory as the
// only argument it runs the task to its end.
func Main(args []string) int {
	// The kernel ties PDEATHSIG to the thread that forks, not to the process.
	runtime.LockOSThread()
	switch {
	case !IsCall(args):
		fmt.Fprintln(os.Stderr, Usage)
		return 2
	case args[0] == stageArg:
		return stage()
	case args[0] == initArg:
		return first(args[1])
	case args[0] == execArg:
		return hold(args[1])
	case args[0] == checksArg:
		return serveChecks()
	case args[0] == probeArg:
		return 0
	case args[0] == spareArg:
		return waitForTask()
	case args[0] == copyArg:
		return copyFiles(args[1], args[2], args[3])
	}
	return keep(args[0])
}

// IsCall reports whether args are those of a keeper. A program that is its own
// keeper, as tests are, asks before anything else and calls Main.
func IsCall(args []string) bool {
	switch len(args) {
	case 1:
		return filepath.IsAbs(args[0])
	case 2:
		return slices.Contains([]string{stageArg, initArg, execArg, checksArg, probeArg}, args[0]) && filepath.IsAbs(args[1])
	case 3:
		return args[0] == spareArg && filepath.IsAbs(args[1])
	case 4:
		return args[0] == copyArg
	}
	return false
}

// holder is a running keeper.
type holder struct {
	dir      string
	spec     Spec
	groups   cgroup.Dirs
	outputs  *outputs       // nil before the fork
	ended    chan os.Signal // SIGCHLD; one that is pending stands for all
	control  chan os.Signal // SIGTERM, SIGUSR1, SIGUSR2
	lock     *filelock.Lock
	ready    *os.File // of the agent, until it is answered
	paired   bool     // there is runtimeFD, and ready says when to begin; an agent of an earlier release says nothing
	received int      // how often the agent went on
	dropped  bool     // it gave up, or died
	state    State
	main     int          // pid of the task's main process; 0 when it has ended
	first    int          // pid of its pid namespace's first process; 0 without, and when it was reaped
	mainEnds chan mainEnd // from the first process, once; nil without
	status   syscall.WaitStatus
	exit     Exit
	relay    *relay.Relay // of a task that is relayed
}

// keep runs the task of dir to its end.
func keep(dir string) int {
	h := newHolder()
	return h.keep(dir, h.settle())
}

// waitForTask is the process of a Spare.
func waitForTask() int {
	h := newHolder()
	if h.settle() != nil {
		return 1
	}
	warm()
	_, err := h.ready.Write([]byte{goAhead})
	dir := ""
	if err == nil {
		dir, err = assigned(h.ready)
	}
	if err != nil {
		return 0 // without an agent there is nothing to be done
	}
	for len(h.control) > 0 { // which were not for the task
		<-h.control
	}
	err = renameProcess(dir) // before the lock: who has that can be found
	return h.keep(dir, errors.Join(err, complainIn(dir)))
}

// newHolder makes a holder of no task yet.
func newHolder() *holder {
	h := &holder{ended: make(chan os.Signal, 1), control: make(chan os.Signal, 16)}
	unix.CloseOnExec(readyFD)
	if h.paired = isSocket(readyFD); h.paired {
		unix.CloseOnExec(runtimeFD)
	}
	h.ready = os.NewFile(readyFD, "ready")
	// Before the lock: who finds it held may send a signal.
	signal.Notify(h.control, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	// Not ignored, which the task would inherit.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE)
	return h
}

// keep is keep of dir, unless what came before has failed.
func (h *holder) keep(dir string, err error) int {
	h.dir = dir
	defer runtime.KeepAlive(h)
	if err == nil {
		err = h.begin()
	}
	switch {
	case errors.Is(err, errDropped):
		h.exit = Exit{Code: -1, At: time.Now(), Never: true, Message: neverStarted}
		return h.finish(1)
	case err != nil:
		h.reply(answer{Error: err.Error()})
		return 1
	}
	state, err := h.start()
	if err != nil {
		a := answer{Error: err.Error()}
		a.Command, a.Container = errors.As(err, new(commandError)), errors.Is(err, bundle.ErrRuntime)
		h.exit = Exit{Code: -1, Message: notStarted + err.Error()}
		if !h.awaitAll() {
			h.exit.Never, h.exit.Message = true, neverStarted
		}
		h.sweep()
		h.exit.At = time.Now()
		status := h.finish(1) // if that fails, the agent, which waits, writes it
		h.reply(a)
		return status
	}
	h.reply(answer{State: state})
	h.watch()
	h.sweep()
	if h.main != 0 && h.mainEnds != nil { // it was killed before it had ended
		h.setMainEnd(<-h.mainEnds)
	}
	h.judge()
	return h.finish(0)
}

// reply answers the agent, which may be gone.
func (h *holder) reply(a answer) {
	b, err := json.Marshal(a)
	if err == nil {
		_, _ = h.ready.Write(b)
	}
	_ = h.ready.Close()
}

// isSocket reports whether fd is a socket.
func isSocket(fd int) bool {
	_, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil
}

// errDropped is the error of a task that its agent gave up before it began, or that has died:
// it makes nothing more.
var errDropped = errors.New("the agent gave it up")

// await returns when the agent goes on: when the Spec is there, and then, when all that it
// names is, which the agent makes while this process gets ready.
func (h *holder) await() error {
	if h.dropped || !h.paired {
		return nil
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(h.ready, b); err != nil {
		h.dropped = true
		return fmt.Errorf("%w: %w", errDropped, err)
	}
	h.received++
	return nil
}

// awaitAll returns when the agent makes nothing more, and reports whether all is there.
func (h *holder) awaitAll() bool {
	for h.paired && !h.dropped && h.received < goAheads {
		_ = h.await()
	}
	return !h.dropped
}

// goAhead is sent to the keeper when its Spec is there, and when all that this names is: goAheads
// times. A Spare sends it when it is ready.
const (
	goAhead  = 'g'
	goAheads = 2
)

// settle makes of what the process was started with what a keeper has.
func (h *holder) settle() error {
	if os.Getenv(slackVariable) != "" { // an agent of an earlier release gives none
		if err := restoreTimerSlack(); err != nil { // of this thread, which forks
			return err
		}
	}
	last := readyFD
	if h.paired {
		last = runtimeFD
	}
	if err := closeInherited(last); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("subreaper: %w", err)
	}
	return nil
}

// begin takes the lock and makes sure that nobody was here before.
func (h *holder) begin() (err error) {
	if h.lock, err = claim(h.dir); err != nil {
		return err
	}
	for _, name := range []string{StateFile, ExitFile} {
		if _, err := os.Lstat(filepath.Join(h.dir, name)); err == nil {
			return fmt.Errorf("%s: %s is there: it was run or given up before", h.dir, name)
		}
	}
	if err := h.await(); err != nil {
		return err
	}
	// An agent of an earlier release writes no checksum.
	ok, err := read(durable.Documents{Old: true}, h.dir, SpecFile, &h.spec)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: no %s", h.dir, SpecFile)
	}
	h.groups = h.spec.Cgroups
	return nil
}

// reserve has room on disk for the end.
func (h *holder) reserve() error {
	return atomicfile.Reserve(filepath.Join(h.dir, ExitFile), exitRoom, 0o600)
}

// start starts the task and returns when its command runs and that is on disk.
func (h *holder) start() (*State, error) {
	// From before its command runs: what the task writes is never older than it.
	state := &State{Boot: h.spec.Boot, StartedAt: time.Now()}
	if err := h.fork(); err != nil {
		return nil, err
	}
	for pid, id := range map[int]*Identity{os.Getpid(): &state.Keeper, h.main: &state.Task} {
		p, err := find(pid)
		if err != nil {
			return nil, err
		}
		*id = p.Identity
	}
	h.state = *state
	return state, writeNow(h.dir, StateFile, state)
}

// repair writes the task's documents again, and takes the lock of what was put in the
// place of the directory or of its lock: for an agent that has found them damaged or
// lost. What it cannot write the agent sees.
func (h *holder) repair() {
	h.lock.Retake()
	err := errors.Join(writeNow(h.dir, SpecFile, h.spec), writeNow(h.dir, StateFile, h.state))
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster-keeper:", err)
	}
}

// restsAfter is how long a task has run when its keeper gives back what its start has touched: many
// tasks may be starting, and what this one needs next are the same pages.
const restsAfter = time.Second

// watch obeys signals until the task's main process has ended.
func (h *holder) watch() {
	signal.Notify(h.ended, unix.SIGCHLD) // not before: of what ends in a start this one waits itself
	if h.reap(); h.main == 0 {
		return
	}
	rest := time.NewTimer(restsAfter)
	defer rest.Stop()
	for {
		select {
		case <-rest.C:
			releaseProgramPages()
		case <-h.ended:
			h.reap()
			if h.main == 0 {
				return
			}
		case e := <-h.mainEnds:
			h.setMainEnd(e)
			return
		case s := <-h.control:
			switch s {
			case unix.SIGUSR1:
				h.exit.Kill = true
				h.sweep()
				return
			case unix.SIGUSR2:
				h.repair()
				continue
			}
			h.exit.Term = true
			h.stop()
		}
	}
}

// stop sends the task the signal that stops it.
func (h *holder) stop() {
	if !h.spec.HasKernel() {
		// Neither we nor the first process have reaped it yet, so
		// the group is its own.
		_ = unix.Kill(-h.main, h.spec.stopSignal())
		return
	}
	if err := h.stopKernel(); err != nil { // it is killed in its time
		fmt.Fprintln(os.Stderr, "muster-keeper: stop:", err)
	}
}

// setMainEnd takes the first process's report of the end of the main process.
func (h *holder) setMainEnd(e mainEnd) {
	h.main, h.status, h.exit.At = 0, e.status, time.Now()
	if !h.exit.Kill {
		h.exit.Message = e.message
	}
	if e.status.Signaled() && e.status.Signal() == unix.SIGTERM {
		h.noteTerm()
	}
}

// noteSignal notes where the signal is from that has ended the main process.
func (h *holder) noteSignal(sig syscall.Signal) {
	if sig == unix.SIGTERM {
		h.noteTerm()
	}
	if sig != unix.SIGKILL || h.exit.Kill || h.first == 0 {
		return
	}
	if p, err := find(h.first); err == nil && (p.exiting || p.zombie) {
		h.exit.Message = firstKilled
	}
}

// firstKilled is the message of an end by the kernel, which does not let a pid namespace
// live on without its first process.
const firstKilled = "the first process of its pid namespace was killed, and the task with it"

// noteTerm notes a SIGTERM that has come already: a machine that is shut down sends it to
// keeper and task at once, and the task may end before the keeper has passed it on.
func (h *holder) noteTerm() {
	select {
	case s := <-h.control:
		h.exit.Term = h.exit.Term || s == unix.SIGTERM
	default:
	}
}

// reap takes the status of all children that have ended, and reports whether
// any is left. Orphans of the task become the keeper's children.
func (h *holder) reap() (left bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return false
		case pid == 0:
			return true
		case pid == h.first:
			h.first = 0
		case pid == h.main:
			h.main, h.status = 0, status
			h.exit.At = time.Now()
			if status.Signaled() {
				h.noteSignal(status.Signal())
			}
		}
	}
}

// longestPause is the longest time between two looks at what does not die: a
// process may hang in the kernel for long.
const longestPause = 100 * time.Millisecond

// firstEnds is how long the kernel is given to end a pid namespace whose first process was
// killed, before the cgroups are looked at: what is frozen there does not end by itself.
const firstEnds = 16 * time.Millisecond

// sweep kills all that is left of the task and returns when it is gone.
func (h *holder) sweep() {
	if h.first != 0 { // with it goes all of the pid namespace, before it is reaped
		_ = unix.Kill(h.first, unix.SIGKILL)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		h.reap()
		if h.first == 0 || pause > firstEnds {
			grouped := h.groups.Kill()
			left := h.reap()
			if !grouped && !left {
				return
			}
			if left && !grouped {
				killAll(func() ([]process, error) { return descendants(os.Getpid()) })
			}
		}
		select {
		case <-h.ended:
		case <-time.After(pause):
		}
	}
}

// finish completes the logs, writes the end down in so many attempts (0: as many
// as it takes), gives the cgroups back and returns the exit status of the keeper.
func (h *holder) finish(tries int) int {
	if h.outputs != nil {
		h.outputs.end()
	}
	err := errors.Join(h.leaveNetwork(), h.spec.dropSecrets(), h.writeExit(tries), h.groups.Remove()) // the next one may begin once the end is written
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster-keeper:", err)
		return 1
	}
	return 0
}

// judge takes the exit from the status of the main process.
func (h *holder) judge() {
	if h.spec.HasKernel() {
		h.judgeKernel()
		return
	}
	end := exitOf(h.status)
	h.exit.Code, h.exit.Signal = end.Code, end.Signal
	switch kills := h.groups.OOMKills(); {
	case kills == 0:
	case h.status.Signaled() && h.status.Signal() == unix.SIGKILL && !h.exit.Kill:
		h.exit.OOM = true
	default:
		h.exit.Message = fmt.Sprintf("out of memory: the kernel killed %d of its processes", kills)
	}
}

// The real-time signals as a C library numbers them: it keeps the first two of the
// kernel's for itself.
const (
	rtMin = 34
	rtMax = 64
)

// stopSignal is what stops the task before SIGKILL.
func (s *Spec) stopSignal() unix.Signal {
	if s.StopSignal == 0 {
		return unix.SIGTERM
	}
	return unix.Signal(s.StopSignal)
}

// StopName names the signal that stops the task before SIGKILL.
func (s *Spec) StopName() string { return signalName(s.stopSignal()) }

// SignalNamed returns the number of a signal that is named as kill -l does, without SIG too, or by its
// number; 0 if there is none.
func SignalNamed(name string) int {
	if n, err := strconv.Atoi(name); err == nil {
		if n < 1 || n > rtMax {
			return 0
		}
		return n
	}
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return int(n)
	}
	for n := rtMin; n <= rtMax; n++ {
		if signalName(syscall.Signal(n)) == name || name == fmt.Sprintf("SIGRTMAX-%d", rtMax-n) {
			return n
		}
	}
	return 0
}

// signalName names a signal as signal(7) and the shell's kill -l do.
func signalName(sig syscall.Signal) string {
	switch name := unix.SignalName(sig); {
	case name != "":
		return name
	case sig == rtMin:
		return "SIGRTMIN"
	case sig == rtMax:
		return "SIGRTMAX"
	case sig > rtMin && sig < rtMax:
		return fmt.Sprintf("SIGRTMIN+%d", sig-rtMin)
	}
	return fmt.Sprintf("signal %d", sig)
}

// neverStarted is the message of what nobody tried to run.
const neverStarted = "it was never started"

// notStarted begins the message of an end before the command ran.
const notStarted = "could not be started: "

// exitRoom is what is reserved on disk for the end, in bytes: it is there however
// full the disk is.
const exitRoom = 4 << 10

// writeWait is the time between two attempts to write the end down.
const writeWait = time.Second

// writeExit writes the end down. Without it the exit status is lost, so a disk that
// refuses it twice is waited for only where it cannot be put aside, unless the
// directory is gone.
func (h *holder) writeExit(tries int) error {
	for n := 1; ; n++ {
		err := writeEnd(h.dir, h.exit)
		if err == nil || errors.Is(err, os.ErrNotExist) || n == tries {
			return err
		}
		if n == 1 {
			fmt.Fprintln(os.Stderr, "muster-keeper:", err, "(it goes on trying)")
		} else if putAside(h.dir, h.exit) == nil {
			return nil
		}
		time.Sleep(writeWait)
	}
}
