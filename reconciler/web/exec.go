package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// ExecProtocol is what a connection of /v1/exec is upgraded to: the frames of a
// schema.ExecFrames in both directions.
const ExecProtocol = "muster-exec"

// maxAudited is how much of a command an event holds, in bytes.
const maxAudited = 1 << 10

// exec runs a command beside a task. The answer is the upgrade of the
// connection, which then carries frames to and from the agent.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	if s.cfg.NoExec {
		return &failure{http.StatusForbidden, "this cell runs no commands beside tasks", "its master was started with --no-exec"}
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), ExecProtocol) {
		w.Header().Set("Upgrade", ExecProtocol)
		return &failure{http.StatusUpgradeRequired, "exec is no ordinary request", "use muster exec, or upgrade the connection to " + ExecProtocol}
	}
	want, err := s.execRequest(r)
	if err != nil {
		return err
	}
	machine, err := s.locate(r.Context(), want.Task, 0)
	if err != nil {
		return err
	}
	s.audit(r, machine, &want)
	agent, err := s.cfg.Exec.Exec(r.Context(), machine, want)
	if err != nil {
		return unreadable(err)
	}
	defer agent.Close()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	defer conn.Close()
	if conn.SetDeadline(time.Time{}) != nil {
		return nil // the client has left
	}
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", ExecProtocol); err != nil {
		return nil
	}
	splice(r.Context(), client{buffered, conn}, agent)
	return nil
}

// client is a connection of which some may have been read already.
type client struct {
	io.Reader
	net.Conn
}

func (c client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// splice copies in both directions until one side is done, or ctx is. Neither
// side is read faster than the other takes it.
func splice(ctx context.Context, c client, agent io.ReadWriteCloser) {
	stop := context.AfterFunc(ctx, func() { _, _ = c.Close(), agent.Close() })
	defer stop()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(agent, c)
		_ = agent.Close() // the client has left: so must the command
	}()
	_, _ = io.Copy(c.Conn, agent)
	_ = c.Close()
	<-copied
}

// audit writes down who runs what.
func (s *Server) audit(r *http.Request, machine string, want *schema.ExecRequest) {
	command := fmt.Sprintf("runs %q", want.Command)
	if c := want.Copy; c != nil && c.Direction == schema.CopyOut {
		command = fmt.Sprintf("copies %q from it", c.Path)
	} else if c != nil {
		command = fmt.Sprintf("copies files to %q", c.Path)
	}
	if len(command) > maxAudited {
		command = strings.ToValidUTF8(command[:maxAudited], "") + "…"
	}
	s.cfg.Audit(schema.Event{
		At: time.Now(), Kind: schema.EventExec, Task: want.Task.Short(), Machine: machine,
		Message: s.caller(r) + " " + command,
	})
}

func (s *Server) execRequest(r *http.Request) (schema.ExecRequest, error) {
	q := query{r.URL.Query(), nil}
	want := schema.ExecRequest{
		Command: q.Values["command"], TTY: q.flag("tty"), Rows: q.number("rows", 0), Columns: q.number("columns", 0), Term: q.Get("term"),
	}
	if direction := q.Get("copy"); direction != "" {
		want.Copy = &schema.ExecCopy{Direction: schema.CopyDirection(direction), Path: q.Get("path"), Name: q.Get("name")}
	}
	if q.err != nil {
		return want, q.err
	}
	var err error
	if want.Task, err = s.task(q.Get("task")); err != nil {
		return want, err
	}
	if err := want.Check(); err != nil {
		return want, badRequest("such as command=ls&command=-l", "%v", err)
	}
	return want, nil
}
