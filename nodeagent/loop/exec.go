package loop

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/musterhq/muster/schema"
)

// maxExecs is how many commands may run beside one task at once. They share its
// limits; who needs more has lost sight of them.
const maxExecs = 16

// errNoExec is the refusal of an agent with NoExec.
var errNoExec = errors.New("this machine runs no commands beside tasks: its agent was started with --no-exec")

// Exec runs a command beside the newest run of a task and speaks frames over
// conn. It returns when nothing of the command is left and the last frame is
// written, which says how it ended or why it was not run.
func (l *Loop) Exec(ctx context.Context, r schema.ExecRequest, conn io.ReadWriter) {
	log := l.cfg.Log.With("task", r.Task.Short(), "command", r.Command)
	g, p, err := l.beginExec(ctx, r)
	if err == nil {
		log.Info("exec")
		err = p.Exec(ctx, r, conn)
		_ = l.call(context.WithoutCancel(ctx), func() { g.execs-- }) // or the loop has ended
	}
	if err != nil {
		log.Info("exec refused", "err", err)
		_, _ = conn.Write(schema.AppendExecFrame(nil, schema.ExecFailure, []byte(err.Error()))) // nobody may be there
	}
}

// beginExec finds the process of a task, and counts one more command beside it.
func (l *Loop) beginExec(ctx context.Context, r schema.ExecRequest) (*generation, Process, error) {
	if l.cfg.NoExec {
		return nil, nil, errNoExec
	}
	if err := r.Check(); err != nil {
		return nil, nil, err
	}
	var found *generation
	var process Process
	full := false
	err := l.call(ctx, func() {
		for k, g := range l.held {
			if k.task == r.Task && !g.unread && g.process != nil && g.Alive() && g.last().PID > 0 {
				found, process = g, g.process // only one generation of a task is alive
			}
		}
		if found == nil {
			return
		}
		if full = found.execs >= maxExecs; !full {
			found.execs++
		}
	})
	switch {
	case err != nil:
		return nil, nil, err
	case found == nil:
		return nil, nil, fmt.Errorf("task %s does not run here", r.Task.Short())
	case full:
		return nil, nil, fmt.Errorf("%d commands run beside task %s already", maxExecs, r.Task.Short())
	}
	return found, process, nil
}
