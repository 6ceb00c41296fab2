package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"syscall"

	"github.com/musterhq/muster/schema"
)

// ExecRun is a command beside a task, and what is at its other end.
type ExecRun struct {
	Task    string // user/job/index
	Request schema.ExecRequest
	In      io.Reader // nil: nothing
	Out     io.Writer
	Err     io.Writer // not used with a terminal
	// Signals are passed on to the command.
	Signals <-chan os.Signal
	// Resized delivers the size of the terminal, rows and columns, when it has
	// changed.
	Resized <-chan [2]int
}

// RunExec runs a command beside a task and returns how it ended. The command is
// killed when ctx ends. Reading In may go on after it has returned.
func (c *Client) RunExec(ctx context.Context, run ExecRun) (schema.Exit, error) {
	conn, err := c.Exec(ctx, run.Task, run.Request)
	if err != nil {
		return schema.Exit{}, err
	}
	s := &execSession{conn: conn, room: make(chan struct{}, 1), left: schema.ExecInputRoom}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	go s.send(ctx, run.In)
	go s.pass(ctx, run)
	exit, err := s.receive(run)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	_ = conn.Close() // what there was to say is said
	return exit, err
}

// execSession is one end of a session.
type execSession struct {
	conn io.ReadWriteCloser
	room chan struct{} // holds one when there is more room

	mu   sync.Mutex // guards what follows, and writes to conn
	left int        // bytes of input that the agent has room for
	buf  []byte
}

func (s *execSession) write(kind schema.ExecKind, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = schema.AppendExecFrame(s.buf[:0], kind, data)
	_, err := s.conn.Write(s.buf)
	return err
}

// take waits for room and takes up to max bytes of it.
func (s *execSession) take(ctx context.Context, most int) int {
	for {
		s.mu.Lock()
		n := min(s.left, most)
		s.left -= n
		s.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-s.room:
		case <-ctx.Done():
			return 0
		}
	}
}

func (s *execSession) give(n int) {
	s.mu.Lock()
	s.left += n
	s.mu.Unlock()
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// send passes the input on, as far as there is room for it.
func (s *execSession) send(ctx context.Context, in io.Reader) {
	defer func() { _ = s.write(schema.ExecEOF, nil) }() // or the connection is gone
	if in == nil {
		return
	}
	buffer := make([]byte, schema.MaxExecFrame)
	for {
		room := s.take(ctx, len(buffer))
		if room == 0 {
			return
		}
		n, err := in.Read(buffer[:room])
		s.give(room - n)
		if n > 0 && s.write(schema.ExecInput, buffer[:n]) != nil || err != nil {
			return
		}
	}
}

// pass passes signals and sizes on.
func (s *execSession) pass(ctx context.Context, run ExecRun) {
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case sig := <-run.Signals:
			if number, ok := sig.(syscall.Signal); ok {
				err = s.write(schema.ExecSignal, []byte{byte(number)})
			}
		case size := <-run.Resized:
			err = s.write(schema.ExecWindow, schema.EncodeExecWindow(size[0], size[1]))
		}
		if err != nil {
			return // receive says so
		}
	}
}

// receive takes what comes from the command, to its end.
func (s *execSession) receive(run ExecRun) (schema.Exit, error) {
	frames := schema.NewExecFrames(s.conn)
	for {
		kind, data, err := frames.Next()
		if err != nil {
			return schema.Exit{}, &Error{
				Code: http.StatusBadGateway, Err: err,
				Message: fmt.Sprintf("the connection to %s was lost, and the command is killed: %v", run.Task, err),
				Hint:    "the master or the machine's agent may have been restarted; try again",
			}
		}
		switch kind {
		case schema.ExecStdout:
			_, err = run.Out.Write(data)
		case schema.ExecStderr:
			_, err = run.Err.Write(data)
		case schema.ExecRoom:
			if len(data) == 4 {
				s.give(int(binary.BigEndian.Uint32(data)))
			}
		case schema.ExecExit:
			return schema.DecodeExecExit(data)
		case schema.ExecFailure:
			return schema.Exit{}, &Error{Code: http.StatusBadGateway, Message: string(data), Hint: "muster status " + run.Task + " shows the state of the task"}
		}
		if err != nil {
			return schema.Exit{}, err
		}
	}
}
