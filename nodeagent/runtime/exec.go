package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// Exec runs a command beside the task, in its namespaces and cgroups, as its
// user, with its environment and terminal if it asks for one, and speaks frames
// over conn. It returns when nothing of the command is left and the last frame,
// how it ended, is written. A command that is not there, or cannot be executed, ends
// with the exit code of a shell in that case. Any other error means that the command
// has not run. The command is killed, with all
// that it has started, when ctx ends, when a Read of conn errs, and with the
// task.
func (p *Process) Exec(ctx context.Context, r schema.ExecRequest, conn io.ReadWriter) error {
	if p.alloc != nil {
		return errors.New("an alloc runs nothing: name a task inside")
	}
	std, err := newStdio(r, p.handle.Spec.User, p.ptmx())
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	defer std.close()
	e := keeper.Exec{Command: r.Command, Stdio: std.theirs, TTY: r.TTY}
	if c := r.Copy; c != nil {
		e.Copy = []string{string(c.Direction), c.Path, c.Name}
	}
	if r.TTY && r.Term != "" {
		e.Env = []string{"TERM=" + r.Term}
	}
	s, err := keeper.StartExec(ctx, p.runtime.cfg.Keeper, p.dir, e)
	if errors.Is(err, ErrCommand) {
		return refuse(conn, err)
	}
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	std.given()
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	out := &frameWriter{w: conn, gone: s.Close}
	var copying sync.WaitGroup
	for i, kind := range []schema.ExecKind{schema.ExecStdout, schema.ExecStderr} {
		if f := std.output[i]; f != nil {
			copying.Go(func() { out.copy(kind, f) })
		}
	}
	input := newInput()
	copying.Go(func() { input.copy(std.input, r.TTY, out) })
	go obey(schema.NewExecFrames(conn), input, std, s)
	exit, err := s.Wait()
	input.end() // whoever types now types to nobody
	copying.Wait()
	end := report(0, exit, "")
	if err != nil {
		end.Message = err.Error()
	}
	data, err := schema.EncodeExecExit(*end)
	if err == nil {
		out.write(schema.ExecExit, data)
	}
	return err
}

// The exit codes of a command that cannot be executed, and of one that is not
// there: those of POSIX shells, and so of ssh, docker and kubectl.
const (
	notExecutable = 126
	notFound      = 127
)

// refuse writes the end of a command that did not begin, for its own fault.
func refuse(conn io.Writer, why error) error {
	end := schema.Exit{Code: notExecutable, At: time.Now(), Message: why.Error()}
	if errors.Is(why, keeper.ErrNotFound) {
		end.Code = notFound
	}
	data, err := schema.EncodeExecExit(end)
	if err == nil {
		_, _ = conn.Write(schema.AppendExecFrame(nil, schema.ExecExit, data)) // nobody may be there
	}
	return err
}

// obey does what frames say, until there are no more. It ends with the caller's
// connection.
func obey(frames *schema.ExecFrames, input *input, std *stdio, s *keeper.Session) {
	for {
		kind, data, err := frames.Next()
		if err == nil {
			switch kind {
			case schema.ExecInput:
				err = input.add(data)
			case schema.ExecEOF:
				input.end()
			case schema.ExecWindow:
				err = std.resize(data)
			case schema.ExecSignal:
				if len(data) == 1 {
					s.Signal(syscall.Signal(data[0]))
				}
			}
		}
		if err != nil {
			s.Close()
			input.end()
			return
		}
	}
}

// frameWriter writes frames. It may be used by several goroutines.
type frameWriter struct {
	gone func()     // called when a write fails
	mu   sync.Mutex // guards what follows
	w    io.Writer
	buf  []byte
}

func (w *frameWriter) write(kind schema.ExecKind, data []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = schema.AppendExecFrame(w.buf[:0], kind, data)
	_, err := w.w.Write(w.buf)
	if err != nil {
		w.gone()
	}
	return err == nil
}

