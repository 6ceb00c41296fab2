package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Checker runs commands beside tasks with a pid namespace, by one process that it
// starts when the first is asked for, and again, with pauses, when that has ended.
// Its methods may be called from any goroutine.
type Checker struct {
	exe, dir string

	mu     sync.Mutex // guards what follows
	closed bool
	helper *helper // nil: none runs
	ended  int     // helpers in a row that did not live for long
	due    time.Time
}

// NewChecker returns a Checker whose process is exe, and shows dir, the agent's
// state directory, as whose it is.
func NewChecker(exe, dir string) *Checker { return &Checker{exe: exe, dir: dir} }

// How long to wait after the end of a helper: twice as long after each that ended
// within longEnough of its start.
const (
	helperPause    = time.Second
	helperPauseMax = time.Minute
	longEnough     = time.Minute
)

// helper is a process that runs checks.
type helper struct {
	control *os.File
	pid     int
	began   time.Time
	gone    chan struct{} // closed when nothing of it is left

	mu      sync.Mutex // guards what follows
	next    uint64
	waiting map[uint64]chan ending // nil: it has ended
}

// Run runs a command beside the task of the incarnation in dir, with no input and
// with output for what it writes, and returns how it ended when nothing of it is
// left. When ctx ends it is killed. The error is ErrCommand if it is the command's
// fault; after any other the command has not run, or nobody knows how it ended.
func (c *Checker) Run(ctx context.Context, dir string, command []string, output *os.File) (Exit, error) {
	h, err := c.start()
	if err != nil {
		return Exit{}, err
	}
	id, end, err := h.ask(checkCall{Dir: dir, Command: command}, output)
	if err != nil {
		return Exit{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = h.send(checkCall{ID: id, Kill: true}, nil) })
	defer stop()
	e, ok := <-end
	switch {
	case !ok:
		return Exit{}, errors.New("the process that runs checks has ended")
	case e.Exit != nil:
		return *e.Exit, nil
	case e.Missing:
		return Exit{}, fmt.Errorf("%w: %s", ErrNotFound, e.Error)
	case e.Command:
		return Exit{}, fmt.Errorf("%w: %s", ErrCommand, e.Error)
	}
	return Exit{}, errors.New(e.Error)
}

// Close ends the process, and what it runs.
func (c *Checker) Close() {
	c.mu.Lock()
	h := c.helper
	c.closed = true
	c.mu.Unlock()
	if h != nil {
		_ = h.control.Close() // it may have ended already
		<-h.gone
	}
}

// start returns the helper, which it starts if there is none.
func (c *Checker) start() (*helper, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, os.ErrClosed
	case c.helper != nil:
		return c.helper, nil
	case time.Now().Before(c.due):
		return nil, fmt.Errorf("the process that runs checks has ended, and is started again at %s", c.due.UTC().Format("15:04:05 UTC"))
	}
	h, err := startHelper(c.exe, c.dir)
	if err != nil {
		return nil, err
	}
	c.helper = h
	go c.listen(h)
	return h, nil
}

func startHelper(exe, dir string) (*helper, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(err, unix.Close(fds[0]))
	}
	control := os.NewFile(uintptr(fds[0]), "control")
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	defer null.Close()
	var pid int
	err = withTimerSlack(idleSlack, func(before int) (err error) {
		pid, err = syscall.ForkExec(exe, []string{exe, checksArg, dir}, &syscall.ProcAttr{
			Dir: "/", Env: append([]string{"GOGC=10", slackVariable + "=" + strconv.Itoa(before)}, environment...),
			Files: []uintptr{null.Fd(), null.Fd(), 2, uintptr(fds[1])}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", exe, err), control.Close())
	}
	return &helper{control: control, pid: pid, began: time.Now(), gone: make(chan struct{}), waiting: map[uint64]chan ending{}}, nil
}

// ask sends a call, and returns where its end will be; that is closed without one
// when the helper ends.
func (h *helper) ask(call checkCall, output *os.File) (id uint64, end chan ending, err error) {
	h.mu.Lock()
	if h.waiting == nil {
		h.mu.Unlock()
		return 0, nil, errors.New("the process that runs checks has ended")
	}
	h.next++
	id, end = h.next, make(chan ending, 1)
	h.waiting[id] = end
	h.mu.Unlock()
	call.ID = id
	if err := h.send(call, output); err != nil {
		h.mu.Lock()
		delete(h.waiting, id)
		h.mu.Unlock()
		return 0, nil, err
	}
	return id, end, nil
}

// send sends a call with a descriptor, if output is not nil.
func (h *helper) send(call checkCall, output *os.File) error {
	b, err := json.Marshal(call)
	if err != nil {
		return err
	}
	if len(b) > maxPacket {
		return fmt.Errorf("%w: it has %d bytes with its arguments, want at most %d", ErrCommand, len(b), maxPacket)
	}
	var rights []byte
	if output != nil {
		rights = unix.UnixRights(int(output.Fd()))
	}
	conn, err := h.control.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Write(func(fd uintptr) bool {
		failed = unix.Sendmsg(int(fd), b, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
	})
	return errors.Join(err, failed)
}

// listen hands on what a helper says until it ends.
func (c *Checker) listen(h *helper) {
	b := make([]byte, maxPacket)
	for {
		n, err := h.control.Read(b)
		var e checkEnd
		if err == nil {
			err = json.Unmarshal(b[:n], &e)
		}
		if err != nil {
			break
		}
		h.mu.Lock()
		if end := h.waiting[e.ID]; end != nil {
			end <- e.ending
			delete(h.waiting, e.ID)
		}
		h.mu.Unlock()
	}
	_ = h.control.Close()
	reapOne(h.pid)
	h.mu.Lock()
	for _, end := range h.waiting {
		close(end)
	}
	h.waiting = nil
	h.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(h.gone)
	c.helper = nil
	if time.Since(h.began) > longEnough {
		c.ended = 0
	}
	c.due = time.Now().Add(min(helperPause<<min(c.ended, 10), helperPauseMax))
	c.ended++
}
