package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
)

// supervisor is the process that started the agent and wants its state, by the protocol of
// sd_notify(3). The zero value gets nothing.
type supervisor struct {
	conn     net.Conn
	watchdog time.Duration // it wants a message that often; 0: no matter how often
	said     string        // the last status
	log      *slog.Logger
}

// statusEvery is the time between two looks at whether the status has changed.
const statusEvery = 5 * time.Second

// openSupervisor reads the environment that systemd gives a service of
// Type=notify, and takes it out, so that it is not taken for a child's.
func openSupervisor(ctx context.Context, log *slog.Logger) (*supervisor, error) {
	s := &supervisor{log: log}
	address, watchdog, pid := os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // it errs for no such name
	}
	if address == "" {
		return s, nil
	}
	if address[0] != '/' && address[0] != '@' {
		return nil, fmt.Errorf("NOTIFY_SOCKET %q: want a path, or @ and a name", address)
	}
	if pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(watchdog, 10, 64); err == nil && usec > 0 {
			s.watchdog = time.Duration(usec) * time.Microsecond
		}
	}
	var err error
	var d net.Dialer
	if s.conn, err = d.DialContext(ctx, "unixgram", address); err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return s, nil
}

// notify sends assignments, one a line. That nobody takes them is no reason to end.
func (s *supervisor) notify(lines ...string) {
	if s.conn == nil {
		return
	}
	if _, err := s.conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		s.log.Warn("the service manager does not listen", "err", err)
	}
}

// run reports how the agent does until ctx ends. The watchdog is fed as long as the
// goroutine that owns the machine's state answers.
func (s *supervisor) run(ctx context.Context, l *loop.Loop, c *link.Client) error {
	every := statusEvery
	if s.watchdog > 0 {
		every = min(every, s.watchdog/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if l.Alive(ctx) == nil && s.watchdog > 0 {
			s.notify("WATCHDOG=1")
		}
		if now := statusLine(*l.Report(), c.Linked()); now != s.said {
			s.said = now
			s.notify("STATUS=" + now)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// statusLine says how the agent does, in one line.
func statusLine(r schema.Report, linked bool) string {
	parts := []string{"no link to the master"}
	if linked {
		parts[0] = "linked to the master"
	}
	count := map[schema.TaskState]int{}
	for i := range r.Tasks {
		count[r.Tasks[i].State]++
	}
	parts = append(parts, fmt.Sprintf("%d tasks run", count[schema.Running]))
	for _, state := range []schema.TaskState{schema.Starting, schema.Waiting, schema.Stopping} {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	for _, c := range r.Conditions {
		parts = append(parts, string(c.Kind))
	}
	return strings.Join(parts, ", ")
}

// close ends the connection.
func (s *supervisor) close() {
	if s.conn != nil {
		_ = s.conn.Close() // nothing is buffered
	}
}