// copy sends what the command writes, to its end: of a terminal that is EIO.
func (w *frameWriter) copy(kind schema.ExecKind, f *os.File) {
	buffer := make([]byte, schema.MaxExecFrame)
	for {
		n, err := f.Read(buffer)
		if n > 0 && !w.write(kind, buffer[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// input holds what was sent to the command and is not taken yet: at most
// schema.ExecInputRoom, since the sender waits for room before it sends more. So signals
// and the end of the connection are seen whatever the command reads.
type input struct {
	more chan struct{} // holds one when something has changed

	mu    sync.Mutex // guards what follows
	data  []byte
	ended bool
}

func newInput() *input { return &input{more: make(chan struct{}, 1)} }

var errFlood = errors.New("more input than there is room for")

func (i *input) add(data []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.data)+len(data) > schema.ExecInputRoom {
		return errFlood
	}
	i.data = append(i.data, data...)
	i.wake()
	return nil
}

func (i *input) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	i.wake()
}

func (i *input) wake() {
	select {
	case i.more <- struct{}{}:
	default:
	}
}

// copy writes the input to f and reports the room that this makes, until the end. A
// terminal has no end of input; a user types ^D for one.
func (i *input) copy(f *os.File, tty bool, out *frameWriter) {
	if !tty {
		defer f.Close()
	}
	for range i.more {
		i.mu.Lock()
		data, ended := i.data, i.ended
		i.data = nil
		i.mu.Unlock()
		if len(data) > 0 {
			if _, err := f.Write(data); err != nil {
				ended = true // nobody reads it any more
			}
			out.write(schema.ExecRoom, binary.BigEndian.AppendUint32(nil, uint32(len(data))))
		}
		if ended {
			return
		}
	}
}

// stdio are the standard descriptors of a command, and our ends of them.
type stdio struct {
	theirs [3]*os.File
	input  *os.File
	output [2]*os.File // stdout, and stderr without a terminal
}

func newStdio(r schema.ExecRequest, u *keeper.User, ptmx string) (*stdio, error) {
	s := &stdio{}
	var err error
	if r.TTY {
		err = s.terminal(ptmx)
	} else {
		err = s.pipes()
	}
	if err == nil && r.TTY {
		err = s.resize(schema.EncodeExecWindow(r.Rows, r.Columns))
	}
	if u != nil && err == nil { // so that it can open /dev/stdout, /dev/tty
		for _, f := range s.theirs {
			err = errors.Join(err, f.Chown(u.UID, -1))
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stdio) pipes() error {
	var err [3]error
	s.theirs[0], s.input, err[0] = os.Pipe()
	s.output[0], s.theirs[1], err[1] = os.Pipe()
	s.output[1], s.theirs[2], err[2] = os.Pipe()
	return errors.Join(err[:]...)
}

// ptmx returns what terminals of the task are opened by: its own, where it has any,
// so that its commands find them by their names. No task can put another file in
// its place.
func (p *Process) ptmx() string {
	if c := p.handle.Spec.Container; c != nil && c.Terminals {
		return filepath.Join("/proc", strconv.Itoa(p.State().PID), "root", ptsDir, "ptmx")
	}
	if s := p.handle.Spec.Sandbox; s != nil {
		for _, m := range s.Mounts {
			if m.Kind == keeper.Devpts {
				return filepath.Join("/proc", strconv.Itoa(p.State().PID), "root", m.Target, "ptmx")
			}
		}
	}
	return ptmxName
}

// terminal opens a pseudo-terminal.
func (s *stdio) terminal(ptmx string) error {
	fd, err := unix.Open(ptmx, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("terminal: %s: %w", ptmx, err)
	}
	s.input = os.NewFile(uintptr(fd), ptmx)
	s.output[0] = s.input
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("terminal: unlock: %w", err)
	}
	// By its master: its name is of a mount namespace.
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fmt.Errorf("terminal: %w", errno)
	}
	tty := os.NewFile(peer, "terminal")
	s.theirs = [3]*os.File{tty, tty, tty}
	return nil
}

// resize sets the size of the terminal; without one it does nothing.
func (s *stdio) resize(data []byte) error {
	rows, columns, err := schema.DecodeExecWindow(data)
	if err != nil || s.output[1] != nil {
		return err
	}
	c, err := s.input.SyscallConn()
	if err != nil {
		return err
	}
	_ = c.Control(func(fd uintptr) { // it may be closed just now
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
	})
	return nil
}

// given closes the ends that the command has now.
func (s *stdio) given() {
	for i, f := range s.theirs {
		if f != nil {
			_ = f.Close()
			s.theirs[i] = nil
		}
	}
}

func (s *stdio) close() {
	s.given()
	for _, f := range []*os.File{s.input, s.output[0], s.output[1]} {
		if f != nil {
			_ = f.Close()
		}
	}
}
